"""The methods by name."""

from truepair.errors import TruepairError
from truepair.methods.base import Method
from truepair.methods.crcl import CRCL
from truepair.methods.gsl import GSL
from truepair.methods.ncr import NCR
from truepair.methods.plain import Plain
from truepair.methods.recon import ReCon
from truepair.methods.srem import SREM

METHODS: dict[str, type[Method]] = {method.name: method for method in (GSL, ReCon, SREM, CRCL, NCR, Plain)}


def find_method(name: str) -> type[Method]:
    """The method of this name, or an error that lists the names."""
    if name not in METHODS:
        raise TruepairError(f"There is no method '{name}'. There are: {', '.join(METHODS)}.")
    return METHODS[name]
