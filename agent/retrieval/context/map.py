"""A map of the files that most likely matter: the names that each defines, without code, such as
`src/shop/basket.py: RATES, Basket[currency, total, add], checkout, +3 names`. The likelier a file,
the more names are listed: first what the ranking prefers, then what shares words with the issue.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.retrieval.context.excerpt import bound_names, exports
from agent.retrieval.context.layout import FileViews
from agent.shared.secrets import is_secret_path
from agent.types import DEFINITIONS, Problem, Ranking
from agent.types.protocols import Chunker, Snapshot, TokenCounter

_NAMED_FILES = 60  # most files with names; with 15, fewer functions to change are on the map
_LIKELY_FILES = 15  # that decide the language
_OTHER_FILES = 60  # most files without
_OTHERS_SHARE = 0.1  # of the budget, for files without names
_NAME_LENGTH = 80  # characters; a longer name is generated
_FILE_OFFSET = 2  # of a file's rank in the worth of its names
_CHUNK_OFFSET = 20  # of a chunk's
_UNRANKED = 1_000_000  # the rank of a name without a ranked chunk
# Tokens of `: , +12 names` in the line of a file.
_LINE_TOKENS = 9

_SUBWORD = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])")
_CONSTRUCTOR = ".__init__"


@dataclass(frozen=True, slots=True)
class RepositoryMap:
    """A rendered map. `tokens` counts `text`; `left_out`: names of the files that it lacks."""

    text: str
    tokens: int
    files: int
    names: int
    left_out: int


def make_map(
    problem: Problem,
    ranking: Ranking,
    snapshot: Snapshot,
    counter: TokenCounter,
    chunker: Chunker,
    budget: int,
) -> RepositoryMap:
    """Return the map of the best ranked files in at most `budget` tokens."""
    paths = _paths(problem, ranking, snapshot)
    files = _files(paths[:_NAMED_FILES], problem, ranking, snapshot, chunker)
    chosen = _choose(files, counter, int(budget * (1 - _OTHERS_SHARE)))
    while True:
        items = frozenset(chosen)
        named = [file for file in files if any(path == file.path for path, _ in items)]
        lines = [file.line(items) for file in named]
        listed = {file.path for file in named}
        others = [path for path in paths if path not in listed]
        room = budget - counter.count("\n".join(lines))
        text = "\n".join([*lines, *_others(others, counter, room)])
        tokens = counter.count(text)
        if tokens <= budget or not chosen:
            break
        # The estimate of a name is a token or two off; what is least likely goes.
        del chosen[-5:]
    left_out = sum(len(file.names) for file in files) - len(chosen)
    return RepositoryMap(text, tokens, len(named), len(chosen), left_out)


_Item = tuple[str, str]
"""A path and a name of the file."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file. `names`: its dotted names with their worth; `order`: their places in the file."""

    path: str
    names: Mapping[str, float]
    order: Mapping[str, int]

    def line(self, chosen: frozenset[_Item]) -> str:
        listed = [name for name in self.names if (self.path, name) in chosen]
        listed.sort(key=lambda name: (self.order[name], name))
        members: dict[str, list[str]] = {}
        for name in listed:
            owner, _, member = ("", "", name) if _is_whole(name) else name.rpartition(".")
            inner = members.setdefault(owner or name, [])
            if owner:
                inner.append(member)
        parts = [
            name + (f"[{', '.join(inner)}]" if inner else "") for name, inner in members.items()
        ]
        if rest := len(self.names) - len(listed):
            parts.append(f"+{rest} {'names' if rest > 1 else 'name'}")
        return f"{self.path}: {', '.join(parts)}" if parts else self.path


def _paths(problem: Problem, ranking: Ranking, snapshot: Snapshot) -> list[str]:
    """Return the ranked files in the language of the likeliest code, and those that are named."""
    from agent.retrieval.index import PROSE_AND_DATA  # loads numpy

    paths = [
        file.path
        for file in ranking.files
        if file.path in snapshot.files and not is_secret_path(file.path)
    ]
    languages = {path: snapshot.files[path].language for path in paths}
    weights: defaultdict[str, float] = defaultdict(float)
    for rank, path in enumerate(paths[:_LIKELY_FILES]):
        if languages[path] not in PROSE_AND_DATA:
            weights[languages[path]] += 1 / (rank + _FILE_OFFSET)
    main = max(weights, key=lambda language: (weights[language], language), default="")
    return [
        path
        for path in paths
        if main in ("", languages[path]) or path.rpartition("/")[2] in problem.text
    ]


