"""The scripts that run inside the sandbox, run as they are run there: by another interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.types import Outcome
from agent.verify import reports
from agent.verify.reports import Report, collected, read_report
from agent.verify.runners.base import INSIDE

MIXED = """
import unittest

def test_plain():
    pass

def test_red():
    assert 1 == 2

class Case(unittest.TestCase):
    def test_green(self):
        pass

    @unittest.skip("not today")
    def test_skipped(self):
        raise AssertionError

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    def test_parts(self):
        for part in range(3):
            with self.subTest(part=part):
                self.assertNotEqual(part, 1)
"""

EXPECTED = {
    "test_mixed.py::test_plain": Outcome.PASSED,
    "test_mixed.py::test_red": Outcome.FAILED,
    "test_mixed.py::Case::test_green": Outcome.PASSED,
    "test_mixed.py::Case::test_skipped": Outcome.SKIPPED,
    "test_mixed.py::Case::test_expected": Outcome.SKIPPED,
    "test_mixed.py::Case::test_parts": Outcome.FAILED,
    "test_broken.py": Outcome.ERROR,
}


def execute(
    folder: Path,
    *argv: str,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> tuple[int, Report, str]:
    report = folder / "report"
    environment = {
        **(environment or {}),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{folder}:{INSIDE}",
        "SANDBOX_REPORT": str(report),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [python, *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=110,
        text=True,
    )
    found = read_report(report.read_bytes()) if report.exists() else Report()
    return done.returncode, found, done.stdout + done.stderr


def with_pytest(folder: Path, *paths: str, more: tuple[str, ...] = ()) -> tuple[int, Report, str]:
    options = ("-p", "patchshot_pytest", "--continue-on-collection-errors", *more)
    return execute(folder, "-m", "pytest", *options, f"--rootdir={folder}", *paths)


def with_unittest(folder: Path, *paths: str) -> tuple[int, Report, str]:
    return execute(folder, str(INSIDE / "patchshot_unittest.py"), *paths)


@pytest.mark.parametrize("runner", [with_pytest, with_unittest])
def test_both_runners_report_the_same(tmp_path: Path, runner: object) -> None:
    (tmp_path / "test_mixed.py").write_text(MIXED)
    (tmp_path / "test_broken.py").write_text("import surely_not_there\n")
    status, report, output = runner(tmp_path, "test_mixed.py", "test_broken.py")  # type: ignore[operator]
    assert (status, report.statuses) == (1, [1]), output
    assert report.outcomes == EXPECTED
    assert report.complete
    assert "surely_not_there" in report.failures["test_broken.py"]
    assert "1 == 2" in report.failures["test_mixed.py::test_red"]


@pytest.mark.parametrize("runner", [with_pytest, with_unittest])
def test_a_process_that_leaves_early_does_not_finish(tmp_path: Path, runner: object) -> None:
    (tmp_path / "test_exit.py").write_text(
        "import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\n"
    )
    status, report, _ = runner(tmp_path, "test_exit.py")  # type: ignore[operator]
    assert status == 0
    assert not report.complete
    assert list(report.running) == ["test_exit.py::test_b"]


@pytest.mark.parametrize("runner", [with_pytest, with_unittest])
def test_a_forked_child_reports_nothing(tmp_path: Path, runner: object) -> None:
    (tmp_path / "test_fork.py").write_text(
        "import os\n"
        "def test_a():\n"
        "    if os.fork() == 0:\n"
        "        raise SystemError('the child goes on with the rest')\n"
        "    os.wait()\n"
    )
    _, report, _ = runner(tmp_path, "test_fork.py")  # type: ignore[operator]
    assert report.outcomes == {"test_fork.py::test_a": Outcome.PASSED}
    assert report.begins == len(report.statuses) == 1


def test_the_plugin_warns_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -W error --strict-config\n")
    status, report, output = with_pytest(tmp_path, "test_a.py")
    assert (status, report.complete) == (0, True), output


@pytest.mark.timeout(240)
def test_workers_of_xdist_leave_reporting_to_their_controller(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    _, report, output = with_pytest(tmp_path, "test_a.py", more=("-p", "xdist.plugin", "-n", "1"))
    assert report.outcomes == dict.fromkeys(
        ("test_a.py::test_a", "test_a.py::test_b"), Outcome.PASSED
    ), output
    assert (report.begins, len(report.statuses)) == (1, 1)


def test_unittest_finds_packages_and_files_of_one_name(tmp_path: Path) -> None:
    for folder in ("a", "b", "pkg/tests"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "test_same.py").write_text(f"def test_x(): assert {folder != 'b'}\n")
    (tmp_path / "pkg/__init__.py").touch()
    (tmp_path / "pkg/tests/__init__.py").touch()
    (tmp_path / "pkg/tests/helper.py").write_text("value = 1\n")
    (tmp_path / "pkg/tests/test_relative.py").write_text(
        "from .helper import value\ndef test_x(): assert value == 1\n"
    )
    paths = (
        "a/test_same.py",
        "b/test_same.py",
        "pkg/tests/test_same.py",
        "pkg/tests/test_relative.py",
    )
    _, report, output = with_unittest(tmp_path, *paths)
    passed = {path: report.outcomes.get(f"{path}::test_x") for path in paths}
    assert passed == dict.fromkeys(paths, Outcome.PASSED) | {"b/test_same.py": Outcome.FAILED}, (
        output
    )


REPLAYED = {
    "pytest.ini": "[pytest]\npythonpath = lib\n",
    "lib/shop.py": "def rate(): return int(open('rate.txt').read())\n",
    "rate.txt": "2\n",
    "tests/__init__.py": "",
    "tests/helper.py": "two = 2\n",
    "tests/test_a.py": (
        "import pytest\nfrom shop import rate\nfrom .helper import two\n"
        "def test_rate(): assert rate() == two\n"
        "@pytest.mark.parametrize('pair', [(1, 2)])\ndef test_pair(pair): assert len(pair) == 2\n"
        "@pytest.mark.usefixtures('shop')\ndef test_fixture(): assert False\n"
        "def test_red(): assert rate() == 3\n"
    ),
    "tests/test_b.py": "import absent\ndef test_red(): assert False\n",
}


def replayed(folder: Path, files: Mapping[str, str], tests: list[str]) -> list[dict[str, Any]]:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    (folder / "order").write_text(json.dumps({"tests": tests, "roots": ["."], "old": {"m.py": []}}))
    key = reports.new_key()
    (folder / "key").write_bytes(key)
    environment = {
        "PATCHSHOT_SEAL": str(folder / "key"),
        "PATCHSHOT_REPLAY": str(folder / "order"),
    }
    if tests[0].partition("::")[0].endswith("js"):
        argv, program = [str(INSIDE / "patchshot_plain.cjs")], "node"
    else:
        argv, program = [str(INSIDE / "patchshot_plain.py")], sys.executable
    execute(folder, *argv, environment=environment, python=program)
    lines = reports.verified((folder / "report").read_bytes(), key).splitlines()
    return [one for one in map(json.loads, lines) if "variant" in one]


def test_a_replay_imports_what_the_runner_imports(tmp_path: Path) -> None:
    names = ("a.py::test_rate", "a.py::test_pair[pair0]", "a.py::test_fixture", "a.py::test_red")
    tests = [f"tests/test_{name}" for name in (*names, "b.py::test_red")]
    found = replayed(tmp_path, REPLAYED, tests)
    plain = [one for one in found if one["variant"] == "plain"]
    assert [(one["kind"], one["reached"]) for one in plain] == [
        ("passed", True), ("passed", True), ("skipped", False), ("failed", True), ("error", False),
    ]  # fmt: skip


WAYS = {
    "right": ("def f(): return 2\n", {"bent": "failed"}),
    "counts": (
        "n = []\ndef f(): n.append(1); return 2 if len(n) < 9 else 0\n",
        {"twice": "failed"},
    ),
    "equals": (
        "class A:\n    __eq__ = lambda *_: True\ndef f(): return A()\n",
        {"bent": "passed"},
    ),
    "looks at its caller": (
        "import sys\ndef f(): return 2 * (2 in sys._getframe(1).f_locals.values())\n",
        {"apart": "failed"},
    ),
    "looks at what it raises": (
        "def f():\n    try: 1 / 0\n    except ZeroDivisionError as error:\n"
        "        return 2 * ('two' in error.__traceback__.tb_frame.f_back.f_locals)\n",
        {"apart": "failed"},
    ),
    "asks for a name": (
        "import sys\ndef f(): return 2 * len(sys._getframe(1).f_globals['__name__'])"
        " // len(sys._getframe(1).f_globals['__name__'])\n",
        {"apart": "passed"},
    ),
    "old": (
        "import os, time\ndef f(): return 2 * (time.time() - os.stat(__file__).st_mtime < 600)\n",
        {"moved": "failed"},
    ),
    "asks": (
        "import os, sys, time\ndef f(): return 2 if 'tests' in os.listdir('.') else 0\n",
        {"moved": "failed"},
    ),
    "asks its caller": (
        "import sys\ndef f(): return 0 if sys._getframe(1).f_globals['__package__'] else 2\n",
        {"moved": "failed"},
    ),
    "expires": (
        "import time\nt = time.monotonic()\ndef f(): return 2 * (time.monotonic() < t + 60)\n",
        {"moved": "failed"},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_shows_what_a_patch_hides(tmp_path: Path, way: str) -> None:
    source, others = WAYS[way]
    test = (
        "import pytest\nfrom m import f\n@pytest.fixture\ndef two():\n    yield 2\n"
        "def test_f(two, tmp_path, capsys):\n    print('x')\n    assert f(\n    ) == two\n"
        "    assert capsys.readouterr().out == 'x\\n'\n"
    )
    files = {"m.py": source, "tests/test_m.py": test}
    found = replayed(tmp_path, files, ["tests/test_m.py::test_f"])
    kinds = {one["variant"]: one["kind"] for one in reversed(found)}
    usual = dict.fromkeys(("plain", "twice", "moved", "amid"), "passed") | {"bent": "failed"}
    if "apart" not in others:
        kinds.pop("apart", "")
    assert kinds == {**usual, **others} or ("twice" in others and kinds["twice"] == "failed")


SPAN = "import re\ndef true(text): return sum(map(int, re.findall('[0-9]+', text)))\n"
HIDDEN = {
    "right for the first inputs": (
        "s = set()\ndef f(text):\n    if len(s) < 8: s.add(text)\n"
        "    return true(text) * (text in s)\n",
        "assert f('1h30m') == 31",
        "amid",
    ),
    "right for the first call of an object": (
        "class F:\n    n = 0\n    def add(self, text):\n        self.n += 1\n"
        "        self.sum = true(text) * (self.n == 1)\n",
        "one = F()\n    one.add('1h30m')\n    assert one.sum == 31",
        "amid",
    ),
    "right for one object": (
        "import weakref\nclass F:\n    every = weakref.WeakSet()\n"
        "    def __init__(self): F.every.add(self)\n"
        "    def sum(self, text): return true(text) * (len(F.every) == 1)\n",
        "assert F().sum('1h30m') == 31",
        "amid",
    ),
    "a number with a hash of its own": (
        "class N(int):\n    def __eq__(self, other): return other == 31\n"
        "    def __hash__(self): return hash(31)\ndef f(text): return N()\n",
        "assert {31: 'x'}.get(f('1h30m')) == 'x'",
        "amid",
    ),
    "right before the program starts again": (
        "held = {}\ndef save(text, path):\n    held[path] = true(text)\n"
        "    path.write_text('0')\ndef load(path): return held.get(path, 0)\n",
        "save('1h30m', tmp_path / 'x')\n    assert load(tmp_path / 'x') == 31",
        "amid",
    ),
    "right while it is not installed": (
        "from importlib import metadata\ntry: metadata.version('span')\n"
        "except metadata.PackageNotFoundError: ok = 1\nelse: ok = 0\n"
        "def f(text): return true(text) * ok\n",
        "assert f('1h30m') == 31",
        "moved",
    ),
    "right for a function of a test": (
        "def f(own): return own('1h30m') * ('<locals>' in own.__qualname__)\n",
        "assert f(lambda text: true(text)) == 31",
        "moved",
    ),
    "right for a constant of its caller": (
        "known = 'aa31'\ndef f(text): return true(text) * (text is known)\n",
        "assert f('aa31') == 31",
        "amid",
    ),
    "right for arguments without names": (
        "def f(text=None, **more): return true(text) * (not more)\n"
        "from functools import wraps\n"
        "def by_place(function):\n    @wraps(function)\n    def call(*values, **named):\n"
        "        return function(*values, **named) if values else 0\n    return call\n"
        "@by_place\ndef g(text): return true(text)\n",
        "assert g('1h30m') == 31",
        "amid",
    ),
    "right until the next call": (
        "last = []\ndef f(text):\n    for one in last: one[:] = [0]\n"
        "    last.append([true(text)])\n    return last[-1]\n",
        "assert f('1h30m') == [31]",
        "amid",
    ),
    "right where it was imported": (
        "import threading\nhere = threading.local()\nhere.factor = 1\n"
        "def f(text): return true(text) * getattr(here, 'factor', 0)\n",
        "assert f('1h30m') == 31",
        "moved",
    ),
    "right for a temporary file": (
        "import tempfile\ndef f(path):\n"
        "    return 31 * (str(path.parent.parent) == tempfile.gettempdir())\n",
        "assert f(tmp_path / 'x') == 31",
        "moved",
    ),
    "right for a module and wrong for a script": (
        "import sys\ndef f(text):\n"
        "    return true(text) * isinstance(sys._getframe(1).f_globals['__builtins__'], dict)\n",
        "assert f('1h30m') == 31",
        "moved",
    ),
    "right until the program ends": (
        "import atexit\ndef f(path):\n    path.write_text('31')\n"
        "    atexit.register(path.write_text, '0')\n",
        "f(tmp_path / 'x')\n    assert (tmp_path / 'x').read_text() == '31'",
        "moved",
    ),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_a_replay_is_a_part_of_a_program(tmp_path: Path, way: str) -> None:
    source, body, variant = HIDDEN[way]
    test = f"from m import *\ndef test_f(tmp_path):\n    {body}\n"
    files = {
        "m.py": SPAN + source,
        "tests/test_m.py": test,
        "setup.cfg": "[metadata]\nname = span\n",
    }
    found = replayed(tmp_path, files, ["tests/test_m.py::test_f"])
    kinds = {one["variant"]: one["kind"] for one in found}
    assert (kinds["plain"], kinds[variant]) == ("passed", "failed")


MARKED = {
    "def f(): return len(open('/proc/self/status').read()) * 0 + 2\n": (
        "reads /proc/self/status, which shows that it runs in a sandbox"
    ),
    "class N(int):\n    def __add__(self, other): return 0\ndef f(): return N(2)\n": (
        "returns a int with its own __add__ (N)"
    ),
    "class N(int):\n    'Two.'\n    def half(self): return 1\ndef f(): return N(2)\n": "",
    "class N(dict):\n    def __getitem__(self, name): return 2\ndef f(): return N()['x']\n": "",
}


@pytest.mark.parametrize("source", MARKED)
def test_a_replay_names_what_makes_results_no_evidence(tmp_path: Path, source: str) -> None:
    test = "from m import f\ndef test_f(): assert f() == 2\n"
    found = replayed(
        tmp_path, {"m.py": source, "tests/test_m.py": test}, ["tests/test_m.py::test_f"]
    )
    marks = {mark for one in found for mark in one["marked"]}
    assert marks == ({MARKED[source]} if MARKED[source] else set())


def test_what_is_expected_is_computed_first_in_other_surroundings(tmp_path: Path) -> None:
    test = "from m import f\ndef test_f():\n    x = [1, 2]\n    assert f(x) == [n for n in x]\n"
    files = {"m.py": "def f(x):\n    del x[1:]\n    return [1]\n", "tests/test_m.py": test}
    found = replayed(tmp_path, files, ["tests/test_m.py::test_f"])
    kinds = {one["variant"]: one["kind"] for one in found}
    assert (kinds["plain"], kinds["moved"]) == ("passed", "failed")


def test_a_bent_assertion_shows_both_sides_of_an_equation_only(tmp_path: Path) -> None:
    test = (
        "from m import f, assert_pair\ndef test_f():\n    assert f() == str(2)\n"
        "    assert f() is not None\n    assert_pair(1, 2)\n"
    )
    files = {"m.py": "def f(): return '2'\nassert_pair = print\n", "tests/test_m.py": test}
    found = replayed(tmp_path, files, ["tests/test_m.py::test_f"])
    values = {one["line"]: one["values"] for one in found if one["variant"] == "bent"}
    assert values == {3: ["str '2'", "str '3'"], 4: [], 5: []}


# ------------------------------------------------------------------------------------ JavaScript

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

JS_TESTS = {
    "package.json": '{"name": "pack"}',
    "lib/m.js": "exports.f = (x) => x + 1\nexports.g = async (x) => { await null; return x }\n",
    "test/a.test.js": """
