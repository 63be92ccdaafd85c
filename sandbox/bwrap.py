"""The default backend: bubblewrap. Namespaces, an allow-listed root, no network, a dropped uid.

As root, bwrap builds the mounts without a user namespace and `setpriv` then gives up root for a uid
that owns nothing else on the machine. As a user, everything happens in a user namespace.
"""

from __future__ import annotations

import os
import platform
import pwd
import re
import shutil
import subprocess
import threading
from pathlib import Path, PurePosixPath

from sandbox import identity, seccomp
from sandbox.bwrap_options import HOME, REPORT, Inside, options
from sandbox.bwrap_process import BwrapProcess
from sandbox.environment import command_environment
from sandbox.nofollow import read_file
from sandbox.private import remove_tree
from sandbox.probing import advice, probe_by_running, unavailable
from sandbox.rlimits import explain, wrapper
from sandbox.supervise import Outcome, described, watch
from sandbox.types import Command, Probe, RunResult, SandboxError
from sandbox.workspace import Workspace

# 0.5 brought --perms and --clearenv; without them /tmp and the environment are not what we say.
_OLDEST = (0, 5)

_VERSION_SECONDS = 10.0

# Since then RLIMIT_NPROC counts per user namespace (linux commit 21d1c5e386bc).
_NPROC_PER_NAMESPACE = (5, 14)


class BwrapSandbox:
    """Runs commands under bubblewrap. Stateless but for the version of bwrap, asked once.

    `program` is the bwrap to use (default: the one on PATH). `homes` are directories never shown as
    a whole (default: the home of the user).
    """

    def __init__(
        self, program: str | None = None, *, homes: tuple[Path, ...] | None = None
    ) -> None:
        self._program = program
        self._homes = _own_homes() if homes is None else homes
        self._found: tuple[str, tuple[int, ...]] | None = None

    @property
    def name(self) -> str:
        """As it is called in reports and settings."""
        return "bwrap"

    @property
    def foreign_root(self) -> bool:
        """Never: commands see this machine's interpreters."""
        return False

    def probe(self) -> Probe:
        """Run a small script inside and report what it could and could not do. Never raises."""
        try:
            return probe_by_running(self, homes=self._homes)
        except SandboxError as error:
            return unavailable(self.name, str(error))

    def run(
        self, command: Command, workspace: Workspace, *, cancel: threading.Event | None = None
    ) -> RunResult:
        """Run it isolated; see the protocol `Sandbox`."""
        program, version = self._bwrap()
        scratch = workspace.scratch()
        try:
            inside = self._inside(command, workspace, scratch, version)
            environment = command_environment(
                command, home=HOME, report=REPORT if command.report else None
            )
            outcome, status = _watched(
                program, options(inside, environment), _argv(command, inside), command, cancel
            )
            report = read_file(scratch / "report", REPORT.name, command.limits.report)
            return _result(command, outcome, status, report)
        finally:
            remove_tree(scratch)

    def _bwrap(self) -> tuple[str, tuple[int, ...]]:
        if self._found is None:
            program = self._program or shutil.which("bwrap")
            if program is None:
                raise SandboxError("bubblewrap is not installed; " + advice(""))
            self._found = program, _version(program)
        return self._found

    def _inside(
        self, command: Command, workspace: Workspace, scratch: Path, version: tuple[int, ...]
    ) -> Inside:
        uid = workspace.owner if workspace.owner is not None else identity.spare_uid()
        if uid is not None:
            workspace.give_to(uid)
        (scratch / "report").mkdir(mode=0o700)
        if uid is not None:
            os.chown(scratch / "report", uid, uid)
        return Inside(
            workspace=workspace,
            scratch=scratch,
            cwd=_inner_directory(workspace, command.cwd),
            read_only=command.read_only,
            homes=self._homes,
            uid=uid,
            report=command.report,
            tmp_size=command.limits.tmp,
            version=version,
        )


def _own_homes() -> tuple[Path, ...]:
    """Every directory that this user would call home, in order."""
    found = {Path(os.path.realpath(os.environ["HOME"]))} if os.environ.get("HOME") else set()
    try:
        found.add(Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
    except KeyError:
        pass  # a uid without an entry, as in many containers
    return tuple(sorted(found))


def _version(program: str) -> tuple[int, ...]:
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"cannot start {program}: {error}; reinstall bubblewrap") from error
    match = re.search(r"(\d+)\.(\d+)", done.stdout)
    version = tuple(map(int, match.groups())) if match else (0,)
    if version < _OLDEST:
        raise SandboxError(f"{program} is too old ({done.stdout.strip()}); install 0.5 or later")
    return version


def _inner_directory(workspace: Workspace, cwd: str) -> Path:
    relative = PurePosixPath(cwd)
    if relative.is_absolute() or ".." in relative.parts:
        raise SandboxError(f"the working directory must lie in the workspace: {cwd!r}")
    return workspace.mount / relative


def _argv(command: Command, inside: Inside) -> list[str]:
    if not command.argv:
        raise SandboxError("nothing to run: argv is empty")
    shared = inside.uid is None and _kernel() < _NPROC_PER_NAMESPACE
    limits = wrapper(command.limits, shared_user=shared)
    return [*_drop(inside.uid), *limits, *command.argv]


def _drop(uid: int | None) -> tuple[str, ...]:
    """Give up root for good, inside the sandbox: setpriv(1). Nothing to give up as a user."""
    if uid is None:
        return ()
    program = shutil.which("setpriv", path="/usr/bin:/bin:/usr/local/bin")
    if program is None:
        raise SandboxError("setpriv is not installed; install the package util-linux")
    everything = ("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")
    identity_options = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs")
    return (program, *identity_options, *everything, "--")


def _kernel() -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", platform.release())
    return tuple(map(int, match.groups())) if match else (0,)


def _watched(
    program: str,
    bwrap_options: list[str],
    argv: list[str],
    command: Command,
    cancel: threading.Event | None,
) -> tuple[Outcome, int | None]:
    # The command can read the environment of its namespace's first process, which is bwrap.
    own = {"LC_ALL": "C.UTF-8"}
    with BwrapProcess(program, bwrap_options, argv, own, seccomp.program()) as process:
        outcome = watch(process.popen, command.limits, cancel, process.kill)
        return outcome, process.exit_code()


def _result(command: Command, outcome: Outcome, status: int | None, report: bytes) -> RunResult:
    if outcome.cut is not None:
        return RunResult(
            ended=outcome.cut,
            exit_code=None,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            seconds=outcome.seconds,
            report=report,
            detail=described(outcome.cut, command.limits),
        )
    if status is None:
        words = outcome.stderr.decode("utf-8", errors="replace").strip()
        reason = words.splitlines()[-1] if words else f"status {outcome.returncode}"
        raise SandboxError(f"bubblewrap cannot set up the sandbox ({reason}); {advice(words)}")
    ended, code, detail = explain(status, outcome.seconds, command.limits)
    return RunResult(ended, code, outcome.stdout, outcome.stderr, outcome.seconds, report, detail)
