import pytest
import torch

from truepair.losses.reduce import reduce


def test_mean_and_sum():
    values = torch.tensor([1.0, 2.0, 6.0])
    assert reduce(values).item() == 3
    assert reduce(values, "sum").item() == 9


def test_weights_do_not_change_how_many_pairs_there_are():
    values, weights = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 0.5, 0.0])
    assert reduce(values, weights=weights).item() == pytest.approx(2 / 3)
    assert reduce(values, "sum", weights).item() == 2


@pytest.mark.parametrize("how", ["mean", "sum"])
def test_no_pairs_give_zero_and_can_be_trained_on(how):
    values = torch.zeros(0, requires_grad=True)
    scalar = reduce(values, how)
    scalar.backward()
    assert scalar.item() == 0