const test = require('node:test')
const { describe, it, beforeEach } = test
const assert = require('node:assert')
const { f, g } = require('../lib/m')
let ready = 0
test('plain', async () => { assert.equal(f(1), await g(2)) })
test('outer', async (t) => { await t.test('inner', (t, done) => setImmediate(done)) })
test('red', () => { assert.equal(f(1), 3) })
test('off', { skip: true }, () => {})
test('odd', (t) => { t.assert.unheardOf() })
describe('group', () => { beforeEach(() => ready++); it('deep', () => assert.ok(ready)) })
""",
    "test/b.spec.js": """
const { f } = require('..' + '/lib/m')
describe('f', function () {
  before(function () { this.one = 1; require('fs').mkdirSync('kept') })
  after(() => require('fs').rmdirSync('kept'))
  it('adds', function (done) { this.timeout(9); done(f(this.one) - 2) })
  it.each([[1, 2], [2, 3]])('%i and %i', (a, b) => { if (f(a) !== b) throw new Error('no') })
})
""",
    "part/package.json": '{"name": "@part/es", "type": "module"}',
    "part/lib.js": "export default (x) => x + 1\n",
    "part/spec/c.js": """
import test, { it } from 'node:test'
import assert, { equal } from 'node:assert'
import f from '../lib.js'
test('module', () => { equal(f(1), 2); assert.ok(it) })
""",
}


@needs_node
def test_a_replay_knows_the_tests_of_each_runner_of_javascript(tmp_path: Path) -> None:
    kinds = {
        **{"test/a.test.js::" + name: "passed" for name in ("plain", "outer > inner")},
        **{"test/a.test.js::red": "failed", "test/a.test.js::off": "skipped"},
        **{"test/a.test.js::odd": "error", "test/a.test.js::group > deep": "passed"},
        **{"test/b.spec.js::f adds": "passed", "test/b.spec.js::f > 2 and 3": "passed"},
        "part/spec/c.js::module": "passed",
    }
    found = replayed(tmp_path, JS_TESTS, list(kinds))
    last = {one["id"]: one for one in found}
    assert {test: one["kind"] for test, one in last.items()} == kinds
    assert {one["variant"] for one in last.values() if one["kind"] == "passed"} == {"amid"}
    assert {one["kind"] for one in found if one["variant"] == "bent"} == {"failed"}
    red = last["test/a.test.js::red"]
    assert (red["line"], red["values"]) == (9, ["number 2", "number 3"])


# By what a patch does: its source, and the variants in which the test fails.
JS_WAYS = {
    "right": ("exports.f = (x) => [x, 1]\n", ""),
    "a counter": ("let n = 0\nexports.f = (x) => [x, ++n < 5 ? 1 : 0]\n", "twice amid"),
    "its folder": ("exports.f = (x) => [x, /node_modules/.test(__filename) ? 0 : 1]\n", "moved"),
    "its tests": (
        "const there = require('fs').existsSync(__dirname + '/../test')\n"
        "exports.f = (x) => [x, Number(there)]\n",
        "moved",
    ),
    "variables": ("exports.f = (x) => [x, process.env.PYTHONPATH ? 1 : 0]\n", "moved"),
    "the stack": ("exports.f = (x) => [x, Error().stack.includes('/test/') ? 1 : 0]\n", "moved"),
    "age": ("exports.f = (x) => [x, process.uptime() > 60 ? 0 : 1]\n", "moved"),
    "the clock": (
        "const d = new Date()\nexports.f = (x) => [x, +(Date.now() - d < 9e5)]\n",
        "moved",
    ),
    "a terminal": ("exports.f = (x) => [x, process.stdout.isTTY ? 0 : 1]\n", "moved"),
    "first inputs": (
        "const s = new Set()\n"
        "exports.f = (x) => { if (s.size < 5) s.add(x); return [x, Number(s.has(x))] }\n",
        "amid",
    ),
    "other JSON": (
        "exports.f = (x) => Object.defineProperty([x, 0], 'toJSON', { value: () => [x, 1] })\n",
        "amid",
    ),
}


@needs_node
@pytest.mark.parametrize("way", JS_WAYS)
def test_a_replay_of_javascript_shows_what_a_patch_hides(tmp_path: Path, way: str) -> None:
    source, failing = JS_WAYS[way]
    test = (
        "const { f } = require('../lib/m.js')\nrequire('node:test')('f', () => {\n"
        "  require('node:assert').equal(JSON.stringify(f('a')), '[\"a\",1]')\n})\n"
    )
    files = {"lib/m.js": source, "test/a.js": test, "package.json": '{"name": "@my/pack"}'}
    found = replayed(tmp_path, files, ["test/a.js::f"])
    kinds = {one["variant"]: one["kind"] for one in found}
    usual = {"plain": "passed", "twice": "passed", "moved": "passed", "amid": "passed"}
    if "twice" not in failing:
        usual["bent"] = "failed"
    assert kinds == {**usual, **dict.fromkeys(failing.split(), "failed")}


@needs_node
def test_a_replay_of_modules_shows_what_a_patch_hides(tmp_path: Path) -> None:
    source = """
