"""Extraction of the activations of all layers of a network for every image."""
