"""Decoders: recurrent cells, the places where an image enters, and beam search."""
