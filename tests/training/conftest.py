"""Runs that take a second or two; the tiny data set is everybody's (tests/conftest.py)."""

from collections.abc import Callable
from typing import Any

import pytest

from truepair.training.schedule import Schedule

SMALL_MATCHER = {"word_width": 8, "embedding": 16, "position_width": 8, "pooling_hidden": 4}


@pytest.fixture(scope="session")
def quick() -> Callable[..., dict[str, Any]]:
    """Arguments of `fit` for a quick run; keywords change the schedule."""

    def arguments(**changes: Any) -> dict[str, Any]:
        values = {"warmup": 1, "pieces": (2,), "decay_after": 1, "learning_rate": 5e-3, "batch_size": 40}
        return {
            "schedule": Schedule(**{**values, **changes}),
            "matcher_options": SMALL_MATCHER,
            "quiet": True,
        }

    return arguments
