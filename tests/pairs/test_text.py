"""NLTK's tokenizer is the reference: the same tokens for every text, much faster for ordinary ones."""

import itertools
import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer

from truepair.pairs import text as text_module
from truepair.pairs.text import tokenize, tokenize_all

PLAIN_TEXT = (
    "a man in the black shirt and two young children play with big red ball on top of snowy grass while dog runs "
    "through water near street woman wearing hat sits at table holding camera t-shirt 3rd 14 well-dressed"
)
TRICKY_TEXT = (
    "cannot don't can't 'tis 'twas wanna wanna. gonna gotta gimme lemme d'ye more'n it's they'll i've we're he'd "
    "i'm o'clock 'n' rock'n'roll dogs' '90s 3,000 3:30 a,b 1,2,3, u.s.a. mr. st. ... .. .... . , : ; -- --- - `` ` "
    "''' '' ' \" \"\" \"hi\" 'hi' ''hi'' (a) [b] {c} <d> ( ) ] } > < «x» »x« “x” ‘x’ „x“ ’s it’s – — ― ‒ é naïve ß "
    "İstanbul ſ 'ſ ſ' ² x²'s ½ $5 50% #1 @me a&b * ** ? ! ?! a.b end. end.) end.\" end.' end.” end.’ end.'' end.]) "
    ".) ). '. .' \". .\" ; :a a: ,,a ,,, :: 'll 're 've 'm 't 's 'd 'n n't N'T CANNOT Gonna 'Tis IT'S "
    "日本 犬が。 😀 👨‍👩‍👧 Ⓐ'a 'Ⓐ _'_ '_ ́'a 'ः x' x'' x''' a``b a`b <unk> <start> &amp; http://a.b/c?d=e"
)
PLAIN, TRICKY = PLAIN_TEXT.split(), TRICKY_TEXT.split(" ")
WHITE = (" ", " ", " ", " ", " ", "", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2028", "\x85", "\x1c", "\u3000")

reference = NLTKWordTokenizer().tokenize


def ordinary(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(PLAIN, k=draw.randint(5, 16))) + draw.choice((".", " .", "", ", too.", "!"))
        for _ in range(count)
    ]


def tricky(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [
        "".join(draw.choice(TRICKY) + draw.choice(WHITE) for _ in range(draw.randint(1, 9)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(("make", "count"), [(ordinary, 12_000), (tricky, 12_000)])
def test_equals_nltk_on_tens_of_thousands_of_captions(make, count):
    for caption in make(count, seed=1):
        assert tokenize(caption) == reference(caption.lower()), repr(caption)


def test_equals_nltk_on_pairs_of_tricky_words():
    every = list(itertools.product(TRICKY, TRICKY))
    for first, second in random.Random(5).sample(every, 4_000):
        caption = f"{first} {second}"
        assert tokenize(caption) == reference(caption.lower()), repr(caption)


@settings(max_examples=400)
@given(st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=40))
@example("")
@example(" ")
@example("'")
@example("it's'  ")
@example('" "')
@example("dog. ) '")
def test_equals_nltk_on_any_unicode(caption):
    assert tokenize(caption) == reference(caption.lower())


@settings(max_examples=600)
@given(st.text(st.sampled_from(" .,:'\"`)(]>-tsndx1“”»’é\u0301\t"), max_size=14))
def test_equals_nltk_where_the_rules_meet(caption):
    assert tokenize(caption) == reference(caption.lower())


def test_only_the_last_period_is_split_off():
    assert tokenize("A dog runs. It barks.") == ["a", "dog", "runs.", "it", "barks", "."]


def test_what_is_remembered_stays_bounded_and_right(monkeypatch):
    monkeypatch.setattr(text_module, "_REMEMBERED", 20)
    for store in (text_module._plain, text_module._inner, text_module._endings):
        store.clear()
    for caption in [*tricky(400, seed=2), *ordinary(400, seed=2)]:
        assert tokenize(caption) == reference(caption.lower())
        assert len(text_module._plain) + len(text_module._inner) <= 20
        assert len(text_module._endings) <= 20


def test_callers_may_change_the_tokens_they_get():
    tokenize("a dog cannot run.").clear()
    assert tokenize("a dog cannot run.") == ["a", "dog", "can", "not", "run", "."]


def test_tokenize_all_keeps_the_order():
    texts = ordinary(50, seed=3)
    assert list(tokenize_all(texts)) == [tokenize(text) for text in texts]


def test_ordinary_captions_take_a_twentieth_of_nltks_time():
    captions = ordinary(4_000, seed=4)

    def seconds(function):
        begin = time.process_time()
        for caption in captions:
            function(caption)
        return time.process_time() - begin

    slow = seconds(lambda caption: reference(caption.lower()))
    fast = min(seconds(tokenize) for _ in range(3))
    assert slow > 20 * fast
