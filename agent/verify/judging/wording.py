"""Phrases for reports and for the repair prompt, and what tests lack in the sandbox. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.shared.terminal import counted
from agent.shared.terminal import listed as listed
from agent.types import Outcome, TestRun
from agent.verify.reports import CANNOT_START, COMMAND_ID, INCOMPLETE, INCONSISTENT
from sandbox import Ended

# Enough for the last frames and the assertion. A whole reason takes about 1,000 tokens.
_TEXT_LINES = 40
_TEXT_CHARS = 2400
_REASON_CHARS = 4000
_TEXTS = 3
_GROUP_LINES = 20
_ASSERTION_CHARS = 400
_SHORT_CHARS = 150  # of an assertion above the tests that fail with it
# All tests with their assertions, and reports beyond the first: a second list of failures has room
# below.
_NAMED_CHARS = 2000
_TEXTS_CHARS = 1200

_ENDINGS = {
    Ended.SIGNALLED: "was killed by a signal",
    Ended.CANCELLED: "was cancelled",
    INCOMPLETE: "ended before its tests did",
    INCONSISTENT: "gave accounts that contradict each other",
}


def how_it_ended(run: TestRun) -> str:
    """Return a predicate for a sentence about a run, with the test that it stopped in."""
    if run.ended == Ended.EXITED:
        return f"ended with exit code {run.exit_code}"
    limit = run.ended.replace("wall-", "time-").replace("-", " ")
    words = _ENDINGS.get(run.ended, f"hit its {limit}")
    if run.ended in (Ended.WALL_LIMIT, Ended.CPU_LIMIT):
        words += f" after {run.seconds:.0f} s"
    last = [test for test in run.failures if test not in run.outcomes]
    return f"{words} in {last[-1]}" if last else words


def number(count: int, noun: str) -> str:
    """Return `1 test`, `2 tests` or `no test`."""
    return counted(count, noun) if count else f"no {noun}"


def failure_texts(run: TestRun, tests: Sequence[str]) -> str:
    """Return every test under the error that it failed with, then the ends of some reports."""
    groups: dict[str, list[str]] = {}
    for test in filter(run.failures.get, tests):
        error = assertion(run.failures[test]) or "no message"
        short = error if len(error) <= _SHORT_CHARS else f"{error[:_SHORT_CHARS]}..."
        groups.setdefault(short, []).append(test)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))  # stable: then as they came
    texts: dict[str, str] = {}
    for _, (first, *_) in largest[:_TEXTS]:
        text = f"{first}:\n{tail(run.failures[first], _GROUP_LINES)}"
        if not texts or sum(map(len, (*texts.values(), text))) <= _TEXTS_CHARS:
            texts[first] = text
    names = [
        f"{e}\n{_by_file(some)}" for e, some in largest if len(some) > 1 or some[0] not in texts
    ]
    named = bounded("\n\n".join(names), _NAMED_CHARS)
    return bounded("\n\n".join(filter(None, (named, *texts.values()))))


def _by_file(tests: Sequence[str]) -> str:
    files: dict[str, list[str]] = {}
    for test in tests:
        path, _, name = test.partition("::")
        files.setdefault(path, []).append(name)
    return "\n".join(f"  {path}: {', '.join(filter(None, names))}" for path, names in files.items())


# Lines of a report that say nothing of the values: frames of a stack, and marks of Go and Rust.
_NO_VALUE = ("at ", "=== ", "--- ", "note: run with ")


def first_failure(run: TestRun, tests: Sequence[str]) -> str:
    """Return `a (assert 1 == 2) and 71 more`; the first few tests where no message is known."""
    said = next((test for test in tests if assertion(run.failures.get(test, ""))), None)
    if said is None:
        return listed(tests)
    more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
    return f"{said} ({assertion(run.failures[said])}){more}"


def assertion(text: str) -> str:
    """Return what a failure report says of the error, with the values, on one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line.strip()[1:].strip() for line in lines if line.strip().startswith("E ")]
    if marked:
        first = marked[0].startswith(("assert ", "AssertionError: assert "))
        compared = [line for line in marked[1:] if line.startswith("assert ") and not first]
        said = [*marked[:1], *compared[:1]]
    else:
        said = (
            _of_traceback(lines) or _without_stack(lines) or [line.strip() for line in lines[-1:]]
        )
    return " ".join(said)[:_ASSERTION_CHARS].removesuffix(".")


