"""Reads what the runners inside the sandbox wrote, and makes a `TestRun` of it.

The lines are foreign data: code under test shares the process that writes them. A line that is not
as it should be is counted, never trusted; a report without its `finish` line is not the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic import Field as PydanticField

from agent.types import Outcome, TestRun
from sandbox.types import Ended, RunResult

# Values of `TestRun.ended` beside those of `sandbox.types.Ended`.
INCOMPLETE = "incomplete"  # the process ended, but its tests had not
INCONSISTENT = "inconsistent"  # the exit code contradicts what was reported

# The one id of a command that reports no tests of its own.
COMMAND_ID = "command"

# Not executable, not found: what shells and env(1) exit with (POSIX, Shell 2.8.2).
_CANNOT_START = (126, 127)

# Kept of a run's output: enough to show why pytest itself refused to start.
OUTPUT_TAIL_CHARS = 6000

_IN_FLIGHT = "the run ended during this test"

# Test output goes to terminals and prompts: no escape sequences, no other control characters.
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Begin(_Line):
    event: Literal["begin"]
    runner: str


class _Start(_Line):
    event: Literal["start"]
    id: str


class _Result(_Line):
    event: Literal["result"]
    id: str
    phase: Literal["collect", "setup", "call", "teardown"]
    outcome: Literal["passed", "failed", "skipped"]
    xfail: bool
    text: str


class _Finish(_Line):
    event: Literal["finish"]
    status: int


_ReportLine = Annotated[_Begin | _Start | _Result | _Finish, PydanticField(discriminator="event")]
_LINE: TypeAdapter[_Begin | _Start | _Result | _Finish] = TypeAdapter(_ReportLine)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run reported. `statuses` holds one exit status for each `finish` line."""

    begun: int = 0
    statuses: tuple[int, ...] = ()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    in_flight: tuple[str, ...] = ()
    unreadable: int = 0

    @property
    def complete(self) -> bool:
        """Every session that began also finished, and every line could be read."""
        return self.begun > 0 and self.begun == len(self.statuses) and not self.unreadable


def read_report(data: bytes) -> Report:
    """Read the lines of a report. Never raises for what they hold."""
    lines, unreadable = _lines(data)
    outcomes: dict[str, Outcome] = {}
    failures: dict[str, str] = {}
    started: dict[str, None] = {}
    for line in lines:
        if isinstance(line, _Start):
            started[line.id] = None
        elif isinstance(line, _Result):
            outcome = _merge(outcomes.get(line.id), line)
            if outcome is None:
                continue
            outcomes[line.id] = outcome
            if outcome in (Outcome.FAILED, Outcome.ERROR) and line.text:
                failures.setdefault(line.id, clean(line.text))
    return Report(
        begun=sum(isinstance(line, _Begin) for line in lines),
        statuses=tuple(line.status for line in lines if isinstance(line, _Finish)),
        outcomes=outcomes,
        failures=failures,
        in_flight=tuple(test for test in started if test not in outcomes),
        unreadable=unreadable,
    )


def make_run(
    argv: tuple[str, ...], result: RunResult, *, own_runner: bool, opaque: bool = False
) -> TestRun:
    """Turn a finished run into a `TestRun`.

    `own_runner`: the exit code must agree with the report. `opaque`: a command that reported no
    session at all counts as one test, `COMMAND_ID`, that passes with exit code 0.
    """
    report = read_report(result.report)
    outcomes, failures = dict(report.outcomes), dict(report.failures)
    ended = _ended(result, report, own_runner=own_runner, opaque=opaque)
    if opaque and not report.begun:
        outcomes = _of_command(result)
    if ended != Ended.EXITED:
        for test in report.in_flight:
            failures.setdefault(test, _IN_FLIGHT)
            if ended in (INCOMPLETE, Ended.SIGNALLED):
                outcomes[test] = Outcome.ERROR  # it brought the process down
    return TestRun(
        command=argv,
        outcomes=outcomes,
        exit_code=result.exit_code,
        seconds=result.seconds,
        ended=ended,
        output_tail=_tail(result),
        failures=failures,
    )


def clean(text: str) -> str:
    """The text without escape sequences and control characters, with `\\n` line ends."""
    return _CONTROL.sub("", _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def counts(run: TestRun) -> str:
    """`12 passed, 1 failed`, in a fixed order; `no outcomes` when there are none."""
    values = list(run.outcomes.values())
    parts = [f"{values.count(outcome)} {outcome.value}" for outcome in Outcome if outcome in values]
    return ", ".join(parts) or "no outcomes"


def _lines(data: bytes) -> tuple[list[_Begin | _Start | _Result | _Finish], int]:
    lines, unreadable = [], 0
    for raw in data.splitlines():
        try:
            lines.append(_LINE.validate_json(raw))
        except ValidationError:
            unreadable += 1
    return lines, unreadable


def _merge(known: Outcome | None, line: _Result) -> Outcome | None:
    """The outcome of a test after one more phase; None while nothing can be said."""
    if known in (Outcome.FAILED, Outcome.ERROR):
        return known
    if line.outcome == "failed":
        return Outcome.FAILED if line.phase == "call" else Outcome.ERROR
    if known is Outcome.SKIPPED or line.outcome == "skipped" or line.xfail:
        return Outcome.SKIPPED
    return known if line.phase != "call" else Outcome.PASSED


def _of_command(result: RunResult) -> dict[str, Outcome]:
    """The one outcome of a command; none when it was cut short or could not be started."""
    if result.ended is not Ended.EXITED or result.exit_code in _CANNOT_START:
        return {}
    return {COMMAND_ID: Outcome.FAILED if result.exit_code else Outcome.PASSED}


def _ended(result: RunResult, report: Report, *, own_runner: bool, opaque: bool) -> str:
    if result.ended is not Ended.EXITED:
        return str(result.ended)
    if opaque and not report.begun:
        return str(Ended.EXITED)
    if own_runner and not report.begun:
        # pytest refused to start (its exit codes 1-4 say so); a clean exit would be a lie.
        return INCOMPLETE if result.exit_code == 0 else str(Ended.EXITED)
    if not report.complete:
        return INCOMPLETE
    agrees = not own_runner or report.statuses[-1:] == (result.exit_code,)
    return str(Ended.EXITED) if agrees and not _contradicts(report) else INCONSISTENT


def _contradicts(report: Report) -> bool:
    """A session that says all is well (status 0) although a test of it failed."""
    failed = any(o in (Outcome.FAILED, Outcome.ERROR) for o in report.outcomes.values())
    return failed and not any(report.statuses)


def _tail(result: RunResult) -> str:
    streams: Iterable[bytes] = (result.stdout, result.stderr)
    text = "\n".join(clean(s.decode("utf-8", "replace")).strip() for s in streams).strip()
    return text[-OUTPUT_TAIL_CHARS:]