def _files(
    paths: Sequence[str],
    problem: Problem,
    ranking: Ranking,
    snapshot: Snapshot,
    chunker: Chunker,
) -> list[_File]:
    from agent.retrieval.index import INSIDE  # loads numpy

    ranks: dict[tuple[str, str], int] = {}
    for rank, scored in enumerate(ranking.chunks):
        name = scored.chunk.symbol.removesuffix(_CONSTRUCTOR)
        ranks.setdefault((scored.chunk.path, name), rank)
    views = FileViews(snapshot)
    words = _words(problem.text)
    files = []
    for number, path in enumerate(paths):
        order: dict[str, int] = {}
        chunks = chunker(snapshot.files[path], snapshot.text(path))
        for chunk in chunks:
            name = chunk.symbol.removesuffix(_CONSTRUCTOR)
            if name and chunk.kind in DEFINITIONS:
                order.setdefault(name, chunk.start)
        for name, line in bound_names(views[path], chunks):
            order.setdefault(name, line)
        for chunk in chunker.inner(snapshot.files[path], snapshot.text(path)):
            order.setdefault(chunk.symbol, chunk.start)
        for name, (line, _) in exports(views[path]):
            order.setdefault(name, line)
        best = {
            n: ranks.get((path, n.partition(INSIDE)[0]), _UNRANKED)
            for n in order
            if len(n) <= _NAME_LENGTH
        }
        shared = {n: len(_words(n.rpartition(".")[2]) & words) for n in best}
        names = sorted(best, key=lambda n: (best[n], -shared[n], order[n], n))
        # The worth of a name: by the ranks of its file and chunk, and its place in the file.
        worth = {
            n: 1.0 / ((number + _FILE_OFFSET) * (place + 1)) + 1.0 / (best[n] + _CHUNK_OFFSET)
            for place, n in enumerate(names)
        }
        files.append(_File(path, worth, order))
    return files


def _is_whole(name: str) -> bool:
    """Whether a name with a dot is not a member in the list of its owner."""
    from agent.retrieval.index import INSIDE  # loads numpy

    return INSIDE in name or name == "module.exports"


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _SUBWORD.findall(text))


def _choose(files: Sequence[_File], counter: TokenCounter, budget: int) -> list[_Item]:
    waiting: list[tuple[float, int, str, int]] = []
    for rank, file in enumerate(files):
        for name, worth in file.names.items():
            tokens = counter.count(f", {name.rpartition('.')[2]}")
            waiting.append((-worth, rank, name, tokens))
    headers = {file.path: counter.count(file.path) + _LINE_TOKENS for file in files}
    chosen: dict[_Item, None] = {}
    for _, rank, name, tokens in sorted(waiting):
        path = files[rank].path
        cost = tokens + headers.get(path, 0)
        if cost <= budget:
            budget -= cost
            headers.pop(path, None)
            chosen[path, name] = None
    return list(chosen)


def _others(paths: Sequence[str], counter: TokenCounter, budget: int) -> list[str]:
    """Return lines of files by folder, the likeliest first; the last says how many are left out."""
    folders: dict[str, list[str]] = {}
    budget -= _LINE_TOKENS
    listed = 0
    for path in paths[:_OTHER_FILES]:
        folder, _, name = path.rpartition("/")
        budget -= counter.count(f", {name}")
        if folder not in folders:
            budget -= counter.count(f"{folder}/:\n")
        if budget < 0:
            break
        folders.setdefault(folder, []).append(name)
        listed += 1
    lines = [f"{folder or '.'}/: {', '.join(names)}" for folder, names in folders.items()]
    rest = len(paths) - listed
    return [*lines, f"+{rest} {'files' if rest > 1 else 'file'}"] if rest else lines
