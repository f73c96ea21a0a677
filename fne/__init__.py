"""Full-Network Embeddings for finding images by sentences and sentences by images."""
