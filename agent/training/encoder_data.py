"""What the encoder learns from: problems, the functions that answer them, and ones that do not.

Commit messages stand in for issues. Issues differ from them in two ways that are imitated here:
they hold code that shows the fault, and often do not name the function at fault.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from agent.errors import ConfigurationError, ProblemError
from agent.evaluation.gold import counted_name
from agent.problem import problem_from_text
from agent.repository.languages import language_of
from agent.retrieval.chunking import TreeSitterChunker
from agent.retrieval.mentions import read_mentions
from agent.retrieval.texts import document_text, query_text
from agent.training.issues import Issue, tuning_issues
from agent.training.pairs import FunctionText, Pair, read_project
from agent.training.projects import refusal
from agent.types import Chunk, ChunkKind, SourceFile

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from agent.protocols import Chunker

TEST_SHARE = 0.3
"""Of the commits with tests: how often their code is appended, as reproduction code is."""

MASK_SHARE = 0.3
"""Of the messages that name a changed function: how often the name is left out."""

MAX_DOCUMENT_CHARS = 1_000
"""More than the tokens that are read of a function; bounds memory."""

MAX_NEGATIVES = 6
"""Kept of a commit: one is drawn at a time."""

_T = TypeVar("_T")

_DEFINITIONS = frozenset({ChunkKind.FUNCTION, ChunkKind.METHOD, ChunkKind.CLASS})


@dataclass(frozen=True, slots=True)
class Document:
    """A function as it is embedded. `name` is the counted name; equal `key`: equal code."""

    name: str
    text: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Example:
    """A problem with the functions that were changed and unchanged ones of the same files."""

    repo: str
    id: str
    text: str
    test: str
    positives: tuple[Document, ...]
    negatives: tuple[Document, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The plain names of the positives, each once, in order."""
        names = (document.name.rpartition(":")[2] for document in self.positives)
        return tuple(dict.fromkeys(name.rpartition(".")[2] for name in names))


@dataclass(frozen=True, slots=True)
class Batch:
    """Row i of `queries` belongs to row i of `documents`; the other rows are negatives of it.

    `documents` is longer than `queries`: drawn negatives follow. `masked`, bool of shape
    (queries, documents), marks what must not count as a negative of a query: another function that
    answers it, or the same code elsewhere.
    """

    repo: str
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    masked: NDArray[np.bool_]


# ------------------------------------------------------------------------------------------ reading


def pair_files(folder: Path, left_out: Iterable[str]) -> tuple[Path, ...]:
    """The mined files to learn from, in order of their names.

    Without projects that must not be learned from, and those `left_out` for choosing the model.
    Raises ConfigurationError when there is none.
    """
    out = {repo.lower() for repo in left_out}
    files = tuple(
        file
        for file in sorted(folder.glob("*.jsonl"))
        if (repo := file.stem.replace("+", "/", 1)).lower() not in out and not refusal(repo)
    )
    if not files:
        raise ConfigurationError(f"--pairs {folder}: no pairs; run agent.training.mining first")
    return files


def read_examples(file: Path, most: int) -> tuple[Example, ...]:
    """At most so many examples of a project: fixes first, then the newest.

    Raises ConfigurationError for a file of a project that must not be learned from.
    """
    ranked: list[tuple[bool, int, Example]] = []
    for order, pair in enumerate(read_project(file)):
        if reason := refusal(pair.repo):
            raise ConfigurationError(f"{file}: {pair.repo} is {reason}; remove the file")
        ranked.append((not pair.fix, order, _example(pair)))
    ranked.sort(key=lambda entry: entry[:2])
    return tuple(example for _, _, example in ranked[:most])


def _example(pair: Pair) -> Example:
    return Example(
        repo=pair.repo,
        id=pair.commit,
        text=pair.query,
        test=pair.test_added,
        positives=tuple(_document(_chunk(function)) for function in pair.functions),
        negatives=tuple(_document(_chunk(f)) for f in pair.negatives[:MAX_NEGATIVES]),
    )


