"""The server behind `fne serve`: a page and a JSON interface for searching, on one's own machine."""
