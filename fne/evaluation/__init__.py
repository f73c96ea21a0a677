"""Evaluation of a trained model by the protocols of the papers."""