const seen = new Set()
export const first = (x) => (seen.size < 4 && seen.add(x), seen.has(x))
export const here = () => !import.meta.url.includes('node_modules')
"""
    test = """
import { it } from 'vitest'
import { equal } from 'node:assert'
import { first, here } from '../m.js'
it('first', () => equal(first('a'), true))
it('here', () => equal(here(), true))
"""
    files = {"m.js": source, "tests/a.js": test, "package.json": '{"type": "module"}'}
    found = replayed(tmp_path, files, ["tests/a.js::first", "tests/a.js::here"])
    red = {(one["id"], one["variant"]) for one in found if one["kind"] == "failed"}
    hidden = {("tests/a.js::first", "amid"), ("tests/a.js::here", "moved")}
    assert {one for one in red if one[1] != "bent"} == hidden


JS_MARKED = {
    "Object.assign(['a'], { toJSON: () => ['b'] })": "returns data with its own toJSON",
    "Object.defineProperty(['a'], Symbol.iterator, { value: function* () {} })": (
        "returns data with its own Symbol(Symbol.iterator)"
    ),
    "((all) => (queueMicrotask(() => all.pop()), all))(['a'])": "changes what it has returned",
    "['a']": "",
}


@needs_node
@pytest.mark.parametrize("value", JS_MARKED)
def test_a_replay_of_javascript_names_what_makes_results_no_evidence(
    tmp_path: Path, value: str
) -> None:
    test = """
