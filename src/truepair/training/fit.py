"""From data and a config to a finished run."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from truepair.beliefs.judgement import witness_prior
from truepair.beliefs.ledger import Ledger, without_decoys
from truepair.errors import TruepairError
from truepair.matchers.base import Matcher
from truepair.matchers.registry import build_matcher, find_matcher
from truepair.methods.base import Method
from truepair.methods.divisions import repairing_division
from truepair.methods.registry import find_method
from truepair.pairs.augment import Augmentation
from truepair.pairs.batch import BatchReader
from truepair.pairs.core import Pairs
from truepair.pairs.decoys import with_decoys
from truepair.pairs.noise import Noise, apply_noise_file, make_noise
from truepair.pairs.readers import find_splits, load_pairs
from truepair.pairs.vocabulary import Vocabulary
from truepair.training import checkpoints
from truepair.training.config import NoiseConfig, TrainConfig
from truepair.training.loop import Trainer
from truepair.training.run import Run, versions, write_text
from truepair.training.schedule import Schedule, preset, preset_values, seed_for
from truepair.training.telling import Telling
from truepair.training.tracking import check_tensorboard

# Keeps the choice of decoys apart from everything else that the run's seed decides.
DECOYS = 2


def fit(
    data: str | Path,
    method: str | Method = "gsl",
    matcher: str = "vse_infty",
    *,
    out: str | Path,
    noise: float | str | NoiseConfig = 0.0,
    seed: int = 0,
    schedule: str | Schedule = "small",
    matcher_options: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Train a matcher on pairs that cannot be trusted; the run that comes back is finished.

    data: a data set with a train split, and a dev split to choose the best epoch by (see docs/formats.md).
    method, matcher: names, or a method with its values. schedule: a preset's name, which also decides the
    values of a method that is given by its name, or a schedule. options: further fields of `TrainConfig`, such
    as division="repairing" or prior="witness".
    """
    if isinstance(method, str):
        values = preset_values(method, schedule) if isinstance(schedule, str) else {}
        chosen = find_method(method)(**values)
    else:
        chosen = method
    config = TrainConfig(
        data=str(data),
        method=chosen,
        matcher=matcher,
        matcher_options=dict(matcher_options or {}),
        schedule=preset(chosen.name, schedule) if isinstance(schedule, str) else schedule,
        noise=noise if isinstance(noise, NoiseConfig) else NoiseConfig(noise),
        seed=seed,
        **options,
    )
    return start(config, Path(out), quiet=quiet)


def start(config: TrainConfig, folder: Path, *, quiet: bool = False, pairs: Pairs | None = None) -> Run:
    """Train from the beginning, in a folder that holds no run yet. pairs: by default those that the config names."""
    run = Run(folder)
    config.method.check(find_matcher(config.matcher).matcher)
    if config.tensorboard:
        check_tensorboard()
    accelerator = _accelerator()
    if (folder / "config.json").exists() or (folder / "checkpoints").exists():
        raise TruepairError(
            f"{folder} holds a run already. Go on with `truepair train --resume {folder}`, or choose another folder."
        )
    pairs = training_pairs(config) if pairs is None else pairs
    words = find_matcher(config.matcher).texts == "words"
    vocabulary = Vocabulary.build(pairs.texts) if words else None
    sizes = _sizes(config, pairs, vocabulary)
    fresh_networks(config, sizes, 0)  # what does not fit together is said before anything is written
    accelerator.wait_for_everyone()  # all have looked whether the folder is free
    if accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        if vocabulary is not None:
            vocabulary.write(folder / "vocabulary.json")
        facts = {
            "sizes": sizes,
            "pairs": len(pairs),
            "data": pairs.provenance.describe(),
            "versions": versions(),
        }
        # Last of all: a folder with a config is a run that can be resumed.
        write_text(folder / "config.json", json.dumps({"config": config.to_json(), **facts}, indent=2))
    accelerator.wait_for_everyone()
    return _work(run, config, pairs, accelerator, quiet)


def resume(folder: Path, *, quiet: bool = False, pairs: Pairs | None = None) -> Run:
    """Go on with a run where its last checkpoint left it; a finished run stays as it is.

    pairs: those it was started with, where they are not the ones that its config names.
    """
    run = Run(folder)
    config = TrainConfig.from_json(run.config["config"])
    if run.finished:
        return run
    pairs = training_pairs(config) if pairs is None else pairs
    recorded = run.config["data"]
    if pairs.provenance.describe() != recorded:
        raise TruepairError(
            f"The data at {config.data} is not what {folder} was trained on (its hashes have changed). "
            "Put the old data back, or start a new run."
        )
    return _work(run, config, pairs, _accelerator(), quiet)


