"""From words to numbers and back, in the files and with the numbering of the published codes."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from truepair.errors import DataError
from truepair.files import replaced_when_written
from truepair.pairs.text import tokenize

if TYPE_CHECKING:
    from torch import Tensor

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unk>"


@dataclass(frozen=True, eq=False)
class EncodedTexts:
    """The word numbers of many texts, laid end to end: text i is numbers[starts[i] : starts[i + 1]]."""

    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> NDArray[np.int64]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"text {row} of {len(self)}")
        row %= len(self)
        return self.numbers[self.starts[row] : self.starts[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many numbers each text has."""
        return np.diff(self.starts)

    def padded(self, rows: NDArray[np.int64] | None = None) -> "tuple[Tensor, Tensor]":
        """These texts (default: all) as tokens, m x longest, zero past the length; and their lengths, m."""
        import torch  # here, so that looking at a data set does not have to wait for it

        starts = self.starts[:-1] if rows is None else self.starts[:-1][rows]
        lengths = self.lengths if rows is None else self.lengths[rows]
        position = np.arange(lengths.max(initial=0))
        real = position < lengths[:, None]
        tokens = np.zeros(real.shape, dtype=np.int64)
        tokens[real] = self.numbers[(starts[:, None] + position)[real]]
        return torch.from_numpy(tokens), torch.from_numpy(lengths.astype(np.int64))


class Vocabulary:
    """Words and their numbers. Words that are not in it become `<unk>`."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        missing = [word for word in (START, END, UNKNOWN) if word not in numbers]
        if missing:
            raise ValueError(f"a vocabulary needs {', '.join(missing)}")
        self._numbers = dict(numbers)
        self._words = {number: word for word, number in numbers.items()}
        self._size = max(self._words) + 1

    @classmethod
    def build(cls, texts: Iterable[str], min_count: int = 4) -> "Vocabulary":
        """The words that occur at least min_count times, numbered in the order in which they first occur."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokenize(text))
        special = (PAD, START, END, UNKNOWN)
        frequent = (word for word, count in counts.items() if count >= min_count and word not in special)
        return cls({word: number for number, word in enumerate(chain(special, frequent))})

    @classmethod
    def read(cls, path: str | Path) -> "Vocabulary":
        """Read a vocabulary JSON file of the published codes (`word2idx`, `idx2word`, `idx`)."""
        remedy = "Use a vocabulary file that truepair or one of the published codes wrote."
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DataError(path, f"this is not a JSON file ({error}).", remedy) from None
        except OSError as error:
            raise DataError(path, f"it cannot be read ({error.strerror}).", "Check the path.") from None
        numbers = content.get("word2idx") if isinstance(content, dict) else None
        if not isinstance(numbers, dict) or not all(type(n) is int and n >= 0 for n in numbers.values()):
            raise DataError(path, "it has no 'word2idx' table of words and numbers.", remedy)
        if len(set(numbers.values())) < len(numbers):
            raise DataError(path, "two words in 'word2idx' share a number.", remedy)
        try:
            return cls(numbers)
        except ValueError as error:
            raise DataError(path, f"{error}.", remedy) from None

    def write(self, path: str | Path) -> None:
        """Write the JSON file that the published codes read."""
        by_number = {str(number): word for number, word in self._words.items()}
        content = {"word2idx": self._numbers, "idx2word": by_number, "idx": self._size}
        with replaced_when_written(path) as file:
            file.write(json.dumps(content).encode())

    def __len__(self) -> int:
        """One more than the largest number: the rows that an embedding table needs."""
        return self._size

    def __contains__(self, word: str) -> bool:
        return word in self._numbers

    def __getitem__(self, word: str) -> int:
        return self._numbers.get(word, self._numbers[UNKNOWN])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._numbers == other._numbers

    __hash__ = None  # type: ignore[assignment]

    def word(self, number: int) -> str:
        """The word that has this number."""
        return self._words[number]

    @property
    def numbers(self) -> Mapping[str, int]:
        """Every word's number."""
        return self._numbers

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """The numbers of `<start>`, the words and `<end>` for every text."""
        start, end, unknown = (self._numbers[word] for word in (START, END, UNKNOWN))
        number_of = self._numbers.get
        flat: list[int] = []
        starts = np.zeros(len(texts) + 1, dtype=np.int64)
        for row, text in enumerate(texts, start=1):
            flat.append(start)
            flat.extend([number_of(word, unknown) for word in tokenize(text)])
            flat.append(end)
            starts[row] = len(flat)
        return EncodedTexts(np.asarray(flat, dtype=np.int64), starts)

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """The words of these numbers, without the padding, start and end."""
        outer = {PAD, START, END}
        return [word for number in numbers if (word := self._words[int(number)]) not in outer]
