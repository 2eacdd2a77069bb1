"""The pairs and search results that the report shows, ready for the template."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup, escape

from truepair.audit.thumbnails import Thumbnail, Thumbnails

_MOST_LETTERS = 600  # of a text that is shown
_BY_SUSPICION, _DESCENDING = ["mismatch_probability", "match_score", "pair_id"], [True, False, False]


@dataclass(frozen=True)
class Item:
    """An image or a text that was searched with, or found. note: what there is to say about it."""

    name: str
    text: str | None = None
    picture: str | None = None
    score: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Example:
    """A search: what was searched with, and what was found, best first."""

    query: Item
    found: Sequence[Item]


@dataclass(frozen=True)
class Card:
    """One suspect as the page shows it."""

    anchor: str
    row: dict[str, Any]
    text: Markup
    picture: Thumbnail
    other_picture: Thumbnail


def anchor(pair_id: str) -> str:
    """The fragment of the page's address that leads to a pair."""
    return "pair-" + hashlib.sha256(pair_id.encode()).hexdigest()[:12]


def strongest_first(suspects: pl.DataFrame) -> pl.DataFrame:
    """The flagged pairs, those most certainly mismatched first."""
    return suspects.filter("is_mismatch").sort(_BY_SUSPICION, descending=_DESCENDING)


def others_first(suspects: pl.DataFrame, share: float) -> pl.DataFrame:
    """The pairs that are not flagged and yet more suspect than one drawn blindly, the most suspect first."""
    others = suspects.filter(~pl.col("is_mismatch") & (pl.col("mismatch_probability") > share))
    return others.sort(_BY_SUSPICION, descending=_DESCENDING)


def cards(suspects: pl.DataFrame, most: int, thumbnails: Thumbnails) -> list[Card]:
    """The first rows of a sorted table as cards, at most so many."""
    return [card(row, thumbnails) for row in suspects.head(most).iter_rows(named=True)]


def card(row: dict[str, Any], thumbnails: Thumbnails) -> Card:
    """A row of the suspects' table as a card."""
    return Card(
        anchor(row["pair_id"]),
        row,
        marked(row.get("text") or "", row.get("unsupported_words") or ()),
        thumbnails(row.get("picture")),
        thumbnails(row.get("other_picture")),
    )


def marked(text: str, words: Sequence[str]) -> Markup:
    """The text, escaped, with these words marked so that eyes and screen readers notice."""
    if len(text) > _MOST_LETTERS:
        text = text[:_MOST_LETTERS] + "…"
    if not words:
        return escape(text)
    # Longest first: "hot dog" before "dog".
    choice = "|".join(re.escape(word) for word in sorted(set(words), key=len, reverse=True))
    parts = re.split(rf"(?<!\w)({choice})(?!\w)", text, flags=re.IGNORECASE)
    # Every second part is a match.
    return Markup("").join(
        Markup('<mark>{}<span class="unseen"> (unsupported)</span></mark>').format(part)
        if place % 2
        else escape(part)
        for place, part in enumerate(parts)
    )
