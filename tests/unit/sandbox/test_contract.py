"""What every backend promises by the protocol `sandbox.Sandbox`."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from sandbox.in_place import ProcessSandbox
from sandbox.types import Command, Ended, SandboxError
from sandbox.workspace import empty_workspace
from tests.support.sandboxes import Runner

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("argv", "code", "stdout", "stderr"),
    [
        (("sh", "-c", "echo out; echo err >&2; exit 7"), 7, b"out\n", b"err\n"),
        (("no-such-program-here",), 127, b"", b"no-such-program-here"),
        (("printf", "%s|", "$(id)", "a b", ""), 0, b"$(id)|a b||", b""),  # no shell reads them
        (("sh", "-c", "cat; echo end"), 0, b"end\n", b""),
        (("sh", "-c", "ulimit -c; ulimit -H -c"), 0, b"0\n0\n", b""),
        (("sh", "-c", 'touch "$HOME/a" "$TMPDIR/b" && cd "$HOME" && ls'), 0, b"a\n", b""),
        (("sh", "-c", "cat a/b && echo new >a/c && cat a/c"), 0, b"old\nnew\n", b""),
    ],
)
def test_exit_code_and_streams_are_those_of_the_command(
    run: Runner, argv: tuple[str, ...], code: int, stdout: bytes, stderr: bytes
) -> None:
    result = run(*argv, files={"a/b": "old\n"})
    assert (result.ended, result.exit_code, result.detail) == (Ended.EXITED, code, "")
    assert (result.stdout, result.report) == (stdout, b"")
    assert stderr in result.stderr
    assert 0 < result.seconds < 20


@pytest.mark.parametrize(
    ("script", "limits", "ended", "detail"),
    [
        ("kill -SEGV $$", {}, Ended.SIGNALLED, "SIGSEGV"),
        ("sleep 60", {"wall_seconds": 0.5}, Ended.WALL_LIMIT, "0.5 s"),
        ("trap '' TERM INT HUP QUIT XCPU; while :; do sleep 1; done", {"wall_seconds": 0.5},
         Ended.WALL_LIMIT, "0.5 s"),
        ("kill -STOP $$", {"wall_seconds": 0.5}, Ended.WALL_LIMIT, "0.5 s"),
        ("while :; do :; done", {"cpu_seconds": 1}, Ended.CPU_LIMIT, "1 s of CPU time"),
        ("trap '' XCPU; while :; do :; done", {"cpu_seconds": 1}, Ended.CPU_LIMIT, "1 s of CPU"),
        ("yes", {"output": 10_000}, Ended.OUTPUT_LIMIT, "output"),
        ("yes >&2", {"output": 10_000}, Ended.OUTPUT_LIMIT, "output"),
    ],
)  # fmt: skip
def test_a_command_that_is_cut_has_no_exit_code(
    run: Runner, script: str, limits: dict[str, float], ended: Ended, detail: str
) -> None:
    result = run.shell(f"echo before; {script}", **limits)
    assert (result.ended, result.exit_code) == (ended, None)
    assert detail in result.detail
    assert result.stdout.startswith(b"before\n")
    assert len(result.stdout) + len(result.stderr) < 11_000
    assert result.seconds < 20


def test_memory_is_limited(run: Runner) -> None:
    result = run.python("x = bytearray(1 << 30)", address_space=512 * MIB, memory=512 * MIB)
    if result.ended is not Ended.MEMORY_LIMIT:  # no control groups: each process by itself
        assert result.exit_code == 1
        assert b"MemoryError" in result.stderr


def test_files_are_limited(run: Runner) -> None:
    code = "open('big', 'wb').write(bytes(3 << 20))"
    result = run.python(code, file_size=2 * MIB)
    assert result.exit_code != 0
    assert b"File too large" in result.stderr or result.detail == "SIGXFSZ"


def test_long_output_keeps_head_and_tail(run: Runner) -> None:
    code = "print('A' * 5000 + 'B' * 5000 + 'C' * 5000, end='')"
    result = run.python(code, output=4000)
    assert result.ended is Ended.EXITED
    assert result.stdout == b"A" * 2000 + b"\n[11000 bytes cut]\n" + b"C" * 2000


def test_cancel_is_honoured_at_once(run: Runner) -> None:
    started = time.monotonic()
    result = run.shell("sleep 60", cancel_after=0.5)
    assert (result.ended, result.exit_code, result.detail) == (Ended.CANCELLED, None, "cancelled")
    # The driver's own start as another user takes most of it; an engine unmounts and forgets.
    assert result.seconds < 0.5 + (3.0 if run.backend == "container" else 0.3)
    assert time.monotonic() - started < 10


def test_only_three_descriptors_are_open(run: Runner) -> None:
    descriptor = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        # The fourth is the directory that is being listed.
        result = run.python("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    finally:
        os.close(descriptor)
    assert result.stdout == b"[0, 1, 2, 3]\n"


def test_the_environment_is_exactly_the_fixed_one_and_the_commands(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    result = run.shell("env", environment={"EXTRA": "a=b \u00e9", "LANG": "C"})
    found = dict(line.partition("=")[::2] for line in result.stdout.decode().splitlines())
    changing = {"HOME", "TMPDIR", "PYTHONPYCACHEPREFIX", "PWD", "OLDPWD", "_", "SHLVL"}
    changing |= {"SANDBOX_RUN"}
    assert {name: found[name] for name in sorted(set(found) - changing)} == {
        "EXTRA": "a=b \u00e9",
        "LANG": "C",
        "LOGNAME": "sandbox",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "USER": "sandbox",
    }


def test_cwd_is_relative_to_the_workspace(run: Runner) -> None:
    assert run.shell("cat b", files={"a/b": "here"}, cwd="a").stdout == b"here"


@pytest.mark.parametrize(
    "command",
    [
        Command(argv=()),
        *(Command(("true",), environment={name: "x"}) for name in ("", "A=B", "A\0B")),
        *(Command(("true",), cwd=cwd) for cwd in ("/", "/etc", "..", "a/../..")),
    ],
)
def test_an_impossible_command_is_refused(command: Command) -> None:
    with empty_workspace(mount=Path("/srv/x")) as workspace, pytest.raises(SandboxError):
        ProcessSandbox().run(command, workspace)


def test_a_daemon_does_not_survive(run: Runner) -> None:
    mark = f"3600.{uuid.uuid4().int % 10**9}"
    script = f"setsid setsid sleep {mark} >/dev/null 2>&1 & (sleep {mark} &) ; sleep 0.2; echo ok"
    assert run.shell(script).stdout == b"ok\n"
    assert not _running(mark)


def test_a_daemon_that_holds_the_pipes_does_not_delay_the_result(run: Runner) -> None:
    result = run.shell("sleep 15 & exit 3")
    assert (result.ended, result.exit_code) == (Ended.EXITED, 3)
    assert result.seconds < 5


def test_no_zombie_is_left(run: Runner) -> None:
    before = _zombies()
    run.shell("sleep 60 & setsid sleep 60 & (true &) ; exit 0")
    run.shell("sleep 60 & sleep 60", wall_seconds=0.3)
    assert _zombies() - before == set()


def _stat(process: Path) -> tuple[str, ...]:
    try:
        return tuple((process / "stat").read_text().rpartition(")")[2].split())
    except OSError:
        return ()


def _zombies() -> set[str]:
    """Return dead children of this process that nobody has collected."""
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    dead = ("Z", str(os.getpid()))
    return {process.name for process in processes if _stat(process)[:2] == dead}


def _running(mark: str) -> bool:
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark in (process / "cmdline").read_text().split("\0"):
                return True
        except OSError:
            continue
    return False
