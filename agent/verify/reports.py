"""Turns what a sandboxed run left behind, foreign data, into a `TestRun`. Nothing here raises.

`make_run` reads our own runners, whose report and exit code must agree (tamper-evident, not
tamper-proof), and foreign commands. `make_tool_run` makes a run of what any runner's report says.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ValidationError

from agent.types import BAD_OUTCOMES, Channels, Outcome, TestRun
from sandbox import Command, Ended, RunResult

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# Values of `TestRun.ended` in addition to those of `sandbox.types.Ended`.
INCOMPLETE = "incomplete"  # the process ended, but its tests had not
INCONSISTENT = "inconsistent"  # the accounts of the run contradict each other

# The one test id of a command that reports no tests of its own.
COMMAND_ID = "command"

# Exit codes of shells and env(1) if a command cannot be executed or is not found (POSIX, Shell
# 2.8.2).
CANNOT_START = (126, 127)

# Characters kept of a run's output, enough to show why pytest refused to start; and of a failure
# report, whose end names the error.
_OUTPUT_TAIL_CHARS = 12_000
_OUTPUT_TAIL_LINES = 200
TEXT_LIMIT = 6000

# Longer lines are cut before they are matched: no runner writes them, but a hostile test may.
LINE_LIMIT = 2000

# A test that fails and then cannot be torn down counts as failed.
_WORST_FIRST = (Outcome.FAILED, Outcome.ERROR, Outcome.SKIPPED, Outcome.PASSED)

# pytest's exit codes (pytest.ExitCode): the session came to its end, with or without failures.
_ENDED_BY_ITSELF = (0, 1, 5)

_IN_FLIGHT = "the run ended during this test"

_SEPARATOR = b"\x1e"

# Test output goes to terminals and prompts: no escape sequences, no other control characters.
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def nothing_run(why: str) -> TestRun:
    """Return a run without a command and without outcomes."""
    return TestRun(
        command=(), outcomes={}, exit_code=None, seconds=0.0, ended=Ended.EXITED, output_tail=why
    )


def counts(run: TestRun) -> str:
    """Return `12 passed, 1 failed`, in a fixed order, or `no outcomes`."""
    values = list(run.outcomes.values())
    parts = [f"{values.count(outcome)} {outcome.value}" for outcome in Outcome if outcome in values]
    return ", ".join(parts) or "no outcomes"


def clean(text: str) -> str:
    """Remove escape sequences and control characters, and use `\\n` line ends."""
    return _CONTROL.sub("", _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def streams(result: RunResult) -> str:
    """Return standard output, then standard error, as text without escape sequences."""
    texts = (clean(s.decode("utf-8", "replace")).strip() for s in (result.stdout, result.stderr))
    return "\n".join(text for text in texts if text)


# ------------------------------------------------------------------- tools that are not our own

_MEASURED = re.compile(r"\d*\.\d{4,}(?:e-?\d+)?")


def stable_id(test: str) -> str:
    """Return the id without long fractions in its title: they are times, new in each run."""
    path, colons, title = test.partition("::")
    return path + colons + _MEASURED.sub("#", title)


@dataclass(slots=True)
class ParsedOutput:
    """What is read of a runner's output. `complete`: the report came to its own end.

    `exact`: ids are taken as they are. `status` is the exit status that the runner reported. The
    `doubts` are clauses for people, `traces` changes to the runner, and `expected` the tests that
    are marked to fail and did.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    begun: bool = False
    complete: bool = False
    running: dict[str, None] = field(default_factory=dict)
    exact: bool = False
    status: int | None = None
    doubts: list[str] = field(default_factory=list)
    traces: tuple[str, ...] = ()
    expected: frozenset[str] = frozenset()

    def add(self, test: str, outcome: Outcome, text: str = "") -> None:
        """Add an outcome of a test; `text` is kept for a failure."""
        self.begun = True
        test = test if self.exact else stable_id(test)
        self.running.pop(test, None)
        known = self.outcomes.get(test, outcome)
        self.outcomes[test] = min(known, outcome, key=_WORST_FIRST.index)
        if outcome in BAD_OUTCOMES and text.strip():
            self.failures.setdefault(test, clean(text)[-TEXT_LIMIT:].strip("\n"))

    def start(self, test: str) -> None:
        """Note that a test has begun."""
        self.begun = True
        test = test if self.exact else stable_id(test)
        if test not in self.outcomes:
            self.running[test] = None


