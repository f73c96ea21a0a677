"""Losses, each family with one interface."""
