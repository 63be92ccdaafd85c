"""Feature tables for training the ranker, one file per query, written by `ranker.collect`.

The queries are development issues of the tuning projects, and commits of the same projects: the
message is the query, and the functions changed are the answer, seen from the parent commit.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.datasets import (
    GoldInstance,
    find_repository,
    is_for_tuning,
    load_dataset,
    read_files,
)
from agent.errors import PatchshotError, RepositoryError
from agent.evaluation.retrieval import counted_name, find_gold, gold_paths
from agent.repository.snapshot import take_snapshot
from agent.retrieval.embedding import static_in
from agent.retrieval.history import CommitHistory
from agent.retrieval.index.chunking import TreeSitterChunker
from agent.retrieval.index.index import Index
from agent.retrieval.ranking.lexical import without_boilerplate
from agent.retrieval.ranking.mentions import read_mentions
from agent.retrieval.ranking.signals import (
    FILE_NAMES,
    PIECE_NAMES,
    choose_candidates,
    file_matrix,
    piece_matrix,
)
from agent.retrieval.ranking.stages import collect_signals
from agent.retrieval.weights import read_arrays
from agent.run.problem import problem_from_text
from agent.types.protocols import Chunker
from training.pairs import Pair, read_project, write_whole
from training.projects import RANKER_PROJECTS, refusal
from training.writing import write_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.types.protocols import Reporter


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue, its `functions` by counted name, and the `texts` of their files by path."""

    instance: GoldInstance
    functions: tuple[str, ...]
    texts: Mapping[str, str]


def tuning_issues(dataset: Path, repos: Path, chunker: Chunker) -> Iterator[Issue]:
    """Yield the issues of tuning projects whose commit is present and that change functions."""
    for instance in load_dataset(dataset):
        if is_for_tuning(instance.repo) and not refusal(instance.repo):
            repository = find_repository(repos, instance.repo)
            found = None if repository is None else _issue(instance, repository, chunker)
            if found is not None:
                yield found


def _issue(instance: GoldInstance, repository: Path, chunker: Chunker) -> Issue | None:
    try:
        texts = read_files(repository, instance.base_commit, gold_paths(instance))
    except RepositoryError:
        return None  # a fork or a shallow copy that lacks the commit
    functions = find_gold(instance, texts, chunker).functions
    return Issue(instance, functions, texts) if functions else None


CANDIDATES = 400
COMMITS_A_PROJECT = 60
TEST_SHARE = 0.4  # share of commits that show the lines they add to tests, as issues show code
HIDE_SHARE = 0.6  # share of messages that lose the names of changed functions
SEED = 7


@dataclass(frozen=True, slots=True)
class TrainingQuery:
    """One problem and the functions to find, as `path:symbol`."""

    name: str
    repo: str
    commit: str
    text: str
    gold: tuple[str, ...]
    issue: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Features and truth of one query's candidates, in the order of the plain sum.

    `pieces` float32 (n, len(PIECE_NAMES)); `names`: their counted names, "" if not a function;
    `piece_gold` bool (n,). `files` float32 (m, len(FILE_NAMES)), with `paths` and `file_gold`
    alike. `gold`: all functions to find, whether candidates or not.
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
        """Whether each piece is one of the functions to change, bool (n,)."""
        gold = set(self.gold)
        return np.array([name in gold for name in self.names])

    @property
    def file_gold(self) -> NDArray[np.bool_]:
        """Whether each file holds a function to change, bool (m,)."""
        gold = {name.partition(":")[0] for name in self.gold}
        return np.array([path in gold for path in self.paths])


def issue_queries(dataset: Path, repositories: Path) -> Iterator[TrainingQuery]:
    """Yield the issues of tuning projects that change existing functions."""
    for issue in tuning_issues(dataset, repositories, TreeSitterChunker()):
        row = issue.instance
        yield TrainingQuery(
            row.instance_id,
            row.repo,
            row.base_commit,
            row.problem_statement,
            issue.functions,
            issue=True,
        )


def commit_queries(pairs: Path) -> Iterator[TrainingQuery]:
    """Yield a sample of the repairs in the tuning projects."""
    for repo in sorted(RANKER_PROJECTS):
        file = pairs / f"{repo.replace('/', '+')}.jsonl"
        if not file.is_file():
            continue
        # Neighbours in time share most of their files' contents, so indexing them is cheap.
        found = [pair for pair in read_project(file) if pair.fix][:COMMITS_A_PROJECT]
        yield from (_commit_query(pair) for pair in found)


def _commit_query(pair: Pair) -> TrainingQuery:
    dice = random.Random(f"{SEED}|{pair.commit}")  # noqa: S311 - a repeatable choice
    body, subject = pair.body, pair.subject
    if dice.random() < HIDE_SHARE:
        for name in sorted(pair.names_in_message, key=len, reverse=True):
            subject, body = subject.replace(name, "it"), body.replace(name, "it")
    if pair.test_added and dice.random() < TEST_SHARE:
        body += f"\n\n```python\n{pair.test_added[:1500]}\n```\n"
    gold = tuple(sorted({function.name for function in pair.functions}))
    return TrainingQuery(
        f"{pair.repo}@{pair.commit[:12]}", pair.repo, pair.parent, f"{subject}\n\n{body}", gold,
        issue=False,
    )  # fmt: skip


def collect(
    queries: Iterable[TrainingQuery],
    repositories: Path,
    output: Path,
    cache: Path,
    reporter: Reporter,
) -> Iterator[tuple[str, str]]:
    """Write the table of each query. Yields its name, and the reason if it was left out."""
    output.mkdir(parents=True, exist_ok=True)
    index = Index(reporter, cache / "index.sqlite", 1, encoder=static_in())
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


def _table(query: TrainingQuery, repository: Path, index: Index, history: CommitHistory) -> Table:
    problem = problem_from_text(query.text, query.name)
    snapshot = take_snapshot(repository, commit=query.commit)
    problem = without_boilerplate(problem, snapshot)
    signals = collect_signals(
        problem,
        read_mentions(problem),
        snapshot,
        index,
        history,
        threading.Event(),
    )
    pieces, files = choose_candidates(signals, CANDIDATES)
    corpus = signals.corpus
    paths = [corpus.files[int(number)].path for number in corpus.piece_file[pieces]]
    symbols = [corpus.symbols[int(number)] for number in pieces]
    return Table(
        query.name,
        query.repo,
        query.issue,
        query.gold,
        tuple(counted_name(p, s) if s else "" for p, s in zip(paths, symbols, strict=True)),
        tuple(corpus.files[int(number)].path for number in files),
        piece_matrix(signals, pieces),
        file_matrix(signals, files),
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
    """Return all tables of a folder, by query. Raises ValueError for tables of other features."""
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
