"""Judges whether tests that pass newly execute what the patch changes. Pure.

A test can fail on the base and pass with the patch without showing a fix: it looks for a name, a
sentence of the documentation or the text of the source. So a test that decides must execute what
the patch changes. That is recorded in second runs, for Python only (`inside/patchshot_trace.py`).

1. It has to execute a line of a changed function; or a function of the project uses a name that the
   other statements of the patch bind; or the project's code reads another file of the patch. A name
   that the issue mentions may be used by the test alone.
2. A test of the reply must not itself read source or a document that the patch changes.

The tests are also replayed as plain code (`inside/patchshot_plain.py`), on the base and with the
patch: each as it is (`plain`), once more (`twice`), and where nothing looks like a test run
(`moved`). A fix holds there too. With a patch that recognises its test, or keeps count of the
calls, a test fails there as it does on the base. What the surroundings change on the base too is
not held against the patch.

Two versions of a file are compared as sequences of statements, so that comments, blank lines,
docstrings and the layout do not count. A statement consists of its own lines: those of an `if` are
its condition. All statements of a function that is new, or whose signature differs, count.
"""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.patching import parse_python
from agent.types import Execution, FileChange, Outcome, TestRun
from agent.verify.judging.compare import doubtful, failed, suspicion

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Part = ast.stmt | ast.ExceptHandler | ast.match_case
_PARTS = (ast.stmt, ast.ExceptHandler, ast.match_case)

# Ends the name of a scope that is no function: a module or a class.
_BODY = "."


@dataclass(frozen=True, slots=True)
class ChangedCode:
    """What a patch changes, as seen in one tree: that of the patch, or the base.

    `lines` (`path:line`) are of functions that both versions have, `new` of functions that only
    this one has. `names` are bound or used by the changed statements of modules and classes.
    `files` are all changed files; `source` are those that were compared.
    """

    lines: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    source: frozenset[str] = frozenset()

    @property
    def by_path(self) -> dict[str, list[int]]:
        """Return the lines of functions by path."""
        lines: dict[str, list[int]] = {path: [] for path in sorted(self.source)}
        for place in sorted(self.lines | self.new):
            path, _, line = place.rpartition(":")
            lines.setdefault(path, []).append(int(line))
        return lines


def changed_code(changes: Sequence[FileChange], *, in_base: bool = False) -> ChangedCode:
    """Return what the changes do to the tree that they lead to, or to the base."""
    lines: dict[bool, set[str]] = {True: set(), False: set()}  # by: the other version has it too
    names: set[str] = set()
    source = [change for change in changes if change.path.endswith(".py")]
    for change in source:
        path = change.path
        here, there = (change.before, change.after)[:: 1 if in_base else -1]
        mine, other = _statements(here), _statements(there)
        if mine is None or other is None:  # the target's grammar is not ours: any line counts
            count = (here or b"").count(b"\n") + 1
            lines[True].update(f"{path}:{n}" for n in range(1, count + 1))
            continue
        for scope, statements in mine.items():
            for one in _differing(statements, other.get(scope, [])):
                if scope.endswith(_BODY):
                    names.update(one.names)
                else:
                    lines[scope in other].update(f"{path}:{n}" for n in one.lines)
    files = frozenset(change.path for change in changes)
    return ChangedCode(
        frozenset(lines[True]),
        frozenset(lines[False]),
        frozenset(names),
        files,
        frozenset(change.path for change in source),
    )


@dataclass(frozen=True, slots=True)
class _Statement:
    """`key` is the same for statements that do the same at the same depth."""

    key: str
    lines: range
    names: frozenset[str]


