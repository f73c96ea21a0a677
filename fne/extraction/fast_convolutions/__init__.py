"""Exact algorithms that compute the activations of ten crops faster than ten forward passes."""
