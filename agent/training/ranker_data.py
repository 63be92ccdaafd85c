"""Feature tables to train the ranker on: one file a query, written as `ranker.collect` goes.

Queries are the development issues of the projects to tune on, and commits of the same projects:
their message against the functions they changed, seen from the parent commit.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import PatchshotError
from agent.evaluation.gold import counted_name
from agent.models.archive import read_arrays, write_arrays
from agent.problem import problem_from_text
from agent.repository.snapshot import take_snapshot
from agent.retrieval.boilerplate import without_boilerplate
from agent.retrieval.chunking import TreeSitterChunker
from agent.retrieval.evidence import mention_evidence
from agent.retrieval.features import FILE_NAMES, PIECE_NAMES
from agent.retrieval.history_store import CommitHistory
from agent.retrieval.index import Index
from agent.retrieval.mentions import read_mentions
from agent.retrieval.options import RetrievalOptions
from agent.retrieval.signals import choose_candidates, file_matrix, piece_matrix
from agent.retrieval.stages import collect_signals
from agent.retrieval.static import load_static
from agent.training.files import write_whole
from agent.training.issues import tuning_issues
from agent.training.pairs import Pair, read_project
from agent.training.splits import RANKER_PROJECTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.protocols import Reporter

CANDIDATES = 400
COMMITS_A_PROJECT = 60
TEST_SHARE = 0.4  # of the commits show the lines they add to tests, as issues show code
HIDE_SHARE = 0.6  # of the messages lose the names of what was changed
SEED = 7


@dataclass(frozen=True, slots=True)
class Query:
    """One problem and what is to be found: `path:symbol` of functions."""

    name: str
    repo: str
    commit: str
    text: str
    gold: tuple[str, ...]
    issue: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Features and truth of one query's candidates, in the order of the plain sum.

    `pieces` float32 (n, len(PIECE_NAMES)); `names` their counted names, "" for what is no
    function; `piece_gold` bool (n,). `files` float32 (m, len(FILE_NAMES)), `paths`, `file_gold`
    likewise. `gold`: everything to be found, candidates or not.
    """

    query: str
    repo: str
    issue: bool
    gold: tuple[str, ...]
    names: tuple[str, ...]
    paths: tuple[str, ...]
    pieces: NDArray[np.float32]
    files: NDArray[np.float32]

    @property
    def piece_gold(self) -> NDArray[np.bool_]:
        """Whether each piece is one of the functions to change."""
        gold = set(self.gold)
        return np.array([name in gold for name in self.names])

    @property
    def file_gold(self) -> NDArray[np.bool_]:
        """Whether each file holds one."""
        gold = {name.partition(":")[0] for name in self.gold}
        return np.array([path in gold for path in self.paths])


def issue_queries(dataset: Path, repositories: Path) -> Iterator[Query]:
    """The issues of projects to tune on that change existing functions."""
    for issue in tuning_issues(dataset, repositories, TreeSitterChunker()):
        row = issue.instance
        yield Query(
            row.instance_id,
            row.repo,
            row.base_commit,
            row.problem_statement,
            issue.functions,
            issue=True,
        )


def commit_queries(pairs: Path) -> Iterator[Query]:
    """A sample of the repairs in the projects to tune on."""
    for repo in sorted(RANKER_PROJECTS):
        file = pairs / f"{repo.replace('/', '+')}.jsonl"
        if not file.is_file():
            continue
        # Neighbours in time share most of their files' contents: cheap to index.
        found = [pair for pair in read_project(file) if pair.fix][:COMMITS_A_PROJECT]
        yield from (_commit_query(pair) for pair in found)


def _commit_query(pair: Pair) -> Query:
    dice = random.Random(f"{SEED}|{pair.commit}")  # noqa: S311 - a repeatable choice
    body, subject = pair.body, pair.subject
    if dice.random() < HIDE_SHARE:
        for name in sorted(pair.names_in_message, key=len, reverse=True):
            subject, body = subject.replace(name, "it"), body.replace(name, "it")
    if pair.test_added and dice.random() < TEST_SHARE:
        body += f"\n\n```python\n{pair.test_added[:1500]}\n```\n"
    gold = tuple(sorted({function.name for function in pair.functions}))
    return Query(
        f"{pair.repo}@{pair.commit[:12]}", pair.repo, pair.parent, f"{subject}\n\n{body}", gold,
        issue=False,
    )  # fmt: skip


def collect(
    queries: Iterable[Query], repositories: Path, output: Path, cache: Path, reporter: Reporter
) -> Iterator[tuple[str, str]]:
    """Write the table of each query; gives its name and why it was left out, if it was."""
    output.mkdir(parents=True, exist_ok=True)
    index = Index(reporter, cache / "index.sqlite", 1, encoder=load_static())
    history = CommitHistory(cache / "history.sqlite", reporter)
    for query in queries:
        target = output / f"{sha256(query.name.encode()).hexdigest()[:20]}.npz"
        if target.exists():
            continue
        repository = repositories / query.repo.replace("/", "+")
        try:
            table = _table(query, repository, index, history)
        except PatchshotError as error:
            yield query.name, str(error)
            continue
        write_whole(target, (_encoded(table),))
        yield query.name, ""


def _table(query: Query, repository: Path, index: Index, history: CommitHistory) -> Table:
    problem = problem_from_text(query.text, query.name)
    snapshot = take_snapshot(repository, commit=query.commit)
    problem = without_boilerplate(problem, snapshot)
    signals = collect_signals(
        problem,
        read_mentions(problem),
        snapshot,
        index,
        (mention_evidence,),
        history,
        RetrievalOptions(),
        threading.Event(),
    )
    chosen = choose_candidates(signals, CANDIDATES)
    corpus = signals.corpus
    paths = [corpus.files[int(number)].path for number in corpus.piece_file[chosen.pieces]]
    symbols = [corpus.symbols[int(number)] for number in chosen.pieces]
    return Table(
        query.name,
        query.repo,
        query.issue,
        query.gold,
        tuple(counted_name(p, s) if s else "" for p, s in zip(paths, symbols, strict=True)),
        tuple(corpus.files[int(number)].path for number in chosen.files),
        piece_matrix(signals, chosen.pieces),
        file_matrix(signals, chosen.files),
    )


def _encoded(table: Table) -> bytes:
    header = {
        "query": table.query, "repo": table.repo, "issue": table.issue, "gold": table.gold,
        "names": table.names, "paths": table.paths,
        "columns": [*PIECE_NAMES, "|", *FILE_NAMES],
    }  # fmt: skip
    return write_arrays(
        {
            "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
            "pieces": table.pieces,
            "files": table.files,
        }
    )


def read_tables(folder: Path) -> Sequence[Table]:
    """All tables of a folder, by query. Raises ValueError for tables of other features."""
    tables = [_decoded(file) for file in sorted(folder.glob("*.npz"))]
    return sorted(tables, key=lambda table: table.query)


def _decoded(file: Path) -> Table:
    arrays = read_arrays(file.read_bytes())
    if arrays is None:
        raise ValueError(f"{file}: damaged; delete it and collect again")
    header = json.loads(bytes(arrays["header"]))
    if header["columns"] != [*PIECE_NAMES, "|", *FILE_NAMES]:
        raise ValueError(f"{file}: made with other features; delete the folder and collect again")
    return Table(
        header["query"], header["repo"], header["issue"], tuple(header["gold"]),
        tuple(header["names"]), tuple(header["paths"]),
        arrays["pieces"].astype(np.float32), arrays["files"].astype(np.float32),
    )  # fmt: skip
