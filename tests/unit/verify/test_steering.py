"""Which changes steer the tests that judge them, and are taken from the base."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from agent.types import FileChange
from agent.verify.steering import SteeringFiles, group_changes
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
    "GNUmakefile": (
        "PY ?= python3\nRUN = $(PY)\ntest:\n\t$(RUN) tools/check.py\n",
        "tools/check.py",
    ),
    "tests.mk": ("test:\n\tpython -m tools.check\n", "tools/check.py"),
    "sub/Makefile": ("test:\n\t${RUNNER} ./run.py\n", "sub/run.py"),
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
        ("Makefile", "LINT = mypy\ncheck:\n\t$(LINT) shop/main.py\n", "shop/main.py"),
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


def test_what_a_shell_script_starts_steers_too() -> None:
    files = {
        "Makefile": "test:\n\tsh tools/test.sh\n",
        "tools/test.sh": "set -e\npython tools/check.py\n",
        "tools/check.py": "x = 1\n",
    }
    assert why("tools/check.py", files) == "tools/test.sh loads it into the test run"


CHECKED = {
    "Makefile": "test:\n\tpython tools/check.py\n",
    "tools/check.py": "from compare import same\nfrom shop.price import total\n",
    "tools/compare.py": "def same(a, b):\n    return a == b\n",
    "shop/__init__.py": "",
    "shop/price.py": "def total():\n    return 1\n",
}


def test_a_module_beside_the_script_that_runs_tests_steers() -> None:
    assert why("tools/compare.py", CHECKED) == "only tests use it"
    assert why("shop/price.py", CHECKED) == ""
    used = {**CHECKED, "shop/price.py": "from tools.compare import same\n"}
    assert why("tools/compare.py", used) == ""


def test_a_new_module_beside_that_script_hides_the_one_of_the_source() -> None:
    changes = [edit("tools/shop/__init__.py", None, ""), edit("tools/other.py", None, "")]
    groups = group_changes(changes, MemorySnapshot(CHECKED))
    assert list(groups.hiding) == ["tools/shop/__init__.py"]


FIXTURES = {
    "shop/fakes.py": "import pytest\n\n\n@pytest.fixture\ndef shop():\n    return 1\n",
    "shop/price.py": "def total():\n    return 1\n",
    "tests/conftest.py": "from shop.fakes import shop\n",
}


def test_a_module_for_tests_that_only_tests_import_steers() -> None:
    assert why("shop/fakes.py", FIXTURES) == "only tests use it"
    assert why("shop/price.py", {**FIXTURES, "tests/test_a.py": "import shop.price\n"}) == ""


@pytest.mark.parametrize(
    "more",
    [
        {"shop/price.py": "from shop import (\n    fakes,\n)\n"},
        {"pyproject.toml": "[project.entry-points.pytest11]\nshop = 'shop.fakes'\n"},
        {"tests/conftest.py": ""},
    ],
)
def test_it_is_source_if_anything_else_uses_it(more: dict[str, str]) -> None:
    assert why("shop/fakes.py", {**FIXTURES, **more}) == ""


def test_so_does_one_that_is_named_for_tests() -> None:
    files = {
        "shop/testing.py": "import json\n\n\ndef golden():\n    return json.loads('{}')\n",
        "shop/price.py": "def total():\n    return 1\n",
        "tests/test_a.py": "from shop.testing import golden\nfrom shop.price import total\n",
    }
    assert why("shop/testing.py", files) == "only tests use it"
    assert why("shop/price.py", files) == ""


def test_it_is_source_if_the_issue_is_about_it() -> None:
    change = edit("shop/fakes.py", FIXTURES["shop/fakes.py"], "x = 1\n")
    for issue in ("shop.fakes is slow", "The fixture `shop` is wrong", "see shop/fakes.py"):
        assert SteeringFiles(MemorySnapshot(FIXTURES), (), issue).why(change) == ""
    about_another = SteeringFiles(MemorySnapshot(FIXTURES), (), "data/shop.json is wrong")
    assert about_another.why(change) == "only tests use it"


def test_a_helper_of_javascript_that_only_tests_use_steers() -> None:
    files = {
        "lib/same.js": "const assert = require('node:assert')\nexports.same = assert.equal\n",
        "lib/a.js": "exports.a = 1\n",
        "test/a.test.js": "const { same } = require('../lib/same.js')\nrequire('../lib/a')\n",
    }
    assert why("lib/same.js", files) == "only tests use it"
    assert why("lib/a.js", files) == ""
    assert why("lib/same.js", {**files, "lib/a.js": "require('./same')\n"}) == ""
    assert why("lib/same.js", {**files, "package.json": '{"main": "lib/same.js"}'}) == ""


def test_an_assertion_that_tests_use_steers() -> None:
    files = {**TESTS, "shop/testing.py": HELPER}
    bent = HELPER.replace("x == 1", "x == 1 or True")
    assert why("shop/testing.py", files, bent) == "it changes assertions that tests use"
    used = {**files, "shop/app.py": "from shop.testing import total\n"}
    assert why("shop/testing.py", used, bent) == "it changes assertions that tests use"
    assert why("shop/testing.py", used, HELPER.replace("return 1", "return 2")) == ""
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
    assert lifted.lifted == {"Makefile": "it configures the test run"}


@pytest.mark.parametrize(
    ("path", "hides"),
    [
        ("shop/__init__.py", "shop"),
        ("shop.py", "shop"),
        ("lib/shop/price.py", ""),  # `lib` is not on the import path of this project
        ("src/other.py", ""),
        ("tests/shop/__init__.py", ""),
    ],
)
def test_a_new_module_with_the_name_of_one_in_another_folder(path: str, hides: str) -> None:
    snapshot = MemorySnapshot({"src/shop/__init__.py": "", "tests/test_a.py": ""})
    groups = group_changes([edit(path, None, "x = 1\n")], snapshot, (".", "src"))
    wanted = f"takes the place of the module {hides} in the test run"
    assert dict(groups.hiding) == ({path: wanted} if hides else {})
    namespace = MemorySnapshot({"src/shop/price.py": ""})
    beside = group_changes([edit("shop/price.py", None, "x = 1\n")], namespace, (".", "src"))
    assert beside.hiding
    moved = [edit(path, None, "x = 1\n"), edit("src/shop/__init__.py", "", None)]
    assert not group_changes(moved, snapshot, (".", "src")).hiding


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


def share_of(change: FileChange, *known: str, roots: tuple[str, ...] = (".",)) -> str:
    groups = group_changes([change], MemorySnapshot(dict.fromkeys(known, "")), roots)
    return next(n for n in ("source", "tests", "configuration", "excluded") if getattr(groups, n))


def test_a_module_named_after_tests_is_source_unless_it_holds_some() -> None:
    assert share_of(edit("pkg/weak_tests.py", "def is_weak(): pass\n", "x = 1\n")) == "source"
    assert share_of(edit("pkg/old_tests.py", "def test_a(): pass\n", "x = 1\n")) == "tests"
    assert share_of(edit("pkg/new_tests.py", None, "x = 1\n")) == "tests"
    assert share_of(edit("tests/weak_tests.py", "x = 0\n", "x = 1\n")) == "tests"


def test_a_module_named_after_tests_that_only_tests_import_is_none_of_the_source() -> None:
    helper = edit("pkg/check_tests.py", "import pytest\n\ndef same(): pass\n", "x = 1\n")
    files = {
        helper.path: "import pytest\n",
        "tests/test_a.py": "from pkg.check_tests import same\n",
    }
    groups = group_changes([helper], MemorySnapshot(files))
    assert [change.path for change in groups.configuration] == [helper.path]
    assert groups.source == ()


@pytest.mark.parametrize(
    ("path", "share"),
    [
        ("pkg/mod.py", "source"),
        ("README.md", "source"),
        ("setup.py", "source"),
        ("pkg/json.py", "source"),
        ("tests/test_a.py", "tests"),
        ("tests/data/x.json", "tests"),
        ("conftest.py", "configuration"),
        ("sub/conftest.py", "configuration"),
        ("pytest.ini", "configuration"),
        ("pyproject.toml", "configuration"),
        ("setup.cfg", "configuration"),
        ("tox.ini", "configuration"),
        ("sitecustomize.py", "excluded"),
        ("src/usercustomize/__init__.py", "excluded"),
        ("a/b.pth", "excluded"),
        ("m.cpython-311.pyc", "excluded"),
        ("x.egg-info/entry_points.txt", "excluded"),
        ("x-1.dist-info/METADATA", "excluded"),
        ("json.py", "excluded"),
        ("json/__init__.py", "excluded"),
        ("src/pytest.py", "excluded"),
        ("_pytest/runner.py", "excluded"),
        ("patchshot_pytest.py", "excluded"),
        ("hashlib.cpython-311-x86_64-linux-gnu.so", "excluded"),
    ],
)
def test_where_a_new_file_takes_part(path: str, share: str) -> None:
    assert share_of(edit(path, None, "x"), roots=(".", "src")) == share


def test_modules_that_the_project_has_already_are_its_source() -> None:
    assert share_of(edit("src/_pytest/runner.py", "x", "y"), roots=("src",)) == "source"
    known = ("src/_pytest/__init__.py",)
    assert share_of(edit("src/_pytest/new.py", None, "y"), *known, roots=("src",)) == "source"
    assert share_of(edit("json.py", "x", None)) == "source"
