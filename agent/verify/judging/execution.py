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
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.patching import parse_python
from agent.types import Execution, FileChange, Outcome, TestRun
from agent.verify.judging.compare import doubtful, failed, suspicion

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Part = ast.stmt | ast.ExceptHandler | ast.match_case
_PARTS = (ast.stmt, ast.ExceptHandler, ast.match_case)

# The scope of a module's own statements, and what ends that of a class.
_MODULE = ""
_CLASS = "."


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

    def __or__(self, other: ChangedCode) -> ChangedCode:
        return ChangedCode(
            self.lines | other.lines,
            self.new | other.new,
            self.names | other.names,
            self.files | other.files,
            self.source | other.source,
        )

    @property
    def by_path(self) -> dict[str, list[int]]:
        """Return the lines of functions by path."""
        found: dict[str, list[int]] = {path: [] for path in sorted(self.source)}
        for place in sorted(self.lines | self.new):
            path, _, line = place.rpartition(":")
            found.setdefault(path, []).append(int(line))
        return found


def changed_code(changes: Sequence[FileChange], *, in_base: bool = False) -> ChangedCode:
    """Return what the changes do to the tree that they lead to, or to the base."""
    found = ChangedCode()
    for change in changes:
        here, there = change.after, change.before
        if in_base:
            here, there = there, here
        found |= _changed(change.path, here, there)
    return found


def _changed(path: str, here: bytes | None, there: bytes | None) -> ChangedCode:
    files = frozenset({path})
    if not path.endswith(".py"):
        return ChangedCode(files=files)
    mine, other = _scopes(here), _scopes(there)
    if mine is None or other is None:  # the target's grammar is not ours: any line counts
        lines = range(1, (here or b"").count(b"\n") + 2)
        return ChangedCode(frozenset(f"{path}:{n}" for n in lines), files=files, source=files)
    lines_of: dict[bool, set[str]] = {True: set(), False: set()}
    names: set[str] = set()
    for scope, statements in mine.items():
        changed = _differing(statements, other.get(scope, []))
        if scope == _MODULE or scope.endswith(_CLASS):
            names.update(name for one in changed for name in one.names)
        else:
            lines_of[scope in other].update(f"{path}:{n}" for one in changed for n in one.lines)
    return ChangedCode(
        frozenset(lines_of[True]), frozenset(lines_of[False]), frozenset(names), files, files
    )


@dataclass(frozen=True, slots=True)
class _Statement:
    """`key` is the same for statements that do the same at the same depth."""

    key: str
    lines: range
    names: frozenset[str] = field(default_factory=frozenset)


def _scopes(data: bytes | None) -> dict[str, list[_Statement]] | None:
    """Return the statements by function, class or module; None for what cannot be parsed."""
    try:
        tree = parse_python(data or b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: dict[str, list[_Statement]] = {_MODULE: []}
    _collect(tree.body, _MODULE, 0, "", found)
    return found


def _collect(
    body: Sequence[_Part], scope: str, depth: int, head: str, found: dict[str, list[_Statement]]
) -> None:
    """Add statements to their scope. `head` is the signature of the function around them."""
    for part in body:
        if _is_docstring(part):
            continue
        if isinstance(part, _FUNCTIONS):
            name = f"{scope.removesuffix(_CLASS)}/{part.name}"
            found.setdefault(name, [])
            _collect(part.body, name, 0, _own_dump(part), found)
            continue
        found[scope].append(_statement(part, depth, head))
        if isinstance(part, ast.ClassDef):
            name = f"{scope.removesuffix(_CLASS)}/{part.name}{_CLASS}"
            found.setdefault(name, [])
            _collect(part.body, name, 0, "", found)
            continue
        for block in _blocks(part):
            _collect(block, scope, depth + 1, head, found)


def _statement(part: _Part, depth: int, head: str) -> _Statement:
    line = part.pattern.lineno if isinstance(part, ast.match_case) else part.lineno
    first = min((_first_line(block) for block in _blocks(part)), default=0)
    end = first - 1 if first else getattr(part, "end_lineno", None) or line
    key = f"{head}|{depth}|{_own_dump(part)}"
    return _Statement(key, range(line, max(end, line) + 1), frozenset(_names(part)))


def _first_line(block: Sequence[_Part]) -> int:
    part = block[0]
    return part.pattern.lineno if isinstance(part, ast.match_case) else part.lineno


def _names(part: _Part) -> Iterator[str]:
    """Yield what a statement binds; of a call that stands alone, what it uses."""
    own = [node for value in _own_values(part) for node in _walk(value)]
    alone = isinstance(part, ast.Expr)
    for node in own:
        if isinstance(node, ast.Name) and (alone or isinstance(node.ctx, ast.Store | ast.Del)):
            yield from () if hasattr(builtins, node.id) else (node.id,)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield from (inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name))
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
    if isinstance(part, ast.ClassDef):
        yield part.name


