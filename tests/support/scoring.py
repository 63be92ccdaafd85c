"""A small project with a bug, a row of a data set for it, and patches that solve it or do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.patching import unified_diff
from agent.types import FileChange
from tests.conftest import run_git

FILES = {
    "pyproject.toml": '[project]\nname = "shop"\nversion = "1.4"\n',
    "src/shop/__init__.py": "",
    "src/shop/cart.py": (
        "def total(items):\n    return sum(items)\n\n\n"
        "def count(items):\n    return len(items) + 1\n"
    ),
    "tests/test_cart.py": (
        "import pytest\n\nfrom shop.cart import total\n\n\n"
        '@pytest.mark.parametrize("name", ["one two", "three"])\n'
        "def test_total(name):\n    assert total([1, 2]) == 3\n\n\n"
        '@pytest.mark.xfail(reason="not yet")\ndef test_later():\n    assert total([]) is None\n'
    ),
}

FIXED = FILES["src/shop/cart.py"].replace("len(items) + 1", "len(items)")

# As a runner prints them, and one as the harness cuts it at a blank.
FAIL_TO_PASS = ("tests/test_cart.py::test_count",)
PASS_TO_PASS = (
    "tests/test_cart.py::test_total[one",
    "tests/test_cart.py::test_total[three]",
    "tests/test_cart.py::test_later",
)


def change(path: str, text: str | None, files: Mapping[str, str] = FILES) -> str:
    """A diff that makes `path` say `text`."""
    before = files.get(path)
    old, new = (None if each is None else each.encode() for each in (before, text))
    return unified_diff([FileChange(path, old, new)]).decode()


TEST_PATCH = change(
    "tests/test_cart.py",
    FILES["tests/test_cart.py"].replace("import total", "import count, total")
    + "\n\ndef test_count():\n    assert count([1]) == 1\n",
)
GOLD = change("src/shop/cart.py", FIXED)
HALF = change("src/shop/cart.py", FILES["src/shop/cart.py"].replace("+ 1", "+ 0 * 1 + 2"))
BREAKS = change("src/shop/cart.py", FIXED.replace("sum(items)", "0"))
STALE = GOLD.replace("return len(items) + 1", "return len(items) + 7")
CHEATS = change("tests/test_cart.py", "def test_count():\n    pass\n")
EXITS = change("src/shop/cart.py", "import os\n\nos._exit(0)\n")
HANGS = change("src/shop/cart.py", FIXED + "\n\nwhile True:\n    pass\n")
BAD_SYNTAX = change("src/shop/cart.py", FIXED + "def (\n")


def make_project(repositories: Path, name: str = "owner__shop") -> str:
    """The project's repository; its base commit."""
    root = repositories / name
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    run_git(root, "init", "-q")
    run_git(root, "add", "-A")
    run_git(root, "commit", "-q", "-m", "base")
    return run_git(root, "rev-parse", "HEAD").strip()


def make_row(base: str, name: str = "owner__shop-1", **other: Any) -> dict[str, Any]:
    """A row, lists as JSON strings as published sets have them."""
    return {
        "instance_id": name,
        "repo": "owner/shop",
        "base_commit": base,
        "problem_statement": "one too many",
        "test_patch": TEST_PATCH,
        "patch": GOLD,
        "FAIL_TO_PASS": json.dumps(FAIL_TO_PASS),
        "PASS_TO_PASS": list(PASS_TO_PASS),
        **other,
    }
