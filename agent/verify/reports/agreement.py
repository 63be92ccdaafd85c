"""Checks whether the accounts of one run agree. Pure.

    channel      written by                              holds
    report       our plugin or runner, over a pipe       each test as it happens, then totals
    junit        pytest's own JUnit plugin, to a file    each test, and totals
    exit code    the process                             0: nothing failed

They differ in what it takes to forge them: a line in the pipe needs our signature, pytest writes
the file at the very end, and the exit code comes from the kernel. Code under test that wants to
look better than it is has to bend all three in the same way. It can: it runs in the process that
writes them. So this is tamper-evident, not tamper-proof; see `inside/patchshot_watch.py` for what
is looked at beside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from agent.types import BAD_OUTCOMES, Outcome
from agent.verify.reports.junit import JunitReport, junit_name
from agent.verify.reports.report_lines import Report

# pytest's exit codes (pytest.ExitCode): the session came to its end, with or without failures.
_ENDED_BY_ITSELF = (0, 1, 5)


def agreement(report: Report, junit: JunitReport | None, exit_code: int | None) -> tuple[str, ...]:
    """Return what the channels disagree on, as clauses. `junit` None means not asked for.

    Only for runs of our own runners that ended by themselves.
    """
    return (*_within(report), *_exit_code(report, exit_code), *_against(report, junit, exit_code))


def _within(report: Report) -> Iterator[str]:
    """Check the report against itself."""
    if report.foreign:
        yield f"lines that our plugin did not write: {report.foreign}"
    elif report.unreadable:
        yield f"lines that cannot be read: {report.unreadable}"
    if report.begun > len(report.statuses):
        yield "the process ended before its tests did"
    elif report.begun != 1 or len(report.statuses) != 1:
        yield f"it began {report.begun} times and finished {len(report.statuses)} times"
    elif report.in_flight:
        yield f"tests that were started and never came to a result: {len(report.in_flight)}"
    elif _vanished(report):
        yield f"of {report.collected} collected tests {report.started} were run"
    # pytest may count more failures than it reports, because coverage plugins add their own.
    if report.failed == 0 and _bad(report.outcomes):
        yield f"pytest counts no failure, its reports show {_bad(report.outcomes)}"


def _vanished(report: Report) -> bool:
    by_itself = not report.stopped and report.statuses[-1] in _ENDED_BY_ITSELF
    return by_itself and report.collected is not None and report.collected != report.started


def _exit_code(report: Report, exit_code: int | None) -> Iterator[str]:
    if not report.statuses:
        return
    if report.statuses[-1] != exit_code:
        yield f"the process exited with {exit_code}, its tests finished with {report.statuses[-1]}"
    if report.statuses[-1] == 0 and _bad(report.outcomes):
        yield f"the exit code says that all is well, and this failed: {_bad(report.outcomes)}"


def _against(report: Report, junit: JunitReport | None, exit_code: int | None) -> Iterator[str]:
    """Check the report against pytest's file."""
    if junit is None or not report.statuses:
        return
    if junit.problem:
        if exit_code in _ENDED_BY_ITSELF:
            yield junit.problem
        return
    ours = {junit_name(test): _kind(outcome) for test, outcome in _comparable(report)}
    theirs = {name: _kind(outcome) for name, outcome in junit.outcomes.items()}
    # A test may choose its name in the file (`record_xml_attribute`): then only counts compare.
    same_names = ours.keys() == theirs.keys()
    if ours != theirs if same_names else Counter(ours.values()) != Counter(theirs.values()):
        yield f"the report says {_counted(ours)}, the JUnit file {_counted(theirs)}"


def _comparable(report: Report) -> Iterator[tuple[str, Outcome]]:
    """Yield the outcomes as in pytest's file, where an unexpected pass is a pass."""
    for test, outcome in report.outcomes.items():
        unexpected = outcome is Outcome.SKIPPED and test in report.unexpected
        yield test, Outcome.PASSED if unexpected else outcome


def _kind(outcome: Outcome) -> str:
    return "failed" if outcome in BAD_OUTCOMES else outcome.value


def _bad(outcomes: Mapping[str, Outcome]) -> int:
    return sum(outcome in BAD_OUTCOMES for outcome in outcomes.values())


def _counted(kinds: Mapping[str, str]) -> str:
    counts = Counter(kinds.values())
    return ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts)) or "nothing"
