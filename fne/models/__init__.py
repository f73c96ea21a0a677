"""Parts of models: image heads, text encoders and similarities."""
