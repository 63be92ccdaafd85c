"""Turns what a sandboxed run left behind into a `TestRun`. Nothing here raises.

`make_run` reads our own runners (pytest, unittest, Django) and foreign commands. The other runners
read their tool's output into a `ParsedOutput`, and `make_tool_run` turns that into a run. All of it
is foreign data, because code under test shares the process or the folder that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.types import BAD_OUTCOMES, Channels, Outcome, TestRun
from agent.verify.reports.agreement import agreement
from agent.verify.reports.junit import JunitReport, read_junit
from agent.verify.reports.report_lines import Report, clean, read_report
from sandbox import Command, Ended, RunResult

# Values of `TestRun.ended` in addition to those of `sandbox.types.Ended`.
INCOMPLETE = "incomplete"  # the process ended, but its tests had not
INCONSISTENT = "inconsistent"  # the accounts of the run contradict each other

# The one test id of a command that reports no tests of its own.
COMMAND_ID = "command"

# Exit codes of shells and env(1) if a command cannot be executed or is not found (POSIX, Shell
# 2.8.2).
_CANNOT_START = (126, 127)

# Number of characters kept of a run's output: enough to show why pytest refused to start.
OUTPUT_TAIL_CHARS = 6000

# Number of characters kept of a failure report, whose end names the error.
TEXT_LIMIT = 6000

# Longer lines are cut before they are matched: no runner writes them, but a hostile test may.
LINE_LIMIT = 2000


_WORST_FIRST = (Outcome.ERROR, Outcome.FAILED, Outcome.SKIPPED, Outcome.PASSED)

_IN_FLIGHT = "the run ended during this test"

_SEPARATOR = b"\x1e"


def nothing_run(why: str) -> TestRun:
    """Return a run without a command and without outcomes."""
    return TestRun(
        command=(), outcomes={}, exit_code=None, seconds=0.0, ended=Ended.EXITED, output_tail=why
    )


@dataclass(slots=True)
class ParsedOutput:
    """What a runner reads from its tool's output. The worst of several outcomes of a test counts.

    `begun` means that the tool reported anything at all, `complete` that its report came to its own
    end. `running` are the tests that began and did not end.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    begun: bool = False
    complete: bool = False
    running: dict[str, None] = field(default_factory=dict)

    def add(self, test: str, outcome: Outcome, text: str = "") -> None:
        """Add an outcome of a test; `text` is kept for a failure."""
        self.begun = True
        self.running.pop(test, None)
        known = self.outcomes.get(test, outcome)
        self.outcomes[test] = min(known, outcome, key=_WORST_FIRST.index)
        if outcome in BAD_OUTCOMES and text.strip():
            self.failures.setdefault(test, clean(text)[-TEXT_LIMIT:].strip("\n"))

    def start(self, test: str) -> None:
        """Note that a test has begun."""
        self.begun = True
        if test not in self.outcomes:
            self.running[test] = None


def make_tool_run(
    command: Command, result: RunResult, found: ParsedOutput, output: str | None = None
) -> TestRun:
    """Make a run, its tests sorted by id. `output` replaces the streams in `output_tail`."""
    ended = _ended_tool(result, found)
    outcomes, failures = dict(found.outcomes), dict(found.failures)
    _blame_running_tests(found.running, ended, result, outcomes, failures)
    return TestRun(
        command=command.argv,
        outcomes=dict(sorted(outcomes.items())),
        exit_code=result.exit_code,
        seconds=result.seconds,
        ended=ended,
        output_tail=(streams(result) if output is None else output)[-OUTPUT_TAIL_CHARS:],
        failures=dict(sorted(failures.items())),
        channels=Channels(_accounts(found.begun, result)),
    )


def streams(result: RunResult) -> str:
    """Return standard output, then standard error, as text without escape sequences."""
    texts = (clean(s.decode("utf-8", "replace")).strip() for s in (result.stdout, result.stderr))
    return "\n".join(text for text in texts if text)


