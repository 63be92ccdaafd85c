from __future__ import annotations

import difflib
from collections.abc import Sequence

import pytest

from agent.datasets import GoldInstance
from agent.evaluation.retrieval import Gold, GoldLines, find_gold, gold_paths
from agent.retrieval.index import TreeSitterChunker

MODULE = """\
import os


class Parser:
    \"\"\"Reads.\"\"\"

    limit = 3

    def __init__(self, text):
        self.text = text

    @property
    def size(self):
        return len(self.text)

    def parse(self):
        def step(at):
            return at + 1

        return step(0)


def helper():
    return os.sep

CONSTANT = 1
"""
LINES = MODULE.splitlines()


def instance(**known: object) -> GoldInstance:
    return GoldInstance.model_validate(
        {
            "instance_id": "i",
            "repo": "o/p",
            "base_commit": "0" * 40,
            "problem_statement": "x",
            **known,
        }
    )


def gold(**known: object) -> Gold:
    return find_gold(instance(**known), {"pkg/mod.py": MODULE}, TreeSitterChunker())


def named(*functions: str) -> Gold:
    return gold(gold_functions=tuple(f"pkg/mod.py:{name}" for name in functions))


def patched(new: Sequence[str]) -> tuple[str, ...]:
    """The symbols that a change of MODULE to these lines counts for."""
    diff = difflib.unified_diff(LINES, list(new), "a/pkg/mod.py", "b/pkg/mod.py", lineterm="")
    found = gold(patch="\n".join(diff))
    assert all(name.startswith("pkg/mod.py:") for name in found.functions)
    return tuple(name.partition(":")[2] for name in found.functions)


def with_line(after: str, *new: str) -> list[str]:
    at = LINES.index(after) + 1
    return [*LINES[:at], *new, *LINES[at:]]


def test_names_give_files_and_places() -> None:
    assert named("Parser.size", "helper", "Parser.gone") == Gold(
        files=("pkg/mod.py",),
        functions=("pkg/mod.py:Parser.size", "pkg/mod.py:helper"),
        places=(
            GoldLines(path="pkg/mod.py", lines=(12, 13, 14)),
            GoldLines(path="pkg/mod.py", lines=(23, 24)),
        ),
    )


@pytest.mark.parametrize(
    ("names", "function", "lines"),
    [
        (("Parser.__init__",), "Parser", [(9, 10)]),
        (("Parser",), "Parser", [(4, 5, 7)]),  # a class is its header
        (("Parser", "Parser.__init__"), "Parser", [(4, 5, 7), (9, 10)]),
        (("Parser.step",), "Parser.parse", [(16, 17, 18, 20)]),
    ],
)
def test_a_name_counts_as_its_definition(
    names: tuple[str, ...], function: str, lines: list[tuple[int, ...]]
) -> None:
    answer = named(*names)
    assert answer.functions == (f"pkg/mod.py:{function}",)
    assert [place.lines for place in answer.places] == lines


def test_what_is_defined_but_not_seen_by_the_chunker_stays_in_the_gold() -> None:
    text = "x = '''\ndef inside():\n'''\n"
    row = instance(gold_functions=("m.py:inside",))
    found = find_gold(row, {"m.py": text}, TreeSitterChunker())
    assert found.functions == ("m.py:inside",)
    assert found.places == (GoldLines(path="m.py", lines=()),)


def test_tests_are_no_answer_unless_the_row_keeps_them_apart() -> None:
    functions = ("tests/test_a.py:f", "pkg/mod.py:helper")
    assert gold_paths(instance(gold_functions=functions)) == ("pkg/mod.py",)
    apart = instance(gold_functions=functions, test_patch="")
    assert gold_paths(apart) == ("pkg/mod.py", "tests/test_a.py")
    assert gold(gold_functions=functions).functions == ("pkg/mod.py:helper",)
    assert gold(gold_functions=("tests/test_a.py:f",)) == Gold()


