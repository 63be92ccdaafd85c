"""The tables and the JSON of `agent search`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from agent.shared.secrets import mask_secrets
from agent.shared.terminal import inert
from agent.types import Reason, ScoredChunk

if TYPE_CHECKING:
    from agent.search import Passage, PoolHit

_SMALL = 0.02  # share of the largest contribution; smaller ones are summed up in one line
_INDENT = " " * 5
_PLACES = 3  # decimal places of a contribution


def as_json(hit: ScoredChunk, relevance: float) -> dict[str, Any]:
    """Return a hit with all its contributions, which add up to the score."""
    chunk = hit.chunk
    return {
        "path": chunk.path,
        "start": chunk.start,
        "end": chunk.end,
        "symbol": chunk.symbol,
        "kind": chunk.kind.value,
        "relevance": round(relevance, 6),
        "score": round(hit.score, 6),
        "reasons": [
            {"feature": r.feature, "value": round(r.value, 6), "note": mask_secrets(r.note).text}
            for r in hit.reasons
        ],
    }


def render(hits: Sequence[tuple[ScoredChunk, float]], *, explain: bool) -> str:
    """Return one line for each hit and its relevance; with `explain` its contributions below it."""
    lines: list[str] = []
    for position, (hit, relevance) in enumerate(hits, start=1):
        chunk = hit.chunk
        place = f"{chunk.path}:{chunk.start}-{chunk.end}"
        lines.append(f"{position:3}  {relevance:.2f}  {place}  {chunk.symbol or chunk.kind.value}")
        if explain:
            lines.append(f"{_INDENT}score {hit.score:.3f}, the sum of")
            lines.extend(_explanation(hit))
    return shown(lines)


def finding_as_json(finding: PoolHit) -> dict[str, Any]:
    """Return a finding of a corpus with its passage and its near-duplicates."""
    return {
        **_passage_as_json(finding.passage),
        "score": round(finding.score, 6),
        "relevance": round(finding.relevance, 6),
        "similarity": round(finding.similarity, 6) if finding.similarity else None,
        "place": finding.rank,
        "reasons": [
            {"feature": r.feature, "value": round(r.value, 6), "note": mask_secrets(r.note).text}
            for r in finding.reasons
        ],
        "same": [_passage_as_json(passage) for passage in finding.same],
        "text": mask_secrets(finding.passage.text).text,
    }


def _passage_as_json(passage: Passage) -> dict[str, Any]:
    return {
        "corpus": passage.corpus.value,
        "title": mask_secrets(passage.title).text,
        "path": passage.path,
        "start": passage.start,
        "end": passage.end,
        "symbol": passage.symbol,
        "origin": passage.origin,
        "link": mask_secrets(passage.link).text,
        "tags": list(passage.tags),
    }


def render_findings(hits: Sequence[PoolHit], *, explain: bool) -> str:
    """Return one line for each finding: rank, relevance, corpus, location, title.

    With `explain`, the lines below a finding show its score and similarity, its rank in its corpus,
    the contributions to that rank, and its near-duplicates.
    """
    lines: list[str] = []
    for position, hit in enumerate(hits, start=1):
        passage = hit.passage
        numbers = f"{position:3}  {hit.relevance:.2f}"
        title = "" if passage.title == passage.symbol else f"  {passage.title}"
        more = f"  (+{len(hit.same)} alike)" if hit.same else ""
        lines.append(f"{numbers}  {f'[{passage.corpus.value}]':<9}  {passage.place}{title}{more}")
        if explain:
            lines.append(f"{_INDENT}{_standing(hit)}")
            if passage.link:
                lines.append(f"{_INDENT}link     {passage.link}")
            lines.extend(_contribution(reason) for reason in hit.reasons)
            lines.extend(f"{_INDENT}also     [{p.corpus.value}] {p.place}" for p in hit.same)
    return shown(lines)


def _standing(hit: PoolHit) -> str:
    """Describe the score, which is not the sum of the contributions below it."""
    if not hit.rank:
        return f"score {hit.score:.3f}: the name was looked up"
    similar = f", similarity {hit.similarity:.2f}" if hit.similarity else ""
    corpus = hit.passage.corpus.value
    return f"score {hit.score:.3f}{similar}; by place {hit.rank} in [{corpus}], which comes from"


def _explanation(hit: ScoredChunk) -> Iterator[str]:
    """Yield a line for each contribution; the last line sums up the small ones.

    The last line also takes the rounding difference, so that the printed values add up.
    """
    least = _SMALL * max((abs(reason.value) for reason in hit.reasons), default=0.0)
    small = [reason for reason in hit.reasons if abs(reason.value) < least]
    if len(small) == 1:
        small = []
    large = [reason for reason in hit.reasons if reason not in small]
    yield from map(_contribution, large)
    if small:
        names = ", ".join(reason.feature for reason in small)
        whole = sum(reason.value for reason in hit.reasons)
        rest = round(whole, _PLACES) - sum(round(reason.value, _PLACES) for reason in large)
        yield f"{_INDENT}{rest:+7.3f}  {len(small)} others: {names}"


def _contribution(reason: Reason) -> str:
    note = f"  {reason.note}" if reason.note else ""
    return f"{_INDENT}{reason.value:+7.3f}  {reason.feature:<11}{note}".rstrip()


def shown(lines: Sequence[str]) -> str:
    """Return lines, cut to the width of a terminal.

    Secrets are masked, because titles come from a repository.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    masked = mask_secrets("\n".join(inert(line, kept="") for line in lines)).text
    return "".join(f"{_cut(line, width)}\n" for line in masked.split("\n")) if lines else ""


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"
