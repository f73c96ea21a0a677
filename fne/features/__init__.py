"""From activations to image embeddings."""
