"""What can be learned, one package per task; no task imports another."""
