"""The patches of `tricks.toml`, which leave the bug in place, and the fixes of `honest.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.types import Problem, ReproductionTest
from tests.attack.noop.projects import PRICE, PROJECTS, RIGHT, WRONG, Project
from tests.attack.noop.running import Place, Seen, make_repository, replied

_STEADY_JS = "require('node:test')('loads', () => require('../lib/core.js'))\n"
_STEADY = "import app.core\n\n\ndef test_import():\n    assert app.core\n"


@dataclass(frozen=True, slots=True)
class TableRow:
    """A patch of a project. `special`: it is right for the tested input alone."""

    name: str
    project: Project
    patch: dict[str, str]
    special: bool = False
    program: str = ""

    def tried(self, place: Place, folder: Path) -> Seen:
        """Validate the patch in a repository of its own below `folder`."""
        root = folder / self.name.replace("/", "_")
        make_repository(root, self.project)
        return replied(root, self.project, self.patch, (self.project.test,), place)


def _rows(name: str, key: str) -> list[dict[str, Any]]:
    with Path(__file__).with_name(name).open("rb") as file:
        rows: list[dict[str, Any]] = tomllib.load(file)[key]
    return rows


def _trick(row: dict[str, Any]) -> TableRow:
    project, patch = PROJECTS[row.get("project", "shop")], row.get("files")
    test = project.test
    if row.get("test"):
        test = ReproductionTest(row.get("test_path", "tests/test_issue.py"), row["test"])
    if patch is None:
        body = f"    if {row['when']}:\n        return {RIGHT}\n    return {WRONG}\n"
        text = PRICE.replace(f"    return {WRONG}\n", body)
        patch = {"shop/price.py": f"{row.get('setup', '')}\n\n{text}"}
    files = {**project.files, **row.get("base", {})}
    changed = replace(project, files=files, test=test)
    program = "node" if "package.json" in files else ""
    return TableRow(row["name"], changed, patch, row.get("special", False), program)


def _fix(row: dict[str, Any]) -> TableRow:
    if row.get("language") == "javascript":
        return _fix_in_javascript(row)
    files = {
        "app/__init__.py": "",
        "app/core.py": row["old"],
        "tests/test_core.py": row.get("steady", _STEADY),
        **row.get("data", {}),
    }
    issue, test = (
        Problem(row["issue"], row["issue"]),
        ReproductionTest("tests/test_issue.py", row["test"]),
    )
    project = Project(issue=issue, files=files, test=test, fix={"app/core.py": row["new"]})
    return TableRow(row["name"], project, project.fix)


def _fix_in_javascript(row: dict[str, Any]) -> TableRow:
    text = (
        f"const test = require('node:test')\nconst assert = require('node:assert')\n{row['test']}"
    )
    files = {
        "package.json": '{"name": "core", "scripts": {"test": "node --test"}}\n',
        "lib/core.js": row["old"],
        "test/core.test.js": _STEADY_JS,
        **row.get("data", {}),
    }
    issue = Problem(row["issue"], row["issue"])
    test = ReproductionTest("test/issue.test.js", text)
    project = Project(issue=issue, files=files, test=test, fix={"lib/core.js": row["new"]})
    return TableRow(row["name"], project, project.fix, program="node")


TRICKS = tuple(map(_trick, _rows("tricks.toml", "trick")))
HONEST = tuple(map(_fix, _rows("honest.toml", "fix")))
