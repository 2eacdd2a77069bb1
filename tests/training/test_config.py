import dataclasses
import json

import pytest

from truepair.methods.registry import METHODS, find_method
from truepair.training.config import NoiseConfig, TrainConfig
from truepair.training.schedule import Schedule


def changed(instance):
    """Another value in every field, of its kind."""

    def other(value):
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return value + 1
        if isinstance(value, tuple):
            return (*value, 1)
        return value

    fields = dataclasses.fields(instance)
    return dataclasses.replace(instance, **{f.name: other(getattr(instance, f.name)) for f in fields})


@pytest.mark.parametrize("name", METHODS)
def test_a_config_survives_json(name):
    config = TrainConfig(
        data="somewhere",
        method=changed(find_method(name)()),
        matcher="sgr",
        matcher_options={"embedding": 64, "dropout": 0.1},
        schedule=changed(Schedule(patience=3)),
        noise=NoiseConfig("noise.npy", "image", 4),
        seed=7,
        division="repairing",
        prior="witness",
        true_pairs_only=True,
        first_images=100,
        precision="bf16",
        save_every=5,
    )
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_config_says_what_was_chosen():
    values = TrainConfig("somewhere", find_method("ncr")(), noise=NoiseConfig(0.4)).to_json()
    assert values["method"]["name"] == "ncr"
    assert values["method"]["margin"] == 0.2
    assert values["noise"]["source"] == 0.4
