"""What an epoch of each method costs, all on the same matcher, data and kernels."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest.mock import patch

import numpy as np
from torch import Tensor

from speed.items import EMBEDDING, REGIONS, WIDTH
from truepair.beliefs.ledger import Ledger
from truepair.methods.base import Method, Step
from truepair.methods.crcl import CRCL
from truepair.methods.gsl import GSL
from truepair.methods.ncr import NCR
from truepair.methods.plain import Plain
from truepair.methods.recon import ReCon
from truepair.methods.srem import SREM
from truepair.training import loop
from truepair.training.fit import fit
from truepair.training.schedule import Schedule

IMAGES, TOPICS, WARM, LATER = 384, 48, 1, 4


@dataclass(frozen=True)
class PublishedNCR(NCR):
    """NCR as it was published: labels from three prediction passes on every step, none of them reused; and a sweep
    that encodes an image anew for each of its texts."""

    separate_predictions: bool = True

    def loss(self, step: Step, ledger: Ledger) -> Tensor:
        """Two of the passes are for the noisy batch, which the first half of training does not learn from."""
        late = step.clock.epoch_in_piece >= int(self.noisy_after * sum(step.clock.pieces))
        if not step.clock.warming_up and not late:
            step.again()
            step.others()
        return super().loss(step, ledger)


ROWS: dict[str, Method] = {
    "plain": Plain(),
    "plain, triplet": Plain(objective="triplet"),
    "crcl": CRCL(),
    "srem": SREM(),
    "recon": ReCon(),
    "ncr": NCR(),
    "ncr as published": PublishedNCR(),
    "gsl": GSL(),
}


def epoch_costs(turns: int = 3) -> Iterator[dict[str, Any]]:
    """Seconds of an epoch after warm-up, sweep included; the median over turns, in each of which every method runs.

    NCR leaves noisy pairs out for the first half of its epochs. An early epoch is what the comparison with the
    published scheme means, three prediction passes and one training pass; later both train on the noisy pairs too.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        _write(data)
        for matcher, options, methods in (
            ("vse_infty", {}, tuple(ROWS)),
            ("sgr", {"similarity": 64}, ("ncr", "ncr as published", "gsl")),
        ):
            found: dict[str, list[Sequence[float]]] = {name: [] for name in methods}
            for turn in range(turns if matcher == "vse_infty" else 1):
                for name in methods:
                    sizes = {"embedding": EMBEDDING, "word_width": 128, **options}
                    out = Path(folder) / f"{matcher}-{name}-{turn}"
                    found[name].append(_epochs(data, ROWS[name], matcher, sizes, out))
            for phase, half in (("early", slice(0, LATER // 2)), ("late", slice(LATER // 2, LATER))):
                costs = {name: median(mean(run[half]) for run in runs) for name, runs in found.items()}
                yield from (_row(matcher, name, phase, costs) for name in methods)


def _row(matcher: str, name: str, phase: str, costs: dict[str, float]) -> dict[str, Any]:
    compared = {"ncr": "ncr as published", "gsl": "ncr", "crcl": "plain", "srem": "plain", "recon": "plain"}
    row: dict[str, Any] = {"name": f"{matcher}, {name}, {phase} epoch", "seconds": costs[name]}
    row["text"] = f"{costs[name]:.2f} s"
    if (other := compared.get(name)) in costs:
        row["ratio"], row["to"] = costs[name] / costs[other], other
        row["text"] += f", {row['ratio']:.2f} of {other}"
    return row


def _epochs(data: Path, method: Method, matcher: str, sizes: dict[str, Any], out: Path) -> list[float]:
    """Seconds of each epoch after warm-up."""
    schedule = Schedule(warmup=WARM, pieces=(LATER,), decay_after=LATER, learning_rate=5e-4)
    with patch.object(loop, "CODES", 0 if isinstance(method, PublishedNCR) else loop.CODES):
        run = fit(
            data,
            method,
            matcher,
            out=out,
            noise=0.4,
            schedule=schedule,
            matcher_options=sizes,
            alter=0.0,
            quiet=True,
        )
    entries = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()][WARM:]
    return [entry["time"]["sweep_seconds"] + entry["time"]["train_seconds"] for entry in entries]


def _write(folder: Path) -> None:
    """Photos of a few topics and captions of their words, in the field's layout."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    topic = rng.integers(TOPICS, size=IMAGES)
    centres = rng.standard_normal((TOPICS, 1, WIDTH))
    images = centres[topic] + 2 * rng.standard_normal((IMAGES, REGIONS, WIDTH))
    np.save(folder / "train_ims.npy", images.astype(np.float16))
    captions = []
    for image in range(IMAGES):
        for _ in range(5):
            length = int(np.clip(rng.normal(10, 4), 3, 23))
            own = rng.integers(8, size=length) + 8 * topic[image]
            words = np.where(
                rng.random(length) < 0.5, own, rng.integers(8 * TOPICS, 16 * TOPICS, size=length)
            )
            captions.append(" ".join(f"word{word}" for word in words))
    (folder / "train_caps.txt").write_text("\n".join(captions) + "\n")