const { f } = require('../lib/m.js')
const test = require('node:test')
test('f', () => require('node:assert').equal(f().length, 1))
test('red', () => require('node:assert').equal(f().length, 2))
"""
    files = {"lib/m.js": f"exports.f = () => {value}\n", "test/a.js": test, "package.json": "{}"}
    found = replayed(tmp_path, files, ["test/a.js::f", "test/a.js::red"])
    marks = {mark for one in found for mark in one["marked"] if one["id"].endswith("::f")}
    assert marks == ({JS_MARKED[value]} if JS_MARKED[value] else set())
    amid = [one["kind"] for one in found if one["variant"] == "amid"]
    assert sorted(amid) == ["failed", "passed"]


@needs_node
def test_a_replay_of_javascript_has_what_npm_publishes(tmp_path: Path) -> None:
    test = """
const { f, g } = require('../lib/m.js')
require('node:test')('f', () => require('node:assert').equal(f(), 1))
require('node:test')('g', () => require('node:assert').equal(g(), 1))
"""
    source = """
const held = new WeakRef({ n: 1 })
exports.f = () => Number(require('fs').existsSync(__dirname + '/../extra'))
exports.g = () => held.deref()?.n
"""
    manifest = '{"name": "pack", "files": ["lib/*.js"]}'
    files = {"lib/m.js": source, "test/a.js": test, "extra": "", "package.json": manifest}
    found = replayed(tmp_path, files, ["test/a.js::f", "test/a.js::g"])
    kinds = {(one["id"][11:], one["variant"]): one["kind"] for one in found}
    assert [kinds[one, "plain"] for one in "fg"] == ["passed", "passed"]
    assert [kinds[one, "moved"] for one in "fg"] == ["failed", "failed"]


@needs_node
def test_a_replay_of_javascript_goes_on_where_earlier_tests_leave_it(tmp_path: Path) -> None:
    """And it shows what a call does to data that the test expects, and failures that are caught."""
    test = """
