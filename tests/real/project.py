"""What a real project with a real bug is, and how the scripted fix is made from its sources.

Nothing of a project is kept here: the source distribution of the release before the fix is fetched
by its checksum, and the reply is made from the fetched tree. A `Change` is a short pattern of ours
that finds the place, and what to write there. The issue (in a user's words) and the reproduction
test of each project lie in `cases/<name>/`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True, slots=True)
class Change:
    """Replace the one match of `pattern` in the file; `replacement` may use its groups.

    The pattern is multi-line: `^` and `$` are those of a line. It is matched on text with `\\n`
    line ends whatever the file has, which is also how a model sees the file.
    """

    path: str
    pattern: str
    replacement: str

    def edit(self, tree: Path) -> dict[str, str]:
        """The search/replace edit: whole lines around the match, before and after."""
        text = (tree / self.path).read_bytes().decode("utf-8").replace("\r\n", "\n")
        matches = list(re.finditer(self.pattern, text, re.MULTILINE))
        if len(matches) != 1:
            raise AssertionError(f"{self.path}: {len(matches)} matches of {self.pattern!r}")
        match = matches[0]
        start = text.rfind("\n", 0, match.start()) + 1
        end = match.end() if text[match.end() - 1] == "\n" else text.find("\n", match.end()) + 1
        search = text[start:end]
        if text.count(search) != 1:
            raise AssertionError(f"{self.path}: the lines {search!r} are not unique")
        new = match.expand(self.replacement)
        replace = text[start : match.start()] + new + text[match.end() : end]
        return {"path": self.path, "search": search, "replace": replace}

    def enclosing(self, tree: Path) -> str | None:
        """The function that holds the change, as `path:Class.method`; None at module level.

        `Class.__init__` counts as `Class`, and what stands between methods as the class.
        """
        source = (tree / self.path).read_text("utf-8")
        edit = self.edit(tree)["search"]
        line = source[: source.index(edit)].count("\n") + 1 + edit.rstrip("\n").count("\n")
        names = _names_around(ast.parse(source), line)
        names = names[:-1] if names[-1:] == ["__init__"] else names
        return f"{self.path}:{'.'.join(names)}" if names else None


def _names_around(node: ast.AST, line: int) -> list[str]:
    """The class and function that hold a line, the outer one first; no nested functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if child.lineno <= line <= (child.end_lineno or child.lineno):
            inner = _names_around(child, line) if isinstance(child, ast.ClassDef) else []
            return [child.name, *inner]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One release with its bug, and the fix that is answered with.

    `related_tests` are the project's own tests of the changed code, green before and after.
    """

    name: str
    thought: str
    changes: tuple[Change, ...]
    related_tests: tuple[str, ...]
    reproduction_path: str

    @property
    def issue(self) -> str:
        """What a user of the project reports."""
        return (CASES / self.name / "issue.md").read_text("utf-8")

    @property
    def gold_files(self) -> tuple[str, ...]:
        """The files that the fix touches, in order."""
        return tuple(dict.fromkeys(change.path for change in self.changes))

    def make_reply(self, tree: Path, changes: Sequence[Change] | None = None) -> str:
        """A reply for the release unpacked at `tree`, as JSON: the good one, or other `changes`.

        Its test, in the project's framework, fails on this release only.
        """
        (file,) = (CASES / self.name).glob("reproduction.*")
        reply = {
            "thought": self.thought,
            "edits": [change.edit(tree) for change in changes or self.changes],
            "reproduction_test": {
                "path": self.reproduction_path,
                "content": file.read_text("utf-8"),
            },
        }
        return json.dumps(reply, ensure_ascii=False, indent=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealProject(Project):
    """A project in Python.

    `hard_to_find` are changed functions, as `path:Class.method`, that the issue gives no clue to:
    a prompt may leave them out. `filename` and `sha256` pin the source distribution.
    """

    version: str
    filename: str
    sha256: str
    hard_to_find: frozenset[str] = frozenset()

    def fixed(self, tree: Path) -> dict[str, bytes]:
        """The changed files as they must be after the fix, their line ends kept."""
        contents = {path: (tree / path).read_bytes() for path in self.gold_files}
        for change in self.changes:
            edit = change.edit(tree)
            old, new = (edit[key].encode() for key in ("search", "replace"))
            if b"\r\n" in contents[change.path]:
                old, new = (text.replace(b"\n", b"\r\n") for text in (old, new))
            contents[change.path] = contents[change.path].replace(old, new)
        return contents
