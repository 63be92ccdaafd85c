"""A tiny project with a bug, as a bare repository, and the rows of a data set about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import run_git

MODULE = """\
import os


class Basket:
    def __init__(self):
        self.items = []

    def total_price(self):
        return sum(item.price for item in self.items) - 1


def unrelated_helper(path):
    return os.path.basename(path)
"""
STATEMENT = "total_price is one too low\n\n`Basket.total_price` of an empty basket gives -1."
PATCH = """\
--- a/shop/basket.py
+++ b/shop/basket.py
@@ -9 +9 @@ class Basket:
-        return sum(item.price for item in self.items) - 1
+        return sum(item.price for item in self.items)
"""


def bare_repository(folder: Path, name: str = "owner__shop.git") -> str:
    """Make `folder/name` and give its only commit."""
    work = folder / "work"
    for path, text in (("shop/basket.py", MODULE), ("README.md", "A shop\n")):
        file = work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    run_git(work, "init", "-q")
    run_git(work, "add", "-A")
    run_git(work, "commit", "-q", "-m", "base")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    run_git(work, "clone", "-q", "--bare", str(work), str(folder / name))
    commit = run_git(work, "rev-parse", "HEAD").strip()
    shutil.rmtree(work)
    return commit


def dataset_row(commit: str, number: int = 1, **other: Any) -> dict[str, Any]:
    """A row with a patch; `other` replaces or adds fields."""
    return {
        "instance_id": f"owner__shop-{number}",
        "repo": "owner/shop",
        "base_commit": commit,
        "problem_statement": STATEMENT,
        "patch": PATCH,
        **other,
    }


def write_dataset(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """The rows as JSON lines."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path
