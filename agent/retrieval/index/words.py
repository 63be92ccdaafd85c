"""Terms of queries and documents, and fast conversion of the words of many files to terms.

A word (`\\w+`) gives the whole word and its parts (camelCase, snake_case, digits), lower-cased and
stemmed, without stop words.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index.corpus import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD = re.compile(r"\w+")
# `HTTPServer` -> HTTP, Server. Letters without case, and all beyond ASCII, count as lower case.
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")

MAX_WORD = 80  # characters; longer words are encoded data

_MIN_PART = 2
_MAX_NUMBER = 6  # digits: years, ports and error codes have meaning, hashes do not

STOP_WORDS = frozenset(
    """
    a about after all also am an and any are as at be because been before being but by can cannot
    could did do does doing don done each for from get gets getting had has have having he her here
    his how i if in into is it its itself just like may me might more most my no nor not now of on
    only or other our out over own same she should so some such than that the their them then there
    these they this those through to too up us use used uses using very was we were what when where
    which while who why will with would you your
    """.split()  # noqa: SIM905 - a list of sixty literals reads worse
)


class Terms:
    """Splits and stems, each distinct word once. Not thread-safe."""

    def __init__(self) -> None:
        self._stemmer: Callable[[str], str] | None = None
        self._parts: dict[str, str] = {}
        self._terms: dict[str, tuple[str, ...]] = {}
        self._hashes: dict[str, tuple[int, ...]] = {}

    def of_word(self, word: str) -> tuple[str, ...]:
        """Return the distinct terms of one word, the whole word's first; () for stop words."""
        terms = self._terms.get(word)
        if terms is None:
            terms = self._terms[word] = self.split(word)
        return terms

    def hashes_of_word(self, word: str) -> tuple[int, ...]:
        """Return `of_word` as 64-bit hashes (see `term_hash`)."""
        hashes = self._hashes.get(word)
        if hashes is None:
            hashes = self._hashes[word] = tuple(term_hash(term) for term in self.of_word(word))
        return hashes

    def count(self, text: str) -> Counter[str]:
        """Count the occurrences of each term in a text."""
        counts: Counter[str] = Counter()
        for word, number in Counter(WORD.findall(text)).items():
            for term in self.of_word(word):
                counts[term] += number
        return counts

    def count_hashes(self, text: str) -> dict[int, int]:
        """Like `count`, by hash, for documents. Indexing spends most of its time in this loop."""
        counts: dict[int, int] = {}
        hashes = self.hashes_of_word
        for word, number in Counter(WORD.findall(text)).items():
            for term in hashes(word):
                counts[term] = counts.get(term, 0) + number
        return counts

    def split(self, word: str) -> tuple[str, ...]:
        """Like `of_word`, without caching."""
        if len(word) > MAX_WORD:
            return ()
        parts = _PART.findall(word)
        if len(parts) == 1 and len(parts[0]) == len(word):
            term = self._part(word)
            return (term,) if term else ()
        terms: dict[str, None] = {}
        whole = word.lower().strip("_")
        if len(whole) >= _MIN_PART and whole not in STOP_WORDS:
            # `_parse` and `__init__` have one part, so the whole word is no second term.
            terms[self._stem(whole) if len(parts) == 1 else whole] = None
        for part in parts:
            term = self._part(part)
            if term:
                terms[term] = None
        return tuple(terms)

    def _part(self, part: str) -> str:
        """Return the term of one part, "" for none."""
        term = self._parts.get(part)
        if term is None:
            lowered = part.lower()
            term = self._parts[part] = self._stem(lowered) if _is_term(lowered) else ""
        return term

    def _stem(self, word: str) -> str:
        if not word.isalpha():
            return word
        if self._stemmer is None:
            self._stemmer = _stemmer()
        return self._stemmer(word)


def _stemmer() -> Callable[[str], str]:
    try:
        from Stemmer import Stemmer
    except ImportError:  # pure Python, with the same stems: a machine of a miner may have only this
        import snowballstemmer

        stem: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
        return stem
    stemmer = Stemmer("english")
    stemmer.maxCacheSize = 0  # its cache is slower than stemming
    word: Callable[[str], str] = stemmer.stemWord
    return word


def without_suffix(path: str) -> str:
    """Return a path without its suffix, the part after the last dot; `.profile` has no suffix."""
    folder, slash, name = path.rpartition("/")
    at = name.rfind(".")
    return folder + slash + name[:at] if 0 < at < len(name) - 1 else path


