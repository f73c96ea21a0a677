"""Training of any task: the loop, its progress, checkpoints and optimizers."""
