"""Fine-tuning: the image network is trained with a model of matching, tags or captions."""
