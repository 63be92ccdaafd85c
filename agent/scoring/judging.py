"""Which of the given tests a run passes, by the rules of SWE-bench. Pure.

Passed, or failed as expected (xfail), is success; skipped, absent, red or broken is failure. Ids
are as the runner prints them. The harness cuts them at the first blank and shortens a parameter
that is a path; an id that no run knows is looked for under these names too, and then all that
answer to it must succeed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent.scoring.report import GivenIds, GivenStatus
from agent.types import Outcome, TestRun
from agent.validation.judging.compare import collection_error

_PARAMETER = re.compile(r"(?s)(.*?)\[(.*)\]$")


@dataclass(frozen=True, slots=True)
class Judged:
    """`absent`: given ids that the run knows under no name."""

    status: GivenStatus
    absent: tuple[str, ...]

    @property
    def resolved(self) -> bool:
        """Every given test succeeds."""
        return not (self.status.FAIL_TO_PASS.failure or self.status.PASS_TO_PASS.failure)


class Results:
    """Asks a run for tests by the names that a data set gives them."""

    def __init__(self, run: TestRun, test_id: Callable[[str], str] = str) -> None:
        """`test_id` makes a runner's name the id that the run reports."""
        self._run = run
        self._test_id = test_id
        self._expected = frozenset(run.expected_failures)
        self._others: dict[str, list[str]] = defaultdict(list)
        for known in run.outcomes:
            for name in _other_names(known):
                self._others[name].append(known)

    def succeeds(self, given: str) -> bool:
        """Whether the test, or every test that answers to the name, succeeds."""
        tests = self._tests(given)
        return bool(tests) and all(map(self._success, tests))

    def knows(self, given: str) -> bool:
        """Whether the run says anything of it; a module that cannot be imported does."""
        if self._tests(given):
            return True
        name = self._test_id(given)
        return name in self._run.failures or collection_error(self._run, name) is not None

    def _tests(self, given: str) -> Sequence[str]:
        name = self._test_id(given)
        for each in (name, given):
            if each in self._run.outcomes:
                return (each,)
        return self._others.get(name) or self._others.get(given) or ()

    def _success(self, test: str) -> bool:
        outcome = self._run.outcomes[test]
        expected = outcome is Outcome.SKIPPED and test in self._expected
        return outcome is Outcome.PASSED or expected


def judge(fail_to_pass: Iterable[str], pass_to_pass: Iterable[str], results: Results) -> Judged:
    """The given ids, each once, by what came of them."""
    fixed, kept = tuple(dict.fromkeys(fail_to_pass)), tuple(dict.fromkeys(pass_to_pass))
    status = GivenStatus(FAIL_TO_PASS=_split(fixed, results), PASS_TO_PASS=_split(kept, results))
    return Judged(status, tuple(test for test in (*fixed, *kept) if not results.knows(test)))


def _split(given: Sequence[str], results: Results) -> GivenIds:
    good = [results.succeeds(test) for test in given]
    return GivenIds(
        success=tuple(test for test, ok in zip(given, good, strict=True) if ok),
        failure=tuple(test for test, ok in zip(given, good, strict=True) if not ok),
    )


def _other_names(test: str) -> Iterable[str]:
    """What the harness calls a test beside its id: cut at a blank, shortened, or the bare name."""
    names = {test.split(maxsplit=1)[0] if test.strip() else test, test.rpartition("::")[2]}
    parameter = _PARAMETER.match(test)
    if parameter:
        value = parameter[2]
        if value.startswith("/") and not value.startswith("//") and "*" not in value:
            names.add(f"{parameter[1]}[/{value.rpartition('/')[2]}]")
    return sorted(names - {test})
