"""A small matching data set."""

from tests.support.pairs import pairs

__all__ = ["pairs"]
