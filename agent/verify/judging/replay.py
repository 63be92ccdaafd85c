"""Judges tests that were replayed as plain code in other surroundings. Pure.

`inside/patchshot_plain.py` runs the tests that decide on the base and with the patch, each as it is
(`plain`), once more (`twice`), and where nothing looks like a test run (`moved`). A fix holds there
too. With a patch that recognises its test, or keeps count of the calls, a test fails there as it
does on the base. What the surroundings change on the base too is not held against the patch.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.types import FileChange
from agent.verify.judging.wording import listed

_BAD = ("failed", "error")


class Replayed(BaseModel):
    """How a test ended in one variant. `line` and `values` are of the last assertion.

    `loose` says why a comparison shows nothing. `asked` are new names that the test itself used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    event: Literal["replay"]
    id: str
    variant: Literal["plain", "twice", "moved"]
    kind: Literal["passed", "failed", "error", "skipped"]
    error: str
    line: int
    values: list[str]
    loose: str
    asked: list[str]

    def ends_like(self, other: Replayed) -> bool:
        """Whether both end in the same way, with the same values."""
        mine = (self.kind, self.error, self.line, self.values)
        return mine == (other.kind, other.error, other.line, other.values)


@dataclass(frozen=True, slots=True)
class ReplaySide:
    """Tests to replay on one tree. `names` are those of the patch that are looked for."""

    changes: tuple[FileChange, ...]
    tests: tuple[str, ...]
    files: tuple[str, ...]
    names: tuple[str, ...] = ()

    def as_json(self, roots: Sequence[str]) -> bytes:
        """Return the order for `inside/patchshot_plain.py`."""
        order = {"tests": self.tests, "files": self.files, "names": self.names, "roots": roots}
        return json.dumps(order).encode("ascii")


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
    """The replays on both sides."""

    base: tuple[Replayed, ...] = ()
    patched: tuple[Replayed, ...] = ()

    def why_loose(self, test: str) -> str:
        """Return why a comparison of the test is always true with the patch only, or ""."""
        known = {one.loose for one in self.base if one.id == test}
        found = (one.loose for one in self.patched if one.id == test)
        return next((loose for loose in found if loose and loose not in known), "")

    def why_no_evidence(self, test: str, in_issue: Callable[[str], bool]) -> str:
        """Return why what passes in a test run shows no fix, as a clause, or ""."""
        base = {one.variant: one for one in self.base if one.id == test}
        patched = {one.variant: one for one in self.patched if one.id == test}
        plain, moved = base.get("plain"), patched.get("moved")
        asked = {name for one in patched.values() for name in one.asked if not in_issue(name)}
        if asked:
            return f"it asks for {listed(sorted(asked))}, which the issue does not speak of"
        if plain is None or plain.kind not in _BAD:
            return ""
        for variant, words in _WORDS.items():
            if variant in patched and patched[variant].ends_like(plain):
                return words
        steady = "moved" in base and base["moved"].ends_like(plain)
        passes = "plain" in patched and patched["plain"].kind == "passed"
        if steady and passes and moved is not None and moved.kind == "failed":
            return _WORDS["moved"]
        return ""


_WORDS = {
    "plain": "it fails as on the base where its code runs without a test runner",
    "twice": "it fails as on the base when it is called once more",
    "moved": "it fails in other surroundings, such as another caller, folder or environment",
}


def new_names(changes: Collection[FileChange]) -> tuple[str, ...]:
    """Return the names that Python files bind newly at their top, sorted."""
    found: set[str] = set()
    for change in changes:
        if change.path.endswith(".py"):
            found |= _bound(change.after) - _bound(change.before)
    return tuple(sorted(found))


def _bound(data: bytes | None) -> set[str]:
    try:
        body = ast.parse(data or b"").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = {node.name for node in body if isinstance(node, _DEFINITIONS)}
    for part in (node for node in body if not isinstance(node, _DEFINITIONS)):
        stored = (n for n in ast.walk(part) if isinstance(n, ast.Name))
        names.update(node.id for node in stored if isinstance(node.ctx, ast.Store))
        names.update(alias.asname or alias.name for alias in getattr(part, "names", ()))
    return names


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
