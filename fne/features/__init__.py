"""From activations to image embeddings; stores that are imported, exported and joined."""
