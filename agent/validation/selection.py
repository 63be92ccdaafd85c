"""Chooses the test files that say most about a change. Pure: the same input, the same choice.

Each test file is scored by what ties it to the change: the patch edits it, the issue names it, its
name is that of an edited module, it imports one, it mentions a changed function or class. Weights
are ordered so that one strong tie beats any number of weak ones; rare words weigh more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent.protocols import Snapshot
from agent.repository.languages import is_test_path, is_vendored_path
from agent.types import FileChange, SelectedTest
from agent.validation.layout import is_test_file, module_name
from agent.validation.symbols import changed_symbols

DEFAULT_LIMIT = 12

_EDITED = 20.0
_NAMED_BY_ISSUE = 12.0
_SAME_NAME = 10.0
_NAME_PART = 5.0  # test_mod_errors.py for mod.py, test_pl.py for lang_pl.py
_PACKAGE_NAME = 3.0  # test_pkg.py for pkg/mod.py
_IMPORTS = 6.0
_IMPORTS_PACKAGE = 1.0
_SYMBOL, _SYMBOLS_MOST = 3.0, 9.0
_ISSUE_WORD, _ISSUE_WORDS_MOST = 1.0, 3.0
_NEAR = 2.0  # times the share of the edited file's folders that the test file shares

# What is only near is not worth its run time, unless few files are better: a handful of test files
# costs little, and a regression shows where nobody looked for it.
_WORTH_RUNNING = 2.5
_AT_LEAST = 6

_WORD = re.compile(r"[A-Za-z_]\w{2,}")
# Words of prose are not names of code: snake_case, CamelCase, dotted, or called.
_CODE_WORD = re.compile(
    r"[A-Za-z]\w*_\w+|_\w{2,}|[A-Z]?[a-z0-9]+[A-Z]\w*|(?<=\.)[A-Za-z]\w{2,}|[A-Za-z]\w{2,}(?=\()"
)
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<base>[\w.]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|import[ \t]+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class _Target:
    """What an edited source file is known by."""

    path: str
    module: str
    stem: str  # of the module: the folder's name for an __init__.py
    package: str  # the last folder
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _TestFile:
    path: str
    imports: frozenset[str]
    words: frozenset[str]


def select_tests(
    snapshot: Snapshot,
    changes: Sequence[FileChange],
    problem_text: str,
    limit: int = DEFAULT_LIMIT,
) -> tuple[SelectedTest, ...]:
    """At most `limit` test files, best first, each with what ties it to the change."""
    targets = [_target(c.path) for c in changes if not is_test_path(c.path)]
    symbols = changed_symbols(c for c in changes if not is_test_path(c.path))
    words = frozenset(_CODE_WORD.findall(problem_text)) - symbols
    tests = _read_tests(snapshot, symbols | words)
    rarity = _rarity(tests)
    edited = {change.path for change in changes if change.after is not None}
    scored = []
    for test in tests:
        ties = [
            *_named(test, edited, problem_text),
            *_by_targets(test, targets),
            *_by_words(test, symbols, rarity, _SYMBOL, _SYMBOLS_MOST, "mentions"),
            *_by_words(test, words, rarity, _ISSUE_WORD, _ISSUE_WORDS_MOST, "issue's"),
        ]
        scored.append((-round(sum(tie[0] for tie in ties), 6), test.path, _reason(ties)))
    return _best(sorted(scored), limit)


def _best(scored: Sequence[tuple[float, str, str]], limit: int) -> tuple[SelectedTest, ...]:
    tied = [entry for entry in scored if entry[0] < 0]
    worth = sum(-entry[0] >= _WORTH_RUNNING for entry in tied)
    chosen = tied[: min(limit, max(worth, _AT_LEAST))]
    return tuple(SelectedTest(path, reason) for _, path, reason in chosen)


def _reason(ties: Iterable[tuple[float, str]]) -> str:
    return "; ".join(note for _, note in sorted(ties, key=lambda tie: (-tie[0], tie[1]))[:3])


def _read_tests(snapshot: Snapshot, wanted: frozenset[str]) -> tuple[_TestFile, ...]:
    paths = [p for p in snapshot.files if is_test_file(p) and not is_vendored_path(p)]
    return tuple(_read(path, snapshot.text(path), wanted) for path in paths)


def _read(path: str, text: str, wanted: frozenset[str]) -> _TestFile:
    return _TestFile(path, _imports(path, text), wanted.intersection(_WORD.findall(text)))


def _imports(path: str, text: str) -> frozenset[str]:
    """Dotted names that a file imports: `from a.b import c` gives `a.b` and `a.b.c`."""
    found: set[str] = set()
    for match in _IMPORT.finditer(text):
        if match["modules"]:
            found.update(part.split()[0] for part in match["modules"].split(",") if part.split())
            continue
        base = _absolute(path, match["base"])
        names = re.findall(r"(\w+)(?:\s+as\s+\w+)?", match["names"])
        found.update({base, *(f"{base}.{name}" for name in names)})
    return frozenset(found)


def _absolute(path: str, base: str) -> str:
    if not base.startswith("."):
        return base
    dots = len(base) - len(base.lstrip("."))
    package = module_name(path).split(".")[:-dots]
    return ".".join([*package, *filter(None, [base.lstrip(".")])])


def _rarity(tests: Sequence[_TestFile]) -> Mapping[str, float]:
    """1 for a word in one test file, falling with the logarithm of the number of files."""
    files: dict[str, int] = {}
    for test in tests:
        for word in test.words:
            files[word] = files.get(word, 0) + 1
    return {word: 1 / (1 + math.log2(count)) for word, count in files.items()}


def _target(path: str) -> _Target:
    module = module_name(path)
    parts = module.split(".")
    package = parts[-2] if len(parts) > 1 else ""
    return _Target(path, module, parts[-1], package, PurePosixPath(path).parts[:-1])


def _named(test: _TestFile, edited: set[str], problem: str) -> Iterable[tuple[float, str]]:
    if test.path in edited:
        yield _EDITED, "edited by the patch"
    if re.search(rf"(?<![\w/]){re.escape(PurePosixPath(test.path).name)}\b", problem) or (
        test.path in problem
    ):
        yield _NAMED_BY_ISSUE, "named by the issue"


def _by_targets(test: _TestFile, targets: Sequence[_Target]) -> Iterable[tuple[float, str]]:
    """For each kind of tie the strongest one, so that many edited files do not add up."""
    for kind in (_name_tie, _import_tie, _near_tie):
        ties = [tie for target in targets if (tie := kind(test, target))]
        if ties:
            yield max(ties, key=lambda tie: (tie[0], tie[1]))


def _name_tie(test: _TestFile, target: _Target) -> tuple[float, str] | None:
    name = PurePosixPath(test.path).stem.lower()
    bare = re.sub(r"^tests?_|_tests?$", "", name).strip("_")
    stem, package = target.stem.strip("_").lower(), target.package.strip("_").lower()
    if bare in (stem, f"{package}_{stem}") and bare:
        return _SAME_NAME, f"named after {target.path}"
    if (stem and bare.startswith(f"{stem}_")) or (bare and stem.endswith(f"_{bare}")):
        return _NAME_PART, f"named after {target.path}"
    if package and bare == package:
        return _PACKAGE_NAME, f"named after the folder of {target.path}"
    return None


def _import_tie(test: _TestFile, target: _Target) -> tuple[float, str] | None:
    if target.module in test.imports and target.path.endswith(".py"):
        return _IMPORTS, f"imports {target.module}"
    if any(target.module.startswith(f"{name}.") for name in test.imports):
        return _IMPORTS_PACKAGE, f"imports the package of {target.module}"
    return None


def _near_tie(test: _TestFile, target: _Target) -> tuple[float, str] | None:
    if not target.folders:
        return None
    shared = len(set(target.folders) & set(PurePosixPath(test.path).parts[:-1]))
    if not shared:
        return None
    return _NEAR * shared / len(target.folders), f"near {target.path}"


def _by_words(
    test: _TestFile,
    words: frozenset[str],
    rarity: Mapping[str, float],
    weight: float,
    most: float,
    what: str,
) -> Iterable[tuple[float, str]]:
    found = sorted(words & test.words, key=lambda word: (-rarity[word], word))
    if found:
        # Summed in a fixed order: floating-point sums depend on it.
        yield min(most, weight * math.fsum(rarity[w] for w in found)), f"{what} {found[0]}"
