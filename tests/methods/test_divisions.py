import numpy as np
import pytest
import torch

from truepair.errors import TruepairError
from truepair.methods.base import Sweep
from truepair.methods.divisions import repairing_division


def learnt(share, n=6000, memory=1.5, decoys=300, seed=0):
    """Scores after training: wrong pairs stand above unseen re-pairings (0) by what was learnt by heart."""
    rng = np.random.default_rng(seed)
    wrong, planted = rng.random(n) < share, np.arange(n) < decoys
    low, high = rng.normal(memory, 1.0, n), rng.normal(memory + 3.0, 1.0, n)
    scores = np.where(wrong | planted, low, high)
    sweep = Sweep({}, torch.from_numpy(scores), torch.from_numpy(planted))
    return sweep, wrong[decoys:], slice(decoys, None)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_decoys_stand_for_the_wrong_pairs_that_were_learnt_by_heart(share):
    sweep, wrong, own = learnt(share)
    clean = repairing_division(sweep)[own]
    assert ((clean >= 0) & (clean <= 1)).all()
    assert np.mean(1 - clean) == pytest.approx(share, rel=0.15)  # as sure as so few decoys are
    assert np.mean((clean < 0.5) == wrong) > 0.9


def test_without_noise_nearly_every_pair_is_clean():
    sweep, _, own = learnt(0.0)
    assert np.mean(repairing_division(sweep)[own] < 0.5) < 0.01


def test_decoys_are_judged_like_all_others():
    sweep, *_ = learnt(0.4)
    clean = repairing_division(sweep)
    order = np.argsort(sweep.scores.numpy())
    assert (np.diff(clean[order]) >= -1e-9).all(), "the belief follows from the score alone"


def test_no_decoys_no_division():
    with pytest.raises(TruepairError, match="decoys"):
        repairing_division(Sweep({}, torch.rand(5), torch.zeros(5, dtype=torch.bool)))
