"""The captioning task: sentences that describe images."""
