"""The lines that our runners write inside the sandbox, read as foreign data.

Code under test shares the process that writes them. A line that is not as it should be is counted,
never trusted; a report without its `finish` line is not the whole. The writers are
`inside/patchshot_pytest.py` and `inside/patchshot_unittest.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic import Field as PydanticField

from agent.types import Outcome
from agent.validation.reports.seal import FOREIGN

# Test output goes to terminals and prompts: no escape sequences, no other control characters.
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Begin(_Line):
    event: Literal["begin"]
    runner: str
    junit: bool = False


class _Collected(_Line):
    event: Literal["collected"]
    count: int


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
    failed: int | None = None
    stopped: bool = False
    traces: list[str] = []


_AnyLine = _Begin | _Collected | _Start | _Result | _Finish
_LINE: TypeAdapter[_AnyLine] = TypeAdapter(
    Annotated[_AnyLine, PydanticField(discriminator="event")]
)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run reported. `statuses` holds one exit status for each `finish` line.

    `collected`, `failed` are the runner's own counts, None where it gives none; `started` is how
    many tests were begun. `unexpected` are tests that passed although marked to fail, `expected`
    those that failed. `foreign` lines were not written by our plugin; `unreadable` has them too.
    """

    begun: int = 0
    statuses: tuple[int, ...] = ()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    in_flight: tuple[str, ...] = ()
    unreadable: int = 0
    foreign: int = 0
    junit: bool = False
    collected: int | None = None
    started: int = 0
    failed: int | None = None
    stopped: bool = False
    unexpected: frozenset[str] = frozenset()
    expected: frozenset[str] = frozenset()
    traces: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Every session that began also finished, and every line could be read."""
        return self.begun > 0 and self.begun == len(self.statuses) and not self.unreadable


def read_report(data: bytes) -> Report:
    """Read the lines of a report. Never raises for what they hold."""
    raw = data.splitlines()
    lines = [line for line in map(_read, raw) if line is not None]
    outcomes, failures = _outcomes(lines)
    started = dict.fromkeys(line.id for line in lines if isinstance(line, _Start))
    begins = [line for line in lines if isinstance(line, _Begin)]
    finishes = [line for line in lines if isinstance(line, _Finish)]
    last = finishes[-1] if finishes else None
    return Report(
        begun=len(begins),
        statuses=tuple(line.status for line in finishes),
        outcomes=outcomes,
        failures=failures,
        in_flight=tuple(test for test in started if test not in outcomes),
        unreadable=len(raw) - len(lines),
        foreign=raw.count(FOREIGN),
        junit=any(line.junit for line in begins),
        collected=next((line.count for line in lines if isinstance(line, _Collected)), None),
        started=len(started),
        failed=last.failed if last else None,
        stopped=last.stopped if last else False,
        unexpected=_marked(lines, "passed"),
        expected=_marked(lines, "skipped"),
        traces=tuple(sorted({trace for line in finishes for trace in line.traces})),
    )


def clean(text: str) -> str:
    """The text without escape sequences and control characters, with `\\n` line ends."""
    return _CONTROL.sub("", _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def _read(raw: bytes) -> _AnyLine | None:
    try:
        return _LINE.validate_json(raw)
    except ValidationError:
        return None


def _marked(lines: Sequence[_AnyLine], outcome: str) -> frozenset[str]:
    """Tests that were marked to fail, by what came of them."""
    results = (line for line in lines if isinstance(line, _Result) and line.xfail)
    return frozenset(line.id for line in results if line.outcome == outcome)


def _outcomes(lines: Sequence[_AnyLine]) -> tuple[dict[str, Outcome], dict[str, str]]:
    outcomes: dict[str, Outcome] = {}
    failures: dict[str, str] = {}
    for line in lines:
        if not isinstance(line, _Result):
            continue
        outcome = _merge(outcomes.get(line.id), line)
        if outcome is None:
            continue
        outcomes[line.id] = outcome
        if outcome in (Outcome.FAILED, Outcome.ERROR) and line.text:
            failures.setdefault(line.id, clean(line.text))
    return outcomes, failures


def _merge(known: Outcome | None, line: _Result) -> Outcome | None:
    """The outcome of a test after one more phase; None while nothing can be said."""
    if known in (Outcome.FAILED, Outcome.ERROR):
        return known
    if line.outcome == "failed":
        return Outcome.FAILED if line.phase == "call" else Outcome.ERROR
    if known is Outcome.SKIPPED or line.outcome == "skipped" or line.xfail:
        return Outcome.SKIPPED
    return known if line.phase != "call" else Outcome.PASSED
