"""Extraction on the workers of a Ray cluster."""
