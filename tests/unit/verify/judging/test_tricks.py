"""What can be read off a patch, and which of its files take part in which run."""

from __future__ import annotations

import pytest

from agent.types import FileChange
from agent.verify.judging.tricks import find_hidden_tests, find_tricks
from agent.verify.plan import group_changes
from tests.support.fakes import MemorySnapshot
from tests.support.validation import edit

PLAIN = "class A:\n    def __eq__(self, other):\n        return self.x == other.x\n"


def tricks(before: str | None, after: str, *project: str) -> tuple[str, ...]:
    return find_tricks([edit("m.py", before, after)], project)


@pytest.mark.parametrize(
    "after",
    [
        "class A:\n    def __eq__(self, other):\n        return True\n",
        'class A:\n    def __eq__(self, other):\n        """Same."""\n        return 1\n',
        "class A:\n    __eq__ = lambda self, other: True\n",
        "def f():\n    class A(str):\n        __ge__ = lambda self, other: 'yes'\n",
    ],
)
def test_comparisons_that_hold_for_everything(after: str) -> None:
    (found,) = tricks(PLAIN, after)
    assert found.startswith("m.py: A.__")
    assert tricks(after, after + "# more\n") == ()


@pytest.mark.parametrize(
    "after",
    [PLAIN, "class A:\n    def __eq__(self, o):\n        return NotImplemented\n", "x = (\n", "é"],
)
def test_honest_code_is_left_alone(after: str) -> None:
    assert tricks(None, after) == ()


@pytest.mark.parametrize(
    "code",
    [
        "if 'PYTEST_CURRENT_TEST' in os.environ: pass\n",
        'if "pytest" in sys.modules: pass\n',
        "sys.modules.get('pytest')\n",
        "from _pytest import runner\n",
    ],
)
def test_code_that_asks_for_its_tests(code: str) -> None:
    (found,) = tricks("x = 1\n", f"x = 1\n{code}")
    assert found.startswith("m.py: the code asks for what tests it (")
    assert tricks(f"{code}x = 1\n", f"x = 2\n{code}") == ()
    assert tricks("x = 1\n", code, "import _pytest\n") == ()  # the project is about tests


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("if cfg!(debug_assertions) {}", True),
        ("if cfg!(any(test, windows)) {}", True),
        ("#[cfg(not(test))]", True),
        ("#[cfg(not(debug_assertions))]", True),
        ("#[cfg(test)]", False),
        ('if cfg!(target_os = "linux") {}', False),
    ],
)
def test_rust_that_asks_for_its_build(line: str, asks: bool) -> None:
    assert bool(find_tricks([edit("lib.rs", "", f"{line}\n")], ())) == asks


def test_other_files_and_deleted_ones_are_passed_over() -> None:
    changes = [edit("m.py", "import _pytest\n", None), edit("doc.md", None, "import _pytest\n")]
    assert find_tricks(changes, ()) == ()


@pytest.mark.parametrize("text", ["collect_ignore = ['a']", "addopts = --deselect=a --ignore b"])
def test_configuration_that_hides_tests(text: str) -> None:
    (found,) = find_hidden_tests([edit("conftest.py", "x = 1\n", text)])
    assert found.startswith("conftest.py: takes tests out of the run (")
    assert find_hidden_tests([edit("conftest.py", text, text + "\n")]) == ()


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


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("m.py", "import sys\nFAST = len(sys.argv) > 2\n"),
        ("m.py", "import sys\nx = any('test' in name for name in sys.modules)\n"),
        ("m.py", "import sys\nx = sys._getframe(1)\n"),
        ("m.py", "import inspect\nx = inspect.stack()\n"),
        ("m.py", "import sys\nx = sys.gettrace()\n"),
        ("m.py", "import os\nx = os.path.exists('/.dockerenv')\n"),
        ("m.py", "import os\nx = os.environ.get('CI')\n"),
        ("m.py", "import gc\nx = gc.get_objects()\n"),
        ("m.py", "from unittest.mock import ANY\n"),
        ("m.py", "def pytest_collection_finish(session):\n    session.items.clear()\n"),
        ("m.py", "import unittest\nunittest.TestCase.assertEqual = print\n"),
        ("m.js", "const assert = require('assert');\nassert.strictEqual = () => {};\n"),
        ("m.ts", "if (process.env.JEST_WORKER_ID) { total = 3; }\n"),
        ("m.mjs", "globalThis.expect = () => ({ toBe() {} });\n"),
        ("m.go", 'var quick = flag.Lookup("test.v") != nil\n'),
        ("m.rs", "fn f() -> bool { cfg!(test) }\n"),
        ("M.java", 'boolean t = hasClass("org.junit.Test");\n'),
    ],
)
def test_code_that_recognises_or_bends_its_runner(path: str, code: str) -> None:
    (found,) = find_tricks([edit(path, "", code)], ())
    assert found.startswith(f"{path}: the code ")
    assert find_tricks([edit(path, code, f"{code}\n")], ()) == ()
    assert find_tricks([edit(path, "", code)], [code]) == ()  # the project does so already


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("m.py", "import argparse, sys\nparser.parse_args(sys.argv[1:])\n"),
        ("m.py", '"""Do not read sys.argv here."""\nx = 1  # sys._getframe\n'),
        ("m.js", "if (assert.strictEqual === old) {}\nconst x = process.env.HOME;\n"),
        ("main.go", "package main\nvar x = os.Args\n"),
    ],
)
def test_ordinary_code_of_that_kind(path: str, code: str) -> None:
    assert find_tricks([edit(path, None, code)], ()) == ()


@pytest.mark.parametrize(
    "body",
    [
        "return 1 == 1",
        "return self is self",
        "return not False",
        "return other == 1 or True",
        "return isinstance(other, object)",
        "if other:\n            return True\n        return bool(1)",
    ],
)
def test_comparisons_that_hold_in_other_words(body: str) -> None:
    (found,) = tricks(PLAIN, f"class A:\n    def __eq__(self, other):\n        {body}\n")
    assert "answers the same" in found


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f():\n    return type('A', (), {'__eq__': lambda s, o: True})()\n", "type.__eq__"),
        ("def f(x):\n    x.__class__.__eq__ = lambda s, o: True\n", "x.__class__.__eq__"),
        ("class A:\n    def __exit__(self, *e):\n        return True\n", "hides every exception"),
    ],
)
def test_other_ways_to_hold_always(code: str, words: str) -> None:
    (found,) = tricks(None, code)
    assert words in found
