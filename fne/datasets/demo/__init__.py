"""The demo data set: drawn scenes and sentences about them."""
