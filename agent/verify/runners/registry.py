"""The table of all test runners, and the choice of the one that a project's tests are run with.

To add a runner, write one `Runner` row (`base.Runner` describes its fields) beside those of its
language and add it to `_BY_LANGUAGE`. A program that it needs gets a finder in `programs`. A
language that is new here also needs a rule for its test files in `agent.verify.path_rules`.

`detect` chooses by the snapshot's files. The user's own command wins. After that it looks at the
language of the change, then at the one that most of the project is written in: first for a special
runner, then for a configuration (tox, nox, package.json), then for test files. `make test` is last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from agent.repository import is_test_path, is_vendored_path, language_of, subtree
from agent.types.protocols import Snapshot
from agent.verify.runners.base import COMMAND, Runner, Suite, joined, split_command
from agent.verify.runners.compiled import CARGO, GO, MAVEN
from agent.verify.runners.configured import read_nox, read_tox, suites_of
from agent.verify.runners.javascript import JAVASCRIPT_RUNNERS
from agent.verify.runners.programs import Tools
from agent.verify.runners.python import ANY_COMMAND, DJANGO, MAKE, PYTEST, UNITTEST

# The first row that detects its project is used: special runners before general ones. The order of
# the languages decides between two that have the same number of files.
_BY_LANGUAGE: tuple[Runner, ...] = (DJANGO, *JAVASCRIPT_RUNNERS, GO, CARGO, MAVEN)

RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {row.name: row for row in (*_BY_LANGUAGE, PYTEST, UNITTEST, MAKE, ANY_COMMAND)}
)
"""All runners by name."""

# The languages that share runners, in the order of the table; and the group of each language.
_GROUPS = tuple(dict.fromkeys(row.languages for row in _BY_LANGUAGE))
_GROUP_OF = {language: group for group in _GROUPS for language in group}

# The default: most targets are Python, and the reply may contain the first test.
_DEFAULT = Suite("pytest", "no test of the project was recognised")

STANDS_IN = "stands-in-for"
"""In `Suite.settings` of a suite that `fitting` replaced: the name of the missing runner."""

_PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py", "tests/conftest.py")
_PYTEST_TABLES = re.compile(r"^\[(?:tool\.pytest|tool:pytest|pytest)\b", re.MULTILINE)


def runner_of(suite: Suite) -> Runner:
    """Return the runner of a suite."""
    return RUNNERS[suite.runner]


def detect(snapshot: Snapshot, test_cmd: str | None, changed: Sequence[str] = ()) -> Suite:
    """Return the suite of a project or its scope. The language of the `changed` paths comes first.

    Raises ConfigurationError for a `test_cmd` that is no command line.
    """
    if test_cmd is not None:
        return _placed(Suite(COMMAND, "chosen with --test-cmd", split_command(test_cmd)), snapshot)
    return next(detect_all(snapshot, changed), _placed(_DEFAULT, snapshot))


def detect_all(snapshot: Snapshot, changed: Sequence[str] = ()) -> Iterator[Suite]:
    """Yield every suite that the files of the scope show, best first."""
    for suite in _suites(subtree(snapshot), changed):
        yield _placed(suite, snapshot)


def _placed(suite: Suite, snapshot: Snapshot) -> Suite:
    """Return a suite of the scope with its folder relative to the root."""
    return replace(suite, cwd=joined(snapshot.scope or ".", suite.cwd))


def fitting(suite: Suite, tools: Tools) -> Suite:
    """Return the suite, or one that uses unittest where pytest is missing."""
    if suite.runner != "pytest" or tools.interpreter is None or tools.pytest is not None:
        return suite
    why = f"pytest cannot be imported by {tools.interpreter.path}, so unittest is used"
    return Suite("unittest", why, (), suite.cwd, suite.environment, {STANDS_IN: suite.runner})


def _suites(snapshot: Snapshot, changed: Sequence[str]) -> Iterator[Suite]:
    for group in _ordered_groups(snapshot, changed):
        suites = (row.detect(snapshot) for row in _BY_LANGUAGE if row.languages == group)
        yield from (suite for suite in suites if suite is not None)
        if "python" in group:
            yield from _python_suites(snapshot)
    last = MAKE.detect(snapshot)
    if last is not None:
        yield last


def _ordered_groups(snapshot: Snapshot, changed: Sequence[str]) -> list[tuple[str, ...]]:
    """Order by the number of changed source files, of changed tests, and of all files."""
    counts: Counter[tuple[str, ...]] = Counter()
    for path, file in snapshot.files.items():
        group = _GROUP_OF.get(file.language)
        if group and not is_vendored_path(path):
            counts[group] += 1
    first: Counter[tuple[str, ...]] = Counter()
    for path in changed:
        group = _GROUP_OF.get(language_of(path))
        if group:
            first[group] += 1 if is_test_path(path) else len(changed) + 1
    return sorted(_GROUPS, key=lambda group: (-first[group], -counts[group], _GROUPS.index(group)))


def _python_suites(snapshot: Snapshot) -> Iterator[Suite]:
    """Yield what the configuration runs, pytest for test files, then commands of other runners."""
    configured = suites_of((*read_tox(snapshot), *read_nox(snapshot)))
    own = [suite for suite in configured if suite.runner != COMMAND]
    if _is_set_up_for_pytest(snapshot):
        own = [suite for suite in own if suite.runner == "pytest"]
    yield from own[:1]
    pytest = PYTEST.detect(snapshot)
    if pytest is not None and not own:
        yield pytest
    yield from (suite for suite in configured if suite.runner == COMMAND)


def _is_set_up_for_pytest(snapshot: Snapshot) -> bool:
    if any(file in snapshot.files for file in _PYTEST_FILES):
        return True
    files = (name for name in ("pyproject.toml", "setup.cfg", "tox.ini") if name in snapshot.files)
    return any(_PYTEST_TABLES.search(snapshot.text(name)) for name in files)
