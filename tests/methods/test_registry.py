"""What holds for every method."""

import dataclasses

import numpy as np
import pytest
import torch

from truepair.beliefs.ledger import Ledger, Partition
from truepair.errors import TruepairError
from truepair.methods.base import Method
from truepair.methods.registry import METHODS, find_method

AWKWARD = {
    "constant": torch.full((6, 6), 0.5),
    "duplicated": torch.tensor([[0.9, 0.9, 0.1], [0.9, 0.9, 0.1], [0.2, 0.2, 0.7]]).repeat(2, 2),
    "perfect": torch.eye(6) * 2 - 1,
    "all wrong": 1 - torch.eye(6) * 2,
    "two pairs": torch.tensor([[0.3, 0.8], [0.1, 0.2]]),
    "one pair": torch.tensor([[0.3]]),
}


@pytest.fixture(params=METHODS)
def method(request) -> Method:
    return find_method(request.param)()


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(TruepairError, match=r"no method 'ncl'.*gsl.*plain"):
        find_method("ncl")


def test_methods_are_frozen_and_go_by_their_names(method):
    assert METHODS[method.name] is type(method)
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.name_of_nothing = 1


@pytest.mark.parametrize("kind", AWKWARD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stage", ["warming_up", "later"])
@pytest.mark.parametrize("sigmoid", [False, True])
def test_losses_and_gradients_are_finite(method, kind, dtype, stage, sigmoid, make_batch, request):
    matrix = AWKWARD[kind].to(dtype)
    batch = make_batch(len(matrix), sigmoid=sigmoid)
    batch.similarity = matrix * (1000 if sigmoid else 1)
    batch.peer = batch.similarity
    batch.__post_init__()
    for stream in method_streams(method):
        ledger = Ledger.blank(method.networks, len(matrix))
        ledger.partition[:] = (torch.arange(len(matrix)) % 3 + 1).to(torch.uint8)
        loss = method.loss(batch.step(request.getfixturevalue(stage), stream=stream), ledger)
        assert loss.shape == (len(matrix),)
        assert bool(loss.isfinite().all())
        loss.sum().backward()
        assert bool(batch.matcher.matrix.grad.isfinite().all())
        for belief in (ledger.clean, ledger.correspondence):
            assert bool(((belief >= 0) & (belief <= 1)).all())


def method_streams(method: Method) -> list[str]:
    return ["clean", "noisy"] if method.name == "ncr" else ["all"]


def test_a_division_reaches_every_pair_and_leaves_no_side_empty(method, make_sweep, later):
    if not method.divides:
        pytest.skip("divides nothing")
    for losses in (torch.zeros(250), torch.rand(250), torch.cat([torch.zeros(249), torch.ones(1)])):
        ledger = Ledger.blank(method.networks, 250)
        sweep = make_sweep(losses, discrepancy=torch.zeros(250))
        method.divide([sweep] * method.networks, ledger, None, later)
        for partition in ledger.partition:
            assert bool((partition != Partition.UNDIVIDED).all())
            noisy = int((partition == Partition.NOISY).sum())
            assert 0 < noisy < 250


def test_every_dividing_method_takes_another_division(method, make_sweep, later):
    if not method.divides:
        pytest.skip("divides nothing")
    ledger = Ledger.blank(method.networks, 4)
    sweep = make_sweep(torch.rand(4), discrepancy=torch.zeros(4))
    posterior = np.array([0.9, 0.2, 0.5, 0.6])
    method.divide([sweep] * method.networks, ledger, lambda _: posterior, later)
    noisy = ledger.partition[0] == Partition.NOISY
    assert noisy.tolist() == [False, True, True, False]
