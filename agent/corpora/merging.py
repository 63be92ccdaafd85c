"""One order of the hits of all corpora: scores of the pool, near-duplicates merged, total order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.corpora.fusion import CORPUS_WEIGHTS, pool_score
from agent.corpora.near import merge_near
from agent.corpora.passages import Finding, Label, Passage
from agent.types import Reason

if TYPE_CHECKING:
    from agent.corpora.ranking import Found, ProjectWords
    from agent.corpora.shelf import Shelf

_PLACE = {label: number for number, label in enumerate(Label)}


@dataclass(slots=True)
class Hit:
    """What one corpus found, on which place (1 first)."""

    passage: Passage
    rank: int
    reasons: tuple[Reason, ...] = ()
    similarity: float = 0.0


def as_hits(shelf: Shelf, found: Sequence[Found], words: ProjectWords) -> list[Hit]:
    """What a corpus found, with the reasons."""
    return [
        Hit(shelf.passages[one.number], rank, _reasons(one, words))
        for rank, one in enumerate(found, start=1)
    ]


def _reasons(found: Found, words: ProjectWords) -> tuple[Reason, ...]:
    notes = {"words": words.note}
    literal = (Reason("verbatim", 0.0, "has the query's names: before all others"),)
    return (literal if found.literal else ()) + tuple(
        Reason(name, share, "; ".join(filter(None, (f"place {rank}", notes.get(name, "")))))
        for name, rank, share in found.shares
    )


def after_exact(exact: Sequence[Finding], hits: Iterable[Hit]) -> list[Hit]:
    """The hits beside what was looked up, without it; places of code begin behind it."""
    places = {finding.passage.place for finding in exact}
    code = len(exact)
    rest: list[Hit] = []
    for hit in hits:
        if hit.passage.corpus is not Label.CODE:
            rest.append(hit)
        elif hit.passage.place not in places:
            code += 1
            rest.append(replace(hit, rank=code))
    return rest


def one_a_symbol(found: Sequence[Found], shelf: Shelf) -> tuple[Found, ...]:
    """The best of each symbol: the others say the same of it. Linear."""
    best: dict[tuple[str, str], Found] = {}
    for one in found:
        passage = shelf.passages[one.number]
        best.setdefault((passage.path, passage.symbol), one)
    return tuple(best.values())


def merged(hits: Sequence[Hit]) -> tuple[Finding, ...]:
    """Findings in total order; of those that say nearly the same the first, with the others in it.

    A merged finding has the greatest similarity of its group.
    """
    top = max(CORPUS_WEIGHTS.values())
    findings = ordered(
        Finding(
            hit.passage,
            pool_score(hit.passage.corpus, hit.rank) / top,
            hit.reasons,
            similarity=hit.similarity,
            rank=hit.rank,
        )
        for hit in hits
    )
    leaders = merge_near([finding.passage.text for finding in findings])
    groups: dict[int, list[Finding]] = {}
    for leader, finding in zip(leaders, findings, strict=True):
        groups.setdefault(leader, []).append(finding)
    return tuple(_joined(group) for group in groups.values())


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By falling score, then corpus, path, start, origin, title."""
    return tuple(sorted(findings, key=_key))


def _key(finding: Finding) -> tuple[float, int, str, int, str, str]:
    passage = finding.passage
    return (
        -finding.score,
        _PLACE[passage.corpus],
        passage.path,
        passage.start,
        passage.origin,
        passage.title,
    )


def _joined(group: Sequence[Finding]) -> Finding:
    first = group[0]
    if len(group) == 1:
        return first
    return Finding(
        first.passage,
        first.score,
        first.reasons,
        tuple(finding.passage for finding in group[1:]),
        max(finding.similarity for finding in group),
        first.rank,
    )
