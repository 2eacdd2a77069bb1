"""The deep audit: matchers trained in folds, so that every pair is judged by one that has not seen it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray

from truepair.audit.gallery import Example
from truepair.audit.matcher_scores import Ensemble, Hearing
from truepair.audit.quick import quick_audit
from truepair.audit.result import AuditResult
from truepair.audit.run_scores import ensemble_examples, judged
from truepair.beliefs.ledger import Ledger
from truepair.matchers.registry import find_matcher
from truepair.methods.plain import Plain
from truepair.pairs.batch import BatchReader
from truepair.pairs.core import Pairs
from truepair.pairs.vocabulary import Vocabulary
from truepair.training.config import TrainConfig
from truepair.training.fit import fresh_networks, load_networks
from truepair.training.loop import Trainer
from truepair.training.run import Run, versions, write_text
from truepair.training.schedule import preset
from truepair.training.telling import Telling

FOLDS = 3


def deep_audit(
    pairs: Pairs, run: Run | None, folder: Path, *, error_rate: float, seed: int, shown: bool = False
) -> tuple[AuditResult, list[Example]]:
    """Verdicts by matchers that were trained on the other folds; images are divided, texts go with theirs.

    run: whose method, matcher and schedule to train with; None for a plain matcher that begins with the beliefs of a
    quick audit. folder: where the folds' runs lie; those that are there go on, or are used if they are finished.
    """
    quick = quick_audit(pairs, error_rate=error_rate, seed=seed)
    config = _config(pairs, run, seed)
    prior = 1.0 - quick.mismatch_probability
    fold_of = np.random.default_rng(seed).permutation(pairs.n_images) % FOLDS
    rng = np.random.default_rng(seed)

    hearings: list[Hearing] = []
    examples: list[Example] = []
    for fold in range(FOLDS):
        held = fold_of[pairs.image_of] == fold
        if not held.any():
            continue
        trained = _trained(pairs, ~held, prior, config, folder / f"fold-{fold}", shown)
        ensemble = Ensemble(load_networks(trained, "last")[0], BatchReader(pairs, trained.vocabulary()))
        rows = np.flatnonzero(held)
        hearings.append(ensemble.hear(rows, np.flatnonzero(fold_of == fold), rng, shown=shown))
        examples = examples or ensemble_examples(pairs, ensemble, rows, seed)
    result = judged(pairs, hearings, error_rate=error_rate, seed=seed)
    return replace(result, unsupported=quick.unsupported), examples


def _config(pairs: Pairs, run: Run | None, seed: int) -> TrainConfig:
    if run is not None:
        return TrainConfig.from_json(run.config["config"])
    return TrainConfig(
        data=pairs.provenance.sources[0].path if pairs.provenance.sources else "",
        method=Plain(),
        matcher="vse_infty" if len(pairs.texts) else "projection",
        schedule=preset("plain", "small"),
        seed=seed,
        prior="witness",
    )


def _trained(
    pairs: Pairs,
    chosen: NDArray[np.bool_],
    prior: NDArray[np.float64],
    config: TrainConfig,
    folder: Path,
    shown: bool,
) -> Run:
    """The finished run of a fold: found in its folder, resumed, or trained from the beginning."""
    run = Run(folder)
    wants_words = find_matcher(config.matcher).texts == "words"
    vocabulary = Vocabulary.build(pairs.texts) if wants_words else None
    sizes = {"image_width": int(pairs.images.shape[-1])}
    if vocabulary is not None:
        sizes["vocabulary_size"] = len(vocabulary)
    elif pairs.text_vectors is not None:
        sizes["text_width"] = int(pairs.text_vectors.shape[-1])
    facts: dict[str, Any] = {
        "config": config.to_json(),
        "sizes": sizes,
        "pairs": int(chosen.sum()),
        "data": pairs.provenance.describe(),
        "versions": versions(),
    }
    text = json.dumps(facts, indent=2)
    if (folder / "config.json").exists() and (folder / "config.json").read_text("utf-8") != text:
        shutil.rmtree(folder)  # of an audit of other data, or with other settings
    folder.mkdir(parents=True, exist_ok=True)
    if vocabulary is not None:
        vocabulary.write(folder / "vocabulary.json")
    write_text(folder / "config.json", text)
    if run.finished:
        return run
    others, method = pairs.subset(chosen), config.method
    trainer = Trainer(
        run=run,
        method=method,
        schedule=config.schedule,
        reader=BatchReader(others, vocabulary),
        ledger=Ledger.blank(method.networks, len(others), torch.from_numpy(prior[chosen])),
        fresh_networks=lambda piece: fresh_networks(config, sizes, piece),
        accelerator=Accelerator(),
        telling=Telling(config.schedule.epochs * method.networks, quiet=not shown),
        seed=config.seed,
        precision=config.precision,
    )
    trainer.resume()
    with trainer.telling:
        trainer.train()
    mismatched = None if others.mismatched is None else others.mismatched.tolist()
    run.write_ledger(trainer.ledger.frame(others.ids, others.texts, mismatched))
    return run
