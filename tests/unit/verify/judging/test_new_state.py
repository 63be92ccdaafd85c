"""State that a patch makes outlive a call."""

from __future__ import annotations

import pytest

from agent.types import FileChange
from agent.verify.judging.new_state import find_new_state


def found(after: str, before: str = "", issue: str = "total() is wrong") -> tuple[str, ...]:
    change = FileChange("shop/price.py", before.encode(), after.encode())
    return find_new_state((change,), issue)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("_seen = []\ndef total(x):\n    _seen.append(x)\n", "_seen"),
        ("_seen = {}\ndef total(x):\n    _seen[x] = 1\n", "_seen"),
        ("def total(x, _seen=[]):\n    _seen.append(x)\n", "_seen"),
        ("def total(x):\n    total.seen = x\n", "total"),
        ("def total(x):\n    global calls\n    calls = x\n", "calls"),
        ("import itertools\nn = itertools.count()\ndef total(x):\n    return next(n)\n", "n"),
        ("class A:\n    seen = []\n    def total(self):\n        self.seen.pop()\n", "self.seen"),
        ("class A:\n    seen = 0\n    def total(self):\n        type(self).seen += 1\n", "seen"),
    ],
)  # fmt: skip
def test_what_functions_change_is_named(code: str, name: str) -> None:
    assert found(code) == (f"shop/price.py: {name}",)


@pytest.mark.parametrize(
    "code",
    [
        "TABLE = {'a': 1}\ndef total(x):\n    return TABLE[x]\n",
        "def total(x):\n    seen = []\n    seen.append(x)\n    return seen\n",
        "seen = 1\ndef total(x):\n    seen = []\n    seen.append(x)\n",
        "class A:\n    def __init__(self):\n        self.seen = []\n    def add(self, x):\n"
        "        self.seen.append(x)\n",
        "class A:\n    seen: list[int] = []\n    def add(self):\n        self.seen.append(1)\n",
    ],
)  # fmt: skip
def test_tables_locals_and_instances_are_no_such_state(code: str) -> None:
    assert found(code) == ()


def test_what_was_there_or_what_the_issue_is_about_is_left_out() -> None:
    code = "_seen = []\ndef total(x):\n    _seen.append(x)\n"
    assert found(code + "    return x\n", code) == ()
    assert found(code, issue="total() should cache its results") == ()


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("let seen = false\nfunction f() {\n  seen = true\n}\n", ["seen"]),
        ("const seen = new Set()\nfunction f(x) {\n  seen.add(x)\n}\n", ["seen"]),
        ("const TABLE = { a: 1 }\nfunction f(x) {\n  return TABLE[x] === 1\n}\n", []),
        ("let seen = 1\nfunction f(x) {\n  const seen = [x]\n  seen.push(x)\n}\n", []),
    ],
)
def test_variables_at_the_top_of_javascript_are_state_too(code: str, names: list[str]) -> None:
    change = FileChange("lib/slug.js", None, code.encode())
    assert find_new_state((change,), "slug() is wrong") == tuple(f"lib/slug.js: {n}" for n in names)
