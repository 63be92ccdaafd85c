"""pytest's own JUnit file: the second account of a run. Foreign data.

Only bytes come here: the sandbox reads the file without following links. Documents that define
entities are refused (`frameworks.junit`). Format: `_pytest.junitxml`, families xunit1 and xunit2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.types import Outcome
from agent.validation.reports.junit_cases import read_cases

# Worst first: a test has a case for each phase that it failed in.
_ORDER = (Outcome.FAILED, Outcome.ERROR, Outcome.SKIPPED, Outcome.PASSED)

# Characters that XML cannot hold; pytest writes them as `#x07` (`_pytest.junitxml.bin_xml_escape`).
_ILLEGAL = re.compile("[^\t\n\r\x20-\x7e\x80-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class JunitReport:
    """Outcomes by `classname.name`. `problem` says why the file could not be read, "" if it was."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    problem: str = ""


def read_junit(data: bytes) -> JunitReport:
    """Read the file. Never raises: what it is not is said in `problem`."""
    if not data:
        return JunitReport(problem="pytest's JUnit file is missing or no regular file")
    cases = read_cases(data)
    if cases is None:
        return JunitReport(problem="pytest's JUnit file is no XML, or defines entities")
    outcomes: dict[str, Outcome] = {}
    for case in cases:
        name = ".".join(filter(None, (case.classname, case.name)))
        outcomes[name] = min(outcomes.get(name, case.outcome), case.outcome, key=_ORDER.index)
    return JunitReport(outcomes)


def junit_name(test: str) -> str:
    """The `classname.name` that pytest gives a test id (`_pytest.junitxml.mangle_test_address`)."""
    path, bracket, parameters = test.partition("[")
    first, *rest = path.split("::")
    names = [first.replace("/", ".").removesuffix(".py"), *rest]
    return _ILLEGAL.sub(_visible, ".".join(names) + bracket + parameters)


def _visible(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"#x{number:02X}" if number <= 0xFF else f"#x{number:04X}"
