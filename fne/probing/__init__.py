"""What each layer of a network knows of captions and labels, before anything is trained."""