def _is_term(word: str) -> bool:
    if word.isdigit():
        return _MIN_PART <= len(word) <= _MAX_NUMBER
    return len(word) >= _MIN_PART and word not in STOP_WORDS


def term_hash(term: str) -> int:
    """Return the 64-bit BLAKE2b of a term, little-endian: the same on every machine. Among a
    million distinct terms, the probability that two share a hash is 3e-8.
    """
    return int.from_bytes(
        blake2b(term.encode("utf-8", "replace"), digest_size=8).digest(), "little"
    )


# --------------------------------------------------------------------------------- words of files

_CHUNK = 1 << 17  # bytes hashed at a time: tables and temporaries fit in the processor's cache
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64; bits well mixed
_LONGEST = 1024  # bytes: a word or a sentence in a script without spaces is shorter
_WORD_BYTES = (string.ascii_letters + string.digits + "_").encode()


@dataclass(frozen=True, slots=True)
class Words:
    """Occurrences in order: `starts`, `ends` int64 (w,) byte offsets, `hashes` uint64 (w,)."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    hashes: NDArray[np.uint64]


class WordScanner:
    """Finds and hashes words, the same on every machine. The hash of bytes b_0..b_k is the sum of
    T[b_i] * BASE**i modulo 2**64 with a fixed random table T, so prefix sums give each in constant
    time.
    """

    def __init__(self) -> None:
        self._is_word = np.zeros(256, dtype=np.bool_)
        self._is_word[list(_WORD_BYTES)] = True
        self._is_word[128:] = True
        table = b"".join(blake2b(bytes([b]), digest_size=8).digest() for b in range(256))
        self._values = np.frombuffer(table, "<u8").astype(np.uint64)
        self._values[~self._is_word] = 0
        self._powers = _powers(_BASE)
        self._inverses = _powers(pow(_BASE, -1, 1 << 64))

    def scan(self, data: bytes) -> Words:
        """Return all words of the bytes."""
        parts = [self._scan_chunk(data, start, end) for start, end in self._chunks(data)]
        if len(parts) == 1:
            return parts[0]
        return Words(
            np.concatenate([np.empty(0, np.int64), *(part.starts for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.ends for part in parts)]),
            np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]),
        )

    def _chunks(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Split the bytes between words; a word is only split if it is longer than `_LONGEST`."""
        start = 0
        while start < len(data):
            end = min(start + _CHUNK, len(data))
            if end < len(data):
                tail = np.frombuffer(data, np.uint8, _LONGEST, end - _LONGEST)
                gaps = np.flatnonzero(~self._is_word[tail])
                end = end - _LONGEST + int(gaps[-1]) + 1 if gaps.size else end
            yield start, end
            start = end

    def _scan_chunk(self, data: bytes, start: int, end: int) -> Words:
        codes = np.frombuffer(data, np.uint8, end - start, start)
        inside = self._is_word.take(codes)  # here and below: half the time of [codes]
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
        if inside[0]:
            edges = np.concatenate(([0], edges))
        if inside[-1]:
            edges = np.concatenate((edges, [codes.size]))
        starts, ends = edges[::2], edges[1::2]
        sums = np.zeros(codes.size + 1, dtype=np.uint64)
        np.cumsum(self._values.take(codes) * self._powers[: codes.size], out=sums[1:])
        hashes = (sums[ends] - sums[starts]) * self._inverses[starts]
        return Words(starts + start, ends + start, hashes)


def _powers(base: int) -> NDArray[np.uint64]:
    """Return base**0 .. base**_CHUNK modulo 2**64."""
    factors = np.full(_CHUNK + 1, base, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)


TYPE_NAME = 1
"""Flag: several capitalised parts, which always name a class (`HTTPError`)."""
KEYWORD = 2
"""Flag: comes before parentheses without being called."""
DEFINER = 4
"""Flag: the next name is defined here, not used."""
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
_MAX_WORDS = 1 << 19  # distinct words cached; beyond it, the cache is emptied
_FIRST_BITS = 16  # the initial hash table has 2**16 slots
_MIX = np.uint64(0xD6E8FEB86659FD93)  # odd; multiplying by it mixes the hash's high bits


