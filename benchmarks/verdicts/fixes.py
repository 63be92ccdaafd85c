"""Real fixes: a commit's change to the source as the patch, its new tests as the reproduction."""

from __future__ import annotations

import ast
import asyncio
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent.datasets import find_repository
from agent.errors import RepositoryError
from agent.repository.git import GitRepository, open_repository
from agent.repository.git_process import EXECUTABLE_MODE
from agent.repository.snapshot import take_snapshot
from agent.types import AppliedPatch, FileChange, Problem, ReproductionTest, ValidationReport
from agent.verify.environments import Environments
from agent.verify.executor import ValidationOptions
from agent.verify.validator import SandboxValidator
from benchmarks.instances.history import Entry, read_log
from benchmarks.instances.parts import sort_parts
from benchmarks.instances.verifying import prepare
from sandbox.types import Sandbox

_ROWS = Path(__file__).with_name("fixes.csv")
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Fix:
    """A commit, and what a reply with the same fix would bring."""

    repo: str
    entry: Entry
    patch: AppliedPatch
    test: ReproductionTest

    @property
    def name(self) -> str:
        """Repository and short commit."""
        return f"{self.repo} {self.entry.commit[:10]}"


def rows(path: Path = _ROWS) -> list[tuple[str, str]]:
    """Repository and commit of each fix."""
    with path.open(newline="", encoding="utf-8") as file:
        return [(row["repository"], row["commit"]) for row in csv.DictReader(file)]


def read_fix(clones: Path, repo: str, commit: str) -> Fix:
    """Read a fix from a clone. Raises RepositoryError where the commit is not there or no fix."""
    path = _clone(clones, repo)
    with open_repository(path) as git:
        entry = next(read_log(git, [commit]), None)
        parts = sort_parts(entry.touched) if entry else None
        if entry is None or parts is None:
            raise RepositoryError(f"{repo} {commit}: it does not change source and tests")
        source = tuple(_changes(git, entry, parts.sources))
        written = [test for c in _changes(git, entry, parts.cases) if (test := new_tests(c))]
    if not written:
        raise RepositoryError(f"{repo} {commit}: it brings no test")
    most = max(written, key=lambda test: (test.content.count("\ndef test"), test.path))
    return Fix(repo, entry, AppliedPatch(source, b"", ()), most)


def validate_fix(
    fix: Fix, clones: Path, environments: Environments, sandbox: Sandbox
) -> ValidationReport:
    """Validate a fix on the commit's parent, with the commit's message as the issue."""
    path = _clone(clones, fix.repo)
    snapshot = take_snapshot(path, commit=fix.entry.parent)
    around = prepare(environments, fix.repo, snapshot)
    subject, _, body = fix.entry.message.partition("\n")
    options = ValidationOptions(
        python=around.python,
        timeout=_SECONDS,
        setup=around.surroundings,
    )

    async def run() -> ValidationReport:
        problem = Problem(subject, body.strip())
        async with SandboxValidator(snapshot, problem, sandbox, options) as validator:
            return await validator.validate(fix.patch, fix.test)

    return asyncio.run(run())


def _clone(clones: Path, repo: str) -> Path:
    path = find_repository(clones, repo)
    if path is None:
        raise RepositoryError(f"{repo}: not in {clones}; clone it there")
    return path


def _changes(git: GitRepository, entry: Entry, paths: tuple[str, ...]) -> Iterator[FileChange]:
    before, after = (_files(git, commit, paths) for commit in (entry.parent, entry.commit))
    for path in paths:
        new, executable = after.get(path, (None, False))
        yield FileChange(path, before.get(path, (None, False))[0], new, executable)


def _files(
    git: GitRepository, commit: str, paths: tuple[str, ...]
) -> dict[str, tuple[bytes | None, bool]]:
    wanted = set(paths)
    entries = [e for e in git.tree(commit, sizes=False) if e.path.decode() in wanted]
    contents = git.blobs(sorted({entry.oid for entry in entries}))
    return {e.path.decode(): (contents[e.oid], e.mode == EXECUTABLE_MODE) for e in entries}


# ----------------------------------------------------------------------------- the reply's test


def new_tests(change: FileChange) -> ReproductionTest | None:
    """Return the test file without the tests that were there before; None if none is left."""
    if change.after is None:
        return None
    text = change.after.decode("utf-8", "replace")
    try:
        tree, old = ast.parse(text), ast.parse((change.before or b"").decode("utf-8", "replace"))
    except SyntaxError:
        return None
    known = {name: ast.dump(node) for name, node in _tests(old)}
    tests = list(_tests(tree))
    same = [node for name, node in tests if known.get(name) == ast.dump(node)]
    if len(same) == len(tests):
        return None
    place = PurePosixPath(change.path)
    return ReproductionTest(str(place.with_name("test_of_issue.py")), _without(text, tree, same))


def _tests(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the functions `test*` of a module and of its classes, with their full names."""
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in inside:
            function = isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            if function and member.name.startswith("test"):
                yield prefix + member.name, member


def _without(text: str, tree: ast.Module, dropped: list[ast.stmt]) -> str:
    """Remove statements; a class of which nothing else is left keeps a `pass`."""
    lines = text.splitlines(keepends=True)
    gone = set(map(id, dropped))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and all(id(member) in gone for member in node.body):
            first = node.body[0]
            lines[_start(first)] = " " * first.col_offset + "pass\n"
            _blank(lines, _start(first) + 1, node.end_lineno or 0)
            gone -= set(map(id, node.body))
        for member in node.body if isinstance(node, ast.ClassDef) else [node]:
            if id(member) in gone:
                _blank(lines, _start(member), member.end_lineno or 0)
    return "".join(lines)


def _start(node: ast.stmt) -> int:
    """Return the index of a statement's first line, with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)]) - 1


def _blank(lines: list[str], start: int, end: int) -> None:
    lines[start:end] = ["\n"] * (end - start)
