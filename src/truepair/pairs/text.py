"""Words of a caption: the Penn Treebank rules as NLTK's NLTKWordTokenizer applies them, lower-cased.

The rules are twenty substitutions over the whole text, but all of them look at a stretch between two spaces
and at most at those spaces. Only the start of the text (opening quotes) and its end (the final period)
are special. So the tokens of a stretch are worked out once, and most captions are a split and a look-up.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

# NLTK's current engine does not count the four separator control characters as white space; str.split does.
_SPACE = r"[^\S\x1c-\x1f]"
_CLOSERS = "])}>\"'»”’"
_REMEMBERED = 200_000  # stretches of text kept at once; web data has millions of different ones


def tokenize(caption: str) -> list[str]:
    """The lower-cased word tokens of a caption.

    Only the last period is split off: a sentence that ends inside a caption keeps its period on the word.
    """
    text = caption.lower()
    stretches = text.split(" ")
    last = stretches.pop()
    ending = _endings.get(last)
    if ending is None:
        ending = _learn_ending(last)
    if not stretches or ending is _NOT_LOCAL or stretches[0][:1] in _QUOTES:
        return _tokenize_whole(text)
    if _plain.issuperset(stretches):
        stretches.extend(ending)
        return stretches
    tokens: list[str] = []
    for stretch in stretches:
        if stretch in _plain:
            tokens.append(stretch)
            continue
        inner = _inner.get(stretch)
        if inner is None:
            inner = _learn_inner(stretch)
        if inner is _NOT_LOCAL:
            return _tokenize_whole(text)
        tokens.extend(inner)
    tokens.extend(ending)
    return tokens


def tokenize_all(captions: Iterable[str]) -> Iterator[list[str]]:
    """The tokens of each caption."""
    return map(tokenize, captions)


_QUOTES = frozenset(("'", '"'))
_NOT_LOCAL = ("", "")  # a stretch whose tokens depend on more than itself; compared by identity
_plain: set[str] = set()  # stretches that are one token each
_inner: dict[str, tuple[str, ...]] = {}  # what other stretches become before the last one
_endings: dict[str, tuple[str, ...]] = {}  # what stretches become at the end of a caption


# Letters, digits and single hyphens meet no rule but that of the words that are two.
_SIMPLE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TWO_WORDS = re.compile(r"\b(?:cannot|gimme|gonna|gotta|lemme|wanna)\b")


def _is_simple(stretch: str) -> bool:
    return bool(_SIMPLE.fullmatch(stretch)) and not _TWO_WORDS.search(stretch)


def _learn_inner(stretch: str) -> tuple[str, ...]:
    if _is_simple(stretch):
        tokens: tuple[str, ...] = (stretch,)
    elif stretch[-1:] == "," and _is_simple(stretch[:-1]):
        tokens = (stretch[:-1], ",")
    elif _has_white_space(stretch):
        tokens = _NOT_LOCAL
    else:
        # A placeholder on either side stands for the neighbours.
        tokens = tuple(_tokenize_whole(f"x {stretch} x")[1:-1])
    if len(_plain) + len(_inner) >= _REMEMBERED:
        _plain.clear()
        _inner.clear()
    if tokens == (stretch,):
        _plain.add(stretch)
    else:
        _inner[stretch] = tokens
    return tokens


def _learn_ending(stretch: str) -> tuple[str, ...]:
    if _is_simple(stretch):
        tokens: tuple[str, ...] = (stretch,)
    elif stretch[-1:] == "." and _is_simple(stretch[:-1]):
        tokens = (stretch[:-1], ".")
    elif not stretch.strip(_CLOSERS) or _has_white_space(stretch):
        # Behind nothing but closing quotes and brackets the final period may belong to an earlier stretch.
        tokens = _NOT_LOCAL
    else:
        tokens = tuple(_tokenize_whole(f"x {stretch}")[1:])
    if len(_endings) >= _REMEMBERED:
        _endings.clear()
    _endings[stretch] = tokens
    return tokens


def _has_white_space(stretch: str) -> bool:
    return len(stretch.split()) > 1 or stretch != stretch.strip()


_Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]


def _is_word_character(character: str) -> bool:
    # Letters, marks, decimal and letter numbers, connectors, joiners, circled letters: Unicode's definition,
    # which unlike Python's leaves out superscripts and fractions and takes in combining marks.
    category = unicodedata.category(character)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        return True
    return category in ("So", "Cf") and bool(_OTHER_WORD_CHARACTERS.match(character))


_OTHER_WORD_CHARACTERS = re.compile(
    "[\u200c\u200d\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189]"
)
_CLITIC = re.compile(r"(?:re|ve|ll|m|t|s|d|n)", re.IGNORECASE)


def _split_opening_quote(match: re.Match[str]) -> str:
    """A quote in front of a word is a token of its own, unless it opens a clitic such as 's."""
    text, here = match.string, match.start()
    before, after = text[:here][-1:], text[here + 1 : here + 2]
    if not after or not _is_word_character(after) or (before and _is_word_character(before)):
        return "'"
    clitic = _CLITIC.match(text, here + 1)
    if clitic:
        beyond = text[clitic.end() : clitic.end() + 1]
        if not beyond or not _is_word_character(beyond):
            return "'"
    return "' "


