"""Tagging: concepts of images, and the sequence in which a tagger writes them."""
