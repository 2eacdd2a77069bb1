"""truepair matchers."""

import dataclasses

import torch

from truepair.cli.output import emit, table
from truepair.matchers.registry import MATCHERS, MatcherEntry


def matchers(json: bool = False) -> None:
    """The matchers by name: what each needs, its size at its default options, its paper.

    Args:
        json: print JSON, with all options of every matcher.
    """
    summary = [_summary(name, entry) for name, entry in MATCHERS.items()]
    shown = table(["matcher", "what it is", "texts", "similarity of", "score", "parameters", "paper"])
    for column in shown.columns:
        column.justify = "left"
    shown.columns[5].justify = "right"
    for row in summary:
        shown.add_row(
            str(row["name"]),
            str(row["title"]),
            str(row["texts"]),
            "regions and words" if row["region_codes"] else "one vector each",
            "sigmoid" if row["sigmoid"] else "cosine",
            f"{row['parameters']:,}",
            str(row["paper"]).split(":")[0],
        )
    emit(summary, as_json=json, shown=shown)


def _summary(name: str, entry: MatcherEntry) -> dict[str, object]:
    config = entry.config()
    with torch.device("meta"):  # shapes without memory
        matcher = entry.matcher(config)
    return {
        "name": name,
        "title": entry.title,
        "paper": entry.paper,
        "texts": entry.texts,
        "needs": ["image_width", "vocabulary_size" if entry.texts == "words" else "text_width"],
        "sigmoid": entry.sigmoid,
        "region_codes": entry.region_codes,
        "parameters": sum(parameter.numel() for parameter in matcher.parameters()),
        "options": dataclasses.asdict(config),
    }
