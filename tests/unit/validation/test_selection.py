from __future__ import annotations

import random

from agent.types import SelectedTest
from agent.validation.selection import select_tests
from agent.validation.symbols import changed_symbols
from tests.support.fakes import MemorySnapshot
from tests.support.validation import edit

BEFORE = """class Parser:
    def parse(self):
        return 1

    def other(self):
        return 2
"""
AFTER = BEFORE.replace("return 1", "return 3")

FILES = {
    "src/pkg/__init__.py": "",
    "src/pkg/parser.py": BEFORE,
    "src/pkg/util.py": "",
    "tests/conftest.py": "from pkg.parser import Parser\n",
    "tests/test_parser.py": "",
    "tests/test_parser_errors.py": "",
    "tests/test_api.py": "from pkg.parser import Parser\n",
    "tests/test_style.py": "import pkg\n\nParser().parse()\n",
    "tests/test_far.py": "import json\n",
    "tests/helper.py": "from pkg.parser import Parser\n",
    "vendor/other/test_parser.py": "from pkg.parser import Parser\n",
}


def selected(
    files: dict[str, str] = FILES, problem: str = "It is broken", limit: int = 12
) -> list[SelectedTest]:
    change = edit("src/pkg/parser.py", BEFORE, AFTER)
    return list(select_tests(MemorySnapshot(files), [change], problem, limit))


def test_the_order_and_the_reasons() -> None:
    assert selected() == [
        SelectedTest("tests/test_parser.py", "named after src/pkg/parser.py"),
        SelectedTest("tests/test_api.py", "imports pkg.parser; mentions Parser"),
        SelectedTest("tests/test_style.py", "mentions parse; imports the package of pkg.parser"),
        SelectedTest("tests/test_parser_errors.py", "named after src/pkg/parser.py"),
    ]


def test_the_issue_can_name_a_test() -> None:
    found = selected(problem="See tests/test_far.py::test_x, which fails.")
    assert found[0] == SelectedTest("tests/test_far.py", "named by the issue")


def test_a_test_that_the_patch_edits_comes_first() -> None:
    changes = [
        edit("src/pkg/parser.py", BEFORE, AFTER),
        edit("tests/test_far.py", "import json\n", "import json\n\n"),
    ]
    found = select_tests(MemorySnapshot(FILES), changes, "")
    assert found[0] == SelectedTest("tests/test_far.py", "edited by the patch")


def test_the_limit_holds() -> None:
    assert [test.path for test in selected(limit=2)] == [
        "tests/test_parser.py",
        "tests/test_api.py",
    ]


def test_the_order_does_not_depend_on_that_of_the_files() -> None:
    expected = selected()
    names = list(FILES)
    for seed in range(5):
        random.Random(seed).shuffle(names)
        assert selected({name: FILES[name] for name in names}) == expected


def test_relative_and_bracketed_imports_are_read() -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/parser.py": BEFORE,
        "pkg/tests/test_a.py": "from ..parser import (\n    Parser as P,\n)\n",
        "pkg/tests/test_b.py": "from pkg import (util,\n    parser)\n",
        "pkg/tests/test_c.py": "import os, pkg.parser as q\n",
        "pkg/tests/test_d.py": "import os\n",
    }
    change = edit("pkg/parser.py", BEFORE, AFTER)
    found = {t.path: t.reason for t in select_tests(MemorySnapshot(files), [change], "")}
    for name in "abc":
        assert "imports pkg.parser" in found[f"pkg/tests/test_{name}.py"]
    assert "imports" not in found["pkg/tests/test_d.py"]


def test_where_nothing_is_tied_the_nearest_are_taken_and_strangers_never() -> None:
    files = {
        "pkg/data/table.csv": "",
        "pkg/data/test_near.py": "",
        "elsewhere/test_far.py": "",
    }
    found = select_tests(MemorySnapshot(files), [edit("pkg/data/table.csv", "a", "b")], "")
    assert [test.path for test in found] == ["pkg/data/test_near.py"]


def test_rare_words_weigh_more_than_common_ones() -> None:
    files = {"mod.py": BEFORE} | {f"t/test_{i}.py": "Parser\n" for i in range(20)}
    files["t/test_7.py"] = "Parser parse\n"
    found = select_tests(MemorySnapshot(files), [edit("mod.py", BEFORE, AFTER)], "")
    assert found[0].path == "t/test_7.py"


def test_changed_symbols_are_those_around_changed_lines() -> None:
    assert changed_symbols([edit("a.py", BEFORE, AFTER)]) == {"Parser", "parse"}
    assert changed_symbols([edit("a.py", BEFORE, None)]) == {"Parser", "parse", "other"}
    assert changed_symbols([edit("a.py", "x = 1\n" + BEFORE, "x = 2\n" + BEFORE)]) == set()
    init = "class A:\n    def __init__(self):\n        self.a = 1\n"
    assert changed_symbols([edit("a.py", init, init.replace("1", "2"))]) == {"A"}
    assert changed_symbols([edit("a.txt", BEFORE, AFTER)]) == set()
    old = "def f():\n    print 1\n\ndef g():\n    print 1\n"
    assert changed_symbols([edit("a.py", old, old[:-2] + "2\n")]) == {"g"}
