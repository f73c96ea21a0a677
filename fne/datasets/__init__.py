"""Data sets: readers of their formats, the catalog made from them, and the drawn demo world."""
