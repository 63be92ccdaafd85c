"""Merges the hits of all corpora into one order, and merges near-duplicates.

Near-duplicates are found exactly and in near-linear time by prefix filtering (Bayardo, Ma &
Srikant, "Scaling up all pairs similarity search", WWW 2007): order the members of two sets of size
n from the rarest on. If their Jaccard similarity is at least t, the first n - ceil(t n) + 1 members
of each set share a member. Only such pairs are compared.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from agent.search.calibration import passage_relevance
from agent.search.passages import Label, Passage, PoolHit
from agent.search.ranking import rank_score
from agent.search.text_format import without_labels
from agent.types import Reason

if TYPE_CHECKING:
    from agent.search.ranking import ProjectWords, RankedPassage
    from agent.search.word_index import WordIndex

NEAR = 0.90
"""Jaccard similarity from which two texts are merged. The value comes from kodiai."""

SHINGLE = 3  # words per shingle
_MAX_WORDS = 2_000
_WORD = re.compile(r"\w+")


def shingles(text: str) -> frozenset[int]:
    """Return hashes of all runs of three lower-case words, or of the words of a shorter text."""
    words = _WORD.findall(without_labels(text).lower())[:_MAX_WORDS]
    last = max(1, len(words) - SHINGLE + 1)
    runs = {" ".join(words[at : at + SHINGLE]) for at in range(last)} - {""}
    return frozenset(
        int.from_bytes(blake2b(run.encode("utf-8", "replace"), digest_size=8).digest(), "big")
        for run in runs
    )


def merge_near(texts: Sequence[str], threshold: float = NEAR) -> tuple[int, ...]:
    """Return for each text the index of the first text that it nearly repeats, or its own index.

    The first text of a group represents it, because it has the best rank.
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
        if leader == number:  # a duplicate cannot represent other texts
            for member in prefix:
                index[member].append(number)
    return tuple(leaders)


def jaccard(left: frozenset[int], right: frozenset[int]) -> float:
    """Return the size of the intersection divided by the size of the union; 0 for two empty
    sets.
    """
    common = len(left & right)
    total = len(left) + len(right) - common
    return common / total if total else 0.0


def _rarest_first(sets: Sequence[frozenset[int]]) -> list[list[int]]:
    occurrences = Counter(member for own in sets for member in own)
    return [sorted(own, key=lambda member: (occurrences[member], member)) for own in sets]


_PLACE = {label: number for number, label in enumerate(Label)}


@dataclass(slots=True)
class CorpusHit:
    """A passage found in one corpus, with its rank there (from 1)."""

    passage: Passage
    rank: int
    reasons: tuple[Reason, ...] = ()
    similarity: float = 0.0
    matched: float = 0.0
    relevance: float = 0.0


def as_hits(
    word_index: WordIndex, found: Sequence[RankedPassage], words: ProjectWords
) -> list[CorpusHit]:
    """Convert the ranked passages of a corpus to hits with reasons."""
    relevances = passage_relevance([one.matched for one in found])
    return [
        CorpusHit(
            word_index.passages[one.number],
            rank,
            _reasons(one, words),
            matched=one.matched,
            relevance=relevances[rank - 1],
        )
        for rank, one in enumerate(found, start=1)
    ]


def _reasons(found: RankedPassage, words: ProjectWords) -> tuple[Reason, ...]:
    notes = {"words": words.note}
    literal = (Reason("verbatim", 0.0, "has the query's names: before all others"),)
    return (literal if found.literal else ()) + tuple(
        Reason(name, share, "; ".join(filter(None, (f"place {rank}", notes.get(name, "")))))
        for name, rank, share in found.shares
    )


def after_exact(exact: Sequence[PoolHit], hits: Iterable[CorpusHit]) -> list[CorpusHit]:
    """Return the hits that were not looked up by name.

    Ranks of code start after the looked-up hits.
    """
    places = {finding.passage.place for finding in exact}
    code = len(exact)
    rest: list[CorpusHit] = []
    for hit in hits:
        if hit.passage.corpus is not Label.CODE:
            rest.append(hit)
        elif hit.passage.place not in places:
            code += 1
            rest.append(replace(hit, rank=code))
    return rest


def one_a_symbol(
    found: Sequence[RankedPassage], word_index: WordIndex
) -> tuple[RankedPassage, ...]:
    """Return the best passage of each symbol, because its other passages give the same
    information.
    """
    best: dict[tuple[str, str], RankedPassage] = {}
    for one in found:
        passage = word_index.passages[one.number]
        best.setdefault((passage.path, passage.symbol), one)
    return tuple(best.values())


def merged(hits: Sequence[CorpusHit], weights: Mapping[Label, float]) -> tuple[PoolHit, ...]:
    """Return hits in total order. The first hit of a group lists its near-duplicates in `same`.

    A merged hit has the highest similarity and relevance of its group.
    """
    top = max(weights.values()) or 1.0
    findings = ordered(
        PoolHit(
            hit.passage,
            weights[hit.passage.corpus] * rank_score(hit.rank) / top,
            hit.reasons,
            similarity=hit.similarity,
            relevance=hit.relevance,
            rank=hit.rank,
        )
        for hit in hits
    )
    leaders = merge_near([finding.passage.text for finding in findings])
    groups: dict[int, list[PoolHit]] = {}
    for leader, finding in zip(leaders, findings, strict=True):
        groups.setdefault(leader, []).append(finding)
    return tuple(_joined(group) for group in groups.values())


def ordered(findings: Iterable[PoolHit]) -> tuple[PoolHit, ...]:
    """Sort by falling score, then corpus, path, start, origin, title."""
    return tuple(sorted(findings, key=_key))


def _key(finding: PoolHit) -> tuple[float, int, str, int, str, str]:
    passage = finding.passage
    return (
        -finding.score,
        _PLACE[passage.corpus],
        passage.path,
        passage.start,
        passage.origin,
        passage.title,
    )


def _joined(group: Sequence[PoolHit]) -> PoolHit:
    first = group[0]
    same = [*first.passage.also]
    for finding in group[1:]:
        same += [finding.passage, *finding.passage.also]
    return replace(
        first,
        same=tuple(same),
        similarity=max(finding.similarity for finding in group),
        relevance=max(finding.relevance for finding in group),
    )
