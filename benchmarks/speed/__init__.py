"""How fast everything is, as ratios to plain implementations of the published algorithms: `make speed`."""
