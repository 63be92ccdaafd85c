"""Terms of queries and documents: a word (`\\w+`) and its parts, lower-cased and stemmed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from hashlib import blake2b

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
        self.of_word = cache(self._split)
        self._hash = cache(term_hash)
        self._hashes = cache(lambda word: tuple(map(self._hash, self.of_word(word))))
        self._part = cache(self._term)
        self._stemmer = cache(_stemmer)

    def __len__(self) -> int:
        return self.of_word.cache_info().currsize

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
        hashes = self._hashes
        for word, number in Counter(WORD.findall(text)).items():
            for term in hashes(word):
                counts[term] = counts.get(term, 0) + number
        return counts

    def _split(self, word: str) -> tuple[str, ...]:
        """Return the distinct terms of one word, the whole word's first; () for stop words."""
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

    def _term(self, part: str) -> str:
        """Return the term of one part, "" for none."""
        lowered = part.lower()
        return self._stem(lowered) if _is_term(lowered) else ""

    def _stem(self, word: str) -> str:
        return self._stemmer()(word) if word.isalpha() else word


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
    """Return the 64-bit BLAKE2b of a term, little-endian: the same on every machine."""
    return int.from_bytes(
        blake2b(term.encode("utf-8", "replace"), digest_size=8).digest(), "little"
    )


IDENTIFIER = "[0-9A-Za-z_\u0080-\U0010ffff]"
"""Pattern of one character of a name. All beyond ASCII count as letters."""

_BASE = 0x9E3779B97F4A7C15  # odd; bits well mixed
_VALUES = [
    int.from_bytes(blake2b(bytes([byte]), digest_size=8).digest(), "little") for byte in range(256)
]


def name_hash(name: str) -> int:
    """Return the 64-bit polynomial hash of an identifier, the same on every machine."""
    total = 0
    for byte in reversed(name.encode("utf-8", "replace")):
        total = (total * _BASE + _VALUES[byte]) % (1 << 64)
    return total