def make_tool_run(
    command: Command, result: RunResult, found: ParsedOutput, output: str | None = None
) -> TestRun:
    """Make a run, its tests sorted by id. `output` replaces the streams in `output_tail`."""
    outcomes, failures = dict(found.outcomes), dict(found.failures)
    exited = result.ended is Ended.EXITED
    doubts = found.doubts if exited else []
    if result.report_dropped:
        doubts = ["the report is longer than what is kept of one", *doubts]
    ended = _ending(result, found, bool(doubts))
    if ended != Ended.EXITED:
        crashed = ended == Ended.SIGNALLED or (ended == INCOMPLETE and result.exit_code != 0)
        for test in found.running:
            failures.setdefault(test, _IN_FLIGHT)
            if crashed:
                outcomes[test] = Outcome.ERROR
    text = streams(result) if output is None else output
    read = (["report"] if found.begun else []) + (["exit code"] * (result.exit_code is not None))
    return TestRun(
        command=command.argv,
        outcomes=dict(sorted(outcomes.items())),
        exit_code=result.exit_code,
        seconds=result.seconds,
        ended=ended,
        output_tail="\n".join(text[-_OUTPUT_TAIL_CHARS:].splitlines()[-_OUTPUT_TAIL_LINES:]),
        failures=dict(sorted(failures.items())),
        channels=Channels(tuple(read), tuple(doubts), found.traces),
        expected_failures=tuple(sorted(found.expected)),
    )


def _ending(result: RunResult, found: ParsedOutput, doubts: bool) -> str:
    if result.ended is not Ended.EXITED:
        return str(result.ended)
    if found.begun and not found.complete:
        return INCOMPLETE
    status = result.exit_code if found.status is None else found.status
    if doubts or (status == 0 and _failed(found.outcomes)):
        return INCONSISTENT
    # The runner refused to start, or the build failed; a clean exit would be a lie.
    refused = status == 0 and not (found.begun or found.outcomes)
    return INCOMPLETE if refused else str(Ended.EXITED)


def _failed(outcomes: Mapping[str, Outcome]) -> int:
    return sum(outcome in BAD_OUTCOMES for outcome in outcomes.values())


