"""Which changes steer the tests that judge them, and are taken from the base."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from agent.types import FileChange
from agent.verify.plan import import_roots
from agent.verify.steering import SteeringFiles, group_changes
from tests.support.fakes import MemorySnapshot
from tests.support.validation import edit


def why(
    path: str,
    files: Mapping[str, str],
    after: str | None = "changed = 1\n",
) -> str:
    change = edit(path, files.get(path), after)
    return SteeringFiles(MemorySnapshot(files)).why(change)


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
    "web/package.json": (
        json.dumps({"scripts": {"test": "mocha -r ./src/setup"}}),
        "web/src/setup.js",
    ),
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
        ("package.json", '{"scripts": {"test": "jest"}}', '{"scripts": {"test": "true"}}', True),
        ("package.json", '{"version": "1"}', '{"version": "2", "dependencies": {"a": "1"}}', False),
        ("package.json", "{}", '{"dependencies": {"chai": "file:./fake"}}', True),
        ("package.json", "{}", '{"jest": {"setupFiles": ["./x.js"]}}', True),
        ("package.json", "{}", "{", True),
        ("Cargo.toml", "[package]\nname='a'\n", "[package]\nname='a'\nversion='2'\n", False),
        ("Cargo.toml", "[dependencies]\n", "[dependencies]\nserde='1'\n", False),
        ("Cargo.toml", "[dependencies]\n", "[dependencies]\ns={path='fake'}\n", True),
        ("Cargo.toml", "", "[[test]]\nname='a'\nharness=false\n", True),
        ("Cargo.toml", "[package]\n", "[package]\nautotests=false\n", True),
        ("go.mod", "module a\n", "module a\n\nrequire b v1.0.0\n", False),
        ("go.mod", "module a\n", "module a\n\nreplace (\n\tb => ./fake\n)\n", True),
    ],
)
def test_a_manifest_steers_by_its_parts(path: str, before: str, after: str, steers: bool) -> None:
    assert bool(why(path, {path: before}, after)) is steers


FOR_TESTS = "it is for tests, and no source file imports it"
EXPECTED = "existing tests compare with it, and no source file mentions it"

FIXTURES = {
    "shop/fakes.py": "import pytest\n\n\n@pytest.fixture\ndef shop():\n    return 1\n",
    "shop/price.py": "def total():\n    return 1\n",
    "tests/conftest.py": "from shop.fakes import shop\n",
}
NAMED = {
    "shop/testing.py": "import json\n\n\ndef golden():\n    return json.loads('{}')\n",
    "shop/price.py": "def total():\n    return 1\n",
    "tests/test_a.py": "from shop.testing import golden\nfrom shop.price import total\n",
}
NODE = {
    "lib/same.js": "const assert = require('node:assert')\nexports.same = assert.equal\n",
    "lib/a.js": "exports.a = 1\n",
    "test/a.test.js": "const { same } = require('../lib/same.js')\nrequire('../lib/a')\n",
}
DATA = {
    "tests/test_a.py": "def test_a():\n    assert run() == open('shop/wanted.json').read()\n",
    "shop/wanted.json": "1",
    "shop/a.py": "x = 1\n",
}


@pytest.mark.parametrize(
    ("path", "files", "after", "reason"),
    [
        # a module that imports a library for tests
        ("shop/fakes.py", FIXTURES, "x", FOR_TESTS),
        ("shop/price.py", {**FIXTURES, "tests/test_a.py": "import shop.price\n"}, "x", ""),
        ("shop/fakes.py", {**FIXTURES, "shop/price.py": "from shop import (\n fakes\n)"}, "x", ""),
        ("shop/fakes.py", {**FIXTURES, "pyproject.toml": "[x]\nshop = 'shop.fakes'\n"}, "x", ""),
        ("shop/fakes.py", {**FIXTURES, "tests/conftest.py": ""}, "x", FOR_TESTS),
        # one that is named for tests
        ("shop/testing.py", NAMED, "x", FOR_TESTS),
        ("shop/price.py", NAMED, "x", ""),
        # a helper of JavaScript
        ("lib/same.js", NODE, "x", FOR_TESTS),
        ("lib/a.js", NODE, "x", ""),
        ("lib/same.js", {**NODE, "lib/a.js": "require('./same')\n"}, "x", ""),
        ("lib/same.js", {**NODE, "package.json": '{"main": "lib/same.js"}'}, "x", ""),
        # data that only tests read
        ("shop/wanted.json", DATA, "2", EXPECTED),
        ("shop/wanted.json", {**DATA, "shop/a.py": "open('wanted.json')\n"}, "2", ""),
    ],
)  # fmt: skip
def test_what_only_tests_use_steers(
    path: str, files: dict[str, str], after: str, reason: str
) -> None:
    assert why(path, files, after) == reason


@pytest.mark.parametrize(
    ("issue", "reason"),
    [
        ("shop.fakes is slow", ""),
        ("The fixture `shop` is wrong", ""),
        ("see shop/fakes.py", ""),
        ("data/shop.json is wrong", FOR_TESTS),
    ],
)
def test_it_is_source_if_the_issue_is_about_it(issue: str, reason: str) -> None:
    change = edit("shop/fakes.py", FIXTURES["shop/fakes.py"], "x = 1\n")
    assert SteeringFiles(MemorySnapshot(FIXTURES), issue).why(change) == reason


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


@pytest.mark.parametrize(
    ("path", "before", "after", "existing", "share"),
    [
        # a module named after tests is source unless it holds some
        ("pkg/weak_tests.py", "def is_weak(): pass\n", "x = 1\n", (), "source"),
        ("pkg/old_tests.py", "def test_a(): pass\n", "x = 1\n", (), "tests"),
        ("pkg/new_tests.py", None, "x = 1\n", (), "tests"),
        ("tests/weak_tests.py", "x = 0\n", "x = 1\n", (), "tests"),
        # modules that the project has already are its source
        ("src/_pytest/runner.py", "x", "y", (), "source"),
        ("src/_pytest/new.py", None, "y", ("src/_pytest/__init__.py",), "source"),
        ("json.py", "x", None, (), "source"),
    ],
)
def test_where_a_module_takes_part(
    path: str, before: str | None, after: str | None, existing: tuple[str, ...], share: str
) -> None:
    assert share_of(edit(path, before, after), *existing, roots=(".", "src")) == share


def test_a_module_named_after_tests_that_only_tests_import_is_none_of_the_source() -> None:
    helper = edit("pkg/check_tests.py", "import pytest\n\ndef same(): pass\n", "x = 1\n")
    tests = {"tests/test_a.py": "from pkg.check_tests import same\n"}
    groups = group_changes([helper], MemorySnapshot({helper.path: "import pytest\n", **tests}))
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


# -------------------------------------------------------------------------- the import path

_NAMESPACE = ("src/poet/json/__init__.py", "src/poet/json/schema.py", "src/poet/cli/__init__.py")


@pytest.mark.parametrize(
    ("paths", "changed", "roots"),
    [
        (("pkg/__init__.py", "pkg/a.py"), "pkg/a.py", (".",)),
        (("lib/pkg/__init__.py", "lib/pkg/a.py"), "lib/pkg/a.py", (".", "lib")),
        (_NAMESPACE, "src/poet/json/schema.py", (".", "src")),
        (("plug/types.py", "plug/web/__init__.py"), "plug/web/__init__.py", (".",)),
        (("plug/mine.py", "plug/web/__init__.py"), "plug/web/__init__.py", (".", "plug")),
    ],
    ids=["top", "below", "namespace package", "namespace with a standard name", "plain folder"],
)
def test_nothing_on_the_import_path_hides_the_standard_library(
    paths: tuple[str, ...], changed: str, roots: tuple[str, ...]
):
    snapshot = MemorySnapshot(dict.fromkeys(paths, ""))
    assert import_roots(snapshot, [FileChange(changed, b"", b"x = 1\n")]) == roots


def test_the_scope_comes_first_on_the_import_path() -> None:
    paths = ("a/src/m.py", "src/m.py", "libs/pkg/__init__.py", "libs/pkg/x.py")
    snapshot = MemorySnapshot(dict.fromkeys(paths, ""), scope="a")
    changes = [FileChange("libs/pkg/x.py", b"", b"x = 1\n")]
    assert import_roots(snapshot, changes) == ("a", "a/src", "libs")
