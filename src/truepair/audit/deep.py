"""The deep audit: matchers trained in folds, so that every pair is judged by one that has not seen it."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from truepair.audit.gallery import Example
from truepair.audit.matcher_scores import Ensemble, Hearing
from truepair.audit.result import AuditResult
from truepair.audit.run_scores import ensemble_examples, judged
from truepair.beliefs.share import estimate_share
from truepair.methods.plain import Plain
from truepair.pairs.batch import BatchReader
from truepair.pairs.core import Pairs
from truepair.training.config import NoiseConfig, TrainConfig
from truepair.training.fit import load_networks, resume, start
from truepair.training.run import Run, write_text
from truepair.training.schedule import preset

FOLDS = 3


def deep_audit(
    pairs: Pairs,
    source: Path,
    run: Run | None,
    folder: Path,
    quick: AuditResult,
    *,
    seed: int,
    shown: bool = False,
) -> tuple[AuditResult, list[Example]]:
    """Verdicts by matchers that were trained on the other folds; images are divided, texts go with theirs.

    source: where the data lies, whose dev split, if there is one, tells the best epoch. run: whose method, matcher and
    schedule to train with; None for a plain matcher that believes each pair as much as the linear witness does.
    folder: where the folds' runs lie; those that are there go on, or are used if they are finished.
    """
    config = _config(pairs, source, run, seed)
    rng = np.random.default_rng(seed)
    fold_of = rng.permutation(pairs.n_images) % FOLDS
    hearings: list[Hearing] = []
    examples: list[Example] = []
    for fold in range(FOLDS):
        held = fold_of[pairs.image_of] == fold
        if not held.any():
            continue
        trained = _trained(pairs.subset(~held), config, folder / f"fold-{fold}", quiet=not shown)
        ensemble = Ensemble(load_networks(trained)[0], BatchReader(pairs, trained.vocabulary()))
        rows = np.flatnonzero(held)
        hearings.append(ensemble.hear(rows, np.flatnonzero(fold_of == fold), rng, shown=shown))
        examples = examples or ensemble_examples(pairs, ensemble, rows, seed)
    scores = np.zeros(len(pairs))
    for heard in hearings:
        scores[heard.rows] = heard.scores
    null_scores = np.concatenate([heard.null_scores for heard in hearings])
    null_images = np.concatenate([heard.null_images for heard in hearings])
    noise = estimate_share(scores, null_scores, pairs.image_of, null_images, seed)
    return judged(pairs, hearings, quick, noise), examples


def _config(pairs: Pairs, source: Path, run: Run | None, seed: int) -> TrainConfig:
    """How each fold is trained. The pairs carry their noise already."""
    if run is not None:
        return replace(
            TrainConfig.from_json(run.config["config"]), noise=NoiseConfig(), true_pairs_only=False
        )
    return TrainConfig(
        data=str(source),
        method=Plain(),
        matcher="projection" if pairs.text_vectors is not None else "vse_infty",
        schedule=preset("plain", "small"),
        seed=seed,
        prior="witness",
    )


def _trained(pairs: Pairs, config: TrainConfig, folder: Path, *, quiet: bool) -> Run:
    """The finished run of a fold: found in its folder, resumed, or trained from the beginning."""
    asked = json.dumps(
        {"config": config.to_json(), "data": pairs.provenance.describe(), "pairs": _digest(pairs)}
    )
    note = folder.with_suffix(".json")  # beside the run, which starts in an empty folder
    if note.exists() and note.read_text("utf-8") == asked and (folder / "config.json").exists():
        return resume(folder, quiet=quiet, pairs=pairs)
    if folder.exists():
        shutil.rmtree(
            folder
        )  # of an audit of other data, other folds or with other settings, or hardly begun
    write_text(note, asked)
    return start(config, folder, quiet=quiet, pairs=pairs)


def _digest(pairs: Pairs) -> str:
    """Which pairs these are: a matcher that was trained on others may have seen those it is to judge."""
    content = "\n".join(pairs.ids).encode() + pairs.image_of.tobytes()
    return hashlib.sha256(content).hexdigest()
