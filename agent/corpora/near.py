"""Near-duplicates: which texts say nearly the same, found in near-linear time, and exactly.

Prefix filtering (Bayardo, Ma & Srikant, "Scaling up all pairs similarity search", WWW 2007): two
sets with a Jaccard similarity of t or more share a member among the first n - ceil(t n) + 1 of
either, when members are ordered from the rarest on. Only such pairs are compared.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import blake2b

from agent.corpora.formats import without_labels

NEAR = 0.90
"""Jaccard similarity from which two texts are one result (kodiai's figure)."""

SHINGLE = 3  # words of a shingle
_MAX_WORDS = 2_000
_WORD = re.compile(r"\w+")


def shingles(text: str) -> frozenset[int]:
    """Hashes of all runs of three words, lower-cased; of a shorter text, of what there is."""
    words = _WORD.findall(without_labels(text).lower())[:_MAX_WORDS]
    last = max(1, len(words) - SHINGLE + 1)
    runs = {" ".join(words[at : at + SHINGLE]) for at in range(last)} - {""}
    return frozenset(
        int.from_bytes(blake2b(run.encode("utf-8", "replace"), digest_size=8).digest(), "big")
        for run in runs
    )


def merge_near(texts: Sequence[str], threshold: float = NEAR) -> tuple[int, ...]:
    """For each text the number of the first that it nearly repeats, its own where there is none.

    The first of a group stands for it: what comes first ranks best.
    """
    sets = [shingles(text) for text in texts]
    order = _rarest_first(sets)
    index: defaultdict[int, list[int]] = defaultdict(list)
    leaders: list[int] = []
    for number, own in enumerate(sets):
        prefix = order[number][: len(own) - math.ceil(threshold * len(own)) + 1]
        candidates = sorted({other for member in prefix for other in index[member]})
        same = (other for other in candidates if jaccard(own, sets[other]) >= threshold)
        leader = next(same, number)
        leaders.append(leader)
        if leader == number:  # what repeats another need not be found again
            for member in prefix:
                index[member].append(number)
    return tuple(leaders)


def jaccard(left: frozenset[int], right: frozenset[int]) -> float:
    """Size of the intersection by that of the union; 0 where both are empty."""
    common = len(left & right)
    total = len(left) + len(right) - common
    return common / total if total else 0.0


def _rarest_first(sets: Sequence[frozenset[int]]) -> list[list[int]]:
    occurrences = Counter(member for own in sets for member in own)
    return [sorted(own, key=lambda member: (occurrences[member], member)) for own in sets]
