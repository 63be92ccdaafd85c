"""The validator that runs nothing (`--no-tests`), and the reports that need no run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agent.patching.syntax import check_syntax
from agent.types import (
    AppliedPatch,
    ReproductionTest,
    SyntaxProblem,
    TestRun,
    ValidationReport,
    Verdict,
)
from sandbox.types import Ended

_NO_TESTS = "Tests are switched off (--no-tests); only the syntax was checked."


class NullValidator:
    """Checks syntax only: the verdict is BROKEN_SYNTAX or UNVERIFIED, the backend "none"."""

    async def prepare(self) -> None:
        """Do nothing: nothing is run."""

    async def validate(
        self, patch: AppliedPatch, test: ReproductionTest | None
    ) -> ValidationReport:
        """Report what no longer parses. `test` is not run."""
        started = time.perf_counter()
        problems = check_syntax(patch.changes)
        if problems:
            return broken_syntax(problems, "none", time.perf_counter() - started)
        seconds = time.perf_counter() - started
        return ValidationReport(Verdict.UNVERIFIED, _NO_TESTS, "none", seconds=seconds)

    async def run_tests(self, patch: AppliedPatch | None, paths: Sequence[str]) -> TestRun:
        """Run nothing, and say so."""
        return nothing_run(_NO_TESTS)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to remove."""


def broken_syntax(
    problems: tuple[SyntaxProblem, ...], backend: str, seconds: float
) -> ValidationReport:
    """The report for files that no longer parse."""
    lines = [f"{p.path}, line {p.line}: {p.message}" for p in problems]
    reason = "\n".join(["The patch leaves files that do not parse:", *lines])
    return ValidationReport(
        Verdict.BROKEN_SYNTAX, reason, backend, syntax_problems=problems, seconds=seconds
    )


def nothing_run(why: str) -> TestRun:
    """A run without a command and without outcomes."""
    return TestRun(
        command=(), outcomes={}, exit_code=None, seconds=0.0, ended=Ended.EXITED, output_tail=why
    )
