"""The deep audit: matchers trained in folds, so that every pair is judged by one that has not seen it."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray

from truepair.audit.gallery import Example
from truepair.audit.matcher_scores import REPAIRINGS, Ensemble, Rows, repairings
from truepair.audit.proposals import Best
from truepair.audit.quick import quick_audit
from truepair.audit.result import AuditResult
from truepair.audit.run_scores import judged
from truepair.audit.searches import search_examples
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
) -> tuple[AuditResult, Sequence[Example]]:
    """Verdicts by matchers that were trained on the other folds; images are divided, texts go with theirs.

    run: whose method, matcher and schedule to train with; None for a plain matcher that begins with the beliefs of a
    quick audit. folder: where the folds' runs lie; those that are there go on, or are used if they are finished.
    """
    quick = quick_audit(pairs, error_rate=error_rate, seed=seed)
    config = _config(pairs, run, seed)
    prior = 1.0 - quick.mismatch_probability
    fold_of = np.random.default_rng(seed).permutation(pairs.n_images) % FOLDS
    rng = np.random.default_rng(seed)

    n, everything, every_image = len(pairs), np.arange(len(pairs)), np.arange(pairs.n_images)
    scores = np.zeros(n)
    of_text = Best(np.full(n, -1), np.full(n, -np.inf))
    of_image = Best(np.full(pairs.n_images, -1), np.full(pairs.n_images, -np.inf))
    nulls, null_images, examples = [], [], []
    for fold in range(FOLDS):
        rows, images = np.flatnonzero(fold_of[pairs.image_of] == fold), np.flatnonzero(fold_of == fold)
        if not len(rows):
            continue
        trained = _trained(
            pairs, fold_of[pairs.image_of] != fold, prior, config, folder / f"fold-{fold}", shown
        )
        ensemble = Ensemble(load_networks(trained, "last")[0], BatchReader(pairs, trained.vocabulary()))
        null_rows = repairings(pairs.image_of, rows, REPAIRINGS, rng)
        null = ensemble.score(*null_rows)
        # Matchers of different folds have different scales; the null is what they have in common.
        middle, spread = null.mean(), max(float(null.std()), 1e-12)
        scores[rows] = (ensemble.score(pairs.image_of[rows], rows) - middle) / spread
        nulls.append((null - middle) / spread)
        null_images.append(null_rows[0])
        _fill(of_text, rows, ensemble.best_images(rows, every_image, shown=shown), middle, spread)
        _fill(of_image, images, ensemble.best_texts(images, everything, shown=shown), middle, spread)
        if fold == 0:
            examples = search_examples(pairs.subset(rows), ensemble.scorer().take(every_image, rows), seed)
    result = judged(
        pairs,
        scores,
        np.concatenate(nulls),
        np.concatenate(null_images),
        of_text,
        of_image,
        error_rate=error_rate,
        seed=seed,
    )
    return replace(result, unsupported=quick.unsupported), examples


def _fill(partners: Best, places: Rows, found: Best, middle: float, spread: float) -> None:
    partners.rows[places] = found.rows
    partners.scores[places] = (found.scores - middle) / spread


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