def _statements(data: bytes | None) -> dict[str, list[_Statement]] | None:
    """Return the statements by function, class or module; None for what cannot be parsed."""
    try:
        tree = parse_python(data or b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    scopes: dict[str, list[_Statement]] = {}
    _collect(tree.body, _BODY, "", scopes)
    return scopes


def _collect(
    body: Sequence[_Part], scope: str, around: str, scopes: dict[str, list[_Statement]]
) -> None:
    """Add statements to their scope. `around` is the signature of their function, and a mark for
    each block that they are in.
    """
    statements = scopes.setdefault(scope, [])
    for part in body:
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
            continue  # a docstring
        name = f"{scope.removesuffix(_BODY)}/{getattr(part, 'name', '')}"
        if isinstance(part, _FUNCTIONS):
            _collect(part.body, name, _own_dump(part), scopes)
            continue
        blocks = [value for _, value in ast.iter_fields(part) if _is_block(value)]
        key = f"{around}|{_own_dump(part)}"
        statements.append(_Statement(key, _lines(part, blocks), frozenset(_names(part))))
        for block in blocks:
            if isinstance(part, ast.ClassDef):
                _collect(block, f"{name}{_BODY}", "", scopes)
            else:
                _collect(block, scope, f"{around}>", scopes)


def _lines(part: _Part, blocks: Sequence[Sequence[_Part]]) -> range:
    """Return the lines of a statement without the blocks inside it."""
    first = _line(part)
    last = min(map(_line, (block[0] for block in blocks)), default=0) - 1
    end = last if blocks else getattr(part, "end_lineno", None) or first
    return range(first, max(end, first) + 1)


def _line(part: _Part) -> int:
    return part.pattern.lineno if isinstance(part, ast.match_case) else part.lineno


def _names(part: _Part) -> Iterator[str]:
    """Yield what a statement binds; of a call that stands alone, what it uses."""
    alone = isinstance(part, ast.Expr)
    for value in _own_values(part):
        for node in ast.walk(value) if isinstance(value, ast.AST) else ():
            if isinstance(node, ast.Name) and (alone or isinstance(node.ctx, ast.Store | ast.Del)):
                yield from () if hasattr(builtins, node.id) else (node.id,)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                yield from (one.id for one in ast.walk(node.value) if isinstance(one, ast.Name))
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).partition(".")[0]
    if isinstance(part, ast.ClassDef):
        yield part.name


def _own_values(part: _Part) -> list[object]:
    """Return the values of a statement without the blocks inside it, lists flattened."""
    values: list[object] = []
    for name, value in ast.iter_fields(part):
        if not _is_block(value):
            values += [name, *(value if isinstance(value, list) else [value])]
    return values


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], _PARTS)


def _own_dump(part: _Part) -> str:
    """Return a statement as text, without positions and without the blocks inside it."""
    values = _own_values(part)
    dumps = [ast.dump(one) if isinstance(one, ast.AST) else one for one in values]
    return f"{type(part).__name__}{dumps}"


def _differing(mine: list[_Statement], other: list[_Statement]) -> list[_Statement]:
    matcher = SequenceMatcher(None, [s.key for s in mine], [s.key for s in other], autojunk=False)
    return [
        statement
        for kind, start, end, _, _ in matcher.get_opcodes()
        if kind != "equal"
        for statement in mine[start:end]
    ]


# -------------------------------------------------------------------------------- second runs

_DOCUMENTATION = (".md", ".rst", ".txt", ".adoc")


@dataclass(frozen=True, slots=True)
class RunAgain:
    """One run, and what the patch changes in its tree. `ordered`: its runner records that."""

    run: TestRun
    code: ChangedCode
    ordered: bool

    def execution(self, test: str) -> Execution:
        """Return what a test executed. Before the tests, only changed functions count."""
        outside, own = self.reported(""), self.reported(test)
        if test not in self.run.executed:  # it ran in another process (pytest-xdist)
            return outside
        return own | Execution(outside.lines - self.code.new, outside.names, outside.read)

    def reported(self, test: str) -> Execution:
        """Return what was reported of a test, as far as it was asked for."""
        found, code = self.run.executed.get(test, Execution()), self.code
        return Execution(
            found.lines & (code.lines | code.new),
            found.names & code.names,
            found.read & code.files,
            found.opened & code.files,
        )


@dataclass(frozen=True, slots=True)
class SecondRuns:
    """Second runs of deciding tests, with the ids of the first.

    `base` is None if the first run was cut off. `configures`: the patch changes nothing but
    configuration of the tests that the user allows, which no test executes.
    """

    base: RunAgain | None
    patched: RunAgain
    configures: bool = False

    def is_steady(self, test: str) -> bool:
        """Whether a test fails without the patch and passes with it once more."""
        failed_again = self.base is None or failed(self.base.run, test)
        return failed_again and _passes(self.patched, test) and not doubtful(self.patched.run)

    def why_unrelated(self, test: str, mentioned: Callable[[str], bool], *, given: bool) -> str:
        """Return why a steady test has nothing to do with the patch, as a clause, or "".

        `given` tests are the project's own: what cannot be told is not held against them.
        `mentioned`: do the issue and the test mention the name?
        """
        code = self.patched.code
        if not given and all(path.lower().endswith(_DOCUMENTATION) for path in code.files):
            return "the patch changes nothing but documentation"
        if self.configures:
            return ""
        if not self.patched.run.executed:
            lost = self.patched.ordered and not given
            return "what it executes could not be recorded" if lost else ""
        done = self.patched.execution(test)
        if self.base is not None:
            done |= self.base.execution(test)
        related = bool(done.lines or done.names or done.read or any(map(mentioned, code.names)))
        unused = "it executes nothing of what the patch changes"
        if given:
            return unused if not related and done.opened else ""
        documents = {path for path in code.files if path.lower().endswith(_DOCUMENTATION)}
        read = sorted(done.opened & (code.source | documents))
        if related and read:
            return f"it reads the text of {read[0]}"
        return "" if related else unused


