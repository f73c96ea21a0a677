"""Experiments: runs of DVC, presets and tables of papers, comparisons and studies."""
