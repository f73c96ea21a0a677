"""The artifacts that stages exchange: catalogs, row stores, arrays and tensors, with digests and lineages."""
