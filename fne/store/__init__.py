"""The artifacts that stages hand to each other, and how they are kept safe on disk."""
