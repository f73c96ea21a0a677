"""Fine-tuning: the image network is trained together with the model, from pixels."""