def test_a_row_with_files_only() -> None:
    files = ("pkg/mod.py", "tests/test_a.py", "pkg/mod.py")
    assert gold(gold_files=files) == Gold(files=("pkg/mod.py",))


def test_named_functions_win_over_a_patch_and_over_files() -> None:
    patch = "--- a/pkg/mod.py\n+++ b/pkg/mod.py\n@@ -24 +24 @@\n-    return os.sep\n+    return 1\n"
    found = gold(gold_functions=(), gold_files=("pkg/mod.py",), patch=patch)
    assert found == Gold(edits=(GoldLines(path="pkg/mod.py", lines=(24,)),))
    assert gold(patch=patch).functions == ("pkg/mod.py:helper",)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("        return len(self.text)", "        return 1", ("Parser.size",)),
        ("    @property", "    @cached", ("Parser.size",)),
        ("        self.text = text", "        self.text = 1", ("Parser",)),
        ("    limit = 3", "    limit = 4", ("Parser",)),
        ("            return at + 1", "            return at", ("Parser.parse",)),
        ("CONSTANT = 1", "CONSTANT = 2", ()),
        ("import os", "import sys", ()),
    ],
)
def test_a_changed_line_counts_for_the_innermost_definition(
    old: str, new: str, expected: tuple[str, ...]
) -> None:
    assert patched([new if line == old else line for line in LINES]) == expected


@pytest.mark.parametrize(
    ("after", "new", "expected"),
    [
        ("        def step(at):", ["            at -= 1"], ("Parser.parse",)),
        ("        return step(0)", ["        # and no more"], ("Parser.parse",)),
        ("        return step(0)", ["", "    def other(self):", "        pass"], ("Parser",)),
        ("        self.text = text", ["", "    def other(self):", "        pass"], ("Parser",)),
        ("        self.text = text", ["", "        self.at = 0"], ("Parser",)),
        ("        return len(self.text)", ["", "        # more"], ("Parser.size",)),
        ("        return step(0)", ["", "", "def other():", "    pass"], ()),
        ("    return os.sep", ["    # more"], ("helper",)),
        ("    return os.sep", ["", "OTHER = 2"], ()),
        ("CONSTANT = 1", ["OTHER = 2"], ()),
        ("import os", ["import sys"], ()),
        ("    limit = 3", ["    other = 4"], ("Parser",)),
    ],
)
def test_an_insertion_counts_for_what_it_is_inside_of(
    after: str, new: list[str], expected: tuple[str, ...]
) -> None:
    assert patched(with_line(after, *new)) == expected


def test_removing_blank_lines_between_functions_changes_none() -> None:
    assert patched([line for number, line in enumerate(LINES) if number != 21]) == ()


def test_in_languages_with_braces_the_end_is_the_brace() -> None:
    text = "function f() {\n  return 1;\n}\nfunction g() {\n  return 2;\n}\n"
    patch = (
        "--- a/m.js\n+++ b/m.js\n@@ -3,0 +4 @@\n+  // after f\n@@ -5 +6 @@\n-  return 2;\n+  3;\n"
    )
    found = find_gold(instance(patch=patch), {"m.js": text}, TreeSitterChunker())
    assert found.functions == ("m.js:g",)


def test_edits_are_removed_lines_and_the_neighbours_of_insertions() -> None:
    old = ["import os", "", "", "def f():", "    return 1", "", "", "def g():", "    return 2"]
    patch = (
        "--- a/m.py\n+++ b/m.py\n@@ -5 +5 @@\n-    return 1\n+    return 3\n"
        "@@ -6,0 +7,3 @@\n+def h():\n+    pass\n+\n"
    )
    row = instance(patch=patch, gold_functions=("other.py:f",))
    assert gold_paths(row) == ("m.py", "other.py")
    answer = find_gold(row, {"m.py": "\n".join(old), "other.py": ""}, TreeSitterChunker())
    assert [edit.lines for edit in answer.edits] == [(5,), (5, 8)]
    assert {edit.path for edit in answer.edits} == {"m.py"}
