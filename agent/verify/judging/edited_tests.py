"""Counts what a patch takes away from existing tests, by reading both versions. Pure.

Python is read as a syntax tree: a test that is renamed or moved is not lost, and each test keeps as
many assertions as it had or has lost some. Of other languages, names of tests and lines that assert
are counted.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.repository import language_of
from agent.types import FileChange
from agent.verify.judging.tricks import is_true, tree_of
from agent.verify.judging.wording import listed, number

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPS = re.compile(r"\b(?:skip\w*|xfail|expectedFailure|importorskip)\b")

# A test and its name, in languages other than Python.
_TEST = re.compile(
    r"\b(?:it|test)(?:\.\w+)*\s*\(\s*(?P<script>['\"`][^\n]*?['\"`])\s*,"
    r"|\bfunc\s+(?P<go>Test\w+)|#\[(?:\w+::)*test\b[^\]]*\][^{;]*?\bfn\s+(?P<rust>\w+)"
    r"|@(?:Parameterized|Repeated)?Test\b[^{;]*?\bvoid\s+(?P<java>\w+)"
)
_ASSERTS = re.compile(
    r"\b(?:assert\w*!?|expect|require\.\w+|should|t\.(?:Error|Fatal|Fail)\w*|verify)\b"
)
_OFF = re.compile(
    r"\b(?:it|test|describe)\.(?:skip|todo)\b|\bx(?:it|describe)\(|\bt\.Skip|#\[ignore"
    r"|@(?:Ignore|Disabled)\b"
)


@dataclass(frozen=True, slots=True)
class TestLosses:
    """`removed` and `skipped` are names of tests; `assertions` counts those that tests lost."""

    __test__ = False  # not a test class

    removed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    assertions: int = 0

    @property
    def words(self) -> str:
        """Return the counts as a phrase after `the patch`, or "" for no loss."""
        parts = []
        if self.removed:
            parts.append(f"removes {number(len(self.removed), 'test')} ({listed(self.removed)})")
        if self.skipped:
            parts.append(f"skips {number(len(self.skipped), 'test')} ({listed(self.skipped)})")
        if self.assertions:
            parts.append(f"takes {number(self.assertions, 'assertion')} out of existing tests")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A function of a test file. `code` is the same for the same body under another name."""

    path: str
    name: str
    code: str
    assertions: int
    cases: int
    skipped: bool
    is_test: bool


def find_losses(tests: Sequence[FileChange], source: Sequence[FileChange] = ()) -> TestLosses:
    """Compare the existing tests in changed files with what the whole patch leaves of them.

    Of `source`, only Rust files hold tests.
    """
    changes = [*tests, *(change for change in source if language_of(change.path) == "rust")]
    before = [unit for change in changes for unit in _units(change.path, change.before)]
    after = [unit for change in changes for unit in _units(change.path, change.after)]
    codes = Counter(unit.code for unit in after)
    removed, skipped, assertions = [], [], 0
    for unit in before:
        if codes[unit.code]:  # it is still there, perhaps under another name
            codes[unit.code] -= 1
            continue
        now = _same(unit, after)
        if now is None:
            assertions += unit.assertions
            if unit.is_test:
                removed.append(unit.name)
            continue
        assertions += max(0, unit.assertions - now.assertions)
        if now.cases < unit.cases:
            removed.append(f"{number(unit.cases - now.cases, 'case')} of {unit.name}")
        if now.skipped and not unit.skipped:
            skipped.append(unit.name)
    return TestLosses(tuple(sorted(removed)), tuple(sorted(skipped)), assertions)


def edited_inside(changes: Sequence[FileChange]) -> frozenset[str]:
    """Return the names of existing tests inside Rust source files that the patch changes."""
    names: set[str] = set()
    for change in changes:
        if language_of(change.path) == "rust":
            after = {unit.code for unit in _units(change.path, change.after)}
            before = _units(change.path, change.before)
            names.update(unit.name for unit in before if unit.is_test and unit.code not in after)
    return frozenset(names)


def _same(unit: _Unit, after: Sequence[_Unit]) -> _Unit | None:
    """Return the unit of the same name: in the same file, or else in another one."""
    named = [other for other in after if other.name == unit.name]
    here = [other for other in named if other.path == unit.path]
    return next(iter(here or named), None)


