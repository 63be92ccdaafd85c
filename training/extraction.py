"""Makes training pairs from commits: selects informative commits and finds what each changed.

All functions here are pure functions of git's output. Changed functions are those of the first
parent, with the names that the evaluation uses.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.datasets import parse_patch
from agent.evaluation.retrieval import FileOutline, counted_name
from agent.repository.languages import is_generated_path, is_test_path, is_vendored_path
from agent.repository.text import decode, is_binary
from agent.types import Chunk
from agent.types.protocols import Chunker
from training.history import Commit, Delta
from training.messages import CommitMessage, clean_message, with_merged
from training.pairs import FunctionText, Pair

MAX_FILES = 6
MAX_FUNCTIONS = 8
"""Larger commits are sweeps through the code that no issue describes."""

MAX_TEXT_CHARS = 6_000
MAX_TEST_CHARS = 3_000
MAX_NEGATIVES = 12

MAX_BLOB_BYTES = 1_000_000
"""Larger source files are tables."""

_SIDE_FOLDERS = frozenset(
    {"docs", "doc", "examples", "example", "benchmarks", "benchmark", "asv_bench", "demos",
     "tutorials", "gallery", "scripts", "release", "ci", ".github"}
)  # fmt: skip
"""Folders at the top of a repository with code around the project, which issues are not about."""

_TEST_FOLDERS = frozenset({"test", "testsuite"})
"""Projects with tests at any depth (`tornado/test/`); elsewhere `test` may be library code."""


@dataclass(frozen=True, slots=True)
class CommitCandidate:
    """A commit that passed all filters that need no diff."""

    order: int
    commit: Commit
    message: CommitMessage
    sources: tuple[Delta, ...]


# --------------------------------------------------------------------------------------- candidates


def candidates(
    commits: Iterable[Commit], merged: Mapping[str, str], repo: str
) -> Iterator[CommitCandidate]:
    """Yield the newest commit of each message. `merged`: messages of second parents by id."""
    seen: set[str] = set()
    for order, commit in enumerate(commits):
        sources = tuple(delta for delta in commit.deltas if is_source(delta.path))
        if not commit.parent or not _is_small_change(sources):
            continue
        raw = commit.message
        if commit.merged in merged:
            raw = with_merged(raw, merged[commit.merged])
        message = clean_message(raw, repo.rpartition("/")[2])
        if message is None or message.text.casefold() in seen:
            continue
        seen.add(message.text.casefold())
        changed = tuple(delta for delta in sources if delta.status == "M")
        yield CommitCandidate(order, commit, message, changed)


def is_source(path: str) -> bool:
    """Whether a file is code of the project itself, which issues are about."""
    return not (
        _is_test(path)
        or is_vendored_path(path)
        or is_generated_path(path)
        or path == "setup.py"
        or path.partition("/")[0].lower() in _SIDE_FOLDERS
    )


def _is_test(path: str) -> bool:
    return is_test_path(path) or not _TEST_FOLDERS.isdisjoint(path.split("/")[:-1])


def _is_small_change(sources: Sequence[Delta]) -> bool:
    """Whether few files changed and none was removed or moved."""
    changed = sum(delta.status == "M" for delta in sources)
    return 1 <= changed <= MAX_FILES and all(delta.status in "AM" for delta in sources)


# -------------------------------------------------------------------------------------------- pairs


def make_pair(
    repo: str,
    candidate: CommitCandidate,
    patch: str,
    blobs: Mapping[str, bytes],
    chunker: Chunker,
) -> Pair | None:
    """Return the pair of a commit; None if it changes no existing function, or too many.

    `patch` is its diff against the first parent, `blobs` the old files by blob id.
    """
    sections = _sections(patch)
    changed: list[Chunk] = []
    others: list[Chunk] = []
    for delta in candidate.sources:
        text = _text(blobs.get(delta.old))
        section = sections.get(delta.path)
        if text is None or section is None:
            continue
        try:
            files = parse_patch(section)
        except ValueError:
            return None  # lone carriage return or broken encoding: line numbers would be wrong
        for file in files:
            # As for `find_gold`, but a constructor is a method here (see `counted_name`).
            outline = FileOutline(file.path, text, chunker)
            hit = outline.changed(file)
            changed.extend(hit)
            others.extend(chunk for chunk in outline.definitions if chunk not in hit)
    return _pair(repo, candidate, changed, others, _test_lines(sections))


def _text(blob: bytes | None) -> str | None:
    if blob is None or len(blob) > MAX_BLOB_BYTES or is_binary(blob):
        return None
    return decode(blob, cookie=True).text


def _pair(
    repo: str,
    candidate: CommitCandidate,
    changed: Sequence[Chunk],
    others: Sequence[Chunk],
    test_added: str,
) -> Pair | None:
    functions = tuple(_function(chunk) for chunk in changed)
    names = {function.name for function in functions}
    if not 1 <= len(names) <= MAX_FUNCTIONS:
        return None
    commit, message = candidate.commit, candidate.message
    words = set(re.findall(r"\w+", message.text))
    leaves = dict.fromkeys(function.leaf for function in functions)
    return Pair(
        repo=repo,
        commit=commit.id,
        parent=commit.parent,
        subject=message.subject,
        body=message.body,
        fix=message.fix,
        test_added=test_added,
        names_in_message=tuple(leaf for leaf in leaves if leaf in words),
        functions=functions,
        negatives=_negatives(commit.id, others, names),
    )


def _function(chunk: Chunk) -> FunctionText:
    return FunctionText(
        path=chunk.path,
        symbol=chunk.symbol,
        kind=chunk.kind,
        start=chunk.start,
        end=chunk.end,
        text=chunk.text[:MAX_TEXT_CHARS],
    )


def _negatives(commit: str, others: Iterable[Chunk], names: set[str]) -> tuple[FunctionText, ...]:
    """Return a pseudo-random sample that is the same in every run, ordered by position."""

    def lot(chunk: Chunk) -> bytes:
        place = f"{commit}:{chunk.path}:{chunk.start}:{chunk.symbol}"
        return hashlib.sha256(place.encode("utf-8", "replace")).digest()

    eligible = (chunk for chunk in others if counted_name(chunk.path, chunk.symbol) not in names)
    sample = sorted(eligible, key=lot)[:MAX_NEGATIVES]
    sample.sort(key=lambda chunk: (chunk.path, chunk.start, chunk.symbol))
    return tuple(_function(chunk) for chunk in sample)


# ------------------------------------------------------------------------------------------ patches

_FILE_HEADER = re.compile(r"^diff --git ", re.MULTILINE)
_NEW_NAME = re.compile(r"^\+\+\+ b/(.*?)\t?$", re.MULTILINE)


def _sections(patch: str) -> dict[str, str]:
    """Split a diff into parts by the path of the new side; deleted files are left out."""
    starts = [match.start() for match in _FILE_HEADER.finditer(patch)]
    parts = (patch[start:end] for start, end in zip(starts, [*starts[1:], len(patch)], strict=True))
    named = ((_NEW_NAME.search(part), part) for part in parts)
    return {match[1]: part for match, part in named if match is not None}


def _test_lines(sections: Mapping[str, str]) -> str:
    """Return the first lines added to tests, in order of the diff."""
    lines = [
        line[1:]
        for path, section in sections.items()
        if _is_test(path)
        for line in section.partition("\n@@")[2].split("\n")
        if line.startswith("+")
    ]
    return "\n".join(lines)[:MAX_TEST_CHARS].strip("\n")
