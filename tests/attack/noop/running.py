"""Validates a patch of the corpus as `agent solve` would: apply the reply, then validate it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.patching import apply_proposal
from agent.repository.snapshot import take_snapshot
from agent.types import (
    ApplyFailure,
    CreateFile,
    DeleteFile,
    PatchProposal,
    ReproductionTest,
    Verdict,
)
from agent.validation.validator import SandboxValidator, ValidationOptions
from sandbox.bwrap.backend import BwrapSandbox
from tests.attack.noop.corpus import NoOp
from tests.attack.noop.projects import PROJECTS, Project
from tests.conftest import run_git
from tests.support.pythons import PYTEST, python_with

REFUSED = "refused"

Seen = tuple[str, str]
"""A verdict, or `REFUSED`, and the first line of the reason."""

# Plugins whose modules the corpus shadows, and what they import. They make pytest start slowly.
_PLUGINS = ("pytest-timeout", "hypothesis", "sortedcontainers", "anyio", "idna")
_TYPING = "typing_extensions"


@dataclass(frozen=True, slots=True)
class Place:
    """The environments of the projects, without and with plugins, and a cache of base runs."""

    lean: Path
    plugged: Path
    cache: Path


def make_place(folder: Path) -> Place:
    """Make the environments in a folder."""
    lean = python_with(folder / "lean")
    plugged = python_with(folder / "plugged", (*PYTEST, *_PLUGINS, _TYPING))
    return Place(lean, plugged, folder / "cache")


def tried(noop: NoOp, place: Place) -> Seen:
    """Validate the patch. One that rests on chance is verified when it is so twice in four."""
    project = PROJECTS[noop.project]
    with tempfile.TemporaryDirectory(prefix="noop-") as folder:
        root = make_repository(Path(folder), project)
        seen = [
            replied(root, project, noop.patch, noop.tests, place, plugged=noop.works == "shadowing")
            for _ in range(4 if noop.chance else 1)
        ]
    verified = [one for one in seen if one[0] == Verdict.VERIFIED.value]
    others = [one for one in seen if one not in verified]
    return verified[0] if len(verified) > 1 or not others else others[0]


def fixed(name: str, place: Place) -> Seen:
    """Validate the honest fix of a project: the control."""
    project = PROJECTS[name]
    with tempfile.TemporaryDirectory(prefix="noop-") as folder:
        root = make_repository(Path(folder), project)
        return replied(root, project, project.fix, (project.test,), place)


def make_repository(folder: Path, project: Project) -> Path:
    """Make a committed repository of the project."""
    root = folder / "target"
    for path, content in project.files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    run_git(root, "init", "-q")
    run_git(root, "add", "-A", "-f")
    run_git(root, "commit", "-q", "-m", "base")
    return root


def replied(
    root: Path,
    project: Project,
    patch: Mapping[str, str | None],
    tests: tuple[ReproductionTest | None, ...],
    place: Place,
    *,
    plugged: bool = False,
) -> Seen:
    """Validate a reply for each of `tests` in turn, by one validator; the last one's verdict."""
    snapshot = take_snapshot(root)
    edits = [
        DeleteFile(path) if text is None else CreateFile(path, text, replace_existing=True)
        for path, text in patch.items()
    ]
    applied = apply_proposal(PatchProposal(tuple(edits)), snapshot)
    if isinstance(applied, ApplyFailure):
        return REFUSED, applied.reason.partition("\n")[0]
    python = place.plugged if plugged else place.lean
    options = ValidationOptions(python=python, timeout=60.0, cache=place.cache)

    async def run() -> Seen:
        async with SandboxValidator(snapshot, project.issue, BwrapSandbox(), options) as validator:
            for at, test in enumerate(tests):
                earlier = tuple(one for one in tests[:at] if one is not None)
                report = await validator.validate(applied, test, earlier)
        return report.verdict.value, report.reason.partition("\n")[0]

    return asyncio.run(run())
