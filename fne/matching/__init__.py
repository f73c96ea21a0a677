"""A joint space for images and captions: the model, its losses, its training."""