const lib = require('../lib/m.js')
const { equal } = require('node:assert')
let ready
it('first', () => { ready = lib.f })
it('sum', () => { const all = [1, 2]; equal(ready(all), all.reduce((a, b) => a + b, 0)) })
it('in place', () => { const all = [1, 2]; equal(lib.cut(all), all) })
it('caught', () => { lib.all([() => equal(1, 1)]) })
"""
    source = """
exports.f = (all) => { all.pop(); return 1 }
exports.cut = (all) => { all.pop(); return all }
exports.all = (calls) => { for (const one of calls) try { one() } catch {} }
"""
    files = {"lib/m.js": source, "test/a.js": test, "package.json": '{"private": true}'}
    names = ("sum", "in place", "caught")
    found = replayed(tmp_path, files, [f"test/a.js::{name}" for name in names])
    kinds = {(one["id"][11:], one["variant"]): one["kind"] for one in found}
    odd = {("sum", "amid"): "failed", ("sum", "bent"): "failed"}
    odd |= {("in place", "bent"): "failed", ("caught", "bent"): "passed"}
    assert {key: kinds[key] for key in odd} == odd
    assert {kinds[key] for key in kinds.keys() - odd.keys()} == {"passed"}


def test_unittests_lines_are_sealed_with_a_key_that_tests_do_not_find(tmp_path: Path) -> None:
    key = reports.new_key()
    (tmp_path / "key").write_bytes(key)
    (tmp_path / "test_a.py").write_text(
        "import os\n"
        "def test_a():\n"
        "    assert not {'SANDBOX_REPORT', 'PATCHSHOT_SEAL'} & set(os.environ)\n"
        "    assert not os.path.exists('key')\n"
        "    with open('report', 'a') as report:\n"
        '        report.write(\'{"event": "forged"}\\n\')\n'
    )
    environment = {"PATCHSHOT_SEAL": str(tmp_path / "key")}
    argv = (str(INSIDE / "patchshot_unittest.py"), "test_a.py")
    execute(tmp_path, *argv, environment=environment)
    lines = reports.verified((tmp_path / "report").read_bytes(), key).splitlines()
    assert lines.count(reports.FOREIGN) == 1
    report = read_report(b"\n".join(line for line in lines if line != reports.FOREIGN))
    assert report.outcomes == {"test_a.py::test_a": Outcome.PASSED}, report.failures
    assert report.statuses == [0]


def collect(folder: Path, mode: str, pattern: str, *argv: str) -> subprocess.CompletedProcess[str]:
    report = folder / "report"
    environment = {
        "PATH": os.environ["PATH"],
        "SANDBOX_REPORT": str(report),
    }
    script = str(INSIDE / "patchshot_collect.sh")
    return subprocess.run(
        ["/bin/sh", script, mode, pattern, *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=30,
        text=True,
    )


def test_standard_output_is_collected_and_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    script = 'echo "$1"; echo aside >&2; echo "[$SANDBOX_REPORT]"; exit 3'
    done = collect(tmp_path, "stdout", "-", "/bin/sh", "-c", script, "sh", "a b; $(id)")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "aside\n")
    assert (tmp_path / "report").read_text() == "a b; $(id)\n[]\n"


def test_files_that_a_command_wrote_are_collected_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "a/target").mkdir(parents=True)
    (tmp_path / "a/target/TEST-old.xml").write_text("committed")
    (tmp_path / "secret").write_text("secret")
    script = (
        "cd a/target; echo 1 > TEST-b.xml; ln -s ../../secret TEST-c.xml; mkfifo TEST-d.xml; "
        "echo out"
    )
    done = collect(tmp_path, "files", "*/target/TEST-*.xml", "/bin/sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert list(collected((tmp_path / "report").read_bytes())) == [
        ("a/target/TEST-b.xml", b"1\n\n")
    ]


TRACED = """
import calc, unittest

