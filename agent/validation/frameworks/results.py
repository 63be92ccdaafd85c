"""From what a reader found in a runner's output to a `TestRun`. Pure; nothing here raises.

All of it is foreign data: code under test shares the process, or the folder, that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.types import Channels, Outcome, TestRun
from agent.validation.reports.report import INCOMPLETE, INCONSISTENT, OUTPUT_TAIL_CHARS, clean
from sandbox.types import Command, Ended, RunResult

# The end of a failure report names the error.
TEXT_LIMIT = 6000

# Of a line that is matched with patterns: no runner's own is longer, a hostile one may be.
LINE_LIMIT = 2000

_BAD = (Outcome.FAILED, Outcome.ERROR)

_WORST_FIRST = (Outcome.ERROR, Outcome.FAILED, Outcome.SKIPPED, Outcome.PASSED)

_IN_FLIGHT = "the run ended during this test"

_SEPARATOR = b"\x1e"


@dataclass(slots=True)
class Found:
    """What a reader makes of an output. The worst of several outcomes of one test counts.

    `begun`: the runner reported anything at all. `complete`: its report came to its own end.
    `running`: tests that began and did not end.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    begun: bool = False
    complete: bool = False
    running: dict[str, None] = field(default_factory=dict)

    def add(self, test: str, outcome: Outcome, text: str = "") -> None:
        """One outcome of a test; `text` is kept of a failure."""
        self.begun = True
        self.running.pop(test, None)
        known = self.outcomes.get(test, outcome)
        self.outcomes[test] = min(known, outcome, key=_WORST_FIRST.index)
        if outcome in _BAD and text.strip():
            self.failures.setdefault(test, clean(text)[-TEXT_LIMIT:].strip("\n"))

    def start(self, test: str) -> None:
        """A test that has begun."""
        self.begun = True
        if test not in self.outcomes:
            self.running[test] = None


def to_run(command: Command, result: RunResult, found: Found, output: str | None = None) -> TestRun:
    """The run, its tests in order of their ids. `output` stands for the streams where given."""
    ended = _ended(result, found)
    outcomes, failures = dict(found.outcomes), dict(found.failures)
    if ended != Ended.EXITED:
        for test in found.running:
            failures.setdefault(test, _IN_FLIGHT)
            # One that leaves with code 0 hides something: it is not to blame for a crash.
            if ended == Ended.SIGNALLED or (ended == INCOMPLETE and result.exit_code):
                outcomes[test] = Outcome.ERROR
    return TestRun(
        command=command.argv,
        outcomes=dict(sorted(outcomes.items())),
        exit_code=result.exit_code,
        seconds=result.seconds,
        ended=ended,
        output_tail=_tail(output if output is not None else streams(result)),
        failures=dict(sorted(failures.items())),
        channels=Channels(_read(result, found)),
    )


def streams(result: RunResult) -> str:
    """Standard output, then standard error, as text without escape sequences."""
    texts = (clean(s.decode("utf-8", "replace")).strip() for s in (result.stdout, result.stderr))
    return "\n".join(text for text in texts if text)


def collected(report: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files that `patchshot_collect.sh files` gathered, by name."""
    parts = (part.partition(b"\n") for part in report.split(_SEPARATOR)[1:])
    files = ((name.decode("utf-8", "replace"), content) for name, _, content in parts)
    yield from sorted((name.removeprefix("./"), content) for name, content in files)


def text_of(value: object) -> str:
    """A foreign value as text; "" for what is none."""
    return value if isinstance(value, str) else ""


def entries(value: object) -> Iterable[Mapping[str, object]]:
    """The objects among the elements of a foreign list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _ended(result: RunResult, found: Found) -> str:
    if result.ended is not Ended.EXITED:
        return str(result.ended)
    if not found.begun:
        # The runner refused to start, or the build failed; a clean exit would be a lie.
        return INCOMPLETE if result.exit_code == 0 else str(Ended.EXITED)
    if not found.complete:
        return INCOMPLETE
    failed = any(outcome in _BAD for outcome in found.outcomes.values())
    return INCONSISTENT if failed and result.exit_code == 0 else str(Ended.EXITED)


def _read(result: RunResult, found: Found) -> tuple[str, ...]:
    """The accounts of the run that there are (see `agent.types.Channels`)."""
    report = ("report",) if found.begun else ()
    return (*report, "exit code") if result.exit_code is not None else report


def _tail(text: str) -> str:
    return text[-OUTPUT_TAIL_CHARS:]
