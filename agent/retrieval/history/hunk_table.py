"""Hunks of past commits as arrays: distinct texts, their terms, and their occurrences.

A text that several commits added (a cherry-pick, a revert of a revert) is one document: it is
counted and embedded once. The table of occurrences lists its locations, newest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.history.cached import columns_of, number_of
from agent.retrieval.history.commit_history import Renames
from agent.retrieval.index import Terms
from agent.shared.secrets import mask_secrets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.history.hunks import AddedHunk, CommitHunks
    from agent.retrieval.index import Corpus, Piece
    from agent.types.protocols import Snapshot


def without_secrets(commit: CommitHunks) -> CommitHunks:
    """Mask secrets: the history still holds those that were removed from the tree."""
    subject = mask_secrets(commit.subject).text
    hunks = tuple(
        replace(hunk, text=mask_secrets(hunk.text).text, context=mask_secrets(hunk.context).text)
        for hunk in commit.hunks
    )
    return replace(commit, subject=subject, hunks=hunks)


def hunk_text(subject: str, hunk: AddedHunk) -> str:
    """Return the text to search and embed: `subject | path | context`, then the added lines."""
    head = " | ".join(part for part in (subject, hunk.path, hunk.context) if part)
    return f"{head}\n{hunk.text}"


@dataclass(frozen=True, slots=True)
class CountedHunks:
    """A commit's `n` hunks, with the digests and terms of their texts.

    `digests`: SHA-256 of each `hunk_text`, 32 bytes each; `sizes` int64 (n,): number of distinct
    terms of each; `hashes` uint64 (m,), `counts` int64 (m,): those terms, hunk after hunk.
    """

    commit: CommitHunks
    digests: tuple[bytes, ...]
    sizes: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    counts: NDArray[np.int64]


def count_hunks(commit: CommitHunks, terms: Terms) -> CountedHunks:
    """Compute digest and terms of each hunk."""
    digests: list[bytes] = []
    sizes: list[int] = []
    hashes: list[int] = []
    counts: list[int] = []
    for hunk in commit.hunks:
        text = hunk_text(commit.subject, hunk)
        found = terms.count_hashes(text)
        digests.append(sha256(text.encode("utf-8", "surrogatepass")).digest())
        sizes.append(len(found))
        hashes.extend(found)
        counts.extend(found.values())
    return CountedHunks(
        commit,
        tuple(digests),
        np.array(sizes, dtype=np.int64),
        np.array(hashes, dtype=np.uint64),
        np.array(counts, dtype=np.int64),
    )


@dataclass(frozen=True, slots=True)
class HunkTable:
    """`c` commits, newest first; `d` distinct texts; `o` occurrences, newest first; `p` paths.

    `sizes` int64 (c,): number of files that each commit changed; `functions` int64 (c,): number of
    distinct functions that its hunks are in. `digests`: SHA-256 of each text, 32 bytes. `lengths`
    float64 (d,): number of terms of each text. `vocabulary` uint64 (v,), sorted. Term i is in the
    texts `postings[offsets[i]:offsets[i + 1]]` (int64, ascending), `counts` (float64) times in
    each; `offsets` is int64 (v + 1,).

    Occurrences, int64 (o,): `text`, `commit`, `path` (at that commit), `today` (the path after
    later renames), `start`, `end` (lines at that commit), `order` (number of the hunk within the
    commit). Functions: occurrence `name_of` int64 (n,) is in `names[name]`, int64 (n,).
    """

    commits: tuple[str, ...]
    paths: tuple[str, ...]
    names: tuple[str, ...]
    digests: tuple[bytes, ...]
    sizes: NDArray[np.int64]
    functions: NDArray[np.int64]
    lengths: NDArray[np.float64]
    vocabulary: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    postings: NDArray[np.int64]
    counts: NDArray[np.float64]
    text: NDArray[np.int64]
    commit: NDArray[np.int64]
    path: NDArray[np.int64]
    today: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    order: NDArray[np.int64]
    name_of: NDArray[np.int64]
    name: NDArray[np.int64]


def build_table(commits: Sequence[CountedHunks]) -> HunkTable:
    """Build the table of these commits, which are newest first."""
    builder = _Builder()
    for number, counted in enumerate(commits):
        builder.add(number, counted)
    return builder.finish(commits)


@dataclass(slots=True)
class _Builder:
    """Numbers paths, names and texts as they come."""

    paths: dict[str, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    digests: dict[bytes, int] = field(default_factory=dict)
    renames: Renames = field(default_factory=Renames)
    functions: list[int] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    named: list[tuple[int, int]] = field(default_factory=list)
    fresh: list[NDArray[np.bool_]] = field(default_factory=list)  # per commit: hunks with new texts

    def add(self, number: int, counted: CountedHunks) -> None:
        """Add the next older commit."""
        known = len(self.digests)
        new: list[bool] = []
        functions: set[tuple[str, str]] = set()
        for order, (hunk, digest) in enumerate(
            zip(counted.commit.hunks, counted.digests, strict=True)
        ):
            text = number_of(self.digests, digest)
            new.append(text >= known)
            known = max(known, text + 1)
            path = number_of(self.paths, hunk.path)
            now = number_of(self.paths, self.renames.today(hunk.path))
            self.named.extend((len(self.rows), number_of(self.names, name)) for name in hunk.names)
            self.rows.append((text, number, path, now, hunk.start, hunk.end, order))
            functions.update((hunk.path, name) for name in hunk.names)
        self.fresh.append(np.array(new, dtype=np.bool_))
        self.functions.append(len(functions))
        self.renames.go_back(counted.commit.renames)

    def finish(self, commits: Sequence[CountedHunks]) -> HunkTable:
        """Build the table of the commits added."""
        sizes, hashes, counts = self._terms(commits)
        owner = np.repeat(np.arange(sizes.size), sizes)
        vocabulary, term = np.unique(hashes, return_inverse=True)
        order = np.argsort(term, kind="stable")
        ends = np.cumsum(np.bincount(term, minlength=vocabulary.size))
        text, commit, path, today, start, end, number = columns_of(self.rows, 7)
        name_of, name = columns_of(self.named, 2)
        return HunkTable(
            commits=tuple(one.commit.commit for one in commits),
            paths=tuple(self.paths),
            names=tuple(self.names),
            digests=tuple(self.digests),
            sizes=np.array([one.commit.size for one in commits], dtype=np.int64),
            functions=np.array(self.functions, dtype=np.int64),
            lengths=np.bincount(owner, counts, sizes.size).astype(np.float64),
            vocabulary=vocabulary,
            offsets=np.concatenate(([0], ends)).astype(np.int64),
            postings=owner[order],
            counts=counts[order].astype(np.float64),
            text=text,
            commit=commit,
            path=path,
            today=today,
            start=start,
            end=end,
            order=number,
            name_of=name_of,
            name=name,
        )

    def _terms(
        self, commits: Sequence[CountedHunks]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """Return sizes, hashes and counts of the distinct texts, as in `CountedHunks`."""
        kept = [np.repeat(f, c.sizes) for f, c in zip(self.fresh, commits, strict=True)]
        pairs = list(zip(kept, commits, strict=True))
        sizes = [c.sizes[f] for f, c in zip(self.fresh, commits, strict=True)]
        return (
            np.concatenate([np.empty(0, np.int64), *sizes]),
            np.concatenate([np.empty(0, np.uint64), *(c.hashes[k] for k, c in pairs)]),
            np.concatenate([np.empty(0, np.int64), *(c.counts[k] for k, c in pairs)]),
        )


# ---------------------------------------------------------------------------------- following lines

MIN_LINES = 2
"""Lines of a hunk that a function must contain; a single line may match by chance."""

_MIN_LINE = 12  # characters without indentation: shorter lines (`return None`) occur everywhere


@dataclass(slots=True)
class LineFollower:
    """Finds pieces of the corpus by their lines. Each file of the snapshot is read once."""

    snapshot: Snapshot
    corpus: Corpus
    _places: dict[int, Mapping[str, int]] = field(default_factory=dict)

    def pieces(self, file: int, text: str) -> Sequence[int]:
        """Return the named pieces that contain at least MIN_LINES lines of `text`, in order."""
        places = self._places_in(file)
        lines = dict.fromkeys(line.strip() for line in text.split("\n"))
        found = [places[line] for line in lines if line in places]
        if len(found) < MIN_LINES:
            return ()
        named = [pair for pair in self.corpus.pieces_of(file) if pair[1].symbol]
        counts = Counter(number for line in found for number in _holding(named, line))
        return tuple(sorted(number for number, count in counts.items() if count >= MIN_LINES))

    def _places_in(self, file: int) -> Mapping[str, int]:
        if file not in self._places:
            text = self.snapshot.text(self.corpus.files[file].path)
            self._places[file] = places_of_lines(text)
        return self._places[file]


def places_of_lines(text: str) -> Mapping[str, int]:
    """Return the 1-based line number of each stripped line that occurs exactly once."""
    stripped = [line.strip() for line in text.split("\n")]
    counts = Counter(stripped)
    return {
        line: number
        for number, line in enumerate(stripped, start=1)
        if len(line) >= _MIN_LINE and counts[line] == 1
    }


def _holding(pieces: Iterable[tuple[int, Piece]], line: int) -> Iterable[int]:
    for number, piece in pieces:
        inside = piece.start <= line <= piece.end
        if inside and not any(start <= line <= end for start, end in piece.holes):
            yield number
