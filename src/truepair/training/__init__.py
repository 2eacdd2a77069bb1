"""Training: the loop, checkpoints and exact resume, devices and processes."""
