"""Chooses the test files that say most about a change. Pure: the same input, the same choice.

Each test file is scored by its relations to the change: the patch edits it, the issue names it, it
is named after an edited module or imports one, it used to change together with one, or it mentions
a changed function or class. A relation is a weight and a reason in words. The weights are such that
one strong relation beats any number of weak ones, and rare words weigh more than common ones. The
best files are taken in order, as many as the number of files and the time allow.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from agent.repository import is_test_path, language_of
from agent.types import FileChange, SelectedTest
from agent.types.protocols import Snapshot
from agent.verify.choosing.catalogue import TestFile, TestFiles
from agent.verify.path_rules import module_name

_SCRIPT = re.compile(
    r"""
    (?P<indent>[ \t]*) (?: (?:export|default|async|static|abstract|public|private|protected|get|set)
    [ \t]+ )*
    (?: (?:function\*?|class|interface|enum) [ \t]+ (?P<a>[A-Za-z_$][\w$]*)
      | (?:const|let|var) [ \t]+ (?P<b>[A-Za-z_$][\w$]*) [ \t]* (?: : [^=\n]{0,200} )? =
      | (?!(?:if|for|while|switch|catch|return|function)\b) (?P<c>[A-Za-z_$][\w$]*) [ \t]*
        \( [^;\n]* \{ [ \t]* $ )
    """,
    re.VERBOSE,
)

# Group `indent`, then the name in one of the groups a, b, c.
_DEFINITIONS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "python": re.compile(
            r"(?P<indent>[ \t]*)(?:async[ \t]+)?(?:def|class)[ \t]+(?P<a>[A-Za-z_]\w*)"
        ),
        "javascript": _SCRIPT,
        "typescript": _SCRIPT,
        "tsx": _SCRIPT,
        "go": re.compile(
            r"(?P<indent>[ \t]*)(?:func[ \t]+(?:\([^)\n]*\)[ \t]*)?(?P<a>\w+)|type[ \t]+(?P<b>\w+))"
        ),
        "rust": re.compile(
            r"(?P<indent>[ \t]*)(?:pub(?:\([^)\n]*\))?[ \t]+)?(?:(?:async|unsafe|const)[ \t]+)*"
            r"(?:(?:fn|struct|enum|trait|mod)[ \t]+(?P<a>\w+)"
            r"|impl(?:<[^>\n]*>)?[ \t]+(?:[\w:<>, ]+[ \t]for[ \t]+)?(?P<b>\w+))"
        ),
        "java": re.compile(
            r"(?P<indent>[ \t]*)(?:(?:public|protected|private|static|final|abstract|synchronized"
            r"|default|sealed)[ \t]+)*(?:(?:class|interface|enum|record)[ \t]+(?P<a>\w+)"
            r"|(?!(?:return|new|else|throw)\b)[\w<>\[\].,?]+[ \t]+(?P<b>\w+)[ \t]*\([^;\n]*$)"
        ),
    }
)

# Deeper than any code's own nesting: a blank line belongs to whatever is above it.
_ANY_INDENT = 1000

# A line of code; what is longer is data, and patterns would take their time.
_MOST_CHARS = 400


def changed_symbols(changes: Iterable[FileChange]) -> frozenset[str]:
    """Return the functions and classes with changed lines, without `__dunder__` names."""
    names: set[str] = set()
    for change in changes:
        definition = _DEFINITIONS.get(language_of(change.path))
        if definition is not None and change.before != change.after:
            names.update(_changed(_lines(change.before), _lines(change.after), definition))
    return frozenset(name for name in names if not (name.startswith("__") and name.endswith("__")))


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()


def _changed(before: Sequence[str], after: Sequence[str], definition: re.Pattern[str]) -> set[str]:
    names: set[str] = set()
    matcher = difflib.SequenceMatcher(None, before, after)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            names.update(*(_enclosing(before, row, definition) for row in range(start, end)))
            names.update(*(_enclosing(after, row, definition) for row in range(new_start, new_end)))
    return names


def _enclosing(lines: Sequence[str], row: int, definition: re.Pattern[str]) -> list[str]:
    """Return the definitions around a line, innermost first; its own line belongs to it."""
    names: list[str] = []
    text = lines[row]
    indent = len(text) - len(text.lstrip()) if text.strip() else _ANY_INDENT
    for above in range(row, -1, -1):
        found = definition.match(lines[above][:_MOST_CHARS])
        if found and (len(found["indent"]) < indent or above == row):
            groups = found.groupdict()
            names.append(groups["a"] or groups.get("b") or groups.get("c") or "")
            indent = len(found["indent"])
        if indent == 0:
            break
    return names


DEFAULT_LIMIT = 12

_EDITED = 20.0
_NAMED_BY_ISSUE = 12.0
_SYMBOL, _SYMBOLS_MOST = 3.0, 9.0
_TESTED = 2.0  # a test function has the changed function's name in its own
_ISSUE_WORD, _ISSUE_WORDS_MOST = 1.0, 3.0
_TOGETHER = 12.0  # times how regularly they changed together, 0..1

# What is only near is not worth its run time, unless few files are better: a handful of test files
# costs little, and a regression shows where nobody looked for it.
_WORTH_RUNNING = 2.5
_AT_LEAST = 6

# Words of prose are not names of code: snake_case, CamelCase, dotted, or called.
_CODE_WORD = re.compile(
    r"[A-Za-z]\w*_\w+|_\w{2,}|[A-Z]?[a-z0-9]+[A-Z]\w*|(?<=\.)[A-Za-z]\w{2,}|[A-Za-z]\w{2,}(?=\()"
)

# Parts of web and mail addresses look like attributes.
_ADDRESS = re.compile(r"\w+://\S+|\S+@\S+|\bwww\.\S+")

_NOTHING: Mapping[str, float] = {}

_SAME_NAME = 10.0
_FOLDER_NAME = 6.0  # parser/test_errors.py for parser.py
_NAME_PART = 5.0  # test_mod_errors.py for mod.py, test_pl.py for lang_pl.py
_PACKAGE_NAME = 3.0  # test_pkg.py for pkg/mod.py
_IMPORTS = 3.0  # next to history and names it says little: 4 and 6 do worse
_IMPORTS_PACKAGE = 1.0
_INDIRECT = 2.0  # imports what imports it
_NEAR = 2.0  # times the share of the edited file's folders that the test file shares

# `test_x`, `x_test`, `x.spec`, `XTest`, `TestX`, `XIT`: what is left is what is tested.
_AFFIXES = re.compile(
    r"^tests?[_.-]|[_.-](?:tests?|spec|e2e|cy)$|(?:(?<=[a-z0-9])(?:Tests?|TestCase|IT|Spec)$)|^Test(?=[A-Z])"
)

Relation = tuple[float, str]

# Seconds for the imports of a file and for each of its tests. It is four times what click's suite
# takes (34 files, 2,016 tests with their parameters, 9 s), because tests that start servers or
# programs take longer.
_A_FILE = 0.2
_A_TEST = 0.05

# For files whose tests are not recognised: scripts, and suites that are made in a loop.
_LEAST_TESTS = 3

# The share of the time for one run: an estimate can be wrong by a factor of some three.
_SHARE = 1 / 3


def select_tests(
    snapshot: Snapshot,
    changes: Sequence[FileChange],
    problem_text: str,
    limit: int = DEFAULT_LIMIT,
    *,
    files: TestFiles | None = None,
    together: Mapping[str, float] = _NOTHING,
    seconds: float | None = None,
    measured: Mapping[str, float] = _NOTHING,
) -> tuple[SelectedTest, ...]:
    """Return at most `limit` test files, best first, each with its relation to the change.

    `files` are the files to choose from, if they are read already. `together` says for test files
    how regularly they changed with the edited ones, 0..1. `seconds` bounds the time of all chosen
    files, as `measured` by path or else estimated; the best one is chosen in any case.
    """
    tests = files or TestFiles(snapshot)
    targets = [_target_of(c.path) for c in changes if not is_test_path(c.path)]
    symbols = changed_symbols(c for c in changes if not is_test_path(c.path))
    words = frozenset(_CODE_WORD.findall(_ADDRESS.sub(" ", problem_text))) - symbols
    rarity = _rarity(tests.files, symbols | words)
    edited = {change.path for change in changes}
    scored = []
    for test in tests.files:
        relations = [
            *_named(test, edited, problem_text),
            *_strongest(test, targets, tests),
            *_changed_together(test, together),
            *_tested_by_name(test, symbols),
            *_by_words(test, symbols, rarity, _SYMBOL, _SYMBOLS_MOST, "mentions"),
            *_by_words(test, words, rarity, _ISSUE_WORD, _ISSUE_WORDS_MOST, "issue's"),
        ]
        scored.append(
            (-round(sum(relation[0] for relation in relations), 6), test.path, _reason(relations))
        )
    chosen = _best(sorted(scored), limit)
    return tuple(chosen) if seconds is None else _affordable(chosen, tests, seconds, measured)


def _best(scored: Sequence[tuple[float, str, str]], limit: int) -> list[SelectedTest]:
    tied = [entry for entry in scored if entry[0] < 0]
    worth = sum(-entry[0] >= _WORTH_RUNNING for entry in tied)
    return [
        SelectedTest(path, reason) for _, path, reason in tied[: min(limit, max(worth, _AT_LEAST))]
    ]


def _reason(relations: Iterable[Relation]) -> str:
    return "; ".join(
        note for _, note in sorted(relations, key=lambda relation: (-relation[0], relation[1]))[:3]
    )


def _rarity(tests: Sequence[TestFile], wanted: frozenset[str]) -> Mapping[str, float]:
    """Return 1 for a word in one test file, less with the logarithm of the number of files."""
    files: dict[str, int] = {}
    for test in tests:
        for word in wanted & test.words:
            files[word] = files.get(word, 0) + 1
    return {word: 1 / (1 + math.log2(count)) for word, count in files.items()}


def _named(test: TestFile, edited: set[str], problem: str) -> Iterable[Relation]:
    if test.path in edited:
        yield _EDITED, "edited by the patch"
    if re.search(rf"(?<![\w/]){re.escape(PurePosixPath(test.path).name)}\b", problem) or (
        test.path in problem
    ):
        yield _NAMED_BY_ISSUE, "named by the issue"


def _changed_together(test: TestFile, together: Mapping[str, float]) -> Iterable[Relation]:
    if together.get(test.path):
        yield _TOGETHER * together[test.path], "changed together with it before"


def _tested_by_name(test: TestFile, symbols: frozenset[str]) -> Iterable[Relation]:
    """Yield a relation if the test is named after a change: `test_parse_error` for `parse`."""
    for symbol in sorted(symbols):
        if symbol.strip("_").lower() in test.tested:
            yield _TESTED, f"tests {symbol}"
            return


def _by_words(
    test: TestFile,
    words: frozenset[str],
    rarity: Mapping[str, float],
    weight: float,
    most: float,
    what: str,
) -> Iterable[Relation]:
    found = sorted(words & test.words, key=lambda word: (-rarity[word], word))
    if found:
        # Summed in a fixed order: floating-point sums depend on it.
        yield min(most, weight * math.fsum(rarity[w] for w in found)), f"{what} {found[0]}"


# ------------------------------------------------------------ relations to an edited file


@dataclass(frozen=True, slots=True)
class _Target:
    """What relates tests to an edited source file."""

    path: str
    module: str
    stem: str  # of the module: the folder's name for an __init__.py
    package: str  # the last folder
    folders: tuple[str, ...]


def _target_of(path: str) -> _Target:
    """Return the target of an edited file."""
    module = module_name(path)
    parts = module.split(".")
    package = parts[-2] if len(parts) > 1 else ""
    return _Target(path, module, parts[-1], package, PurePosixPath(path).parts[:-1])


def _by_name(test: TestFile, target: _Target, files: TestFiles) -> Relation | None:
    """Whether the test is named after the file, a part of its name, or its folder."""
    pure = PurePosixPath(test.path)
    bare = _AFFIXES.sub("", pure.stem).strip("_").lower()
    stem, package = target.stem.strip("_").lower(), target.package.strip("_").lower()
    if bare in (stem, f"{package}_{stem}") and bare:
        return _SAME_NAME, f"named after {target.path}"
    folders = {part.lower().removeprefix("test_") for part in pure.parts[:-1]}
    if stem and stem in folders and stem not in map(str.lower, target.folders):
        return _FOLDER_NAME, f"in a folder named after {target.path}"
    if (stem and bare.startswith(f"{stem}_")) or (bare and stem.endswith(f"_{bare}")):
        return _NAME_PART, f"named after {target.path}"
    if package and bare == package:
        return _PACKAGE_NAME, f"named after the folder of {target.path}"
    return None


def _by_imports(test: TestFile, target: _Target, files: TestFiles) -> Relation | None:
    """Whether the test imports the file, something that imports it, or its package."""
    if target.path in test.imports:
        return _IMPORTS, f"imports {target.module}"
    if files.import_it(test.imports, target.path) and (
        through := sorted(test.imports & files.importers(target.path))
    ):
        share = 1 / (1 + math.log2(1 + len(files.importers(target.path))))
        return _IMPORTS_PACKAGE + _INDIRECT * share, f"imports {target.module} by {through[0]}"
    folder = "/".join(target.folders)
    if any(path == f"{folder}/__init__.py" for path in test.imports):
        return _IMPORTS_PACKAGE, f"imports the package of {target.module}"
    return None


def _by_folders(test: TestFile, target: _Target, files: TestFiles) -> Relation | None:
    """Whether the test is below folders of the same names."""
    if not target.folders:
        return None
    shared = len(set(target.folders) & set(PurePosixPath(test.path).parts[:-1]))
    if not shared:
        return None
    return _NEAR * shared / len(target.folders), f"near {target.path}"


def _strongest(test: TestFile, targets: Sequence[_Target], files: TestFiles) -> list[Relation]:
    """Return the strongest relation of each kind, so that many edited files do not add up."""
    found = []
    for kind in (_by_name, _by_imports, _by_folders):
        relations = [relation for target in targets if (relation := kind(test, target, files))]
        if relations:
            found.append(max(relations, key=lambda relation: (relation[0], relation[1])))
    return found


# ------------------------------------------------------------------------------------ time


def estimate(test: TestFile) -> float:
    """Estimate how many seconds a file takes, by the number of its tests."""
    return _A_FILE + _A_TEST * max(test.tests, _LEAST_TESTS)


def _affordable(
    chosen: Sequence[SelectedTest],
    tests: TestFiles,
    seconds: float,
    measured: Mapping[str, float],
) -> tuple[SelectedTest, ...]:
    """Return the first file and all further ones that fit into the time that is left."""
    left = seconds * _SHARE
    kept: list[SelectedTest] = []
    for one in chosen:
        taken = measured.get(one.path, estimate(tests.by_path[one.path]))
        if taken <= left or not kept:
            kept.append(one)
            left -= taken
    return tuple(kept)