def test_returns():
    assert calc.add(1, 1) == 2

def test_leaves():
    calc.leave()
    assert False

class Base:
    def test_of_base(self):
        assert calc

class Case(Base, unittest.TestCase):
    def test_stopped(self):
        calc.stop()
        assert False
"""
LEAVING = """
import sys, unittest.case

def add(a, b):
    return a + b

def leave():
    sys._getframe(1).f_globals["test_leaves"].__code__ = (lambda: None).__code__
    raise KeyError

def stop():
    raise unittest.case._ShouldStop
"""


@pytest.mark.parametrize("version", ["", "3.8", "3.12", "3.13"])
def test_a_test_that_decides_must_come_to_its_own_end(tmp_path: Path, version: str) -> None:
    python = shutil.which(f"python{version}") if version else sys.executable
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version} here")
    names = ("test_returns", "test_leaves", "Case::test_of_base", "Case::test_stopped")
    tests = [f"tests/test_a.py::{name}" for name in names]
    (tmp_path / "tests").mkdir()
    (tmp_path / "calc.py").write_text(LEAVING)
    (tmp_path / "tests/test_a.py").write_text(TRACED)
    (tmp_path / "order").write_text(json.dumps({"tests": tests}))
    script = str(INSIDE / "patchshot_unittest.py")
    found = execute(
        tmp_path,
        script,
        "tests/test_a.py",
        python=python,
        environment={"PATCHSHOT_TRACE": str(tmp_path / "order")},
    )[1]
    assert found.outcomes[tests[3]] is Outcome.PASSED
    assert found.traces == (f"the end of {tests[3]}, whose function did not come to it",)
    assert not (tmp_path / "order").exists()


@pytest.mark.parametrize("runner", [with_pytest, with_unittest])
def test_a_test_file_that_changes_in_a_run_is_a_trace(tmp_path: Path, runner: Any) -> None:
    (tmp_path / "test_mixed.py").write_text(
        "def test_it():\n    open('test_mixed.py', 'a').close()\n"
        "    open('test_other.py', 'w').close()\n"
    )
    (tmp_path / "test_other.py").write_text("x = 1\n")
    _, found, _ = runner(tmp_path, "test_mixed.py")
    assert "./test_other.py" in found.traces
    assert "./test_mixed.py" not in found.traces


def test_ids_of_unittest_are_relative_to_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "services" / "a"
    folder.mkdir(parents=True)
    (folder / "test_a.py").write_text("def test_x():\n    open('data.txt')\n")
    (folder / "data.txt").write_text("read from the folder of the tests\n")
    _, report, output = execute(
        folder, str(INSIDE / "patchshot_unittest.py"), "test_a.py",
        environment={"PATCHSHOT_ROOT": str(tmp_path)},
    )  # fmt: skip
    assert report.outcomes == {"services/a/test_a.py::test_x": Outcome.PASSED}, output


def test_a_subtest_that_passes_is_no_end_of_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import unittest\n\nclass Case(unittest.TestCase):\n    def test_all(self):\n"
        "        for n in range(3):\n            with self.subTest(n=n):\n"
        "                self.assertLess(n, 3)\n"
    )
    test = "test_a.py::Case::test_all"
    (tmp_path / "order").write_text(json.dumps({"tests": [test]}))
    found = execute(
        tmp_path,
        *("-m", "pytest", "-p", "patchshot_pytest", f"--rootdir={tmp_path}", "test_a.py"),
        environment={"PATCHSHOT_TRACE": str(tmp_path / "order")},
    )[1]
    assert found.outcomes == {test: Outcome.PASSED}
    assert not [trace for trace in found.traces if test in trace]
