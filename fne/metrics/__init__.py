"""Retrieval metrics: ranks, recalls, and bootstrap intervals."""
