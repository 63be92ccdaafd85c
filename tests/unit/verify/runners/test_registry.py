from __future__ import annotations

import json

import pytest

from agent.errors import ConfigurationError
from agent.verify import runners as registry
from agent.verify.runners.base import Suite, Tools
from tests.support.fakes import MemorySnapshot
from tests.support.runners import detected, tools_without_machine

PYTHON = {"pkg/a.py": "", "tests/test_a.py": ""}
SCRIPTS = {"package.json": json.dumps({"scripts": {"test": "jest"}}), "web/a.test.js": ""}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (PYTHON, "pytest"),
        ({**PYTHON, "Makefile": "test:\n\tpytest\n"}, "pytest"),
        ({**PYTHON, "tests/runtests.py": "import django"}, "django"),
        ({**PYTHON, "manage.py": "import django"}, "django"),
        ({**PYTHON, "manage.py": "print('another manager')"}, "pytest"),
        ({**PYTHON, "tests/sample/manage.py": "import django"}, "pytest"),
        (
            {
                **PYTHON,
                "manage.py": "import django",
                "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = x",
            },
            "pytest",
        ),
        (SCRIPTS, "jest"),
        ({"go.mod": "module example.com/m\n", "a.go": "", "a_test.go": ""}, "go"),
        ({"Cargo.toml": '[package]\nname = "c"\n', "src/lib.rs": ""}, "cargo"),
        ({"pom.xml": "<project/>", "src/main/java/A.java": ""}, "maven"),
        ({"Makefile": "check: all\n\t./run\n", "main.c": ""}, "make"),
        ({"Makefile": "test := no rule\nall:\n", "main.c": ""}, "pytest"),
        ({"README": ""}, "pytest"),
    ],
)
def test_the_files_of_a_project_tell_its_framework(files: dict[str, str], expected: str) -> None:
    suite = registry.detect(MemorySnapshot(files), None)
    assert suite.runner == expected
    assert suite.why


def test_the_command_that_the_user_named_wins() -> None:
    suite = registry.detect(MemorySnapshot(PYTHON), "make 'a b'")
    assert suite == Suite("command", "chosen with --test-cmd", ("/bin/sh", "-c", "make 'a b'"))
    with pytest.raises(ConfigurationError, match="--test-cmd"):
        registry.detect(MemorySnapshot(PYTHON), "'")


@pytest.mark.parametrize(
    ("changed", "runner"),
    [
        ((), "pytest"),
        (("web/a.js",), "jest"),
        (("web/a.js", "pkg/a.py", "pkg/b.py"), "pytest"),
        (("web/a.test.js", "web/b.test.js", "pkg/a.py"), "pytest"),
    ],
)
def test_of_two_languages_that_of_the_change_comes_first(
    changed: tuple[str, ...], runner: str
) -> None:
    files = {**PYTHON, "pkg/b.py": "", **SCRIPTS, "Makefile": "test:\n"}
    assert detected(files, *changed).runner == runner
    assert detected(dict(reversed(files.items())), *changed) == detected(files, *changed)


def test_unittest_stands_in_where_pytest_cannot_be_imported() -> None:
    suite = Suite("pytest", "files", environment={"A": "1"})
    tools = tools_without_machine()
    assert registry.fitting(suite, tools) is suite
    without = registry.fitting(suite, Tools(tools.interpreter, None))
    assert (without.runner, without.environment) == ("unittest", {"A": "1"})
    assert "pytest cannot be imported" in without.why
    assert registry.fitting(suite, Tools(None, problem="none")) is suite


@pytest.mark.parametrize(
    ("files", "runner", "test", "target"),
    [
        ({"a.py": "", "tests/test_a.py": ""}, "pytest", "tests/test_a.py", "tests/test_a.py"),
        ({"tests/runtests.py": "import django"}, "django", "tests/app/test_a.py", "app.test_a"),
        ({"manage.py": "import django"}, "django", "app/tests.py", "app.tests"),
        ({"site/manage.py": "import django"}, "django", "site/app/tests.py", "app.tests"),
        (SCRIPTS, "jest", "web/a.test.js", "web/a.test.js"),
        ({"go.mod": "module e.com/m\n", "a_test.go": ""}, "go", "pkg/a_test.go", "./pkg"),
    ],
)  # fmt: skip
def test_a_scope_is_detected_like_a_project(
    files: dict[str, str], runner: str, test: str, target: str
) -> None:
    """What lies around it, such as the root's own configuration, does not count."""
    around = {
        "tests/runtests.py": "import django",
        "Makefile": "test:\n",
        "b.rs": "",
    }
    inner = {f"services/a/{path}": text for path, text in files.items()}
    snapshot = MemorySnapshot({**around, **inner, "Cargo.toml": ""}, scope="services/a")
    suite = registry.detect(snapshot, None)
    assert suite.runner == runner
    assert suite.cwd in ("services/a", "services/a/site")
    paths = (f"services/a/{test}", f"services/ab/{test}", test)
    assert registry.runner_of(suite).targets(suite, paths, snapshot) == (target,)


def test_a_command_of_the_user_runs_in_the_scope() -> None:
    snapshot = MemorySnapshot(PYTHON, scope="pkg")
    assert registry.detect(snapshot, "make test").cwd == "pkg"
    assert registry.detect(MemorySnapshot(PYTHON), "make test").cwd == "."