def _chunk(function: FunctionText) -> Chunk:
    return Chunk(
        path=function.path,
        start=function.start,
        end=function.end,
        symbol=function.symbol,
        kind=function.kind,
        text=function.text,
        blob="",
        language=language_of(function.path),
    )


def _document(chunk: Chunk) -> Document:
    text = document_text(chunk)
    key = hashlib.blake2b(chunk.text.encode("utf-8", "replace"), digest_size=8).digest()
    return Document(counted_name(chunk.path, chunk.symbol), text[:MAX_DOCUMENT_CHARS], key)


# ------------------------------------------------------------------------------------------- issues


def read_issues(dataset: Path, repos: Path) -> tuple[Example, ...]:
    """The issues of projects to tune on, those whose repository and functions are there.

    The negatives of an issue are all other functions of the files, in order of place.
    """
    chunker = TreeSitterChunker()
    found = (_issue(issue, chunker) for issue in tuning_issues(dataset, repos, chunker))
    return tuple(example for example in found if example.positives)


def _issue(issue: Issue, chunker: Chunker) -> Example:
    wanted = set(issue.functions)
    documents = [
        _document(chunk)
        for path, text in sorted(issue.texts.items())
        for chunk in chunker(SourceFile(path, "", len(text), language_of(path)), text)
        if chunk.kind in _DEFINITIONS
    ]
    positives = tuple(document for document in documents if document.name in wanted)
    others = tuple(document for document in documents if document.name not in wanted)
    row = issue.instance
    return Example(row.repo, row.instance_id, row.problem_statement, "", positives, others)


# ------------------------------------------------------------------------------------------ queries


def query_of(text: str) -> str:
    """The query that the product would embed for this problem, "" for one that says nothing."""
    try:
        problem = problem_from_text(text, "pair")
    except ProblemError:
        return ""
    return query_text(problem, read_mentions(problem))


def training_query(example: Example, random: Generator) -> str:
    """A query of the example, made more like an issue now and then."""
    text = example.text
    with_test, masked = random.random() < TEST_SHARE, random.random() < MASK_SHARE
    if example.test and with_test:
        text = f"{text}\n\n```python\n{example.test}\n```"
    if masked and example.leaves:
        names = "|".join(map(re.escape, example.leaves))
        text = re.sub(rf"(?<!\w)(?:{names})(?!\w)", "", text)
    return query_of(text) or query_of(example.text)


# ------------------------------------------------------------------------------------------ batches


