"""The paper's settings and printed results, and ours beside them."""