def _units(path: str, data: bytes | None) -> Iterator[_Unit]:
    if data is None:
        return
    if language_of(path) != "python":
        yield from _by_lines(path, data.decode("utf-8", "replace"))
        return
    for name, node, around in _functions(tree_of(data), "", ""):
        marks = around + "".join(map(ast.unparse, node.decorator_list))
        body = ast.Module(node.body, [])
        skips = marks + "".join(
            ast.unparse(n.func) for n in ast.walk(body) if isinstance(n, ast.Call)
        )
        asserts = sum(map(is_assertion, ast.walk(body)))
        is_test = node.name.startswith("test")
        if is_test or asserts:
            skipped = _SKIPS.search(skips) is not None
            cases, code = sum(map(_cases, node.decorator_list)), f"{marks}{ast.dump(body)}"
            yield _Unit(path, name, code, asserts, cases, skipped, is_test)


def _cases(mark: ast.expr) -> int:
    """Return the number of cases that a parametrizing mark lists."""
    if not (isinstance(mark, ast.Call) and "param" in ast.unparse(mark.func)):
        return 0
    return sum(len(arg.elts) for arg in mark.args if isinstance(arg, ast.List | ast.Tuple))


def _functions(
    tree: ast.AST, prefix: str, marks: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Yield the functions and methods with their dotted name and the marks around them."""
    for node in getattr(tree, "body", ()):
        if isinstance(node, _FUNCTION):
            yield f"{prefix}{node.name}", node, marks
        elif isinstance(node, ast.ClassDef):
            more = "".join(map(ast.unparse, node.decorator_list))
            yield from _functions(node, f"{prefix}{node.name}.", marks + more)
        elif isinstance(node, ast.If | ast.Try):
            yield from _functions(node, prefix, marks)


def is_assertion(node: ast.AST) -> bool:
    """Whether a node is an assertion that can fail."""
    if isinstance(node, ast.Assert):
        return not is_true(node.test)
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    said = str(name).lower().lstrip("_").startswith(("assert", "raises", "warns", "fail", "expect"))
    return said and not (bool(node.args) and all(isinstance(a, ast.Constant) for a in node.args))


def text_of_test(text: str, name: str) -> str:
    """Return a test's part of a file in another language than Python; the whole text if not found.

    `name` is the last part of the test's id.
    """
    found = list(_TEST.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    for match, end in zip(found, ends, strict=False):
        if next(filter(None, match.groups()), "").strip("'\"`") == name:
            return text[match.start() : end]
    return text


def with_script_test(text: str, name: str, new: str) -> str | None:
    """Return a JavaScript file with one call of `it` or `test` replaced; None if it is not found.

    `name` is the last part of the test's id: its title, or the titles around it and its own.
    """
    found = [match for match in _TEST.finditer(text) if match["script"]]
    fits = [match for match in found if _ends_in(name, match["script"][1:-1])]
    longest = max((len(match["script"]) for match in fits), default=0)
    fits = [match for match in fits if len(match["script"]) == longest]
    end = _end_of_call(text, fits[0].start()) if len(fits) == 1 else None
    if end is None:
        return None
    return f"{text[: fits[0].start()]}{new.strip().removesuffix(';')}{text[end:]}"


def _ends_in(name: str, title: str) -> bool:
    return name == title or (name.endswith(title) and name[-len(title) - 1] in " >")


# Strings, comments and brackets of JavaScript. A string that holds `${` may hold anything.
_SCRIPT_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`|[()]",
    re.DOTALL,
)


def _end_of_call(text: str, start: int) -> int | None:
    """Return the offset after the bracket that closes the first one from `start` on."""
    depth = 0
    for token in _SCRIPT_TOKEN.finditer(text, start):
        depth += (token[0] == "(") - (token[0] == ")")
        if depth == 0 and token[0] == ")":
            return token.end()
    return None


def _by_lines(path: str, text: str) -> Iterator[_Unit]:
    """Yield the tests of a file; each reaches to the next one."""
    found = list(_TEST.finditer(text))
    starts = [match.start() for match in found]
    for match, end in zip(found, [*starts[1:], len(text)], strict=False):
        name = next(filter(None, match.groups()), "")
        body = text[match.start() : end]
        code = "\n".join(line.strip() for line in body.replace(name, "", 1).splitlines())
        before = text[max(0, match.start() - 80) : match.start()]
        skipped = _OFF.search(before + body) is not None
        count = len(_ASSERTS.findall(body))
        yield _Unit(path, name, code.strip(), count, 0, skipped, is_test=True)
