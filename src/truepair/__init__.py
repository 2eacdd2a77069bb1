"""Train image-text retrieval on pairs you cannot trust, and find the ones that are wrong."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truepair.audit.auditing import audit as audit
    from truepair.pairs.readers import load_pairs as load_pairs
    from truepair.training.fit import fit as fit
    from truepair.training.run import Run as Run

__version__ = "0.1.0"

# The public functions live in modules that import torch and more, which `truepair --help` need not wait for.
_EXPORTS = {
    "load_pairs": "truepair.pairs.readers",
    "fit": "truepair.training.fit",
    "Run": "truepair.training.run",
}
__all__ = ["__version__", "audit", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name == "audit":  # the package, which can be called
        return import_module("truepair.audit")
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'truepair' has no attribute '{name}'")
