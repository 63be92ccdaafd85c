"""Judges second runs: whether what passes newly does so again, and has to do with the patch. Pure.

A test can fail on the base and pass with the patch without showing a fix: it looks for a name, a
sentence of the documentation or the text of the source. So a test that decides must execute what
the patch changes. That is recorded in second runs, for Python only (`inside/patchshot_trace.py`).

1. Where the patch changes functions and more than functions, the test is also run with the base's
   functions and the rest of the patch. If it passes there, the changed functions do not matter to
   it, and what it executes is taken from that run.
2. It has to execute a line of a changed function; or a function of the project uses a name that the
   other statements of the patch bind; or the project's code reads another file of the patch. A name
   that the issue mentions may be used by the test alone.
3. A test of the reply must not read the source that the patch changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.types import Execution, Outcome, TestRun
from agent.verify.judging.changed_code import ChangedCode
from agent.verify.judging.compare import doubtful, failed, suspicion

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

    `base` is None if the first run was cut off. `undone` has the patch with the functions of the
    base, None if there is no such tree. `configures`: the patch changes nothing but configuration
    of the tests that the user allows, which no test executes.
    """

    base: RunAgain | None
    patched: RunAgain
    undone: RunAgain | None = None
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
        independent = self.undone is not None and _passes(self.undone, test)
        done = self._execution(test, independent=independent)
        related = bool(done.lines or done.names or done.read or any(map(mentioned, code.names)))
        unused = _WITHOUT if independent else _UNUSED
        if given:
            return unused if not related and (independent or done.opened) else ""
        if not related:
            return unused
        read = sorted(done.opened & code.source)
        return f"it reads the text of {read[0]}" if read else ""

    def _execution(self, test: str, *, independent: bool) -> Execution:
        if independent and self.undone is not None:
            return self.undone.execution(test)
        done = self.patched.execution(test)
        return done | self.base.execution(test) if self.base is not None else done


def suspicion_of_again(again: SecondRuns) -> str:
    """Return how the patch changes the test runner in the second runs only, or "".

    Other troubles of a second run are not held against a patch; its tests just do not count.
    """
    if again.base is None or doubtful(again.patched.run):
        return ""
    return suspicion(again.base.run, again.patched.run)


_UNUSED = "it executes nothing of what the patch changes"
_WITHOUT = "it passes without the changed functions too, and executes nothing else of the patch"


def _passes(again: RunAgain, test: str) -> bool:
    return again.run.outcomes.get(test) is Outcome.PASSED
