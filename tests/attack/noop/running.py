"""Validates a patch of the corpus as `agent solve` would: apply the reply, then validate it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.patching import apply_proposal
from agent.repository.snapshot import take_snapshot
from agent.types import (
    ApplyFailure,
    CreateFile,
    DeleteFile,
    OutdatedTest,
    PatchProposal,
    ReproductionTest,
    Verdict,
)
from agent.verify.validator import SandboxValidator, ValidationOptions
from sandbox.bwrap import BwrapSandbox
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
    """The environments of the projects, without and with plugins, and a cache of base runs.

    `targets` has a repository of each project. Nothing changes it, so that all patches share it and
    the runs of the base.
    """

    lean: Path
    plugged: Path
    cache: Path
    targets: Path


def make_place(folder: Path) -> Place:
    """Make the environments in a folder."""
    lean = python_with(folder / "lean")
    plugged = python_with(folder / "plugged", (*PYTEST, *_PLUGINS, _TYPING))
    for name, project in PROJECTS.items():
        make_repository(folder / "targets" / name, project)
    return Place(lean, plugged, folder / "cache", folder / "targets")


def tried(noop: NoOp, place: Place) -> Seen:
    """Validate the patch. One that rests on chance is verified when it is so twice in four."""
    project, root = PROJECTS[noop.project], place.targets / noop.project
    seen = [
        replied(
            root,
            project,
            noop.patch,
            noop.tests,
            place,
            plugged=noop.works == "shadowing",
            outdated=noop.outdated,
        )
        for _ in range(4 if noop.chance else 1)
    ]
    verified = [one for one in seen if one[0] == Verdict.VERIFIED.value]
    others = [one for one in seen if one not in verified]
    return verified[0] if len(verified) > 1 or not others else others[0]


def fixed(name: str, place: Place) -> Seen:
    """Validate the honest fix of a project: the control."""
    project = PROJECTS[name]
    return replied(place.targets / name, project, project.fix, (project.test,), place)


def make_repository(root: Path, project: Project) -> None:
    """Make a committed repository of the project."""
    for path, content in project.files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    run_git(root, "init", "-q")
    run_git(root, "add", "-A", "-f")
    run_git(root, "commit", "-q", "-m", "base")


def replied(
    root: Path,
    project: Project,
    patch: Mapping[str, str | None],
    tests: tuple[ReproductionTest | None, ...],
    place: Place,
    *,
    plugged: bool = False,
    outdated: tuple[str, ...] = (),
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

    declared = tuple(OutdatedTest(one, "the issue changes this") for one in outdated)

    async def run() -> Seen:
        async with SandboxValidator(snapshot, project.issue, BwrapSandbox(), options) as validator:
            for at, test in enumerate(tests):
                earlier = tuple(one for one in tests[:at] if one is not None)
                report = await validator.validate(applied, test, earlier, declared)
        return report.verdict.value, report.reason.partition("\n")[0]

    return asyncio.run(run())
