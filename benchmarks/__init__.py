"""Timed comparisons, printed as ratios; never part of the tests."""