def collected(report: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files that `patchshot_collect.sh files` gathered, by name."""
    parts = (part.partition(b"\n") for part in report.split(_SEPARATOR)[1:])
    files = ((name.decode("utf-8", "replace"), content) for name, _, content in parts)
    yield from sorted((name.removeprefix("./"), content) for name, content in files)


def text_of(value: object) -> str:
    """Return the value if it is text, else ""."""
    return value if isinstance(value, str) else ""


def json_object(data: bytes | str) -> dict[str, object] | None:
    """Return the object of a JSON text; None where it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def entries(value: object) -> Iterable[Mapping[str, object]]:
    """Return the objects among the elements of a list; none if it is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# ------------------------------------------------------------- our own runners, and any command


def make_run(command: Command, result: RunResult, *, opaque: bool = False) -> TestRun:
    """Read a run of our own runner, or of a foreign command (`opaque`).

    A foreign command that reported no session counts as one test, `COMMAND_ID`.
    """
    report = read_report(result.report)
    if not opaque:
        report.doubts.extend(_contradictions(report, result.exit_code))
    elif not report.begun and result.exit_code not in (None, *CANNOT_START):
        report.outcomes[COMMAND_ID] = Outcome.FAILED if result.exit_code else Outcome.PASSED
    return make_tool_run(command, result, report)


def _contradictions(report: Report, exit_code: int | None) -> Iterator[str]:
    """Check the report of one session against itself and against the exit code."""
    if not report.begun:
        return
    if not report.complete:
        yield "the process ended before its tests did"
        return
    status, failed = report.statuses[-1], _failed(report.outcomes)
    if len(report.statuses) > 1:
        yield f"it began and finished {len(report.statuses)} times"
    elif report.running:
        yield f"tests that were started and never came to a result: {len(report.running)}"
    elif status in _ENDED_BY_ITSELF and report.collected not in (None, report.started):
        yield f"of {report.collected} collected tests {report.started} were run"
    if status != exit_code:
        yield f"the process exited with {exit_code}, its tests finished with {status}"
    if status == 0 and failed:
        yield f"the exit code says that all is well, and this failed: {failed}"


# ----------------------------------------------------------- the lines that our runners write
# Each line ends with a tab and the first 16 hexadecimal digits of an HMAC-SHA256 (RFC 2104) of the
# previous signature and the line, so that code under test, which shares the process, cannot add
# lines to the pipe without looking for the key in memory.

# The file in the tree in which the key waits for the plugin, and the variable that names it inside
# the sandbox. The plugin removes both.
KEY_FILE = ".patchshot-seal"
KEY_VARIABLE = "PATCHSHOT_SEAL"

_DIGITS = 16

# It replaces a line without a valid signature, and is counted as unreadable.
FOREIGN = b"foreign"


def new_key() -> bytes:
    """Return a key for one run."""
    return secrets.token_bytes(32)


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


class _Line(BaseModel, frozen=True, extra="forbid", strict=True):
    """One line. `count` is the number of collected tests if all of them were to run."""

    event: Literal["begin", "start", "result", "finish"]
    id: str = ""
    phase: Literal["collect", "setup", "call", "teardown"] = "call"
    outcome: Literal["passed", "failed", "skipped"] = "failed"
    xfail: bool = False
    text: str = ""
    status: int = -1
    count: int | None = None
    traces: list[str] = []


@dataclass(slots=True)
class Report(ParsedOutput):
    """What our runners reported. `statuses` holds one exit status for each `finish` line.

    `collected` is the runner's own count, None where it gives none; `started` is the number of
    tests that began.
    """

    exact: bool = True
    begins: int = 0
    statuses: list[int] = field(default_factory=list)
    collected: int | None = None
    started: int = 0


def read_report(data: bytes) -> Report:
    """Read the lines of a report. Never raises."""
    report, foreign, traces = Report(), 0, set[str]()
    for raw in data.splitlines():
        try:
            line = _Line.model_validate_json(raw)
        except ValidationError:
            foreign += 1
            continue
        match line.event:
            case "begin":
                report.begins += 1
            case "start":
                report.started += 1
                report.start(line.id)
            case "result":
                _add_result(report, line)
            case "finish":
                report.statuses.append(line.status)
                report.collected = line.count
                traces.update(map(clean, line.traces))
    report.begun = report.begins > 0
    report.complete = report.begins == len(report.statuses)
    report.status = max(report.statuses, default=None)
    report.traces = tuple(sorted(traces))
    if foreign:
        report.doubts.append(f"lines that our plugin did not write: {foreign}")
    return report


def _add_result(report: Report, line: _Line) -> None:
    if line.xfail and line.outcome == "skipped":
        report.expected |= {line.id}
    if line.outcome == "failed":
        outcome = Outcome.FAILED if line.phase == "call" else Outcome.ERROR
    else:
        skipped = line.xfail or line.outcome == "skipped"
        outcome = Outcome.SKIPPED if skipped else Outcome.PASSED
    report.add(line.id, outcome, line.text)


# --------------------------------------------- JUnit XML, hostile data read with defusedxml


_ENDINGS = {"error": Outcome.ERROR, "failure": Outcome.FAILED, "skipped": Outcome.SKIPPED}


def read_cases(document: bytes) -> tuple[tuple[str, str, Outcome, str], ...] | None:
    """Return each test's class, name, outcome and message, "" where it is missing.

    Return None for invalid XML and for XML with entities.
    """
    # Imported here, because a command that runs no tests reads no XML.
    from xml.etree.ElementTree import ParseError

    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(document.strip(), forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError, RecursionError):
        return None
    return tuple(_case(element) for element in root.iter() if _local(element) == "testcase")


def _case(element: Element) -> tuple[str, str, Outcome, str]:
    names = element.get("classname", ""), element.get("name", "")
    children = {_local(child): child for child in reversed(element)}
    for tag, outcome in _ENDINGS.items():
        child = children.get(tag)
        if child is not None:
            texts = (child.get("message", ""), (child.text or "").strip())
            return (*names, outcome, "\n".join(filter(None, texts)))
    return (*names, Outcome.PASSED, "")


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
