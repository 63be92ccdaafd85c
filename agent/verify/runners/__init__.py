"""The table of test runners, and the choice of the one that a project's tests are run with.

To add a runner, write one `Runner` row (`base.Runner` describes its fields) beside those of its
language and add it to `_GROUPS`. A program that it needs gets a finder in `agent.verify.tools`. A
language that is new here also needs a rule for its test files in `agent.verify.path_rules`.

The user's own command wins. After that the language of the change comes first, then the one that
most of the project is written in, and of a language the first row that detects its project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from agent.repository import is_test_path, is_vendored_path, language_of, subtree
from agent.types.protocols import Snapshot
from agent.verify.runners.base import (
    COMMAND,
    SHELL,
    Runner,
    Suite,
    Tools,
    below,
    joined,
    shell_words,
)
from agent.verify.runners.compiled import CARGO, GO, MAVEN
from agent.verify.runners.javascript import JAVASCRIPT_RUNNERS
from agent.verify.runners.python import ANY_COMMAND, DJANGO, MAKE, PYTEST, UNITTEST
from agent.verify.runners.scripts import AS_IS, suite_of_command_line

# The runners of each group of languages, special ones before general ones. The order of the groups
# decides between two that have the same number of files.
_GROUPS: tuple[tuple[Runner, ...], ...] = (
    (DJANGO, PYTEST),
    JAVASCRIPT_RUNNERS,
    *((GO,), (CARGO,), (MAVEN,)),
)

RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {row.name: row for row in (*chain(*_GROUPS), UNITTEST, MAKE, ANY_COMMAND)}
)
"""All runners by name."""

# The default: most targets are Python, and the reply may contain the first test.
_DEFAULT = Suite("pytest", "no test of the project was recognised")

STANDS_IN = "stands-in-for"
"""In `Suite.settings` of a suite that `fitting` replaced: the name of the missing runner."""


def runner_of(suite: Suite) -> Runner:
    """Return the runner of a suite."""
    return RUNNERS[suite.runner]


def detect(snapshot: Snapshot, test_cmd: str | None, changed: Sequence[str] = ()) -> Suite:
    """Return the suite of a project or its scope. Raises ConfigurationError."""
    inner = subtree(snapshot)
    if test_cmd is not None:
        shell_words(test_cmd)  # raises for what a shell cannot read
        known = suite_of_command_line(inner, test_cmd)
        suite = known or Suite(COMMAND, "chosen with --test-cmd", (*SHELL, test_cmd))
    else:
        rows = chain(*_ordered_groups(inner, changed), (MAKE,))
        mine = [path for path in (below(snapshot.scope or ".", one) for one in changed) if path]
        suites = (row.detect(inner, mine) for row in rows)
        suite = next(filter(None, suites), _DEFAULT)
    return replace(suite, cwd=joined(snapshot.scope or ".", suite.cwd))


def selects(suite: Suite) -> bool:
    """Whether single test files of the project can be named; else a run covers all of them."""
    return runner_of(suite).selects and AS_IS not in suite.settings


def fitting(suite: Suite, tools: Tools) -> Suite:
    """Return the suite, or one that uses unittest where pytest is missing."""
    if suite.runner != "pytest" or tools.interpreter is None or tools.pytest is not None:
        return suite
    why = f"pytest cannot be imported by {tools.interpreter.path}, so unittest is used"
    return Suite("unittest", why, (), suite.cwd, suite.environment, {STANDS_IN: suite.runner})


def _ordered_groups(snapshot: Snapshot, changed: Sequence[str]) -> Sequence[tuple[Runner, ...]]:
    counts, first = Counter[str](), Counter[str]()
    counts.update(f.language for p, f in snapshot.files.items() if not is_vendored_path(p))
    for path in changed:
        first[language_of(path)] += 1 if is_test_path(path) else len(changed) + 1

    def weight(group: tuple[Runner, ...]) -> tuple[int, int]:
        languages = group[0].languages
        return -sum(first[one] for one in languages), -sum(counts[one] for one in languages)

    return sorted(_GROUPS, key=weight)
