"""Evaluation: metrics, protocols of the papers, intervals, baselines, agreement with people."""
