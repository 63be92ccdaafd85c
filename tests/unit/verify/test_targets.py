"""Targets that are not as one would wish, of other languages, or in an image: whole validations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.types import FileChange, ReproductionTest, ValidationReport, Verdict
from agent.verify.judging.compare import suspicion
from agent.verify.judging.reproduction import NameChecks, Standing, judge
from sandbox.container import ContainerSandbox
from tests.support.images import TESTBED_PYTHON, remove_image, require_container
from tests.support.runners import require_program
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, run_of, validated

pytestmark = pytest.mark.slow

BUG, FIX = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
HEAD = "import os, socket, sys, time\nfrom calc import add\n\n\n"
GOOD = "def test_good():\n    assert add(1, 0) == 1\n"
ISSUE = ReproductionTest(
    "tests/test_issue.py", f"{HEAD}def test_issue():\n    assert add(1, 1) == 2\n"
)

MakeRepository = Callable[..., Path]
Validate = Callable[..., ValidationReport]


@pytest.fixture
def validate(make_repository: MakeRepository, python_with_pytest: Path) -> Validate:
    require_bwrap()

    def one(
        tests: str | None,
        *changes: FileChange,
        test: ReproductionTest | None = None,
        more: Mapping[str, str] | None = None,
        **options: object,
    ) -> ValidationReport:
        files = {"calc.py": BUG, **(more or {})}
        if tests is not None:
            files["tests/test_calc.py"] = HEAD + tests
        patch = patch_of(*(changes or (edit("calc.py", BUG, FIX),)))
        chosen = {"python": python_with_pytest, "timeout": 20.0, **options}
        return validated(make_repository(files), patch, test, **chosen)

    return one


def test_a_gigabyte_of_output(validate: Validate) -> None:
    """Past pytest's own capture, as a command that nothing reads."""
    flood = "python -c \"import os\nwhile True: os.write(1, b'x' * 65536)\""
    with pytest.raises(ConfigurationError, match="hit its output limit") as caught:
        validate(GOOD, test_cmd=flood)
    assert len(str(caught.value)) < 1000


def test_a_suite_that_never_ends(validate: Validate) -> None:
    report = validate(f"{GOOD}\n\ndef test_on():\n    time.sleep(600)\n", test=ISSUE, timeout=5.0)
    assert report.verdict is Verdict.VERIFIED
    assert [note.split(";")[0] for note in report.notes] == [
        f"{where} the run of the project's tests hit its time limit after 5 s in "
        "tests/test_calc.py::test_on"
        for where in ("on the base", "with the patch")
    ]


def test_tests_that_want_the_network_or_a_database(validate: Validate) -> None:
    wants = (
        "def test_net():\n    socket.getaddrinfo('example.org', 80)\n\n\n"
        "def test_base():\n    socket.create_connection(('127.0.0.1', 5432), 2)\n"
    )
    report = validate(wants)
    assert report.verdict is Verdict.NOT_REGRESSED
    assert any("the network or a server: the sandbox has none" in note for note in report.notes)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x = [bytearray(1 << 28) for _ in range(99)]", "MemoryError"),
        ("open('big', 'wb').write(bytes(1 << 29))", "File too large"),
    ],
)
def test_a_patch_that_asks_for_too_much_fails_its_tests_for_that(
    validate: Validate, line: str, words: str
) -> None:
    text = f"def add(a, b):\n    {line}\n    return a + b\n"
    report = validate(GOOD, edit("calc.py", BUG, text))
    assert report.verdict is Verdict.REGRESSED
    assert words in report.reason or "limit" in report.reason.splitlines()[0]


def test_a_project_whose_tools_are_not_there(validate: Validate, tmp_path: Path) -> None:
    files = {"package.json": '{"scripts": {"test": "jest"}}', "sum.test.js": "test('x', () => {})"}
    source = edit("sum.js", "exports.x = 1;\n", "exports.x = 2;\n")
    report = validate(
        None, source, more={**files, "sum.js": "exports.x = 1;\n"}, search_path=str(tmp_path)
    )
    assert report.verdict is Verdict.UNVERIFIED
    assert report.reason.startswith("No test could be run: ")
    assert "is not installed here" in report.reason
    assert report.runner.startswith("jest: ")


def test_a_run_that_cannot_be_believed_is_held_against_no_patch_whose_base_shows_nothing() -> None:
    ended_early = run_of({}, ended="incomplete", exit_code=0)
    cut = run_of({}, ended="wall-limit", exit_code=None)
    assert suspicion(cut, ended_early) == ""
    assert suspicion(run_of({"t.py::a": "passed"}), ended_early) != ""
    found = judge(ended_early, ended_early, NameChecks())
    assert found.standing is Standing.SAYS_NOTHING
    refuted = judge(run_of({"t.py::a": "failed"}), cut, NameChecks())
    assert refuted.standing is Standing.STILL_FAILS


# ------------------------------------------------------------------------------------- an image


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    yield require_container()
    remove_image()


@pytest.mark.timeout(300)
def test_an_image_brings_its_own_python_and_products(
    make_repository: MakeRepository, image: str
) -> None:
    test = "import pkg\n\n\ndef test_version():\n    assert pkg.version == '1.2.3'\n"
    init = "from pkg._version import version\n"
    files = {"pkg/__init__.py": init, "pkg/calc.py": BUG, "tests/test_pkg.py": test}
    issue = ReproductionTest(ISSUE.path, ISSUE.content.replace("from calc", "from pkg.calc"))
    backend = ContainerSandbox(image, "podman")
    patch = patch_of(edit("pkg/calc.py", BUG, FIX))
    report = validated(make_repository(files), patch, issue, sandbox=backend, timeout=60.0)
    assert report.verdict is Verdict.VERIFIED, report.reason
    assert report.interpreter.startswith(TESTBED_PYTHON)
    assert report.after is not None
    assert report.after.channels.read == ("report", "exit code")
    assert list(report.after.outcomes) == ["tests/test_pkg.py::test_version"]


NODE = {
    "package.json": json.dumps({"scripts": {"test": "npm run unit", "unit": "node --test"}}),
    ".gitignore": "node_modules\n",
    "lib/sum.js": "module.exports = (a, b) => a - b;\n",
    "test/sum.test.js": """\
const { it } = require('node:test');
const equal = require('equal');
require('fs').mkdirSync('node_modules/.vite-temp');
it('adds', () => equal(require('../lib/sum.js')(1, 0), 1));
it('is red', () => equal(1, 2));
""",
}


def test_an_edited_test_runs_where_it_stands_with_packages_that_tools_write_beside(
    validate: Validate, make_repository: MakeRepository
) -> None:
    """What was red before says nothing, and the packages of the user stay as they are."""
    require_program("node")
    root = make_repository(NODE)
    package = root / "node_modules" / "equal"
    package.mkdir(parents=True)
    (package / "index.js").write_text("module.exports = require('assert').equal;\n")
    for folder in (package, package.parent):
        folder.chmod(0o755)
    test = NODE["test/sum.test.js"]
    edited = f"{test}it('adds two', () => equal(require('../lib/sum.js')(1, 1), 2));\n"
    for source, verdict in (("a + b", Verdict.VERIFIED), ("a - b - 0", Verdict.REGRESSED)):
        fixed = NODE["lib/sum.js"].replace("a - b", source)
        patch = patch_of(
            edit("lib/sum.js", NODE["lib/sum.js"], fixed), edit("test/sum.test.js", test, edited)
        )
        report = validated(root, patch, None, timeout=30.0)
        assert report.verdict is verdict, report.reason
    assert [path.name for path in package.parent.iterdir()] == ["equal"]
