"""Similarity matrices that losses must survive."""

import pytest
import torch
from torch import Tensor

AWKWARD = {
    "constant": torch.full((6, 6), 0.5),
    "zero": torch.zeros(6, 6),
    "all one": torch.ones(6, 6),
    "duplicated": torch.tensor([[0.9, 0.9, 0.1], [0.9, 0.9, 0.1], [0.2, 0.2, 0.7]]).repeat(2, 2),
    "perfect": torch.eye(6),
    "opposite": 1 - torch.eye(6),
    "negative": -torch.ones(6, 6),
    "extreme": torch.eye(6) * 2e4 - 1e4,
    "extremely wrong": 1e4 - torch.eye(6) * 2e4,
    "two pairs": torch.tensor([[0.3, 0.8], [0.1, 0.2]]),
    "one pair": torch.tensor([[0.3]]),
}


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def precision(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(params=AWKWARD.values(), ids=AWKWARD.keys())
def awkward(request: pytest.FixtureRequest, precision: torch.dtype) -> Tensor:
    """A leaf that asks for its gradient."""
    return request.param.clone().to(precision).requires_grad_()
