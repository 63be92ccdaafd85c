"""Ending a run whose agent was killed, where no namespace does it.

A guard (a shell in a session of its own, outside the run's control groups) waits on a
pipe that ends when we do, however that happens. Then it becomes a Python that kills all of the run:
what is in its control groups, what has its session or its mark, and, where the command has a uid
of its own, everything of that uid.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.cgroups import kill_groups
from sandbox.identity import is_spare
from sandbox.orphans import kill_everything
from sandbox.types import SandboxError

# The first line is the session of the run, the second lets the guard go; the end of the pipe,
# before or after the first, does not.
_WAIT = 'read -r session && read -r _ && exit; exec "$@" "${session:--1}"'

_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from sandbox.guard import main; "
    "main(*sys.argv[1:])"
)
_ROOT = Path(__file__).resolve().parent.parent

# A process that was being started when we died has neither mark nor session at first.
_AGAIN_SECONDS = 0.5


class Guard:
    """Watches over one run from before its start. A context manager: leave it with the run dead."""

    def __init__(self, mark: str, groups: Sequence[Path], uid: int | None) -> None:
        """`mark` is in the environment of what the run starts, `uid` is what the command drops to.

        `groups` are directories of its control groups. Raises SandboxError.
        """
        own = "" if uid is None or not is_spare(uid) else str(uid)
        python = (sys.executable, "-I", "-S", "-c", _START, str(_ROOT))
        try:
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT, "sh", *python, mark, own, ":".join(map(str, groups))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"cannot start /bin/sh: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._popen.stdin is not None
        self._say(b"\n\n")
        self._popen.stdin.close()
        self._popen.wait()

    def tell(self, session: int) -> None:
        """Which session the run has, as soon as it has one."""
        self._say(b"%d\n" % session)

    def _say(self, line: bytes) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line)
        except BrokenPipeError:
            pass  # somebody has ended it


def main(mark: str, uid: str, groups: str, session: str) -> None:
    """Kill all of a run. The arguments are those of `Guard`; `session` is -1 when not yet known."""
    directories = [Path(group) for group in groups.split(":") if group]
    for pause in (0.0, _AGAIN_SECONDS):
        time.sleep(pause)
        kill_groups(directories)
        kill_everything(int(session), mark)
        if uid:
            _kill_user(int(uid))


def _kill_user(uid: int) -> None:
    """Everything of a uid in one call, so that nobody forks away from it (kill(2), pid -1)."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