class Vocabulary:
    """Terms of words by the words' numbers, which are valid until the next call of `numbers`.
    `words` uint64 (w,), `flags` uint8 (w,), `sizes` int64 (w,) in terms. `term_hashes` uint64 (t,).
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._terms = Terms()
        self._term_ids: dict[str, int] = {}
        self._slots = np.full(1 << _FIRST_BITS, -1, dtype=np.int32)
        # Number 0 is no word, so that no array is ever empty.
        self.words = np.zeros(1, dtype=np.uint64)
        self.flags = np.zeros(1, dtype=np.uint8)
        self.sizes = np.zeros(1, dtype=np.int64)
        self.term_hashes = np.empty(0, dtype=np.uint64)
        self._first = np.zeros(1, dtype=np.int64)  # start of a word's terms in `_flat`
        self._flat = np.empty(0, dtype=np.int64)  # term numbers

    def numbers(self, data: bytes, words: Words) -> NDArray[np.int64]:
        """Return the number of each word. New words are added."""
        if self.words.size > _MAX_WORDS:
            self._forget()
        numbers = self._find(words.hashes)
        new = np.flatnonzero(numbers < 0)
        if new.size:
            hashes, first, places = np.unique(
                words.hashes[new], return_index=True, return_inverse=True
            )
            size, at = self.words.size, new[first]
            spans = zip(words.starts[at].tolist(), words.ends[at].tolist(), strict=True)
            self._learn([data[a:b] for a, b in spans], hashes)
            numbers[new] = size + places
        return numbers

    def terms(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the term numbers of all the words, one word after another."""
        return self._flat.take(spread(self._first[numbers], self.sizes[numbers]))

    def _find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the numbers of words, -1 for unknown: open addressing with linear probing."""
        numbers = np.full(hashes.size, -1, dtype=np.int64)
        pending = np.arange(hashes.size)
        slots = self._slot_of(hashes)
        while pending.size:
            candidates = self._slots[slots[pending]].astype(np.int64)
            hit = (candidates >= 0) & (self.words.take(candidates) == hashes[pending])
            numbers[pending[hit]] = candidates[hit]
            pending = pending[~hit & (candidates >= 0)]
            slots[pending] = (slots[pending] + 1) & (self._slots.size - 1)
        return numbers

    def _slot_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        shift = np.uint64(64 - (self._slots.size.bit_length() - 1))
        return ((hashes * _MIX) >> shift).astype(np.int64)

    def _learn(self, texts: list[bytes], hashes: NDArray[np.uint64]) -> None:
        words = [text.decode("utf-8", "replace") for text in texts]
        terms = [self._read(word) for word in words]
        numbers = self._term_ids
        before = len(numbers)
        flat = [numbers.setdefault(term, len(numbers)) for own in terms for term in own]
        fresh = [term_hash(term) for term in list(numbers)[before:]]
        sizes = np.array([len(own) for own in terms], dtype=np.int64)
        self._first = np.append(self._first, self._flat.size + np.cumsum(sizes) - sizes)
        self.sizes = np.append(self.sizes, sizes)
        self.flags = np.append(self.flags, np.array([_flags(w) for w in words], dtype=np.uint8))
        self._flat = np.append(self._flat, np.array(flat, dtype=np.int64))
        self.term_hashes = np.append(self.term_hashes, np.array(fresh, dtype=np.uint64))
        self.words = np.append(self.words, hashes)
        self._index(hashes)

    def _read(self, word: str) -> tuple[str, ...]:
        if word.isascii():
            return self._terms.split(word)
        return tuple(t for part in WORD.findall(word) for t in self._terms.of_word(part))

    def _index(self, hashes: NDArray[np.uint64]) -> None:
        """Insert the words just added. The table stays at most half full."""
        if self.words.size * 2 > self._slots.size:
            self._slots = np.full(self._slots.size * 4, -1, dtype=np.int32)
            hashes = self.words[1:]
        numbers = np.arange(self.words.size - hashes.size, self.words.size, dtype=np.int32)
        slots = self._slot_of(hashes)
        while numbers.size:
            free = self._slots[slots] < 0
            self._slots[slots[free]] = numbers[free]  # if several want one slot, the last gets it
            left = self._slots[slots] != numbers
            numbers, slots = numbers[left], (slots[left] + 1) & (self._slots.size - 1)


def _flags(word: str) -> int:
    flags = _FLAGS.get(word, 0)
    first = word[0]
    if "A" <= first <= "Z":  # true for every match of the pattern
        return flags | TYPE_NAME if _TYPE_NAME.match(word) else flags
    return flags | NUMBER if first.isdigit() else flags
