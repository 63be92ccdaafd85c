"""From words to terms: every distinct word is split, stemmed and hashed once, then looked up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from agent.retrieval.blocks import spread
from agent.retrieval.identifiers import WORD, Terms, term_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.words import Words

_Scalar = TypeVar("_Scalar", bound=np.generic)

TYPE_NAME = 1
"""Flag: several capitalised parts, which names a class wherever it stands (`HTTPError`)."""
KEYWORD = 2
"""Flag: stands before parentheses without being called."""
DEFINER = 4
"""Flag: the name that follows is defined here, not used."""
NUMBER = 8
"""Flag: begins with a digit."""
IMPORTER = 16
"""Flag: may begin a line that imports something."""

_TYPE_NAME = re.compile(r"[A-Z]\w*[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_WORDS_OF_FLAG = {
    KEYWORD: "if elif else for while return and or not in is with assert yield await del print "
    "switch catch except raise throw function match case when until unless elsif foreach sizeof "
    "lambda self this super cls",
    DEFINER: "def class fn func function struct interface trait enum",
    IMPORTER: "import from include require require_relative use using mod pub export const let var "
    "require_once include_once",
}
_FLAGS = {
    word: sum(flag for flag, words in _WORDS_OF_FLAG.items() if word in words.split())
    for word in " ".join(_WORDS_OF_FLAG.values()).split()
}
_MAX_WORDS = 1 << 20  # distinct words remembered; beyond it, forgotten all at once
_FIRST_BITS = 16  # of the hash table's first size
_MIX = np.uint64(0xD6E8FEB86659FD93)  # odd; brings the hash's high bits down (it is multiplied)


class Vocabulary:
    """Terms of words by the words' hashes. Not safe for use by several threads at a time."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._terms = Terms()
        self._term_ids: dict[str, int] = {}
        self._slots = np.full(1 << _FIRST_BITS, -1, dtype=np.int32)
        self._words = _Column(np.uint64)
        self._flags = _Column(np.uint8)
        self._first = _Column(np.int64)  # of its terms in `_flat`
        self._sizes = _Column(np.int64)
        self._flat = _Column(np.int64)  # numbers of terms
        self._hashes = _Column(np.uint64)  # of terms

    def numbers(self, data: bytes, words: Words) -> NDArray[np.int64]:
        """The number of each of the words, which hold until the next call. New ones are learnt."""
        if self._words.size > _MAX_WORDS:
            self._forget()
        found = self._find(words.hashes)
        new = np.flatnonzero(found < 0)
        if new.size:
            hashes, first, places = np.unique(
                words.hashes[new], return_index=True, return_inverse=True
            )
            known, at = self._words.size, new[first]
            spans = zip(words.starts[at].tolist(), words.ends[at].tolist(), strict=True)
            self._learn([data[a:b] for a, b in spans], hashes)
            found[new] = known + places
        return found

    def flags(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Flags of words."""
        return self._flags[numbers]

    def hashes(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Hashes of words, as `words.WordScanner` has them."""
        return self._words[numbers]

    def term_counts(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many terms each word has."""
        return self._sizes[numbers]

    def terms(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The terms' numbers of all the words, one after another."""
        sizes = self._sizes[numbers]
        return self._flat[spread(self._first[numbers], sizes)]

    def term_hashes(self, terms: NDArray[np.int64]) -> NDArray[np.uint64]:
        """`identifiers.term_hash` of terms by number."""
        return self._hashes[terms]

    def _find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Numbers of words, -1 for unknown: open addressing with linear probing."""
        found = np.full(hashes.size, -1, dtype=np.int64)
        pending = np.arange(hashes.size)
        slots = self._slot_of(hashes)
        while pending.size:
            numbers = self._slots[slots[pending]].astype(np.int64)
            hit = (numbers >= 0) & (self._words[numbers] == hashes[pending])
            found[pending[hit]] = numbers[hit]
            pending = pending[~hit & (numbers >= 0)]
            slots[pending] = (slots[pending] + 1) & (self._slots.size - 1)
        return found

    def _slot_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        shift = np.uint64(64 - (self._slots.size.bit_length() - 1))
        return ((hashes * _MIX) >> shift).astype(np.int64)

    def _learn(self, texts: list[bytes], hashes: NDArray[np.uint64]) -> None:
        flags: list[int] = []
        sizes: list[int] = []
        flat: list[int] = []
        fresh: list[int] = []
        known = self._term_ids
        for text in texts:
            word, terms = self._read(text)
            flags.append(_flags(word))
            sizes.append(len(terms))
            for term in terms:
                number = known.get(term)
                if number is None:
                    number = known[term] = len(known)
                    fresh.append(term_hash(term))
                flat.append(number)
        widths = np.array(sizes, dtype=np.int64)
        self._first.extend(self._flat.size + np.cumsum(widths) - widths)
        self._sizes.extend(widths)
        self._flags.extend(np.array(flags, dtype=np.uint8))
        self._flat.extend(np.array(flat, dtype=np.int64))
        self._hashes.extend(np.array(fresh, dtype=np.uint64))
        self._words.extend(hashes)
        self._index(hashes)

    def _read(self, text: bytes) -> tuple[str, tuple[str, ...]]:
        if text.isascii():
            word = text.decode("ascii")
            return word, self._terms.split(word)
        word = text.decode("utf-8", "replace")
        return word, tuple(t for part in WORD.findall(word) for t in self._terms.of_word(part))

    def _index(self, hashes: NDArray[np.uint64]) -> None:
        """Give slots to the words just added, the table kept at most half full."""
        if self._words.size * 2 > self._slots.size:
            self._slots = np.full(self._slots.size * 4, -1, dtype=np.int32)
            hashes = self._words.values
        numbers = np.arange(self._words.size - hashes.size, self._words.size, dtype=np.int32)
        slots = self._slot_of(hashes)
        while numbers.size:
            free = self._slots[slots] < 0
            self._slots[slots[free]] = numbers[free]  # of several for one slot the last has it
            left = self._slots[slots] != numbers
            numbers, slots = numbers[left], (slots[left] + 1) & (self._slots.size - 1)


def _flags(word: str) -> int:
    flags = _FLAGS.get(word, 0)
    first = word[0]
    if "A" <= first <= "Z":  # as every match of the pattern does
        return flags | TYPE_NAME if _TYPE_NAME.match(word) else flags
    return flags | NUMBER if first.isdigit() else flags


class _Column(Generic[_Scalar]):
    """A growing array."""

    def __init__(self, dtype: type[_Scalar]) -> None:
        self._data: NDArray[_Scalar] = np.zeros(1024, dtype=dtype)
        self.size = 0

    def __getitem__(self, numbers: NDArray[np.int64]) -> NDArray[_Scalar]:
        """Values by number; any number below the capacity, -1 too, gives some value."""
        return self._data.take(numbers)

    @property
    def values(self) -> NDArray[_Scalar]:
        return self._data[: self.size]

    def extend(self, values: NDArray[_Scalar]) -> None:
        size = self.size + values.size
        if size > self._data.size:
            grown = np.zeros(max(size, 2 * self._data.size), dtype=self._data.dtype)
            grown[: self.size] = self.values
            self._data = grown
        self._data[self.size : size] = values
        self.size = size