def collected(report: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files that `patchshot_collect.sh files` gathered, by name."""
    parts = (part.partition(b"\n") for part in report.split(_SEPARATOR)[1:])
    files = ((name.decode("utf-8", "replace"), content) for name, _, content in parts)
    yield from sorted((name.removeprefix("./"), content) for name, content in files)


def text_of(value: object) -> str:
    """Return the value if it is text, else ""."""
    return value if isinstance(value, str) else ""


def entries(value: object) -> Iterable[Mapping[str, object]]:
    """Return the objects among the elements of a list; none if it is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def make_run(
    argv: tuple[str, ...], result: RunResult, *, own_runner: bool, opaque: bool = False
) -> TestRun:
    """Read a run of our own runner (`own_runner`) or of a foreign command (`opaque`).

    The report, the exit code and, if pytest was told to write one, the JUnit file of our own runner
    must agree. A foreign command that reported no session counts as one test, `COMMAND_ID`, which
    passes with exit code 0.
    """
    report = read_report(result.report, result.seconds)
    junit = read_junit(result.junit) if own_runner and report.junit else None
    channels = _channels(report, junit, result, own_runner=own_runner)
    ended = _ended_own(result, report, channels, own_runner=own_runner, opaque=opaque)
    outcomes, failures = dict(report.outcomes), dict(report.failures)
    if opaque and not report.begun:
        outcomes = _of_command(result)
    _blame_running_tests(report.in_flight, ended, result, outcomes, failures)
    return TestRun(
        command=argv,
        outcomes=outcomes,
        exit_code=result.exit_code,
        seconds=result.seconds,
        ended=ended,
        output_tail=streams(result)[-OUTPUT_TAIL_CHARS:],
        failures=failures,
        channels=channels,
        expected_failures=tuple(sorted(report.expected)),
        executed=report.executed,
        file_seconds=report.seconds,
    )


def counts(run: TestRun) -> str:
    """Return `12 passed, 1 failed`, in a fixed order, or `no outcomes`."""
    values = list(run.outcomes.values())
    parts = [f"{values.count(outcome)} {outcome.value}" for outcome in Outcome if outcome in values]
    return ", ".join(parts) or "no outcomes"


def _channels(
    report: Report, junit: JunitReport | None, result: RunResult, *, own_runner: bool
) -> Channels:
    read = _accounts(report.begun > 0, result, junit=junit is not None and not junit.problem)
    ended = result.ended is Ended.EXITED and report.begun
    differ = agreement(report, junit, result.exit_code) if own_runner and ended else ()
    if result.report_dropped:
        differ = ("the report is longer than what is kept of one", *differ)
    return Channels(read, tuple(map(clean, differ)), tuple(map(clean, report.traces)))


def _ended_own(
    result: RunResult, report: Report, channels: Channels, *, own_runner: bool, opaque: bool
) -> str:
    if result.ended is not Ended.EXITED:
        return str(result.ended)
    if opaque and not report.begun:
        return str(Ended.EXITED)
    if own_runner and not report.begun:
        # pytest refused to start (its exit codes 1-4 say so); a clean exit would be a lie.
        return INCOMPLETE if result.exit_code == 0 or result.report else str(Ended.EXITED)
    if report.begun > len(report.statuses):
        return INCOMPLETE
    lies = channels.disagreements or not report.complete or _contradicts(report)
    return INCONSISTENT if lies else str(Ended.EXITED)


def _contradicts(report: Report) -> bool:
    """Whether the session says that all is well (status 0) although one of its tests failed."""
    failed = any(o in (Outcome.FAILED, Outcome.ERROR) for o in report.outcomes.values())
    return failed and not any(report.statuses)


def _accounts(begun: bool, result: RunResult, *, junit: bool = False) -> tuple[str, ...]:
    """Name the accounts of the run that were read (see `agent.types.Channels`)."""
    every = {"report": begun, "junit": junit, "exit code": result.exit_code is not None}
    return tuple(name for name, there in every.items() if there)


def _blame_running_tests(
    running: Iterable[str],
    ended: str,
    result: RunResult,
    outcomes: dict[str, Outcome],
    failures: dict[str, str],
) -> None:
    """Note the tests during which a run ended early; a crash counts as their error.

    A process that leaves with code 0 did not crash: its test hides something.
    """
    if ended == Ended.EXITED:
        return
    crashed = ended == Ended.SIGNALLED or (ended == INCOMPLETE and result.exit_code != 0)
    for test in running:
        failures.setdefault(test, _IN_FLIGHT)
        if crashed:
            outcomes[test] = Outcome.ERROR


def _of_command(result: RunResult) -> dict[str, Outcome]:
    """Return a command's outcome; none when it was cut short or could not be started."""
    if result.ended is not Ended.EXITED or result.exit_code in _CANNOT_START:
        return {}
    return {COMMAND_ID: Outcome.FAILED if result.exit_code else Outcome.PASSED}


def _ended_tool(result: RunResult, found: ParsedOutput) -> str:
    if result.ended is not Ended.EXITED:
        return str(result.ended)
    if not found.begun:
        # The runner refused to start, or the build failed; a clean exit would be a lie.
        return INCOMPLETE if result.exit_code == 0 else str(Ended.EXITED)
    if not found.complete:
        return INCOMPLETE
    failed = any(outcome in BAD_OUTCOMES for outcome in found.outcomes.values())
    return INCONSISTENT if failed and result.exit_code == 0 else str(Ended.EXITED)
