"""Replies of a hostile model: read, applied and written into a repository as `--apply` does."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cli.commands.output import write_into_work_tree
from agent.patching import apply_proposal, parse_reply
from agent.repository.snapshot import take_snapshot
from agent.types import ApplyFailure, CreateFile, ParseFailure, RenameFile, SearchReplace
from agent.types.protocols import Snapshot
from tests.attack.patch_cases import PATCH_CASES, PatchCase
from tests.conftest import run_git
from tests.support.attack_world import World, make_world
from tests.support.fingerprint import fingerprint

# A reply is read and applied in less, whatever it holds.
_MOST_SECONDS = 5.0

_BY_CASE = [
    pytest.param(case, id=case.name, marks=pytest.mark.attack_case(case.name))
    for case in PATCH_CASES
]
Fresh = Callable[[], World]


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def fresh(pristine: World, tmp_path: Path) -> Fresh:
    """Gives a new copy of the world at each call."""
    number = itertools.count()

    def make() -> World:
        folder = tmp_path / f"world-{next(number)}"
        shutil.copytree(pristine.folder, folder, symlinks=True)
        return World(folder)

    return make


@pytest.fixture
def world(fresh: Fresh) -> World:
    return fresh()


def _applied(reply: str, world: World, snapshot: Snapshot) -> bool:
    """Whether the reply was taken; then it is written into the user's files."""
    proposal = parse_reply(reply)
    if isinstance(proposal, ParseFailure):
        return False
    patch = apply_proposal(proposal, snapshot, include_test=True)
    if isinstance(patch, ApplyFailure):
        return False
    return not write_into_work_tree(patch, snapshot.root).failed


@pytest.mark.parametrize("case", _BY_CASE)
def test_it_is_refused_or_harmless(case: PatchCase, fresh: Fresh) -> None:
    world = fresh()
    snapshot, before = take_snapshot(world.root), fingerprint(world.folder)
    for text in case.texts():
        reply = _placed(text, world)
        started = time.process_time()
        applied = _applied(reply, world, snapshot)
        assert time.process_time() - started < _MOST_SECONDS, reply[:500]
        assert world.evidence(before) == [], reply[:500]
        assert applied <= case.harmless, reply[:500]
        if applied:
            world = fresh()
            snapshot, before = take_snapshot(world.root), fingerprint(world.folder)
        else:
            assert fingerprint(world.folder) == before, reply[:500]


def _placed(reply: str, world: World) -> str:
    return reply.replace("{outside}", str(world.outside))


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name) for c in PATCH_CASES if c.control == "naive"]
)
def test_the_oracle_sees_what_an_applier_does_that_joins_paths(
    case: PatchCase, world: World
) -> None:
    before = fingerprint(world.folder)
    for edits in case.edits:
        for edit in edits:
            if isinstance(edit, CreateFile):
                _write(world, edit.path, edit.content)
            if isinstance(edit, SearchReplace):
                _write(world, edit.path, edit.replace)
            if isinstance(edit, RenameFile):
                _write(world, edit.to, "moved")
    assert world.evidence(before) != []


def _write(world: World, path: str, content: str) -> None:
    target = world.root / _placed(path, world)
    if path.startswith("~") or not target.resolve().is_relative_to(world.folder):
        return  # also a control stays in its folder
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    except OSError:
        pass  # a name that this file system does not have


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name) for c in PATCH_CASES if c.control == "git"]
)
def test_the_oracle_sees_what_git_apply_does(case: PatchCase, world: World) -> None:
    before = fingerprint(world.folder)
    for reply in case.replies:
        subprocess.run(
            ["git", "apply", "--whitespace=nowarn", "-"],
            cwd=world.root,
            input=reply.encode(),
            capture_output=True,
            timeout=20,
            check=False,
        )
    assert world.evidence(before) != []


_FILE = '{"edits": [{"path": "app.py", "search": "x = 1", "replace": "x = 3"}]}'
_BELOW = '{"edits": [{"path": "pkg/mod.py", "search": "limit = 10", "replace": "limit = 11"}]}'


@pytest.mark.parametrize(
    ("reply", "place", "said"),
    [
        pytest.param(_FILE, "app.py", "app.py is a link now",
                     marks=pytest.mark.attack_case("file that becomes a link")),
        pytest.param(_BELOW, "pkg", "pkg/mod.py is behind a link now",
                     marks=pytest.mark.attack_case("folder that becomes a link")),
    ],
)  # fmt: skip
def test_what_has_become_a_link_is_not_written_through(
    world: World, reply: str, place: str, said: str
) -> None:
    proposal = parse_reply(reply)
    assert not isinstance(proposal, ParseFailure)
    snapshot = take_snapshot(world.root)
    patch = apply_proposal(proposal, snapshot)
    assert not isinstance(patch, ApplyFailure)
    shutil.move(world.root / place, world.outside / place)
    (world.root / place).symlink_to(f"../outside/{place}")
    before = fingerprint(world.folder)
    delivery = write_into_work_tree(patch, snapshot.root)
    assert delivery.failed
    assert said in delivery.message
    assert fingerprint(world.folder) == before
    assert run_git(world.root, "status", "--porcelain") != ""
