"""What every test may ask for: recorded numbers of the published implementations."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ORACLES = Path(__file__).parent / "oracles"


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], dict[str, np.ndarray]]:
    """oracle("sgr") gives the arrays of tests/oracles/sgr.npz by name. They are described in tests/oracles/README.md."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(ORACLES / f"{name}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture(scope="session")
def oracle_settings() -> Callable[[str], dict[str, Any]]:
    """oracle_settings("sgr") gives the hyper-parameters that the numbers were recorded with."""
    return lambda name: json.loads((ORACLES / f"{name}.json").read_text())
