"""truepair train."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Group, RenderableType

from truepair.cli.output import emit
from truepair.cli.recalls import recall_table, shares
from truepair.errors import TruepairError
from truepair.matchers.registry import MATCHERS, find_matcher
from truepair.methods.registry import METHODS, find_method
from truepair.training.config import DivisionName, NoiseConfig, PriorName, TrainConfig
from truepair.training.run import Run
from truepair.training.schedule import Schedule, preset, preset_values


@dataclass(frozen=True)
class Options:
    """Train a matcher on pairs that cannot be trusted.

    `truepair train --method gsl --help` shows the options of a method, `--matcher sgr --help` those of a matcher.
    """

    data: Annotated[Path | None, tyro.conf.Positional] = None
    """The data set; see docs/formats.md."""
    method: Literal[tuple(METHODS)] = "gsl"  # type: ignore[valid-type]
    matcher: Literal[tuple(MATCHERS)] = "vse_infty"  # type: ignore[valid-type]
    preset: Literal["small", "demo", "flickr30k", "coco", "cc152k"] = "small"
    """The paper's schedule for a data set, or a small one for CPUs; --schedule.* overrides single values."""
    out: Path | None = None
    """The run's folder; default: runs/METHOD-MATCHER-DATA-SEED."""
    resume: Path | None = None
    """Go on with a run that was stopped; all other options are those of the run."""
    noise: str = "0"
    """A ratio of pairs to mismatch on purpose, or a noise index file."""
    noise_protocol: Literal["caption", "image"] = "caption"
    noise_seed: int | None = None
    """Default: the run's seed."""
    seed: int = 0
    division: DivisionName = "own"
    """"repairing": divide by the known distribution of random re-pairings instead of the method's mixture."""
    prior: PriorName = "none"
    """"witness": start from the beliefs of a closed-form linear audit: warm-up weighs the pairs by them."""
    alter: float = 0.2
    """Share of words and regions that are hidden while training (VSE-infinity, CRCL); 0 for none (NCR)."""
    true_pairs_only: bool = False
    """Train on the pairs that the added noise left true: the ceiling."""
    first_images: int | None = None
    """Train on the pairs of the first so many images only."""
    precision: Literal["fp32", "bf16"] = "fp32"
    save_every: int = 0
    """Save after every so many steps too, not only after every epoch."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too (needs the extra `track`): tensorboard --logdir runs."""
    json: bool = False
    """Print the run's summary as JSON."""


def options_for(words: Sequence[str]) -> type[Options]:
    """The options with those of the chosen method, matcher and preset among them, under their names."""
    method = find_method(_chosen(words, "method"))
    matcher = _chosen(words, "matcher")
    config = find_matcher(matcher).config
    name = _chosen(words, "preset")
    schedule = preset(method.name, name)
    nested: list[Any] = [
        ("schedule", Schedule, field(default=schedule)),
        (method.name, method, field(default=method(**preset_values(method.name, name)))),
        (matcher, config, field(default=config())),
    ]
    return make_dataclass(
        "Options", nested, bases=(Options,), frozen=True, namespace={"__doc__": Options.__doc__}
    )


def _chosen(words: Sequence[str], option: str) -> str:
    """The value of an option before the whole line is parsed, or its default."""
    for place, word in enumerate(words):
        if word == f"--{option}" and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"--{option}="):
            return word.split("=", 1)[1]
    return next(str(f.default) for f in fields(Options) if f.name == option)


def train(options: Options) -> None:
    """Start or resume a run."""
    from truepair.training.fit import resume, start
    from truepair.training.processes import speaks

    if options.resume is not None:
        run = resume(options.resume, quiet=options.json)
    elif options.data is None:
        raise TruepairError("Name the data to train on, or a run to go on with: truepair train --resume RUN.")
    else:
        run = start(config_of(options), _folder(options), quiet=options.json)
    if speaks():
        summary = _summary(run)
        emit(summary, as_json=options.json, shown=None if options.json else _shown(summary))


def config_of(options: Options) -> TrainConfig:
    """The run's config from the parsed command line."""
    matcher = getattr(options, options.matcher)
    standard = type(matcher)()
    chosen = {f.name: getattr(matcher, f.name) for f in fields(matcher)}
    changed = {name: value for name, value in chosen.items() if value != getattr(standard, name)}
    for name in SIZES_OF_DATA & changed.keys():
        option = f"--{options.matcher}.{name}".replace("_", "-")
        raise TruepairError(f"The data decides the matcher's {name}: leave {option} out.")
    return TrainConfig(
        data=str(options.data),
        method=getattr(options, options.method),
        matcher=options.matcher,
        matcher_options=changed,
        schedule=options.schedule,  # type: ignore[attr-defined]
        noise=NoiseConfig(_ratio_or_path(options.noise), options.noise_protocol, options.noise_seed),
        **{name: getattr(options, name) for name in SHARED},
    )


SIZES_OF_DATA = {"image_width", "vocabulary_size", "text_width"}
SHARED = (
    "seed", "division", "prior", "alter", "true_pairs_only", "first_images", "precision", "save_every", "tensorboard",
)  # fmt: skip


def _ratio_or_path(noise: str) -> float | str:
    try:
        return float(noise)
    except ValueError:
        return noise


def _folder(options: Options) -> Path:
    name = f"{options.method}-{options.matcher}-{Path(str(options.data)).name}-{options.noise}-{options.seed}"
    return options.out or Path("runs") / name


def _shown(summary: dict[str, Any]) -> RenderableType:
    lines = [f"[bold]{summary['run']}[/]: {summary['epochs']} epochs, the best is {summary['best_epoch']}"]
    beliefs = summary["beliefs"]
    if "clean_share" in beliefs:
        lines.append(f"pairs it calls clean: {beliefs['clean_share']:.1%}")
    for source in ("division", "labels"):
        if f"by_{source}" in beliefs:
            found = beliefs[f"by_{source}"]
            lines.append(f"wrong pairs by {source}: {shares(found['mismatched'] | {'auc': found['auc']})}")
    text = "\n".join(lines)
    return Group(recall_table(summary["validation"], "validation"), text) if "validation" in summary else text


def _summary(run: Run) -> dict[str, Any]:
    epochs = run.metrics
    best = max((entry for entry in epochs if entry["best"]), key=lambda entry: int(entry["epoch"]))
    summary: dict[str, Any] = {"run": str(run.folder), "epochs": len(epochs), "best_epoch": best["epoch"] + 1}
    if "validation" in best:
        summary["validation"] = best["validation"]
    # Beliefs are those that the run ended with, as in its ledger.
    summary["beliefs"] = epochs[-1]["beliefs"]
    return summary
