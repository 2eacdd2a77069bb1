"""truepair embed."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Group, RenderableType
from rich.text import Text

from truepair.cli.output import emit, table
from truepair.errors import TruepairError


def embed(
    source: Annotated[Path, tyro.conf.Positional],
    *,
    out: Path,
    extractor: str = "patches",
    captions: Path | None = None,
    path_column: str | None = None,
    text_column: str | None = None,
    split_column: str | None = None,
    split: str | None = None,
    shares: str = "train=0.9,dev=0.05,test=0.05",
    like: Path | None = None,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Turn pictures and captions into a data folder that every other verb reads.

    Broken pictures and empty captions are set aside and listed in rejects.parquet. If it is interrupted, the same
    command goes on where it stopped.

    Args:
        source: a folder with pictures and a table of captions, a table alone, a tar file or a folder of tar files
        out: the data folder to write
        extractor: patches, or hf:<name or folder> for a vision model that transformers can read
        captions: the table in the source folder, where its name does not tell
        path_column: the column that names the pictures, where its name does not tell
        text_column: the column that holds the captions, where its name does not tell
        split_column: the column that names the splits; without it, a column called split
        split: put everything into this split
        shares: how pictures are divided, by a hash of their path, where nothing names splits
        like: an embedded data folder whose whitening is used again, so that new pictures fit it
        workers: processes that describe pictures; by default one a core for patches and one for hf models
        json: print a summary as JSON
    """
    # Here, so that help stays instant.
    from truepair.features.embed import embed_source
    from truepair.features.sources import Names

    wanted = _parsed(shares)
    summary = embed_source(
        source,
        out,
        extractor=extractor,
        names=Names(captions, path_column, text_column, split_column),
        split=split,
        shares=wanted,
        like=like,
        workers=workers,
        shown=not json,
    )
    emit({"out": str(out), **summary}, as_json=json, shown=_shown(out, summary, wanted))


def _parsed(shares: str) -> dict[str, float]:
    """Shares as train=0.9,dev=0.1; they must add up to 1."""
    try:
        parsed = {
            name.strip(): float(share) for name, share in (part.split("=") for part in shares.split(","))
        }
    except ValueError:
        parsed = {}
    if not parsed or any(share < 0 for share in parsed.values()) or abs(sum(parsed.values()) - 1) > 1e-6:
        raise TruepairError(
            f"--shares {shares}: write it as train=0.9,dev=0.05,test=0.05; the sum must be 1."
        )
    return parsed


def _shown(out: Path, summary: dict[str, Any], shares: dict[str, float]) -> RenderableType:
    splits = table(["split", "pictures", "pairs"])
    for name, counts in summary["splits"].items():
        splits.add_row(name, f"{counts['pictures']:,}", f"{counts['pairs']:,}")
    parts: list[RenderableType] = [splits]
    for title, counts in (("handled", summary["notes"]), ("set aside", summary["rejects"])):
        if counts:
            listed = table([title, "how many"])
            for reason, count in counts.items():
                listed.add_row(reason, f"{count:,}")
            parts += [Text(), listed]
    if summary["rejects"]:
        parts += [Text(), Text(f"Each of them with its reason: {out / 'rejects.parquet'}")]
    empty = [name for name, share in shares.items() if share and name not in summary["splits"]]
    if empty and summary["split_rule"].startswith("by sha256"):
        text = f"So few pictures: none came to {' and '.join(empty)}. Larger --shares help."
        parts += [Text(), Text(text)]
    parts += [Text(), Text(f"{summary['regions']} regions of {summary['width']} numbers a picture.")]
    parts += [Text(f"Next: truepair inspect {out}")]
    return Group(*parts)
