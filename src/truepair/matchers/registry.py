"""The matchers by name. Tests run over the whole registry: a new entry is tested by being listed."""

from dataclasses import dataclass, fields
from typing import Any

from truepair.errors import TruepairError
from truepair.matchers.base import Matcher
from truepair.matchers.projection import Projection, ProjectionConfig
from truepair.matchers.scan import SCAN, SCANConfig
from truepair.matchers.sgraf import SAF, SGR, SGRAF, SAFConfig, SGRAFConfig, SGRConfig
from truepair.matchers.vse_infty import VSEInfty, VSEInftyConfig


@dataclass(frozen=True)
class MatcherEntry:
    """What is known about a matcher before it is built.

    texts: "words" (numbers of a vocabulary) or "vectors" (embeddings). sigmoid: the score ends in one.
    region_codes: the similarity looks at every region and word, not only at one vector per item.
    """

    matcher: type[Matcher]
    config: type[Any]
    title: str
    paper: str
    texts: str
    sigmoid: bool
    region_codes: bool


SGRAF_PAPER = "Diao et al., AAAI 2021: Similarity Reasoning and Filtration for Image-Text Matching"

MATCHERS: dict[str, MatcherEntry] = {
    "sgr": MatcherEntry(
        SGR,
        SGRConfig,
        "Alignment vectors of a pair reason in a graph",
        SGRAF_PAPER,
        texts="words",
        sigmoid=True,
        region_codes=True,
    ),
    "saf": MatcherEntry(
        SAF,
        SAFConfig,
        "Alignment vectors of a pair, weighed by gates",
        SGRAF_PAPER,
        texts="words",
        sigmoid=True,
        region_codes=True,
    ),
    "sgraf": MatcherEntry(
        SGRAF,
        SGRAFConfig,
        "The mean score of an SGR and an SAF",
        SGRAF_PAPER,
        texts="words",
        sigmoid=True,
        region_codes=True,
    ),
    "scan": MatcherEntry(
        SCAN,
        SCANConfig,
        "Stacked cross attention, words to regions (t2i) or regions to words (i2t)",
        "Lee et al., ECCV 2018: Stacked Cross Attention for Image-Text Matching",
        texts="words",
        sigmoid=False,
        region_codes=True,
    ),
    "vse_infty": MatcherEntry(
        VSEInfty,
        VSEInftyConfig,
        "VSE-infinity: learned pooling, bidirectional GRU over words",
        "Chen et al., CVPR 2021: Learning the Best Pooling Strategy for Visual Semantic Embedding",
        texts="words",
        sigmoid=False,
        region_codes=False,
    ),
    "projection": MatcherEntry(
        Projection,
        ProjectionConfig,
        "Two small heads over embeddings you already have",
        "none: a linear or one-hidden-layer head per side",
        texts="vectors",
        sigmoid=False,
        region_codes=False,
    ),
}


def build_matcher(
    name: str,
    *,
    image_width: int,
    vocabulary_size: int | None = None,
    text_width: int | None = None,
    **options: Any,
) -> Matcher:
    """A matcher of this name with fresh weights. options: fields of its config; see `truepair matchers`.

    Matchers over words need vocabulary_size, the projection needs text_width.
    """
    entry = find_matcher(name)
    wanted, size = (
        ("vocabulary_size", vocabulary_size) if entry.texts == "words" else ("text_width", text_width)
    )
    if size is None:
        raise TruepairError(f"The matcher '{name}' reads texts as {entry.texts}: it needs {wanted}.")
    known = {field.name for field in fields(entry.config)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise TruepairError(
            f"The matcher '{name}' has no option {', '.join(unknown)}. It has: {', '.join(sorted(known))}."
        )
    return entry.matcher(entry.config(image_width=image_width, **{wanted: size}, **options))


def find_matcher(name: str) -> MatcherEntry:
    """The entry of this name, or an error that lists the names."""
    if name not in MATCHERS:
        raise TruepairError(f"There is no matcher '{name}'. There are: {', '.join(MATCHERS)}.")
    return MATCHERS[name]
