"""Which framework a project's tests are run with. Pure: the snapshot's files decide.

The command that the user named wins. Then, of the language of the change, or else of the one that
most of the project is written in: a runner of the project's own, what its configuration says (tox,
nox, package.json), and what its files look like. `make test` is the last resort.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from agent.protocols import Snapshot
from agent.repository.languages import is_test_path, is_vendored_path, language_of
from agent.validation.frameworks.base import Framework, Suite
from agent.validation.frameworks.bin_test import BinTest
from agent.validation.frameworks.cargo import CargoTest
from agent.validation.frameworks.configured import suites
from agent.validation.frameworks.django import Django
from agent.validation.frameworks.golang import GoTest
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.javascript import Jest, Mocha, NodeTest, NpmTest, Vitest
from agent.validation.frameworks.make import Make
from agent.validation.frameworks.maven import MavenTest
from agent.validation.frameworks.nox import read_nox
from agent.validation.frameworks.opaque import COMMAND, Opaque
from agent.validation.frameworks.pytest_runner import Pytest
from agent.validation.frameworks.runners import split_command
from agent.validation.frameworks.tox import read_tox
from agent.validation.frameworks.unittest_runner import Unittest

# Where nothing else is known: most targets are Python, and the reply may bring the first test.
_DEFAULT = Suite("pytest", "no test of the project was recognised")

# Within a family the more special before the more general.
_PYTHON: tuple[Framework, ...] = (BinTest(), Django())
_JAVASCRIPT: tuple[Framework, ...] = (Vitest(), Jest(), Mocha(), NodeTest(), NpmTest())

_FAMILIES: Mapping[str, tuple[Framework, ...]] = MappingProxyType(
    {
        "python": _PYTHON,
        "javascript": _JAVASCRIPT,
        "go": (GoTest(),),
        "rust": (CargoTest(),),
        "java": (MavenTest(),),
    }
)

_FAMILY_OF = MappingProxyType(
    {
        "python": "python",
        "cython": "python",
        "javascript": "javascript",
        "typescript": "javascript",
        "tsx": "javascript",
        "vue": "javascript",
        "svelte": "javascript",
        "go": "go",
        "go-mod": "go",
        "rust": "rust",
        "java": "java",
        "kotlin": "java",
    }
)

_EVERY: tuple[Framework, ...] = (
    *(framework for family in _FAMILIES.values() for framework in family),
    *(Pytest(), Unittest(), Make(), Opaque()),
)

FRAMEWORKS: Mapping[str, Framework] = MappingProxyType({one.name: one for one in _EVERY})
"""All frameworks by name."""

STANDS_IN = "stands-in-for"
"""In `Suite.settings` of a suite that `fitting` made: what it stands in for."""

_PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py", "tests/conftest.py")
_PYTEST_TABLES = re.compile(r"^\[(?:tool\.pytest|tool:pytest|pytest)\b", re.MULTILINE)


def framework_of(suite: Suite) -> Framework:
    """What runs a suite that `detect` or `fitting` gave."""
    return FRAMEWORKS[suite.framework]


def detect(snapshot: Snapshot, test_cmd: str | None, changed: Sequence[str] = ()) -> Suite:
    """The suite of a project. `changed` are the paths of a patch: their language comes first.

    Raises ConfigurationError for a `test_cmd` that is no command line.
    """
    if test_cmd is not None:
        return Suite(COMMAND, "chosen with --test-cmd", split_command(test_cmd))
    return next(_detected(snapshot, changed), _DEFAULT)


def detect_all(snapshot: Snapshot, changed: Sequence[str] = ()) -> tuple[Suite, ...]:
    """Every suite that the files show, best first."""
    return tuple(_detected(snapshot, changed))


def fitting(suite: Suite, tools: Tools) -> Suite:
    """The suite, or what stands in for it with these tools: unittest where pytest is missing."""
    if suite.framework != "pytest" or tools.interpreter is None or tools.pytest is not None:
        return suite
    why = f"pytest cannot be imported by {tools.interpreter.path}, so unittest is used"
    return Suite("unittest", why, (), ".", suite.environment, {STANDS_IN: suite.framework})


def _detected(snapshot: Snapshot, changed: Sequence[str]) -> Iterator[Suite]:
    for family in _families(snapshot, changed):
        found = (framework.detect(snapshot) for framework in _FAMILIES[family])
        yield from (suite for suite in found if suite is not None)
        if family == "python":
            yield from _python(snapshot)
    last = Make().detect(snapshot)
    if last is not None:
        yield last


def _families(snapshot: Snapshot, changed: Sequence[str]) -> tuple[str, ...]:
    """Families of the changed source files, then of all files, each by how many there are."""
    counts: Counter[str] = Counter()
    for path, file in snapshot.files.items():
        family = _FAMILY_OF.get(file.language)
        if family and not is_vendored_path(path):
            counts[family] += 1
    first: Counter[str] = Counter()
    for path in changed:
        family = _FAMILY_OF.get(language_of(path))
        if family:
            first[family] += 1 if is_test_path(path) else len(changed) + 1
    order = list(_FAMILIES)
    return tuple(sorted(order, key=lambda name: (-first[name], -counts[name], order.index(name))))


def _python(snapshot: Snapshot) -> Iterator[Suite]:
    """What the configuration says; pytest for any test file; commands that nothing is known of."""
    configured = suites((*read_tox(snapshot), *read_nox(snapshot)))
    known = [suite for suite in configured if suite.framework != COMMAND]
    if _is_set_up_for_pytest(snapshot):
        known = [suite for suite in known if suite.framework == "pytest"]
    yield from known[:1]
    pytest = Pytest().detect(snapshot)
    if pytest is not None and not known:
        yield pytest
    yield from (suite for suite in configured if suite.framework == COMMAND)


def _is_set_up_for_pytest(snapshot: Snapshot) -> bool:
    if any(file in snapshot.files for file in _PYTEST_FILES):
        return True
    files = (name for name in ("pyproject.toml", "setup.cfg", "tox.ini") if name in snapshot.files)
    return any(_PYTEST_TABLES.search(snapshot.text(name)) for name in files)
