"""From sentences to numbers."""
