"""Data sets: readers of their formats, the catalog built from them, and the drawn demo data set."""