def training_pairs(config: TrainConfig) -> Pairs:
    """The training split with its noise, cut as the config says."""
    noise = config.noise
    pairs = load_pairs(config.data, "train")
    if config.first_images is not None:
        pairs = _first_images(pairs, config.first_images)
    if isinstance(noise.source, str):
        pairs = apply_noise_file(pairs, noise.source)
    elif noise.source:
        seed = config.seed if noise.seed is None else noise.seed
        pairs = make_noise(pairs, Noise(noise.source, seed, noise.protocol))
    if config.true_pairs_only:
        if pairs.mismatched is None:
            raise TruepairError(
                "Only noise that was added here tells which pairs are true; drop true_pairs_only."
            )
        pairs = pairs.subset(~pairs.mismatched)
    return pairs


def _first_images(pairs: Pairs, count: int) -> Pairs:
    """The pairs of the first images, before any noise moves them."""
    kept = pairs.subset(pairs.image_of < count)
    return replace(
        kept,
        images=pairs.images[:count],
        image_ids=pairs.image_ids[:count],
        region_counts=None if pairs.region_counts is None else pairs.region_counts[:count],
        picture_paths=None if pairs.picture_paths is None else pairs.picture_paths[:count],
    )


def fresh_networks(config: TrainConfig, sizes: Mapping[str, int], piece: int) -> list[Matcher]:
    """New networks, each from a seed of its own. sizes: what the data decides."""
    networks = []
    for number in range(config.method.networks):
        torch.manual_seed(seed_for(config.seed, piece, number))
        networks.append(build_matcher(config.matcher, **sizes, **config.matcher_options))
    return networks


def _sizes(config: TrainConfig, pairs: Pairs, vocabulary: Vocabulary | None) -> dict[str, int]:
    sizes = {"image_width": int(pairs.images.shape[-1])}
    if find_matcher(config.matcher).texts == "words":
        return sizes | ({} if vocabulary is None else {"vocabulary_size": len(vocabulary)})
    return sizes | ({} if pairs.text_vectors is None else {"text_width": int(pairs.text_vectors.shape[-1])})


def load_networks(run: Run, which: str = "best") -> tuple[list[Matcher], int]:
    """The networks of a checkpoint in evaluation mode, and the epoch (counted from 1) they come from."""
    facts = run.config
    config = TrainConfig.from_json(facts["config"])
    saved = run.checkpoint(which)
    networks = [
        build_matcher(config.matcher, **facts["sizes"], **config.matcher_options).eval()
        for _ in range(config.method.networks)
    ]
    checkpoints.restore_networks(list(networks), saved)
    return networks, int(saved.facts["position"]["epoch"])


def _accelerator() -> Accelerator:
    # Processes on a CPU count as unrelated to each other unless accelerate is told to use the CPU.
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return Accelerator(cpu=several and not torch.cuda.is_available())


def _work(run: Run, config: TrainConfig, pairs: Pairs, accelerator: Accelerator, quiet: bool) -> Run:
    if config.tensorboard:
        check_tensorboard()
    given, decoys = pairs, np.zeros(len(pairs), dtype=np.bool_)
    if config.division == "repairing":
        pairs, decoys = with_decoys(given, seed_for(config.seed, DECOYS) % 2**32)
    vocabulary = run.vocabulary()
    method, schedule = config.method, config.schedule
    trainer = Trainer(
        run=run,
        method=method,
        schedule=schedule,
        reader=BatchReader(pairs, vocabulary),
        ledger=Ledger.blank(method.networks, len(pairs), _prior(config, pairs)),
        fresh_networks=lambda piece: fresh_networks(config, run.config["sizes"], piece),
        accelerator=accelerator,
        telling=Telling(schedule.epochs * method.networks, quiet=quiet or not accelerator.is_main_process),
        validation=_validation(config, vocabulary),
        decoys=torch.from_numpy(decoys),
        division=repairing_division if config.division == "repairing" else None,
        augmentation=_augmentation(config, vocabulary),
        seed=config.seed,
        precision=config.precision,
        save_every=config.save_every,
        tensorboard=config.tensorboard,
    )
    trainer.resume()
    with trainer.telling:
        trainer.train()
    if accelerator.is_main_process:
        mismatched = None if given.mismatched is None else given.mismatched.tolist()
        frame = trainer.ledger.frame(given.ids, given.texts, mismatched)
        run.write_ledger(without_decoys(frame, decoys) if decoys.any() else frame)
    accelerator.wait_for_everyone()
    return run


def _augmentation(config: TrainConfig, vocabulary: Vocabulary | None) -> Augmentation | None:
    if not 0 <= config.alter < 1:
        raise TruepairError(
            f"{config.alter} of the words cannot be hidden: choose a share from 0 to below 1."
        )
    if config.alter == 0:
        return None
    return (
        Augmentation(config.alter)
        if vocabulary is None
        else Augmentation(config.alter, len(vocabulary), vocabulary["<mask>"])
    )


def _prior(config: TrainConfig, pairs: Pairs) -> Tensor | None:
    return None if config.prior == "none" else torch.from_numpy(1 - witness_prior(pairs, seed=config.seed))


def _validation(config: TrainConfig, vocabulary: Vocabulary | None) -> BatchReader | None:
    split = next((name for name in find_splits(config.data) if name in ("dev", "val")), None)
    return None if split is None else BatchReader(load_pairs(config.data, split), vocabulary)
