"""The patches of `tricks.toml`, which leave the bug in place, and the fixes of `honest.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.types import Problem, ReproductionTest
from tests.attack.noop.projects import PRICE, PROJECTS, RIGHT, WRONG, Project
from tests.attack.noop.running import Place, Seen, make_repository, replied

_STEADY = "import app.core\n\n\ndef test_import():\n    assert app.core\n"


@dataclass(frozen=True, slots=True)
class TableRow:
    """A patch of a project. `special`: it is right for the tested input alone."""

    name: str
    project: Project
    patch: dict[str, str]
    special: bool = False

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
    return TableRow(row["name"], changed, patch, row.get("special", False))


def _fix(row: dict[str, Any]) -> TableRow:
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


TRICKS = tuple(map(_trick, _rows("tricks.toml", "trick")))
HONEST = tuple(map(_fix, _rows("honest.toml", "fix")))
