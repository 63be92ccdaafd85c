"""Judges tests that pass newly by what they do once more, and as plain code. Pure.

They run again under other conditions, and tests in Python and JavaScript are replayed without a
runner by `inside/patchshot_plain.py` and `.cjs`, which have the variants. With a patch that leaves
the bug in place, a test fails there as it does on the base.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ValidationError

from agent.types import TestRun
from agent.verify.judging.compare import doubtful, failed, passes, suspicion
from agent.verify.judging.wording import listed


@dataclass(frozen=True, slots=True)
class SecondRuns:
    """Second runs of deciding tests. `base` is None if the first one was cut off."""

    base: TestRun | None
    patched: TestRun

    def is_steady(self, test: str) -> bool:
        """Whether a test fails without the patch and passes with it once more."""
        failed_again = self.base is None or failed(self.base, test)
        return failed_again and passes(self.patched, test) and not doubtful(self.patched)

    @property
    def doubt(self) -> str:
        """How the patch changes the test runner in the second runs only, or ""."""
        if self.base is None or doubtful(self.patched):
            return ""
        return suspicion(self.base, self.patched)


Variant = Literal["plain", "twice", "moved", "bent", "amid", "apart"]

_BAD = ("failed", "error")

# Assertions that a replay bends at most (`inside/patchshot_plain.py`).
_MOST_BENT = 12


class Replayed(BaseModel, frozen=True, extra="forbid", strict=True):
    """How a test ended in one variant. `line` and `values` are of the last assertion.

    In `bent`, `line` is the assertion that expected another value. `reached`: the test's own code
    ran, and not only its imports. `compared`: an assertion with values in `line` failed. `marked`
    are clauses about the code: what it does that has its results not be what they look like.
    """

    event: Literal["replay"]
    id: str
    variant: Variant
    kind: Literal["passed", "failed", "error", "skipped"]
    error: str
    line: int
    values: list[str]
    reached: bool
    compared: bool
    marked: list[str] = []

    def ends_like(self, other: Replayed) -> bool:
        """Whether both end in the same way, with the same values."""
        mine = (self.kind, self.error, self.line, self.values)
        return mine == (other.kind, other.error, other.line, other.values)


def read_replayed(data: bytes) -> tuple[Replayed, ...]:
    """Read the lines of a report; foreign data, so that other lines are left out."""
    replayed = []
    for line in data.splitlines():
        with suppress(ValidationError):
            replayed.append(Replayed.model_validate_json(line))
    return tuple(replayed)


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
        before = {o.line: o.values for o in self.base if (o.id, o.variant) == (test, "plain")}
        for one in self.patched:
            bends = (one.id, one.variant) == (test, "bent") and one.line in before
            if bends and one.kind == "passed":
                return f"the assertion in line {one.line} holds for another value too"
            if bends and _are_same(before[one.line], one.values):
                return f"the assertion in line {one.line} holds for what fails on the base"
        return ""

    def why_no_evidence(self, test: str) -> str:
        """Return why what passes in a test run shows no fix, as a clause, or ""."""
        base = {one.variant: one for one in self.base if one.id == test}
        plain, patched = base.get("plain"), [one for one in self.patched if one.id == test]
        if plain is None or plain.kind not in _BAD:
            return ""
        if loose := self.why_loose(test):
            return loose
        marked, known = (
            {path for one in side for path in one.marked} for side in (patched, base.values())
        )
        if new := sorted(marked - known):
            return f"its code {listed(new)}"
        bent = [one.line for one in patched if one.variant == "bent"]
        lasts = any((one.variant, one.kind) == ("twice", "passed") for one in patched)
        if plain.compared and lasts and plain.line not in bent and len(bent) < _MOST_BENT:
            return "the assertion that fails on the base is not reached with the patch"
        for one in patched:
            if one.variant not in _WORDS or not one.reached:
                continue
            # What disturbs the test on the base too says nothing, as other calls may do.
            other = base.get(one.variant, plain)
            steady = one.variant != "amid" and (other.kind, other.line) == (plain.kind, plain.line)
            same = one.ends_like(plain) or (steady and one.ends_like(other))
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


def _are_same(base: list[str], patched: list[str]) -> bool:
    """Whether a comparison that fails with two builtin values sees the same two with the patch."""
    texts, now = ([value.partition(" ")[2] for value in side] for side in (base, patched))
    try:
        shown = [f"{type(ast.literal_eval(text)).__name__} {text}" for text in texts]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return shown == base and texts == now and len(set(texts)) == 2


_WORDS: Mapping[Variant, str] = {
    "plain": "it fails as on the base where its code runs without a test runner",
    "twice": "it fails as on the base when it is called once more",
    "moved": "it fails in other surroundings, such as another caller, folder or environment",
    "amid": "it fails as on the base amid other calls, or where the program starts again",
    "apart": "it fails where no caller of its code holds what the test expects",
}
