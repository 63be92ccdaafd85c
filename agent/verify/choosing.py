"""Chooses the test files that say most about a change, by their relations to it.

A relation is a weight and a reason in words; one strong relation beats any number of weak ones.
`find_test_hints` shows the model what the project's tests look like.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from agent.errors import RepositoryError
from agent.patching import check_syntax
from agent.repository import (
    is_below,
    is_test_path,
    is_vendored_path,
    language_of,
    open_repository,
)
from agent.retrieval.index import PROSE_AND_DATA, ModuleTable, TreeSitterChunker, imports
from agent.shared.secrets import mask_secrets
from agent.types import FileChange, Problem, Ranking, SelectedTest, SyntaxProblem
from agent.types.protocols import Snapshot, TokenCounter
from agent.verify.path_rules import (
    is_test_by_ending,
    is_test_file,
    module_name,
    new_test_path,
)
from agent.verify.runners import detect, runner_of
from agent.verify.runners.base import Suite
from agent.verify.runners.scripts import collects

# ----------------------------------------------------------------------------- test files

_WORD = re.compile(r"[A-Za-z_]\w{2,}")
_DUNDER = re.compile(r"__\w+__")


@dataclass(frozen=True, slots=True)
class TestFile:
    """One test file. `words` are all names in it of three letters and more."""

    __test__ = False  # not a test class

    path: str
    words: frozenset[str]
    imports: frozenset[str]  # paths of the repository's files
    size: int  # characters


class TestFiles:
    """The test files of a snapshot, read on first use. `accepts` says which files they are."""

    __test__ = False

    def __init__(self, snapshot: Snapshot, accepts: Callable[[str], bool] = is_test_file) -> None:
        self.snapshot = snapshot
        self._accepts = accepts
        self._paths = list(snapshot.files)
        self._modules = ModuleTable(self._paths)

    @cached_property
    def files(self) -> tuple[TestFile, ...]:
        """The test files of the scope that are not vendored, sorted by path."""
        tests = [
            (path, number)
            for number, path in enumerate(self._paths)
            if is_below(self.snapshot.scope, path)
            and not is_vendored_path(path)
            and self._accepts(path)
        ]
        return tuple(self._read(*test) for test in sorted(tests))

    def _read(self, path: str, importer: int) -> TestFile:
        text = self.snapshot.text(path)
        words = frozenset(_WORD.findall(text))
        lines = imports(text, self.snapshot.files[path].language)
        numbers = (number for line in lines for number in self._modules.find(line, importer))
        imported = frozenset(self._paths[number] for number in numbers)
        return TestFile(path, words, imported, len(text))


def changed_symbols(changes: Iterable[FileChange]) -> frozenset[str]:
    """Return the functions and classes that differ, without `__dunder__` names."""
    chunker, names = TreeSitterChunker(), set[str]()
    for change in changes:
        sides: list[set[tuple[str, ...]]] = []
        for data in (change.before, change.after):
            text = (data or b"").decode("utf-8", "replace")
            lines, pieces = text.split("\n"), chunker.pieces(text, language_of(change.path))
            sides.append({(p.symbol, *lines[p.start - 1 : p.end]) for p in pieces})
        names.update(name for symbol, *_ in sides[0] ^ sides[1] for name in symbol.split("."))
    return frozenset(name for name in names if name and not _DUNDER.fullmatch(name))


# ------------------------------------------------------------------------------ selection

DEFAULT_LIMIT = 8

_EDITED = 20.0
_NAMED_BY_ISSUE = 12.0
_TOGETHER = 12.0  # times how regularly they changed together, 0..1
_SAME_NAME, _PART_OF_NAME = 10.0, 5.0
_SYMBOL, _ISSUE_WORD, _WORDS_MOST = 3.0, 1.0, 9.0  # the rarer a word in test files, the more
_IMPORTS = 3.0  # next to history and names it says little: 4 and 6 do worse
_NEAR = 2.0  # times the share of the edited file's folders that the test file shares
_IMPORTS_PACKAGE = 1.0

# Words of prose are not names of code: snake_case, CamelCase, dotted, or called.
_CODE_WORD = re.compile(
    r"[A-Za-z]\w*_\w+|_\w{2,}|[A-Z]?[a-z0-9]+[A-Z]\w*|(?<=\.)[A-Za-z]\w{2,}|[A-Za-z]\w{2,}(?=\()"
)

# `test_x`, `x_test`, `x.spec`, `XTest`, `TestX`, `XIT`: what is left is what is tested.
_AFFIXES = re.compile(
    r"^tests?[_.-]|[_.-](?:tests?|spec|e2e|cy)$|(?:(?<=[a-z0-9])(?:Tests?|TestCase|IT|Spec)$)|^Test(?=[A-Z])"
)

Relation = tuple[float, str]

# Seconds for the imports of a file and for each thousand characters of it, in which there are some
# two tests. It is four times what fast suites take: some tests start servers or programs.
_A_FILE = 0.2
_A_THOUSAND = 0.1

# The share of the time for one run: an estimate can be wrong by a factor of some three.
_SHARE = 1 / 3


def select_tests(
    tests: TestFiles,
    changes: Sequence[FileChange],
    problem_text: str,
    limit: int = DEFAULT_LIMIT,
    *,
    together: Mapping[str, float] = MappingProxyType({}),
    seconds: float = math.inf,
) -> tuple[SelectedTest, ...]:
    """Return at most `limit` test files, best first, each with its relation to the change.

    `together` says how regularly test files changed with the edited ones, 0..1. `seconds` bounds
    the estimated time of all chosen files but the best.
    """
    data = (c.path for c in changes if language_of(c.path) in PROSE_AND_DATA)
    fixtures = [PurePosixPath(path) for path in data if is_test_path(path)]
    symbols = changed_symbols(c for c in changes if not is_test_path(c.path))
    symbols |= {word for path in fixtures for word in (path.stem, path.parent.name)}
    words = frozenset(_CODE_WORD.findall(problem_text)) - symbols
    files = Counter(word for test in tests.files for word in (symbols | words) & test.words)
    weights = {
        word: (_SYMBOL if word in symbols else _ISSUE_WORD) / (1 + math.log2(count))
        for word, count in files.items()
    }
    edited = sorted(change.path for change in changes if not is_test_file(change.path))
    scored: list[tuple[float, TestFile, list[Relation]]] = []
    for test in tests.files:
        relations = [*_strongest(test, edited)]
        common = sorted(weights.keys() & test.words, key=lambda word: (-weights[word], word))
        if common:
            # Summed in a fixed order: floating-point sums depend on it.
            weight = math.fsum(weights[word] for word in common)
            relations.append((min(_WORDS_MOST, weight), f"mentions {common[0]}"))
        if any(change.path == test.path for change in changes):
            relations.append((_EDITED, "edited by the patch"))
        name = re.escape(PurePosixPath(test.path).name)
        if test.path in problem_text or re.search(rf"(?<![\w/]){name}\b", problem_text):
            relations.append((_NAMED_BY_ISSUE, "named by the issue"))
        if together.get(test.path):
            relations.append((_TOGETHER * together[test.path], "changed together with it before"))
        score = round(math.fsum(weight for weight, _ in relations), 6)
        if score > 0:
            scored.append((score, test, sorted(relations, key=lambda r: (-r[0], r[1]))))
    chosen, left = list[SelectedTest](), seconds * _SHARE
    for _, test, relations in sorted(scored, key=lambda s: (-s[0], s[1].path))[:limit]:
        estimate = _A_FILE + _A_THOUSAND * test.size / 1000
        if estimate <= left or not chosen:
            chosen.append(SelectedTest(test.path, "; ".join(note for _, note in relations[:3])))
            left -= estimate
    return tuple(chosen)


def _strongest(test: TestFile, paths: Sequence[str]) -> Iterator[Relation]:
    """Yield the strongest relation of each kind, so that many edited files do not add up."""
    for kind in (_by_name, _by_imports, _by_folders):
        relations = [relation for path in paths if (relation := kind(test, path))]
        if relations:
            yield max(relations)


def _by_name(test: TestFile, path: str) -> Relation | None:
    tested = _AFFIXES.sub("", PurePosixPath(test.path).stem).strip("_").lower()
    name = module_name(path).rpartition(".")[2].strip("_").lower()
    if name and f"{tested}_".startswith(f"{name}_"):
        return _SAME_NAME, f"named after {path}"
    # `test_pl.py` for `lang_PL.py`
    return (_PART_OF_NAME, f"named after {path}") if name.endswith(f"_{tested}") else None


def _by_imports(test: TestFile, path: str) -> Relation | None:
    if path in test.imports:
        return _IMPORTS, f"imports {path}"
    if f"{path.rpartition('/')[0]}/__init__.py" in test.imports:
        return _IMPORTS_PACKAGE, f"imports the package of {module_name(path)}"
    return None


def _by_folders(test: TestFile, path: str) -> Relation | None:
    folders = path.split("/")[:-1]
    shared = set(folders) & set(test.path.split("/")[:-1])
    return (_NEAR * len(shared) / len(folders), f"near {path}") if shared else None


# -------------------------------------------------------------------------------- history

# The number of latest commits that are read. Older ones say little about today's files.
_COMMITS = 1_000

# A commit with more files is a release or a reformatting, in which everything changed.
_MOST_FILES = 12

# Two files that changed together only once are hardly related.
_PRIOR = 3.0

_SECONDS = 20.0


def choose_tests(
    files: TestFiles, changes: Sequence[FileChange], issue: str, seconds: float
) -> tuple[SelectedTest, ...]:
    """Choose the tests for a change with the history of its files; see `select_tests`."""
    edited = (change.path for change in changes if change.before is not None)
    paths = tuple(sorted(path for path in edited if not is_test_path(path)))
    together = changed_together(files.snapshot.root, files.snapshot.commit, paths)
    return select_tests(files, changes, issue, together=together, seconds=seconds)


def accepted_by(suite: Suite, snapshot: Snapshot) -> Callable[[str], bool]:
    """Return what says of a path whether the suite would run it as a test file."""
    runner = runner_of(suite)

    def accepts(path: str) -> bool:
        is_test = is_test_file(path) or collects(suite, path)
        return is_test and bool(runner.targets(suite, (path,), snapshot))

    return accepts if runner.selects else is_test_file


@lru_cache(maxsize=64)  # a run validates several patches of the same files
def changed_together(root: Path, commit: str, paths: tuple[str, ...]) -> Mapping[str, float]:
    """Return how regularly other files changed with any of these, 0..1, lowered by a prior."""
    if not paths:
        return {}
    try:
        with open_repository(root, seconds=_SECONDS) as git:
            commits = git.ancestors(commit, _COMMITS)
            listing = git.changes(commits, "--name-only", "--no-renames", "-z", "--format=%x01")
    except RepositoryError:
        return {}
    holding, together = 0, Counter[str]()
    for record in listing.decode("utf-8", "surrogateescape").split("\1")[1:]:
        files = {name for part in record.split("\0") if (name := part.strip("\n"))}
        if len(files) <= _MOST_FILES and not files.isdisjoint(paths):
            holding += 1
            together.update(files.difference(paths))
    return {path: count / (holding + _PRIOR) for path, count in sorted(together.items())}


# ---------------------------------------------------------------- tests shown to the model

# Files that the fix is most likely in; their tests are named.
_LIKELY_FILES = 3
_NAMED_TESTS = 6
_OF_THE_LIKELIEST = 3

# Enough for a test, or for the imports, helpers and first test of a file.
_EXCERPT_LINES = 40
_EXCERPT_TOKENS = 350
_AFTER_TELLING = 3  # lines of the excerpt from the line that tells most to the end
_COMMENT = re.compile(r"\s*(?:$|#|//|/?\*)")

# Definitions whose use in a test makes it the excerpt. Shorter names are words of other code too.
_LIKELY_NAMES = 5
_SHORTEST_NAME = 4

# Lines of the problem, and texts in quotes or backticks in it, that a test may assert. Shorter
# texts in quotes, such as `1.50`, are words of other tests too.
_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|'([^'\n]+)'")
_QUOTE_LENGTHS = range(10, 200)
_LITERALS, _LITERAL_WEIGHT = range(3, 10), 0.25
_MOST_QUOTES = 200
_TEST_FUNCTION = re.compile(
    r"\s*(?:(?:async\s+)?def\s+test\w*\s*\(|(?:it|test|specify)(?:\.\w+)*\s*\(|func\s+Test\w*\s*\("
    r"|(?:async\s+)?fn\s+\w+\s*\()"
)

_BACKTICKS = re.compile(r"`{3,}")
# The path of a new test stands among instructions: a name of the repository must not be one.
_PLAIN_PATH = re.compile(r"[\w.@+/-]{1,100}")


@dataclass(frozen=True, slots=True)
class TestHints:
    """Test files near the problem, and an excerpt of one of them ("" where there is none).

    `place` is the path of the excerpt and what part of the file it is. `new` is a path at which
    the project's runner would find a new test, "" if none is known.
    """

    __test__ = False  # not a test class

    paths: tuple[str, ...] = ()
    total: int = 0
    excerpt: str = ""
    language: str = ""
    place: str = ""
    new: str = ""


def find_test_hints(
    problem: Problem, ranking: Ranking, snapshot: Snapshot, counter: TokenCounter
) -> TestHints:
    """Return the test files for the best ranked files, and an excerpt of one."""
    likely = [file.path for file in ranking.files[:_LIKELY_FILES] if file.path in snapshot.files]
    contents = ((path, snapshot.read(path)) for path in likely)
    changes = [FileChange(path, content, content) for path, content in contents]
    accepts = accepted_by(detect(snapshot, None, likely), snapshot)
    files = TestFiles(snapshot, lambda path: is_test_file(path) or accepts(path))
    # The tests of the very likeliest file first: the tests of three files compete for one place.
    chosen = (
        *select_tests(files, changes[:1], problem.text, _OF_THE_LIKELIEST),
        *select_tests(files, changes, problem.text, _NAMED_TESTS),
    )
    named = (test.path for test in chosen if not is_test_by_ending(test.path))
    paths = tuple(dict.fromkeys(named))[:_NAMED_TESTS]
    total = sum(map(is_test_file, snapshot.files))
    if not paths:
        return TestHints(total=total)
    quotes = _quotes(problem.text)
    masked = ((path, mask_secrets(snapshot.text(path)).text) for path in paths)
    texts = {path: _BACKTICKS.sub("``", text).split("\n") for path, text in masked}
    path, first, lines, telling = _excerpt(texts, {**quotes, **_likely_names(ranking)}, counter)
    excerpt = "\n".join(lines).rstrip()
    place = f"{path}:L{first + 1}-{first + excerpt.count(chr(10)) + 1}" if telling else ""
    if telling and any(quote in excerpt for quote in quotes):
        place += ", with text that the issue quotes"
    beside = [path for path in paths if is_test_path(str(PurePosixPath(path).with_name("x.py")))]
    # A module of the package may be named like a test; a folder of tests holds nothing else.
    places = (new_test_path(path) for path in (*beside, *paths) if accepts(path))
    new = next((path for path in places if _PLAIN_PATH.fullmatch(path) and accepts(path)), "")
    language = snapshot.files[path].language
    return TestHints(paths, total, excerpt, language, place or f"{path} begins", new)


def _quotes(text: str) -> dict[str, float]:
    quoted = ["".join(groups).strip() for groups in _QUOTED.findall(text)]
    lines = (line.strip().removeprefix(">>>").strip() for line in (*quoted, *text.split("\n")))
    quotes = {line: 1.0 for line in lines if len(line) in _QUOTE_LENGTHS}
    quotes |= {quote: _LITERAL_WEIGHT for quote in quoted if len(quote) in _LITERALS}
    return dict(itertools.islice(quotes.items(), _MOST_QUOTES))


def _likely_names(ranking: Ranking) -> dict[str, float]:
    """Return the names of the likeliest definitions with their weights; of `__x__`, its class."""
    names: dict[str, float] = {}
    symbols = (scored.chunk.symbol for scored in ranking.chunks if scored.chunk.symbol)
    for rank, symbol in enumerate(itertools.islice(symbols, _LIKELY_NAMES)):
        plain = [name for name in symbol.split(".") if not name.startswith("__")]
        if plain and len(plain[-1]) >= _SHORTEST_NAME:
            names.setdefault(plain[-1], 1 / (rank + 1))
    return names


def _excerpt(
    texts: Mapping[str, list[str]], names: Mapping[str, float], counter: TokenCounter
) -> tuple[str, int, list[str], bool]:
    """Return the path, first line (from 0) and lines of the test that uses the weightiest names.

    Of equal ones it is the first. The last part is False where no test uses a name: then it is the
    beginning of the first file without its licence.
    """
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names) or "(?!)")
    best, telling, (path, code) = 0.0, 0, next(iter(texts.items()))
    begin = next((n for n, line in enumerate(code) if not _COMMENT.match(line)), 0)
    first = begin if any(code[:begin]) else 0
    lines = code[first : first + _EXCERPT_LINES]
    for file, code in texts.items():
        starts = [number for number, line in enumerate(code) if _TEST_FUNCTION.match(line)]
        for start, end in itertools.pairwise([*starts, len(code)]):
            used = {name: n for n in range(start + 1, end) for name in pattern.findall(code[n])}
            worth = sum(names[name] for name in sorted(used))
            if worth > best:
                row = used[max(used, key=lambda name: (names[name], used[name], name))]
                best, path, first = worth, file, max(start, row + _AFTER_TELLING - _EXCERPT_LINES)
                lines, telling = code[first : min(end, first + _EXCERPT_LINES)], row - first
    while lines and counter.count("\n".join(lines)) > _EXCERPT_TOKENS:
        kept = len(lines) * 3 // 4
        cut = len(lines) - kept if telling >= kept else 0
        first, telling, lines = first + cut, telling - cut, lines[cut : cut + kept]
    return path, first, lines, best > 0


# --------------------------------------------------------------------- a base that does not import

# The files of the ranking that are parsed, beside those that differ from the commit.
_PARSED = 20

# Such an issue may be about a file that does not parse.
_ABOUT_SYNTAX = re.compile(r"(?:Syntax|Indentation|Tab)Error|(?i:invalid syntax|syntax error)")


def find_broken_module(
    problem: Problem, ranking: Ranking, snapshot: Snapshot
) -> SyntaxProblem | None:
    """Return why a Python file near the problem does not parse, if another imports it at its top.

    Files that are meant to be broken, such as data of tests and templates, are not imported so.
    """
    if _ABOUT_SYNTAX.search(problem.text):
        return None
    near = (*sorted(snapshot.overlay()), *(file.path for file in ranking.files[:_PARSED]))
    python = {path for path in snapshot.files if language_of(path) == "python"}
    contents = {path: snapshot.read(path) for path in near if path in python}
    for broken in check_syntax(FileChange(path, None, data) for path, data in contents.items()):
        name = re.escape(module_name(broken.path).rpartition(".")[2])
        statement = re.compile(rf"(?m)^(?:from|import)\b(?:[^\n(]|\([^)]*)*(?<!\w){name}(?!\w)")
        if any(statement.search(snapshot.text(path)) for path in python - {broken.path}):
            return broken
    return None
