"""Reads a project's test files once: what they import, their words, and how many tests they hold.

Pure. It works for every language whose imports `agent.retrieval.index` reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from agent.repository import is_below, is_vendored_path
from agent.retrieval.index import ModuleTable, imports
from agent.types.protocols import Snapshot
from agent.verify.path_rules import is_test_file

_WORD = re.compile(r"[A-Za-z_]\w{2,}")

# Lines that may import something, in any of the languages that are read, with the line end before
# them: a search for `\n` skips over the lines, where `^` is tried at every character.
_IMPORTING = re.compile(
    r"\n[ \t]*(?=(?:from|import|use|pub|mod|const|let|var|export|require|include|using"
    r"|#[ \t]*include|\}[ \t]*from)\b)"
)

# One test each, in the languages that are run. Parametrised ones count once: a lower bound.
_TEST = re.compile(
    r"\n[ \t]*(?:(?:async[ \t]+)?def[ \t]+test|(?:it|test)(?:\.\w+)*[ \t]*\(|func[ \t]+Test"
    r"|#\[(?:\w+::)?test\b|@(?:Parameterized|Repeated)?Test\b)"
)

# The most files with a module's name that are searched for imports: a name such as `utils` is in
# most files of a project and shows nothing.
_MOST_IMPORTERS = 400


@dataclass(frozen=True, slots=True)
class TestFile:
    """One test file. `words` are all names in it of three letters and more."""

    __test__ = False  # not a test class

    path: str
    words: frozenset[str]
    imports: frozenset[str]  # paths of the repository's files
    tests: int
    tested: frozenset[str]  # of names such as `test_parse_error`: "parse", "parse_error"


class TestFiles:
    """The test files of a snapshot, and the import graph around them; both read on first use."""

    __test__ = False

    def __init__(self, snapshot: Snapshot, accepts: Callable[[str], bool] = lambda _: True) -> None:
        """`accepts` says which test files can be run at all."""
        self._snapshot = snapshot
        self._accepts = accepts
        self._importers: dict[str, frozenset[str]] = {}
        self._imported: dict[str, frozenset[str]] = {}

    @cached_property
    def files(self) -> tuple[TestFile, ...]:
        """The test files, sorted by path."""
        return tuple(self._read(path) for path in self.paths)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The sorted paths of all test files of the scope that are not vendored."""
        mine = (path for path in self._snapshot.files if is_below(self._snapshot.scope, path))
        found = (path for path in mine if is_test_file(path) and not is_vendored_path(path))
        return tuple(sorted(filter(self._accepts, found)))

    @cached_property
    def by_path(self) -> Mapping[str, TestFile]:
        """The test files by path."""
        return {test.path: test for test in self.files}

    def importers(self, path: str) -> frozenset[str]:
        """Return the files that import this one, with tests; none where its name is too common."""
        if path not in self._importers:
            self._importers[path] = frozenset(self._find_importers(path))
        return self._importers[path]

    def import_it(self, others: Collection[str], path: str) -> bool:
        """Whether some of `others`, files of the repository, import this one.

        Reads them alone, where `importers` looks through everything.
        """
        return any(path in self._imports(other) for other in others)

    def _find_importers(self, path: str) -> Iterable[str]:
        number = self._numbers.get(path)
        leaf = self._modules.leaf(number).encode() if number is not None else b""
        if not leaf:
            return ()
        languages = {self._snapshot.files[path].language}
        candidates = [
            other
            for other, file in self._snapshot.files.items()
            if file.language in languages and other != path and leaf in self._snapshot.read(other)
        ]
        if len(candidates) > _MOST_IMPORTERS:
            candidates = [other for other in candidates if not is_test_file(other)]
        if len(candidates) > _MOST_IMPORTERS:
            return ()
        return [other for other in candidates if path in self._imports(other)]

    def _read(self, path: str) -> TestFile:
        text = self._snapshot.text(path)
        words = frozenset(_WORD.findall(text))
        return TestFile(path, words, self._imports(path), count_tests(text), _tested(words))

    def _imports(self, path: str) -> frozenset[str]:
        if path not in self._imported:
            text = f"\n{self._snapshot.text(path)}"
            starts = (match.start() + 1 for match in _IMPORTING.finditer(text))
            lines = imports(text, starts, self._snapshot.files[path].language)
            importer = self._numbers[path]
            found = (self._modules.find(line, importer) for line in lines)
            numbers = (number for numbers in found for number in numbers)
            self._imported[path] = frozenset(self._paths[number] for number in numbers)
        return self._imported[path]

    @cached_property
    def _paths(self) -> list[str]:
        return list(self._snapshot.files)

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {path: number for number, path in enumerate(self._paths)}

    @cached_property
    def _modules(self) -> ModuleTable:
        return ModuleTable(self._paths)


def _tested(words: frozenset[str]) -> frozenset[str]:
    """Return what tests are named after: the beginnings of their names, in lower case."""
    found: set[str] = set()
    for word in words:
        if word.startswith("test_"):
            parts = word.lower().split("_")[1:]
            found.update("_".join(parts[:end]) for end in range(1, len(parts) + 1))
    return frozenset(found)


def count_tests(text: str) -> int:
    """Count the tests that a file seems to hold."""
    return len(_TEST.findall(f"\n{text}"))
