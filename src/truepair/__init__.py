"""Train image-text retrieval on pairs you cannot trust, and find the ones that are wrong."""

__version__ = "0.1.0"
