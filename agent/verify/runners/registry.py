"""The list of all test runners, and the choice of the one that a project's tests are run with.

To add a runner, write one module beside this one with a class that derives from `BaseRunner`
(`base.Runner` documents every method) and add one line to `_RUNNERS`. The class says everything
that is known of the runner:

- `name`, and the `languages` whose projects may use it;
- `detect`, which recognises it from a project's files, and `targets`, `command` and `read`, which
  build its command and read its results (helpers: `commands`, `reports.run_results`);
- `finders`, which find its programs on the user's machine, and `command_words`, the programs that a
  `--test-cmd` needs which starts with its name.

A runner that a package.json starts derives from `ScriptRunner`, has its `word`, and joins
`_SCRIPT_RUNNERS`. `golang.py` is a good example. A language that is new here also needs a rule for
its test files in `agent.verify.path_rules`.

`detect` chooses by the snapshot's files. The user's own command wins. After that it looks at the
language of the change, then at the one that most of the project is written in: first for a special
runner, then for a configuration (tox, nox, package.json), then for test files. `make test` is last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from agent.repository import is_test_path, is_vendored_path, language_of, subtree
from agent.types.protocols import Snapshot
from agent.verify.runners import programs
from agent.verify.runners.base import PYTHON, Runner, Suite, joined
from agent.verify.runners.bin_test import BinTest
from agent.verify.runners.cargo import CargoTest
from agent.verify.runners.commands import COMMAND, CommandRunner, Make, split_command
from agent.verify.runners.django import Django
from agent.verify.runners.golang import GoTest
from agent.verify.runners.javascript import Jest, Mocha, NodeTest, NpmTest, Vitest
from agent.verify.runners.maven import MavenTest
from agent.verify.runners.programs import Finder, Toolchain, Tools
from agent.verify.runners.pytest_unittest import Pytest, Unittest
from agent.verify.runners.tox_nox import read_nox, read_tox, suites_of

# The first runner that detects its project is used.
_SCRIPT_RUNNERS = (Vitest, Jest, Mocha, NodeTest)

_SCRIPT_WORDS = tuple(kind.word for kind in _SCRIPT_RUNNERS)

# Runners of one language: special ones before general ones. The order of the languages decides
# between two that have the same number of files.
_RUNNERS: tuple[Runner, ...] = (
    BinTest(),
    Django(),
    *(kind(_SCRIPT_WORDS) for kind in _SCRIPT_RUNNERS),
    NpmTest(_SCRIPT_WORDS),
    GoTest(),
    CargoTest(),
    MavenTest(),
)

_MAKE = Make()

_COMMAND_WORDS = {
    word: names for runner in (*_RUNNERS, _MAKE) for word, names in runner.command_words.items()
}

RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {
        runner.name: runner
        for runner in (*_RUNNERS, Pytest(), Unittest(), _MAKE, CommandRunner(_COMMAND_WORDS))
    }
)
"""All runners by name."""

_FINDERS: Mapping[str, Finder] = {
    name: finder for runner in RUNNERS.values() for name, finder in runner.finders.items()
}

# The languages that share runners, in the order of `_RUNNERS`; and the group of each language.
_GROUPS = tuple(dict.fromkeys(runner.languages for runner in _RUNNERS))
_GROUP_OF = {language: group for group in _GROUPS for language in group}

# The default: most targets are Python, and the reply may contain the first test.
_DEFAULT = Suite("pytest", "no test of the project was recognised")

STANDS_IN = "stands-in-for"
"""In `Suite.settings` of a suite that `fitting` replaced: the name of the missing runner."""

UNREADABLE = "in-place-of"
"""In `Suite.settings` of a suite that `readable` chose: the runner that could not be read."""

_PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py", "tests/conftest.py")
_PYTEST_TABLES = re.compile(r"^\[(?:tool\.pytest|tool:pytest|pytest)\b", re.MULTILINE)


def runner_of(suite: Suite) -> Runner:
    """Return the runner of a suite."""
    return RUNNERS[suite.runner]


def find_programs(
    names: Sequence[str],
    snapshot: Snapshot,
    *,
    search_path: str | None = None,
    home: Path | None = None,
) -> Toolchain:
    """Find the programs of these names, as `programs.find_programs`. Unknown names are ignored."""
    finders = {name: _FINDERS[name] for name in names if name in _FINDERS}
    return programs.find_programs(finders, snapshot, search_path=search_path, home=home)


def detect(snapshot: Snapshot, test_cmd: str | None, changed: Sequence[str] = ()) -> Suite:
    """Return the suite of a project or its scope. The language of the `changed` paths comes first.

    Raises ConfigurationError for a `test_cmd` that is no command line.
    """
    if test_cmd is not None:
        return _placed(Suite(COMMAND, "chosen with --test-cmd", split_command(test_cmd)), snapshot)
    return next(detect_all(snapshot, changed), _placed(_DEFAULT, snapshot))


def _placed(suite: Suite, snapshot: Snapshot) -> Suite:
    """Return a suite of the scope with its folder relative to the root."""
    return replace(suite, cwd=joined(snapshot.scope or ".", suite.cwd))


def fitting(suite: Suite, tools: Tools) -> Suite:
    """Return the suite, or one that uses unittest where pytest is missing."""
    if suite.runner != "pytest" or tools.interpreter is None or tools.pytest is not None:
        return suite
    why = f"pytest cannot be imported by {tools.interpreter.path}, so unittest is used"
    return Suite("unittest", why, (), suite.cwd, suite.environment, {STANDS_IN: suite.runner})


def readable(suite: Suite, snapshot: Snapshot, tools: Tools) -> Suite | None:
    """Return pytest's suite in the place of one whose run of the base cannot be read.

    None where pytest cannot be imported, or would be the same runner again.
    """
    if suite.runner == "pytest" or PYTHON not in runner_of(suite).programs(suite):
        return None
    if tools.pytest is None or Pytest().detect(subtree(snapshot)) is None:
        return None
    why = f"{suite.runner} gives no outcomes on the base that can be read, so pytest is used"
    return Suite("pytest", why, (), suite.cwd, suite.environment, {UNREADABLE: suite.runner})


def detect_all(snapshot: Snapshot, changed: Sequence[str] = ()) -> Iterator[Suite]:
    """Yield every suite that the files of the scope show, best first."""
    for suite in _suites(subtree(snapshot), changed):
        yield _placed(suite, snapshot)


def _suites(snapshot: Snapshot, changed: Sequence[str]) -> Iterator[Suite]:
    for group in _ordered_groups(snapshot, changed):
        found = (runner.detect(snapshot) for runner in _RUNNERS if runner.languages == group)
        yield from (suite for suite in found if suite is not None)
        if "python" in group:
            yield from _python_suites(snapshot)
    last = _MAKE.detect(snapshot)
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
    known = [suite for suite in configured if suite.runner != COMMAND]
    if _is_set_up_for_pytest(snapshot):
        known = [suite for suite in known if suite.runner == "pytest"]
    yield from known[:1]
    pytest = Pytest().detect(snapshot)
    if pytest is not None and not known:
        yield pytest
    yield from (suite for suite in configured if suite.runner == COMMAND)


def _is_set_up_for_pytest(snapshot: Snapshot) -> bool:
    if any(file in snapshot.files for file in _PYTEST_FILES):
        return True
    files = (name for name in ("pyproject.toml", "setup.cfg", "tox.ini") if name in snapshot.files)
    return any(_PYTEST_TABLES.search(snapshot.text(name)) for name in files)