class Pool:
    """Examples by project, drawn without replacement until a project is used up."""

    def __init__(self) -> None:
        self._examples: dict[str, list[Example]] = defaultdict(list)
        self._waiting: dict[str, list[Example]] = defaultdict(list)

    def add(self, examples: Iterable[Example]) -> None:
        """More examples, of any projects."""
        for example in examples:
            self._examples[example.repo].append(example)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Examples by project, in order of the names."""
        return {repo: len(self._examples[repo]) for repo in sorted(self._examples)}

    def draw(self, most: int, random: Generator) -> list[Example]:
        """Different examples of one project; fewer than `most` where it has no more.

        A project's chance grows with the root of its size: the large ones shall not be all.
        """
        sizes = self.sizes
        weights = np.sqrt(np.array(list(sizes.values()), dtype=np.float64))
        repo = list(sizes)[int(random.choice(len(weights), p=weights / weights.sum()))]
        waiting = self._waiting[repo]
        if len(waiting) < min(most, sizes[repo]):
            fresh = self._examples[repo]
            left = {example.id for example in waiting}
            order = [int(index) for index in random.permutation(len(fresh))]
            self._waiting[repo] = waiting = [
                *(fresh[index] for index in order if fresh[index].id not in left),
                *waiting,  # the end is drawn first
            ]
        drawn = waiting[-most:]
        del waiting[-most:]
        return drawn


def make_batch(examples: Sequence[Example], negatives: int, random: Generator) -> Batch:
    """Queries with a positive each, and up to so many unchanged functions of the same files.

    Raises ValueError for examples of several projects: their functions tell apart too easily.
    """
    if len({example.repo for example in examples}) != 1:
        raise ValueError("a batch is made of one project's examples")
    queries = tuple(training_query(example, random) for example in examples)
    documents = [_one_of(example.positives, random) for example in examples]
    givers = [example for example in examples if example.negatives]
    order = [int(index) for index in random.permutation(len(givers))][:negatives]
    documents += [_one_of(givers[index].negatives, random) for index in order]
    return Batch(
        repo=examples[0].repo,
        queries=queries,
        documents=tuple(document.text for document in documents),
        masked=_masked(examples, documents),
    )


def _one_of(documents: Sequence[Document], random: Generator) -> Document:
    return documents[int(random.integers(len(documents)))]


def _masked(examples: Sequence[Example], documents: Sequence[Document]) -> NDArray[np.bool_]:
    masked = np.zeros((len(examples), len(documents)), dtype=np.bool_)
    for row, example in enumerate(examples):
        keys = {document.key for document in example.positives}
        names = {document.name for document in example.positives}
        for column, document in enumerate(documents):
            masked[row, column] = document.key in keys or document.name in names
        masked[row, row] = False  # the answer itself
    return masked


# ------------------------------------------------------------------------------------- development


@dataclass(frozen=True, slots=True)
class Trial:
    """A query and its candidates; `right` are the rows of those that answer it."""

    query: str
    candidates: tuple[int, ...]
    right: Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Trials:
    """Development queries over one list of documents, each embedded once."""

    documents: tuple[str, ...]
    trials: tuple[Trial, ...]


def make_trials(
    issues: Sequence[Example], *, most: int, same_file: int, same_project: int, seed: int
) -> Trials:
    """Trials of at most so many issues, evenly from their projects.

    Candidates of an issue: its functions, up to `same_file` others of their files, and the
    `same_project` functions drawn once for the project.
    """
    random = np.random.default_rng(seed)
    by_repo: dict[str, list[Example]] = defaultdict(list)
    for issue in issues:
        by_repo[issue.repo].append(issue)
    rows: dict[tuple[str, bytes], int] = {}
    texts: list[str] = []

    def row(document: Document) -> int:
        key = (document.name, document.key)
        if key not in rows:
            rows[key] = len(texts)
            texts.append(document.text)
        return rows[key]

    trials: list[Trial] = []
    for issue, project in _evenly(by_repo, most, same_project, random):
        near = _sample(issue.negatives, same_file, random)
        right: dict[str, set[int]] = defaultdict(set)
        for document in issue.positives:
            right[document.name].add(row(document))
        wrong = [row(d) for d in (*near, *project) if d.name not in right]
        answers = sorted(set().union(*right.values()))
        candidates = tuple(dict.fromkeys([*answers, *(w for w in wrong if w not in answers)]))
        answer_rows = {name: frozenset(found) for name, found in right.items()}
        trials.append(Trial(query_of(issue.text), candidates, answer_rows))
    return Trials(tuple(texts), tuple(trials))


def _evenly(
    by_repo: Mapping[str, Sequence[Example]], most: int, same_project: int, random: Generator
) -> Iterator[tuple[Example, tuple[Document, ...]]]:
    """Issues with their project's sample of functions."""
    for repo in sorted(by_repo):
        share = -(-most // len(by_repo))
        functions = {
            (document.name, document.key): document
            for issue in by_repo[repo]
            for document in issue.negatives
        }
        project = _sample(tuple(functions.values()), same_project, random)
        for issue in _sample(tuple(by_repo[repo]), share, random):
            yield issue, project


def _sample(items: Sequence[_T], most: int, random: Generator) -> tuple[_T, ...]:
    order = random.permutation(len(items))[:most]
    return tuple(items[int(index)] for index in sorted(order))
