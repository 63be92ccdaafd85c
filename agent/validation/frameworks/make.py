"""`make test`, for projects whose Makefile is all that says how tests are run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent.protocols import Snapshot
from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.opaque import Opaque

# In the order in which make looks for them (GNU make, "What Name to Give Your Makefile").
_NAMES = ("GNUmakefile", "makefile", "Makefile")

_GOALS = ("test", "tests", "check")

_RULE = re.compile(r"^([A-Za-z][\w .-]*)::?(?![:=])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Make(Opaque):
    """The goal `test`, `tests` or `check` of the Makefile at the root."""

    name: str = "make"

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """Where the Makefile has such a goal."""
        for file in (name for name in _NAMES if name in snapshot.files):
            goals = set(_goals(snapshot.text(file)))
            for goal in (goal for goal in _GOALS if goal in goals):
                return Suite(self.name, f"{file} has the goal {goal}", ("make", goal))
        return None


def _goals(text: str) -> Iterator[str]:
    for rule in _RULE.finditer(text):
        yield from rule[1].split()
