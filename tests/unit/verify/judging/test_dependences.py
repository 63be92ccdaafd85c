"""Code that may be right only where it is tested."""

from __future__ import annotations

import pytest

from agent.types import FileChange
from agent.verify.judging.tricks import find_dependences

BEFORE = b"def total(prices):\n    return sum(prices) + 1\n"


def found(after: str, issue: str = "total() is wrong", before: bytes = BEFORE) -> tuple[str, ...]:
    change = FileChange("shop/price.py", before, after.encode(), executable=False)
    return find_dependences((change,), issue)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("import os\nFIX = os.environ.get('X')\n", "os.environ"),
        ("import os\nFIX = os.getpid() > 1\n", "os.getpid"),
        ("import os\nFIX = os.path.exists('/var')\n", "os.path.exists"),
        ("FIX = __file__\n", "__file__"),
        ("import time\nFIX = time.time() > 1\n", "time.time"),
        ("import random\nFIX = random.random()\n", "random.random"),
        ("FIX = eval('1')\n", "eval"),
        ("class Any:\n    def __eq__(self, other):\n        return abs(other) < 9\n", "def __eq__"),
        ("# -*- coding: utf-7 -*-\nFIX = 1\n", "the encoding utf-7"),
    ],
)
def test_what_a_result_newly_depends_on_is_named(code: str, named: str) -> None:
    assert found(code) == (f"shop/price.py: {named}",)


def test_what_the_issue_is_about_is_left_out() -> None:
    code = "import os\nFIX = os.environ.get('SHOP')\n"
    assert found(code, "The variable SHOP_TAX of the environment is not read") == ()


def test_what_the_file_did_before_is_left_out() -> None:
    before = b"import os\nHOME = os.environ['HOME']\n"
    assert found("import os\nFIX = os.environ.get('X')\n", before=before) == ()


def test_an_ordinary_fix_has_none() -> None:
    assert found("def total(prices):\n    return sum(prices)\n") == ()