def _of_traceback(lines: Sequence[str]) -> list[str]:
    frames = [n for n, line in enumerate(lines) if line.lstrip().startswith('File "')]
    below = lines[frames[-1] + 1 :] if frames else []
    return [line.strip() for line in below if not line.startswith(" ")][:1]


def _without_stack(lines: Sequence[str]) -> list[str]:
    """Return the lines up to a stack, without the marks around them; [] where there are none."""
    stripped = [line.strip() for line in lines]
    if not any(line.startswith(_NO_VALUE) for line in stripped):
        return []
    stack = next((n for n, line in enumerate(stripped) if line.startswith("at ")), len(stripped))
    return [line for line in stripped[:stack] if not line.startswith(_NO_VALUE)]


# What names an error, but for the frames and summaries around it.
_NAMES_ERROR = re.compile(
    r"\b\w*(?:Error|Exception|panic|fatal)\b|\bE[A-Z]{4,}\b|annot find|FAIL|not found"
)


def first_error(text: str) -> str:
    """Return the first line that names an error, else the last line; "" for no text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = (line for line in lines if _NAMES_ERROR.search(line) and not line.endswith(":"))
    return next(errors, (lines or [""])[-1])[:200]


def tail(text: str, lines: int = _TEXT_LINES, chars: int = _TEXT_CHARS) -> str:
    """Return the last lines of a text, where errors are."""
    kept = "\n".join(text.rstrip().splitlines()[-lines:])
    return kept if len(kept) <= chars else "[...]" + kept[-chars:]


def bounded(text: str, chars: int = _REASON_CHARS) -> str:
    """Return the text, cut off where it is too long for a prompt."""
    return text if len(text) <= chars else text[:chars] + "\n[...]"


# ------------------------------------------------------------------------- what tests lack here

# Characters read from the end of a text, where the useful messages are, and of a quoted line.
_MOST_CHARS = 20_000
_LINE_CHARS = 200

# What messages of failing tests say of the sandbox: names that could not be resolved, servers of
# this machine that do not answer, and package managers that work offline.
_LACKS = {
    "the tests need the network or a server: the sandbox has none": re.compile(
        r"Temporary failure in name resolution|Name or service not known|no such host"
        r"|ould not resolve (?:host|proxy)|NameResolutionError|Network is unreachable"
        r"|No route to host|getaddrinfo|ENETUNREACH|UnknownHostException|failed to lookup addr"
        r"|onnection refused|ECONNREFUSED|Cannot assign requested address|AMQPConnectionError"
        r"|psycopg\w*\.OperationalError|\.s\.PGSQL\.\d|Can't connect to |cannot open display"
        r"|ServerSelectionTimeoutError|Cannot connect to the Docker daemon"
    ),
    "a package is not installed here": re.compile(
        r"--offline\b|you are in the offline mode|missing go\.sum entry|GOPROXY=off|ENOTCACHED"
        r"|no required module provides package|in offline mode and the artifact|only-if-cached"
        r"|Cannot find (?:module|package) '[^./']"
    ),
}


# What programs print that started and then found nothing to run.
_STARTLESS = re.compile(
    r"\*\*\* No (?:rule to make target|targets)|python[\d.]*: (?:No module|can't open file)"
    r"|^(?:/bin/)?sh: .*(?:not found|[Ss]yntax error|can't cd to)|[Mm]issing script"
)


def not_started(run: TestRun) -> str:
    """Return why a whole test command started no test, or ""."""
    last = first_error(run.output_tail).removeprefix("prlimit: ") or "no output"
    if not run.outcomes:
        return f"it {how_it_ended(run)} and no test ran ({last})"
    lines = run.output_tail[-_MOST_CHARS:].split("\n") if run.exit_code else []
    is_command = set(run.outcomes) == {COMMAND_ID}
    return next((line for line in lines if is_command and _STARTLESS.search(line)), "")


def needs(run: TestRun) -> tuple[str, ...]:
    """Return descriptions of what the tests lacked: hints, as a test may print such a message."""
    texts = [run.failures[test] for test in sorted(run.failures)]
    if Outcome.PASSED not in run.outcomes.values():
        texts.append(run.output_tail)
    lines = [line.strip() for text in texts for line in text[-_MOST_CHARS:].split("\n")]
    first = {what: next(filter(sign.search, lines), "") for what, sign in _LACKS.items()}
    notes = [f"{what} ({line[:_LINE_CHARS]})" for what, line in first.items() if line]
    if not notes and not run.outcomes and run.exit_code in CANNOT_START:
        notes.append(f"the runner cannot be started: {not_started(run)}")
    return tuple(notes)
