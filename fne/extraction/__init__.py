"""Activations of all layers for every image or caption: networks, weights, fast convolutions, Ray."""
