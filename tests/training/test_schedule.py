import tomllib
from importlib import resources

import pytest

from truepair.errors import TruepairError
from truepair.methods.registry import METHODS, find_method
from truepair.training.schedule import Schedule, clocks, preset, preset_values, seed_for

PRESETS = tomllib.loads(resources.files("truepair.training").joinpath("presets.toml").read_text())


def test_clocks_count_warm_up_epochs_downwards_from_nothing():
    schedule = Schedule(warmup=2, pieces=(3,))
    assert [(c.epoch, c.piece, c.epoch_in_piece, c.warming_up) for c in clocks(schedule)] == [
        (0, 0, -2, True),
        (1, 0, -1, True),
        (2, 0, 0, False),
        (3, 0, 1, False),
        (4, 0, 2, False),
    ]
    assert schedule.epochs == 5


def test_every_piece_after_the_first_begins_fresh():
    schedule = Schedule(warmup=1, pieces=(2, 1, 2))
    seen = list(clocks(schedule))
    assert [c.epoch for c in seen] == list(range(schedule.epochs))
    assert [(c.piece, c.epoch_in_piece) for c in seen] == [(0, -1), (0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    assert [c.epoch for c in seen if c.fresh_piece] == [3, 4]


def test_steps_of_a_piece_go_on_over_its_epochs():
    (clock, *_) = (
        c for c in clocks(Schedule(warmup=0, pieces=(1, 3))) if c.piece == 1 and c.epoch_in_piece == 2
    )
    assert clock.at(4, 10).steps_in_piece == 24
    assert clock.at(4, 10).epoch == clock.epoch


@pytest.mark.parametrize(
    ("pieces", "rates"),
    [((4,), [1, 1, 1, 0.1, 0.1]), ((2, 3), [1, 1, 1, 1, 1, 0.1])],
    ids=["one piece", "the last piece alone"],
)
def test_the_learning_rate_falls_once(pieces, rates):
    schedule = Schedule(warmup=1, pieces=pieces, decay_after=2, learning_rate=2e-4)
    got = [schedule.rate(c.piece, c.epoch_in_piece) for c in clocks(schedule)]
    assert got == pytest.approx([2e-4 * rate for rate in rates])


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_preset_of_every_method_loads(name, method):
    schedule = preset(method, name)
    assert schedule.epochs == schedule.warmup + sum(schedule.pieces)
    assert 0 < schedule.decay_after < schedule.pieces[-1]
    rates = {schedule.rate(c.piece, c.epoch_in_piece) for c in clocks(schedule)}
    assert len(rates) == 2


# Supplement of NCR, table 1; SREM, "Implementation Details"; GSL, supplement; CRCL, section 2.3.
@pytest.mark.parametrize(
    ("method", "name", "warmup", "pieces", "decay_after"),
    [
        ("ncr", "flickr30k", 5, (40,), 30),
        ("ncr", "coco", 10, (20,), 10),
        ("ncr", "cc152k", 10, (40,), 30),
        ("srem", "flickr30k", 5, (50,), 25),
        ("srem", "coco", 5, (50,), 25),
        ("recon", "coco", 5, (20,), 10),
        ("gsl", "flickr30k", 10, (40,), 30),
        ("gsl", "coco", 10, (40,), 30),
    ],
)
def test_presets_are_those_of_the_papers(method, name, warmup, pieces, decay_after):
    schedule = preset(method, name)
    assert (schedule.warmup, schedule.pieces, schedule.decay_after) == (warmup, pieces, decay_after)
    assert (schedule.learning_rate, schedule.batch_size, schedule.clip) == (2e-4, 128, 2.0)
    assert schedule.optimiser == "adam"


def test_crcl_has_pieces_and_no_warm_up_of_its_own():
    for name in ("flickr30k", "coco", "cc152k"):
        schedule = preset("crcl", name)
        assert schedule.warmup == 0
        assert len(schedule.pieces) > 1
        assert schedule.optimiser == "adamw"


def test_small_presets_give_all_methods_the_same_number_of_epochs():
    assert len({preset(method, "small").epochs for method in METHODS}) == 1


@pytest.mark.parametrize("name", ["small", "demo", "flickr30k", "coco", "cc152k"])
@pytest.mark.parametrize("method", METHODS)
def test_values_of_a_preset_are_fields_of_the_method(method, name):
    values = preset_values(method, name)
    find_method(method)(**values)
    assert name == "small" or not values  # the papers' data sets keep the papers' values


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(TruepairError, match=r"no preset 'flickr8k'.*small.*flickr30k"):
        preset("gsl", "flickr8k")


def test_seeds_belong_to_their_purpose():
    assert seed_for(1, 2, 3) == seed_for(1, 2, 3)
    seeds = {seed_for(seed, a, b) for seed in range(5) for a in range(5) for b in range(1, 5)}
    assert len(seeds) == 100
