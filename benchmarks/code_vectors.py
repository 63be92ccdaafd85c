"""Vectors of real code for `python -m benchmarks.vectors --repos`, and questions in words.

The pieces of projects that the user has, as the shipped static encoder sees them, and messages of
their commits: words that ask for code lie apart from it, as made data do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.repository.git import open_repository
from agent.repository.snapshot import take_snapshot
from agent.retrieval.embedding.static import StaticEncoder, load_static
from agent.retrieval.history.commits import read_commits
from agent.retrieval.index.grammars import GRAMMARS
from agent.retrieval.index.identifiers import Terms
from agent.retrieval.index.records import RecordBuilder
from agent.retrieval.ranking.lexical import make_query
from agent.types import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

_COMMITS = 60  # of each project, the latest
_LEAST_WORDS = 6  # of a message: "Fix typo" asks for nothing


def code_vectors(repos: Sequence[Path], queries: int) -> tuple[Vectors, Vectors]:
    """Distinct unit vectors (n, d) of all pieces of code, and of so many messages (m, d)."""
    encoder = load_static()
    if encoder is None:
        raise SystemExit("the static encoder is not there: install the package with its models")
    vectors = _units(np.concatenate([_pieces(repo, encoder) for repo in repos]))
    _, first = np.unique(vectors, axis=0, return_index=True)  # copies would tie
    asked = _units(np.stack([row for repo in repos for row in _questions(repo, encoder)]))
    chosen = np.random.default_rng(1).permutation(len(asked))[:queries]
    return vectors[np.sort(first)], asked[chosen]


def _pieces(repo: Path, encoder: StaticEncoder) -> Vectors:
    snapshot = take_snapshot(repo, commit="HEAD")
    files = [
        (file.language, snapshot.text(path))
        for path, file in snapshot.files.items()
        if file.language in GRAMMARS
    ]
    block = RecordBuilder(encoder).build(files)
    return block.vectors.view(np.int8).reshape(-1, encoder.dimension).astype(np.float32)


def _questions(repo: Path, encoder: StaticEncoder) -> Iterator[Vectors]:
    terms = Terms()
    with open_repository(repo) as git:
        commits = git.ancestors(git.resolve("HEAD"), _COMMITS)
        for batch in read_commits(git, commits):
            for facts in batch:
                if len(f"{facts.subject} {facts.body}".split()) >= _LEAST_WORDS:
                    yield encoder.query(make_query(Problem(facts.subject, facts.body), terms))


def _units(rows: Vectors) -> Vectors:
    lengths = np.linalg.norm(rows, axis=1)
    some = lengths > 0
    units: Vectors = rows[some] / lengths[some, None]
    return units