def _own_values(part: _Part) -> list[object]:
    """Return the values of a statement without the blocks inside it."""
    return [
        value
        for _, value in ast.iter_fields(part)
        if not (isinstance(value, list) and value and isinstance(value[0], _PARTS))
    ]


def _walk(value: object) -> Iterator[ast.AST]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, ast.AST):
            yield from ast.walk(one)


def _own_dump(part: _Part) -> str:
    """Return the statement as text, without positions and without the blocks inside it."""
    return f"{type(part).__name__}({', '.join(map(_dump, _own_values(part)))})"


def _dump(value: object) -> str:
    if isinstance(value, ast.AST):
        return ast.dump(value)
    return f"[{', '.join(map(_dump, value))}]" if isinstance(value, list) else repr(value)


def _blocks(part: _Part) -> Iterator[Sequence[_Part]]:
    """Yield the blocks of a compound statement; the handlers of a `try` are one too."""
    for _, value in ast.iter_fields(part):
        if isinstance(value, list) and value and isinstance(value[0], _PARTS):
            yield value


def _is_docstring(statement: _Part) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


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
        return own | Execution(outside.lines - self.code.new, frozenset(), outside.read)

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

Variant = Literal["plain", "twice", "moved"]

_BAD = ("failed", "error")


class Replayed(BaseModel):
    """How a test ended in one variant. `line` and `values` are of the last assertion.

    `loose` says why a comparison shows nothing. `reached`: the test's own code ran, and not only
    its imports.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    event: Literal["replay"]
    id: str
    variant: Variant
    kind: Literal["passed", "failed", "error", "skipped"]
    error: str
    line: int
    values: list[str]
    loose: str
    reached: bool

    def ends_like(self, other: Replayed) -> bool:
        """Whether both end in the same way, with the same values."""
        mine = (self.kind, self.error, self.line, self.values)
        return mine == (other.kind, other.error, other.line, other.values)


@dataclass(frozen=True, slots=True)
class ReplaySide:
    """Tests to replay on one tree. `files` are those in which the patch changes an equality."""

    changes: tuple[FileChange, ...]
    tests: tuple[str, ...]
    files: tuple[str, ...]

    def as_json(self, roots: Sequence[str]) -> bytes:
        """Return the order for `inside/patchshot_plain.py`."""
        order = {"tests": self.tests, "files": self.files, "roots": roots}
        return json.dumps(order).encode("ascii")


def find_equality_files(source: Sequence[FileChange]) -> tuple[str, ...]:
    """Return the files whose `__eq__` the patch changes or adds, by whatever name."""
    return tuple(c.path for c in source if _equalities(c.after) != _equalities(c.before))


def _equalities(data: bytes | None) -> tuple[int, list[str]]:
    """Return how often a file mentions `__eq__`, and its functions of that name."""
    text = (data or b"").decode("utf-8", "replace")
    if "__eq__" not in text:
        return 0, []
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return 0, [text]
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
    return text.count("__eq__"), [ast.dump(one) for one in functions if one.name == "__eq__"]


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
        """Return why a comparison of the test is always true with the patch only, or ""."""
        known = {one.loose for one in self.base if one.id == test}
        found = (one.loose for one in self.patched if one.id == test)
        return next((loose for loose in found if loose and loose not in known), "")

    def why_no_evidence(self, test: str) -> str:
        """Return why what passes in a test run shows no fix, as a clause, or ""."""
        base = {one.variant: one for one in self.base if one.id == test}
        patched = {one.variant: one for one in self.patched if one.id == test}
        plain, moved = base.get("plain"), patched.get("moved")
        if plain is None or plain.kind not in _BAD:
            return ""
        for variant, words in _WORDS.items():
            again = patched.get(variant)
            same = again is not None and again.reached and again.ends_like(plain)
            if same and self._works(variant, plain):
                return words
        steady = "moved" in base and base["moved"].ends_like(plain)
        passes = "plain" in patched and patched["plain"].kind == "passed"
        fails = moved is not None and moved.kind == "failed"
        if steady and passes and fails and self._works("moved", plain):
            return _WORDS["moved"]
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
