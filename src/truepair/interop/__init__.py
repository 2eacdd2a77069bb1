"""Files of the published codes: checkpoints and weights."""

from truepair.interop.checkpoints import PublishedCheckpoint, load_published_checkpoint
from truepair.interop.weights import matcher_from_published

__all__ = ["PublishedCheckpoint", "load_published_checkpoint", "matcher_from_published"]
