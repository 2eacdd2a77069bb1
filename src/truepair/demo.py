"""The whole tool in one go on the bundled pictures: spoil captions, train plainly and robustly, audit, report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truepair.audit.auditing import audit
from truepair.audit.charts import percent
from truepair.audit.error_rates import AtRate, at_rate
from truepair.audit.folder import REPORT, Audit
from truepair.audit.gallery import Example
from truepair.audit.report import Table, write_report
from truepair.audit.searches import pool, search_examples
from truepair.evaluation.encoding import encode_split
from truepair.evaluation.recall import as_array
from truepair.evaluation.runs import evaluate_run
from truepair.evaluation.similarity import matcher_scorer
from truepair.methods.plain import Plain
from truepair.pairs.batch import BatchReader
from truepair.pairs.demo import demo_data
from truepair.pairs.readers import load_pairs
from truepair.training.config import NoiseConfig, TrainConfig
from truepair.training.fit import load_networks, resume, start
from truepair.training.run import Run
from truepair.training.schedule import preset

NOISE, NOISE_SEED = 0.4, 123


@dataclass(frozen=True)
class Contestant:
    """A model of the demo. options: fields of its TrainConfig besides the common ones."""

    name: str
    says: str
    options: dict[str, Any]


CONTESTANTS = (
    Contestant("plain", "trained on all pairs as they are", {}),
    Contestant("robust", "the same, each pair counted as the audit believes it", {"prior": "witness"}),
    Contestant("ceiling", "trained on the true pairs only, which nobody knows", {"true_pairs_only": True}),
)


JUDGES = {"data alone": "quick_mismatch_probability", "robust model": "mismatch_probability"}
"""Who judged the pairs, and the column with the probabilities."""
RATES = (0.05, 0.5)
"""Error rates: all flagged pairs are certain; they are more likely wrong than right."""


@dataclass(frozen=True)
class Find:
    """How many of the wrong pairs a judge found at an error rate."""

    judge: str
    found: AtRate


@dataclass(frozen=True)
class DemoResult:
    """What the demo found. recalls: rSum on the test drawings by model. finds: wrong pairs found, by judge and rate."""

    audit: Audit
    recalls: dict[str, float]
    finds: list["Find"]
    report: Path


def run_demo(out: Path, *, quiet: bool = False) -> DemoResult:
    """Do it all, or go on where an earlier call was stopped; everything is written below out."""
    data = demo_data()
    runs = {model.name: _trained(model, data, out / model.name, quiet=quiet) for model in CONTESTANTS}
    recalls = {name: float(evaluate_run(run)["ensemble"]["rsum"]) for name, run in runs.items()}
    # The robust model judges the pairs it was trained on; what the data alone says stands beside it.
    found = audit(runs["robust"].folder, out / "audit")
    kind = found.summary["diagnostic"]["kind"]
    finds = [
        Find(judge, at_rate(found.suspects, kind, rate, column))
        for judge, column in JUDGES.items()
        for rate in RATES
    ]
    report = write_report(
        out / REPORT,
        found.suspects,
        found.summary,
        runs=runs,
        examples=_searches(runs["robust"], data),
        tables=[_recall_table(recalls), _find_table(finds)],
        title="truepair demo: pictures with 40 % wrong captions",
    )
    return DemoResult(found, recalls, finds, report)


def _trained(model: Contestant, data: Path, folder: Path, *, quiet: bool) -> Run:
    if (folder / "config.json").exists():
        return resume(folder, quiet=quiet)
    config = TrainConfig(
        data=str(data),
        method=Plain(),
        matcher="vse_infty",
        matcher_options={"embedding": 256, "word_width": 128},
        schedule=preset("plain", "demo"),
        noise=NoiseConfig(NOISE, "caption", NOISE_SEED),
        **model.options,
    )
    return start(config, folder, quiet=quiet)


def _searches(run: Run, data: Path) -> list[Example]:
    """What the robust model finds among the test drawings."""
    pairs = load_pairs(data, "test")
    (network, *_), _ = load_networks(run)
    texts, images = pool(pairs, np.arange(len(pairs)), seed=0)
    scorer = matcher_scorer(network, *encode_split(network, BatchReader(pairs, run.vocabulary())))
    return search_examples(pairs, images, texts, as_array(scorer.block(images, texts)), seed=0)


def find_rows(finds: list[Find]) -> list[tuple[str, ...]]:
    """What the table of the finds shows: who judged, at which error rate, how many, how right, how complete."""
    return [
        (
            find.judge,
            percent(find.found.rate, 0),
            f"{find.found.flagged:,}",
            *(
                "-" if share is None else percent(share)
                for share in (find.found.precision, find.found.recall)
            ),
        )
        for find in finds
    ]


FIND_COLUMNS = ("judged by", "error rate", "pairs flagged", "truly wrong", "of all wrong")


def _find_table(finds: list[Find]) -> Table:
    return Table(
        "Wrong pairs found",
        "By the audit of the data alone, which trains nothing, and by the robust model. At an error rate of 5 % only "
        "pairs that are almost surely wrong are flagged; at 50 % all that are more likely wrong than right.",
        FIND_COLUMNS,
        find_rows(finds),
    )


def _recall_table(recalls: dict[str, float]) -> Table:
    rows = [(model.name, model.says, f"{recalls[model.name]:.1f}") for model in CONTESTANTS]
    return Table(
        "Retrieval of new drawings",
        "Sum of the six recalls on the test split, of 600; chance is about "
        f"{_chance(load_pairs(demo_data(), 'test').image_of):.0f}.",
        ("model", "how it was trained", "rSum"),
        rows,
    )


def _chance(image_of: np.ndarray[Any, Any]) -> float:
    """The rSum of a matcher that knows nothing, about: how many of the first k are right by luck, in per cent."""
    n, m = int(image_of.max()) + 1, len(image_of)
    return sum(100 * min(1.0, k * share) for k in (1, 5, 10) for share in ((m / n) / m, 1 / n))
