"""A repository that attacks its readers, and everything that the agent does with one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import PatchshotError
from agent.repository.git import open_repository
from agent.repository.snapshot import take_snapshot
from agent.retrieval.history.commits import read_commits
from sandbox.bwrap import BwrapSandbox
from sandbox.types import Command, Limits, SandboxError
from sandbox.workspace import Workspace, prepare_workspace
from tests.conftest import run_git
from tests.support.attack_world import Surroundings

SECRET = "the-secret-that-must-not-come-out"

# What a test could do with its private copy: show all of it, and look at every object.
_LOOK = """
git status; git log --all --reflog -p; git stash list -p; git remote -v; git config --list
git fsck; git diff; git add -A; git cat-file --batch-all-objects --batch
find . -type f -exec cat {} +; cat .git/config .git/packed-refs; env
find .git/objects -type f -exec chmod u+w {} + -exec sh -c 'echo owned >"$1"' sh {} \\;
"""

# What it could leave behind for the agent's next git command.
_PLANT = r"""
for name in post-checkout pre-commit post-index-change reference-transaction; do
  printf '#!/bin/sh\ntouch %s/planted-%s\n' "$1" "$name" >.git/hooks/$name
  chmod 755 .git/hooks/$name
done
for line in '[core]' "fsmonitor = touch $1/planted-fsmonitor" "pager = touch $1/planted-pager" \
    '[filter "evil"]' "smudge = touch $1/planted-smudge" "clean = touch $1/planted-clean"; do
  echo "$line" >>.git/config
done
echo '* filter=evil' >.gitattributes
"""


@dataclass(frozen=True, slots=True)
class Hostile(Surroundings):
    """Each attack that runs leaves a file in `canaries`."""

    @property
    def canaries(self) -> Path:
        return self.folder / "canaries"

    def fired(self) -> list[str]:
        """The attacks that ran."""
        return sorted(f"{path.name} ran" for path in self.canaries.iterdir())

    def runs(self, name: str) -> str:
        """A shell command that leaves the canary `name`."""
        return f"touch {self.canaries}/{name}"

    def script(self, place: Path, name: str, then: str = "cat") -> None:
        """An executable file that leaves the canary `name`."""
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n{self.runs(name)}\n{then}\n")
        place.chmod(0o755)

    def set(self, **settings: str) -> None:
        """Settings of the repository; `__` stands for the dot in a name."""
        for name, value in settings.items():
            run_git(self.root, "config", name.replace("__", "."), value)


def make_hostile_base(folder: Path) -> Hostile:
    """Two commits and a work tree; nothing in it attacks yet."""
    hostile = Hostile(folder)
    for path in (hostile.root, hostile.outside, hostile.canaries):
        path.mkdir(parents=True)
    (hostile.outside / "secret.py").write_text(f"value = '{SECRET}'\n")
    (hostile.root / "app.py").write_text("def f():\n    return 1\n")
    run_git(hostile.root, "init", "-q")
    run_git(hostile.root, "add", "-A")
    run_git(hostile.root, "commit", "-q", "-m", "first")
    (hostile.root / "app.py").write_text("def f():\n    return 2\n")
    run_git(hostile.root, "commit", "-q", "-a", "-m", "base")
    return hostile


def everything_the_agent_does(hostile: Hostile, repo: Path | None = None) -> bytes:
    """Read it, its history and its dirty files; make private copies; run code in them.

    Gives all that was read and printed. What is refused with a message of ours is left out.
    """
    seen: list[bytes] = []
    root = repo or hostile.root
    for mode in ("include", "ignore"):
        try:
            snapshot = take_snapshot(root, dirty=mode)  # type: ignore[arg-type]
        except PatchshotError as error:
            seen.append(str(error).encode())
            continue
        seen += [snapshot.read(path) for path in snapshot.files]
        with open_repository(root) as git:
            ancestors = git.ancestors(snapshot.commit, 100)
            try:
                seen += [repr(batch).encode() for batch in read_commits(git, ancestors)]
            except PatchshotError as error:  # a partial clone has no history
                seen.append(str(error).encode())
        try:
            workspace = prepare_workspace(snapshot.root, snapshot.commit, snapshot.overlay())
        except SandboxError as error:
            seen.append(str(error).encode())
            continue
        with workspace:
            seen += _run_in(hostile, workspace)
    return b"\n".join(seen)


def _run_in(hostile: Hostile, workspace: Workspace) -> list[bytes]:
    """Attack from inside, then use the copy as the agent does after a run."""
    limits = Limits(wall_seconds=20)
    sandbox = BwrapSandbox()
    look = Command(("/bin/sh", "-c", _LOOK), limits=limits)
    plant = Command(("/bin/sh", "-c", _PLANT, "sh", str(hostile.canaries)), limits=limits)
    with workspace.copy() as copy:
        result = sandbox.run(look, copy)
    sandbox.run(plant, workspace)
    with workspace.copy() as twin:
        twin.write("app.py", b"def f():\n    return 3\n")
        sandbox.run(Command(("/bin/true",), limits=limits), twin)
    return [result.stdout, result.stderr]


def plain_git(hostile: Hostile, *commands: Sequence[str]) -> bytes:
    """The control: what git itself does there, as a user's shell would run it."""
    environment = {**os.environ, "HOME": str(hostile.folder), "GIT_TERMINAL_PROMPT": "0"}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "Tester", f"GIT_{who}_EMAIL": "t@example.invalid"}
    output = b""
    for arguments in commands:
        # Some of these would wait for ever for the program that they started.
        done = subprocess.run(
            ["timeout", "-k", "1", "3", "git", *arguments],
            cwd=hostile.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        output += done.stdout + done.stderr
    return output