def _rules(*pairs: tuple[str, str | Callable[[re.Match[str]], str]]) -> tuple[_Rule, ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in pairs)


_BEFORE_PADDING = _rules(
    # Opening quotes.
    ("([«“‘„]|`+)", r" \1 "),
    (r'^"', "``"),
    ("(``)", r" \1 "),
    (r"""([ (\[{<])("|'')""", r"\1 `` "),
    ("'", _split_opening_quote),
    # Punctuation. A period counts only at the very end, perhaps before closing quotes and brackets.
    (rf"""([^.])(\.)([\])}}>"'»”’ ]*+){_SPACE}*$""", r"\1 \2 \3 "),
    (r"([:,])(\D)", r" \1 \2"),
    (r"([:,])$", r" \1 "),
    (r"\.{2,}", r" \g<0> "),
    (r"[;@#$%&\u2012-\u2015]", r" \g<0> "),
    (rf"""([^.])(\.)([\])}}>"']*){_SPACE}*$""", r"\1 \2\3 "),
    (r"[?!]", r" \g<0> "),
    (r"([^'])' ", r"\1 ' "),
    (r"[*\]\[(){}<>]", r" \g<0> "),
    ("--", " -- "),
)
_AFTER_PADDING = _rules(
    # Closing quotes and clitics.
    ("[»”’]", r" \g<0> "),
    ("''|\"", " '' "),
    (rf"{_SPACE}+", " "),
    (r"([^' ])('[sSmMdD]|') ", r"\1 \2 "),
    (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
    # Words that are two.
    (r"(?i)\b(can)(not)\b", r" \1 \2 "),
    (r"(?i)\b(d)('ye)\b", r" \1 \2 "),
    (r"(?i)\b(gim)(me)\b", r" \1 \2 "),
    (r"(?i)\b(gon)(na)\b", r" \1 \2 "),
    (r"(?i)\b(got)(ta)\b", r" \1 \2 "),
    (r"(?i)\b(lem)(me)\b", r" \1 \2 "),
    (r"(?i)\b(more)('n)\b", r" \1 \2 "),
    (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
    (r"(?i) ('t)(is)\b", r" \1 \2 "),
    (r"(?i) ('t)(was)\b", r" \1 \2 "),
)


def _tokenize_whole(text: str) -> list[str]:
    """All rules over the whole text, one after the other."""
    for pattern, replacement in _BEFORE_PADDING:
        text = pattern.sub(replacement, text)
    text = f" {text} "
    for pattern, replacement in _AFTER_PADDING:
        text = pattern.sub(replacement, text)
    return text.split()
