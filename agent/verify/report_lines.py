"""Reads the lines that our runners write inside the sandbox, as foreign data.

Code under test shares the process that writes them. A line that is not as it should be is counted
and not trusted, and a report without its `finish` line is incomplete. The writers are
`inside/patchshot_pytest.py` and `inside/patchshot_unittest.py`.

Every line is signed. A key is put where the writer finds it before any code of the target runs, and
the writer removes it. Each line then ends with a tab and the first 16 hexadecimal digits of an
HMAC-SHA256 (RFC 2104) of the previous signature and the line. Code under test could still look for
the key in memory, but it cannot just write to the pipe that it inherits.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic import Field as PydanticField

from agent.types import Execution, Outcome

# The file in the tree in which the key waits for the plugin, and the variable that names it inside
# the sandbox. The plugin removes both.
KEY_FILE = ".patchshot-seal"
KEY_VARIABLE = "PATCHSHOT_SEAL"

_KEY_BYTES = 32
_DIGITS = 16

# It replaces a line without a valid signature, and is counted as unreadable.
FOREIGN = b"foreign"

# Test output goes to terminals and prompts: no escape sequences, no other control characters.
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def new_key() -> bytes:
    """Return a key for one run."""
    return secrets.token_bytes(_KEY_BYTES)


def verified(data: bytes, key: bytes) -> bytes:
    """Return the lines without their signatures, and FOREIGN for each unsigned or forged line."""
    lines, last = [], b""
    for raw in data.splitlines():
        line, _, signature = raw.rpartition(b"\t")
        digest = hmac.new(key, last + line, hashlib.sha256).hexdigest()
        expected = digest[:_DIGITS].encode("ascii")
        if hmac.compare_digest(signature, expected):
            lines.append(line)
            last = expected
        else:
            lines.append(FOREIGN)
    return b"\n".join(lines)


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
    at: float | None = None


class _Result(_Line):
    event: Literal["result"]
    id: str
    phase: Literal["collect", "setup", "call", "teardown"]
    outcome: Literal["passed", "failed", "skipped"]
    xfail: bool
    text: str


class _Trace(_Line):
    event: Literal["trace"]
    id: str
    lines: list[str]
    names: list[str]
    read: list[str]
    opened: list[str]


class _Finish(_Line):
    event: Literal["finish"]
    status: int
    failed: int | None = None
    stopped: bool = False
    traces: list[str] = []


_AnyLine = _Begin | _Collected | _Start | _Result | _Trace | _Finish
_LINE: TypeAdapter[_AnyLine] = TypeAdapter(
    Annotated[_AnyLine, PydanticField(discriminator="event")]
)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run reported. `statuses` holds one exit status for each `finish` line.

    `collected` and `failed` are the runner's own counts, None where it gives none; `started` is the
    number of tests that began. Of the tests that are marked to fail, `unexpected` passed and
    `expected` failed. `foreign` lines were not written by our plugin; `unreadable` counts them too.
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
    executed: Mapping[str, Execution] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every session that began also finished, and every line could be read."""
        return self.begun > 0 and self.begun == len(self.statuses) and not self.unreadable


def read_report(data: bytes) -> Report:
    """Read the lines of a report. Never raises."""
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
        executed=_executed(lines),
    )


def clean(text: str) -> str:
    """Remove escape sequences and control characters, and use `\\n` line ends."""
    return _CONTROL.sub("", _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def _read(raw: bytes) -> _AnyLine | None:
    try:
        return _LINE.validate_json(raw)
    except ValidationError:
        return None


def _marked(lines: Sequence[_AnyLine], outcome: str) -> frozenset[str]:
    """Return the tests that are marked to fail and have this outcome."""
    results = (line for line in lines if isinstance(line, _Result) and line.xfail)
    return frozenset(line.id for line in results if line.outcome == outcome)


def _executed(lines: Sequence[_AnyLine]) -> dict[str, Execution]:
    """Return what each test executed; the accounts of one id are put together."""
    found: dict[str, Execution] = {}
    for line in lines:
        if isinstance(line, _Trace):
            sets = map(frozenset, (line.lines, line.names, line.read, line.opened))
            found[line.id] = found.get(line.id, Execution()) | Execution(*sets)
    return found


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
    """Return the outcome of a test after one more phase, None if it is not yet known."""
    if known in (Outcome.FAILED, Outcome.ERROR):
        return known
    if line.outcome == "failed":
        return Outcome.FAILED if line.phase == "call" else Outcome.ERROR
    if known is Outcome.SKIPPED or line.outcome == "skipped" or line.xfail:
        return Outcome.SKIPPED
    return known if line.phase != "call" else Outcome.PASSED
