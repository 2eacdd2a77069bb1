"""Audit: which pairs are mismatched, how many, and what fits them better.

`truepair.audit` is this package and also the function: `truepair.audit("DATA", "out")` does what
`truepair.audit.auditing.audit` does. A module can be called if its class can, and importing anything from here makes
Python put the package in the place of a function of that name.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truepair.audit.folder import Audit


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> "Audit":
        from truepair.audit.auditing import audit

        return audit(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
