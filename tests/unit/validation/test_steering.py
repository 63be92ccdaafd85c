"""Which changes steer the tests that judge them, and are taken from the base."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from agent.validation.plan import group_changes
from agent.validation.steering import SteeringFiles
from tests.support.fakes import MemorySnapshot
from tests.support.validation import edit

TESTS = {"tests/test_a.py": "from shop.testing import assert_total\nassert_total(1)\n"}
HELPER = "def assert_total(x):\n    assert x == 1\n\n\ndef total():\n    return 1\n"


def why(
    path: str,
    files: Mapping[str, str],
    after: str | None = "changed = 1\n",
    new_tests: tuple[str, ...] = (),
) -> str:
    change = edit(path, files.get(path), after)
    return SteeringFiles(MemorySnapshot(files), new_tests).why(change)


@pytest.mark.parametrize(
    "path",
    [
        ".pytest.toml", "sub/pytest.toml", "tox.toml", "noxfile.py", ".coveragerc", "runtests.py",
        "Makefile", "GNUmakefile", "tools/test.mk", "justfile", "jest.config.ts", "jest.setup.js",
        "vitest.config.mts", "vite.config.js", ".mocharc.yml", ".mocharc", "test/mocha.opts",
        "ava.config.js", ".babelrc", "babel.config.cjs", "tsconfig.json", "tsconfig.test.json",
        ".npmrc", "node_modules/jest/index.js", ".cargo/config", ".cargo/config.toml",
        "build.rs", "rust-toolchain.toml", ".config/nextest.toml", "go.work", "vendor/x/y.go",
        "vendor/modules.txt", "pom.xml", ".mvn/jvm.config", "build.gradle.kts", "bin/test",
        "src/main/resources/META-INF/services/org.junit.platform.launcher.TestExecutionListener",
    ],
)  # fmt: skip
def test_configuration_of_every_runner_steers(path: str) -> None:
    assert why(path, {}) == "it configures the test run"


@pytest.mark.parametrize(
    "path", ["shop/config.py", "src/build.py", "go.sum", "shop/vendor/x.py", "lib/makefiles.py"]
)
def test_source_does_not(path: str) -> None:
    assert why(path, {}) == ""


@pytest.mark.parametrize(
    "path",
    ["tests/data/a.json", "shop/golden/a.txt", "a/__fixtures__/b.js", "x.snap", "test_data/a.csv"],
)
def test_what_tests_feed_or_expect_belongs_to_the_tests(path: str) -> None:
    groups = group_changes([edit(path, "1", "2")], MemorySnapshot({path: "1"}))
    assert [change.path for change in groups.tests] == [path]


LOADING = {
    "pytest.ini": ("[pytest]\naddopts = -q -p shop.hooks\n", "shop/hooks.py"),
    "pyproject.toml": (
        '[tool.pytest.ini_options]\naddopts = ["-p", "shop.hooks"]\n',
        "src/shop/hooks/__init__.py",
    ),
    "tests/conftest.py": ("pytest_plugins = ['shop.hooks']\n", "shop/hooks.py"),
    "conftest.py": ("from shop.hooks import pytest_collection_finish\n", "shop/hooks.py"),
    "sub/conftest.py": ("from .hooks import *\n", "sub/hooks.py"),
    "shop/settings.py": ("TEST_RUNNER = 'shop.runner.Quick'\n", "shop/runner.py"),
    "jest.config.js": ("module.exports = {setupFiles: ['<rootDir>/src/env.js']}\n", "src/env.js"),
    "vitest.config.ts": ("import { x } from './tools/x'\nexport default x\n", "tools/x.ts"),
    ".mocharc.yml": ("require:\n  - ./lib/register.js\n", "lib/register.js"),
    "package.json": (
        json.dumps({"scripts": {"test": "npm run unit", "unit": "node ./scripts/run.js"}}),
        "scripts/run.js",
    ),
    "web/package.json": (
        json.dumps({"scripts": {"test": "mocha -r ./src/setup"}}),
        "web/src/setup.js",
    ),
    "Makefile": ("test: prepare\n\tpytest\nprepare:\n\t@./tools/prepare.sh\n", "tools/prepare.sh"),
    "tox.ini": ("[testenv]\ncommands =\n    python tools/run.py\n", "tools/run.py"),
    "noxfile.py": ("def t(session):\n    session.run('python', 'tools/r.py')\n", "tools/r.py"),
}


@pytest.mark.parametrize("configuration", LOADING)
def test_what_the_bases_configuration_loads_steers(configuration: str) -> None:
    text, loaded = LOADING[configuration]
    files = {configuration: text, loaded: "x = 1\n"}
    assert why(loaded, files) == f"{configuration} loads it into the test run"
    assert why(loaded, {configuration: text}) != ""  # a file that the patch adds in its place
    assert why(loaded, {loaded: "x = 1\n"}) == ""


@pytest.mark.parametrize(
    ("configuration", "text", "source"),
    [
        ("tox.ini", "[testenv]\ndeps = -r needs.txt\n", "needs.txt"),
        ("Makefile", "run:\n\tpython shop/main.py\ntest:\n\tpytest\n", "shop/main.py"),
        ("package.json", '{"scripts": {"start": "node src/index.js"}}', "src/index.js"),
        ("package.json", '{"main": "src/index.js", "scripts": {"test": "jest"}}', "src/index.js"),
        ("conftest.py", "from shop.app import create_app\n", "shop/app.py"),
        ("vite.config.js", "export default {build: {lib: {entry: 'src/a.js'}}}", "src/a.js"),
    ],
)
def test_source_that_configuration_only_names_does_not(
    configuration: str, text: str, source: str
) -> None:
    assert why(source, {configuration: text, source: "x"}) == ""


@pytest.mark.parametrize(
    ("path", "before", "after", "steers"),
    [
        ("package.json", {"scripts": {"test": "jest"}}, {"scripts": {"test": "true"}}, True),
        ("package.json", {"version": "1"}, {"version": "2", "dependencies": {"a": "1"}}, False),
        ("package.json", {}, {"dependencies": {"chai": "file:./fake"}}, True),
        ("package.json", {}, {"jest": {"setupFiles": ["./x.js"]}}, True),
    ],
)
def test_a_package_json_steers_by_its_parts(
    path: str, before: object, after: object, steers: bool
) -> None:
    found = why(path, {path: json.dumps(before)}, json.dumps(after))
    assert bool(found) is steers


@pytest.mark.parametrize(
    ("path", "before", "after", "steers"),
    [
        ("Cargo.toml", "[package]\nname='a'\n", "[package]\nname='a'\nversion='2'\n", False),
        ("Cargo.toml", "[dependencies]\n", "[dependencies]\nserde='1'\n", False),
        ("Cargo.toml", "[dependencies]\n", "[dependencies]\ns={path='fake'}\n", True),
        ("Cargo.toml", "", "[[test]]\nname='a'\nharness=false\n", True),
        ("Cargo.toml", "[package]\n", "[package]\nautotests=false\n", True),
        ("go.mod", "module a\n", "module a\n\nrequire b v1.0.0\n", False),
        ("go.mod", "module a\n", "module a\n\nreplace (\n\tb => ./fake\n)\n", True),
        ("package.json", "{}", "{", True),
    ],
)
def test_so_do_other_manifests(path: str, before: str, after: str, steers: bool) -> None:
    assert bool(why(path, {path: before}, after)) is steers


def test_an_assertion_that_tests_use_steers() -> None:
    files = {**TESTS, "shop/testing.py": HELPER}
    bent = HELPER.replace("x == 1", "x == 1 or True")
    assert why("shop/testing.py", files, bent) == "it changes assertions that tests use"
    assert why("shop/testing.py", files, HELPER.replace("return 1", "return 2")) == ""
    unused = {"shop/testing.py": HELPER}
    assert why("shop/testing.py", unused, bent) == ""
    assert why("shop/testing.py", unused, bent, ("assert_total(1)",)) != ""


def test_assertions_of_other_languages_steer_in_modules_for_tests() -> None:
    helper = "function expectTotal(x) {\n  assert.equal(x, 1);\n}\n"
    files = {"src/testing.js": helper, "test/a.test.js": "expectTotal(1)"}
    assert why("src/testing.js", files, helper.replace("equal", "ok")) != ""
    assert why("src/testing.js", files, f"// more\n{helper}") == ""


def test_a_file_that_only_tests_read_steers() -> None:
    test = "def test_a():\n    assert run() == open('shop/wanted.json').read()\n"
    files = {"tests/test_a.py": test, "shop/wanted.json": "1", "shop/a.py": "x = 1\n"}
    assert why("shop/wanted.json", files, "2").startswith("existing tests compare with it")
    read_by_source = {**files, "shop/a.py": "open('wanted.json')\n"}
    assert why("shop/wanted.json", read_by_source, "2") == ""


def test_the_user_lifts_it_by_allow() -> None:
    changes = [edit("Makefile", "a", "b"), edit("shop/a.py", "x = 1\n", "x = 2\n")]
    snapshot = MemorySnapshot({"Makefile": "a", "shop/a.py": "x = 1\n"})
    held = group_changes(changes, snapshot)
    assert [change.path for change in held.source] == ["shop/a.py"]
    assert held.held == {"Makefile": "it configures the test run"}
    lifted = group_changes(changes, snapshot, allow=("Makefile",))
    assert [change.path for change in lifted.source] == ["Makefile", "shop/a.py"]
    assert (lifted.held, lifted.configuration) == ({}, ())
    assert lifted.lifted == (("Makefile", "it configures the test run"),)


@pytest.mark.parametrize(
    ("path", "hides"),
    [
        ("random.py", "random"),
        ("pytest_timeout.py", "pytest_timeout"),
        ("pytest_cov/__init__.py", "pytest_cov"),
        ("src/pytest_cov.py", "pytest_cov"),
        ("pytest_cov/plugin.py", ""),  # a package without __init__ hides none that has one
        ("shop/pytest_timeout.py", ""),
        ("tests/pytest_timeout.py", ""),
        ("own.py", ""),
    ],
)
def test_a_new_module_with_the_name_of_an_installed_one(path: str, hides: str) -> None:
    installed = ("pytest_cov", "pytest_timeout", "shop", "tests")
    snapshot = MemorySnapshot({"shop/__init__.py": "", "tests/test_a.py": ""})
    groups = group_changes(
        [edit(path, None, "x = 1\n")], snapshot, (".", "src"), installed=installed
    )
    wanted = f"takes the place of the module {hides} in the test run"
    assert dict(groups.hiding) == ({path: wanted} if hides else {})
    assert bool(groups.excluded) is bool(hides)
