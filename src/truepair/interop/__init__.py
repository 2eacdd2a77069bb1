"""Files of the published codes: checkpoints and weights."""