def suspicion_of_again(again: SecondRuns) -> str:
    """Return how the patch changes the test runner in the second runs only, or "".

    Other troubles of a second run are not held against a patch; its tests just do not count.
    """
    if again.base is None or doubtful(again.patched.run):
        return ""
    return suspicion(again.base.run, again.patched.run)


def _passes(again: RunAgain, test: str) -> bool:
    return again.run.outcomes.get(test) is Outcome.PASSED


# ------------------------------------------------------------------------------------- replays

Variant = Literal["plain", "twice", "moved", "bent"]

_BAD = ("failed", "error")


class Replayed(BaseModel):
    """How a test ended in one variant. `line` and `values` are of the last assertion.

    In `bent`, `line` is the assertion that expected another value. `reached`: the test's own code
    ran, and not only its imports.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    event: Literal["replay"]
    id: str
    variant: Variant
    kind: Literal["passed", "failed", "error", "skipped"]
    error: str
    line: int
    values: list[str]
    reached: bool

    def ends_like(self, other: Replayed) -> bool:
        """Whether both end in the same way, with the same values."""
        mine = (self.kind, self.error, self.line, self.values)
        return mine == (other.kind, other.error, other.line, other.values)


@dataclass(frozen=True, slots=True)
class ReplaySide:
    """Tests to replay on one tree."""

    changes: tuple[FileChange, ...]
    tests: tuple[str, ...]

    def as_json(self, roots: Sequence[str]) -> bytes:
        """Return the order for `inside/patchshot_plain.py`."""
        return json.dumps({"tests": self.tests, "roots": roots}).encode("ascii")


def read_replayed(data: bytes) -> tuple[Replayed, ...]:
    """Read the lines of a report; foreign data, so that other lines are left out."""
    found = []
    for line in data.splitlines():
        try:
            found.append(Replayed.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Replays:
    """The replays on both sides.

    `controls` are tests of the project that pass in the runner on both sides. Where none of them
    passes as plain code on the base, the replay and not the patch is at fault.
    """

    base: tuple[Replayed, ...] = ()
    patched: tuple[Replayed, ...] = ()
    controls: frozenset[str] = frozenset()

    def why_loose(self, test: str) -> str:
        """Return why the assertion that fails on the base cannot fail with the patch, or ""."""
        plain = next((one for one in self.base if one.id == test and one.variant == "plain"), None)
        for one in self.patched:
            same = plain and (one.id, one.variant, one.line) == (test, "bent", plain.line)
            if same and one.kind == "passed":
                return f"the assertion in line {one.line} holds for another value too"
        return ""

    def why_no_evidence(self, test: str) -> str:
        """Return why what passes in a test run shows no fix, as a clause, or ""."""
        base = {one.variant: one for one in self.base if one.id == test}
        plain = base.get("plain")
        if plain is None or plain.kind not in _BAD:
            return ""
        for one in self.patched:
            if one.id != test or one.variant not in _WORDS or not one.reached:
                continue
            same = one.ends_like(plain) or one.ends_like(base.get(one.variant, plain))
            if same and self._works(one.variant, plain):
                return _WORDS[one.variant]
        return ""

    def _works(self, variant: Variant, plain: Replayed) -> bool:
        """Whether replays can be believed here: an assertion failed, or a control passes."""
        kinds = [
            one.kind
            for one in self.base
            if one.id in self.controls and one.variant == variant and one.kind != "skipped"
        ]
        return "passed" in kinds if kinds else plain.kind == "failed"


_WORDS: Mapping[Variant, str] = {
    "plain": "it fails as on the base where its code runs without a test runner",
    "twice": "it fails as on the base when it is called once more",
    "moved": "it fails in other surroundings, such as another caller, folder or environment",
}
