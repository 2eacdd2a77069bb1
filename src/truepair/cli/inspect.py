"""truepair inspect: what is in a data set, and what is wrong with it."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Group, RenderableType
from rich.text import Text

from truepair.cli.output import emit, table, words
from truepair.errors import TruepairError
from truepair.pairs.noise import Granularity
from truepair.pairs.readers import find_splits, load_pairs
from truepair.pairs.summary import SplitSummary, summarize


def inspect(
    data: Annotated[Path, tyro.conf.Positional],
    *,
    split: str | None = None,
    noise: str | None = None,
    noise_seed: int = 123,
    noise_protocol: Granularity = "caption",
    features: Path | None = None,
    min_count: int = 4,
    skip_empty: bool = False,
    json: bool = False,
) -> None:
    """Print what is in a data set, and stop at what is wrong with it, naming file, row and remedy.

    Args:
        data: A folder in the precomputed layout or with images.npy and texts.npy, or a table of pairs.
        split: Look at this split only; by default at all there are.
        noise: A noise index file, or a ratio to mismatch pairs at random. It goes into the training split
            unless --split names another.
        noise_seed: Seed of a ratio.
        noise_protocol: What a ratio moves, single captions (NCR) or images with all their captions (DECL, RCL).
        features: The feature file of a table, if its place does not tell.
        min_count: How often a word must occur to be in the vocabulary.
        skip_empty: Set pairs with an empty caption aside instead of stopping at them.
        json: Print JSON for machines.
    """
    splits = [split] if split is not None else find_splits(data)
    noisy = split or "train"
    if noise is not None and noisy not in splits:
        raise TruepairError(
            f"{data}: noise belongs to the split 'train', which is not here. Name one with --split."
        )
    summaries = [
        summarize(
            load_pairs(
                data,
                name,
                noise=ratio_or_file(noise) if name == noisy else None,
                noise_seed=noise_seed,
                noise_protocol=noise_protocol,
                skip_empty=skip_empty,
                features=features,
            ),
            min_count,
        )
        for name in splits
    ]
    content = {"data": str(data), "splits": {summary.split: summary.as_dict() for summary in summaries}}
    emit(content, as_json=json, shown=None if json else _shown(data, summaries))


def ratio_or_file(noise: str | None) -> float | Path | None:
    """What --noise means: a number is a ratio, anything else a file."""
    if noise is None:
        return None
    try:
        return float(noise)
    except ValueError:
        return Path(noise)


def _shown(data: Path, summaries: list[SplitSummary]) -> Group:
    listing = table(["", *(summary.split for summary in summaries)])
    rows = [_properties(summary) for summary in summaries]
    for name in dict.fromkeys(name for row in rows for name in row):
        listing.add_row(name, *(row.get(name, "-") for row in rows))
    lines: list[RenderableType] = [
        Text(f"{data} ({summaries[0].layout} layout)\n", style="bold"),
        listing,
        Text(),
    ]
    lines += [
        Text(f"{summary.split}: noise index sha256 {summary.noise['sha256']}")
        for summary in summaries
        if summary.noise["sha256"] is not None
    ]
    lines += [Text(f"sha256 {source['sha256']}  {source['path']}") for s in summaries for source in s.sources]
    return Group(*lines)


def _properties(summary: SplitSummary) -> dict[str, str]:
    fewest, most = summary.texts_per_image
    texts, noise = summary.texts, summary.noise
    properties = {
        "pairs": words(summary.pairs),
        "images": words(summary.images),
        "texts an image": words(fewest) if fewest == most else f"{words(fewest)} to {words(most)}",
        "set aside (empty)": words(summary.set_aside),
        "features": f"{' x '.join(map(str, summary.feature_shape))} {summary.feature_dtype}",
        "NaN or infinity": "none" if summary.finite else "yes",
    }
    if summary.text_vectors is not None:
        properties["text vectors"] = " x ".join(map(str, summary.text_vectors))
    if texts is not None:
        properties |= {
            "tokens a text": f"{texts.tokens_mean:.1f} ({texts.tokens_shortest} to {texts.tokens_longest})",
            "different words": words(texts.distinct_words),
            f"vocabulary size ({texts.min_count} times or more)": words(texts.vocabulary),
            "duplicates: texts that repeat": words(texts.repeated),
            "duplicates: pairs with them": words(texts.repeated_pairs),
        }
    return properties | {
        "noise protocol": noise["protocol"],
        "nominal share of mismatched pairs": "-" if noise["protocol"] == "none" else words(noise["nominal"]),
        "measured share of mismatched pairs": words(noise["measured"]),
    }
