"""Captions of the demo data: which names and keywords people gave to a concept, and which a drawing gets."""

import hashlib
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

CAPTIONS_PER_PICTURE = 5
KEYWORDS_PER_CAPTION = 3
NAMED_PHRASES = 2

# Signs and letters are typography, flags are the same picture from every vendor, skin tones are variants.
LEFT_OUT = {"country-flag", "subdivision-flag", "family"}
LEFT_OUT_CATEGORIES = {"Symbols", "Component"}
PERSON_WORDS = re.compile(
    r"\b(men|man|women|woman|people|persons?|boy|girl|child|prince|princess|mrs?\.?|mx)\b"
)


@dataclass(frozen=True)
class Concept:
    """What is drawn. code: the emoji's code points. group: concepts that differ in gender share it."""

    code: str
    image: str
    name: str
    group: str
    other_names: tuple[tuple[str, str], ...]  # (text, source)
    keywords: dict[str, tuple[str, ...]]  # by source, the most telling first


def read_concepts(packages: dict[str, Path]) -> list[Concept]:
    """The concepts of emoji-datasource, with every text that the other packages have for them."""
    entries = json.loads((packages["emoji-datasource-google"] / "emoji.json").read_text("utf-8"))
    cldr_file = packages["cldr-annotations-full"] / "annotations/en/annotations.json"
    cldr = json.loads(cldr_file.read_text("utf-8"))["annotations"]["annotations"]
    lib = json.loads((packages["emojilib"] / "dist/emoji-en-US.json").read_text("utf-8"))
    shortcodes = [
        json.loads((packages["emojibase-data"] / f"en/shortcodes/{source}.json").read_text("utf-8"))
        for source in ("emojibase", "joypixels", "iamcal", "github")
    ]
    codes = {entry["unified"] for entry in entries}
    concepts = []
    for entry in sorted(entries, key=lambda entry: entry["sort_order"]):
        emoji = "".join(chr(int(code, 16)) for code in entry["unified"].split("-"))
        plain = emoji.replace("\ufe0f", "")
        texts = cldr.get(emoji) or cldr.get(plain)
        if texts is None or not _is_wanted(entry, texts["tts"][0], codes):
            continue
        name = _tidy(texts["tts"][0])
        code = entry["unified"].replace("-FE0F", "")
        others = [(_tidy(entry["name"] or ""), "emoji-datasource")]
        for table in shortcodes:
            found = table.get(code) or table.get(entry["unified"]) or []
            others += [(_tidy(text), "emojibase") for text in ([found] if isinstance(found, str) else found)]
        keywords = {
            "cldr": tuple(_tidy(word) for word in texts["default"]),
            "emojilib": tuple(_tidy(word) for word in lib.get(emoji) or lib.get(plain) or ()),
        }
        concepts.append(
            Concept(
                code, entry["image"], name, _group(name), _distinct(name, others), _cleaned(name, keywords)
            )
        )
    return _telling_first(concepts)


def captions_of(concept: Concept, drawing: int) -> list[tuple[str, str]]:
    """Up to five (text, source) for one drawing: the name, another name, and phrases of keywords.

    The first two phrases begin with the name, so that its words are frequent enough to be learnt. The drawings of a
    concept take different keywords as far as there are enough, as different people would.
    """
    captions = [(concept.name, "cldr")]
    if concept.other_names:
        captions.append(concept.other_names[drawing % len(concept.other_names)])
    pools = {
        source: _shuffled(words, f"{concept.code} {drawing}") for source, words in concept.keywords.items()
    }
    rank = {word: place for words in concept.keywords.values() for place, word in enumerate(words)}
    phrases = 0
    while len(captions) < CAPTIONS_PER_PICTURE and any(pools.values()):
        source = max(pools, key=lambda source: (len(pools[source]), source))
        telling = min(pools[source], key=lambda word: rank[word])
        named = phrases < NAMED_PHRASES or len(pools[source]) == 1
        chosen = [telling, *(word for word in pools[source] if word != telling)]
        chosen = chosen[: KEYWORDS_PER_CAPTION - named]
        pools[source] = [word for word in pools[source] if word not in chosen]
        captions.append((", ".join([concept.name, *chosen] if named else chosen), source))
        phrases += 1
    return captions


def _shuffled(words: tuple[str, ...], seed: str) -> list[str]:
    """The same order on every machine, another one for every drawing."""
    return sorted(words, key=lambda word: hashlib.sha256(f"{seed} {word}".encode()).digest())


def _is_wanted(entry: dict[str, str], name: str, codes: set[str]) -> bool:
    if entry["category"] in LEFT_OUT_CATEGORIES or entry["subcategory"] in LEFT_OUT:
        return False
    if "thirty" in name or "o\u2019clock" in name:  # two dozen faces of one clock
        return False
    code = entry["unified"]
    if re.search(r"-200D-26(40|42)", code):
        return False
    # A man or a woman at work stands back where there is a person at the same work.
    return not (re.match(r"1F46[89]-200D", code) and re.sub(r"^1F46[89]", "1F9D1", code) in codes)


def _tidy(text: str) -> str:
    text = text.replace("\u2019", "'").replace("\u201c", "").replace("\u201d", "").replace("\xa0", " ")
    return re.sub(r"\s+", " ", text.replace("_", " ")).strip(" -").lower()


def _group(name: str) -> str:
    return re.sub(r"\s+", " ", PERSON_WORDS.sub("", name)).strip() or "person"


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text))


def _distinct(name: str, others: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The other names that say something else: not the same words, no codes such as "+1" or "frowning2"."""
    seen, kept = {_words(name)}, []
    for text, source in others:
        words = _words(text)
        if words in seen or not re.fullmatch(r"[a-z' \-]{3,48}", text):
            continue
        seen.add(words)
        kept.append((text, source))
    return tuple(kept)


def _cleaned(name: str, keywords: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Keywords that are words, once each over all sources, without the name itself."""
    seen, cleaned = {name}, {}
    for source, words in keywords.items():
        kept = []
        for word in words:
            if word not in seen and re.fullmatch(r"[a-z' \-]{3,30}", word):
                seen.add(word)
                kept.append(word)
        cleaned[source] = tuple(kept)
    return cleaned


def _telling_first(concepts: list[Concept]) -> list[Concept]:
    """A word that a few concepts share says most: one that all share says nothing, a unique one cannot be learnt."""
    counts = Counter(
        word for concept in concepts for words in concept.keywords.values() for word in set(words)
    )

    def order(word: str) -> tuple[float, str]:
        return abs(math.log(counts[word] / 4)), word

    return [
        replace(c, keywords={source: tuple(sorted(words, key=order)) for source, words in c.keywords.items()})
        for c in concepts
    ]
