"""Benchmarks that print ratios; tests do not run them."""
