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


def test_exit_code_and_streams_are_those_of_the_command(run: Runner) -> None:
    result = run.shell("echo out; echo err >&2; exit 7")
    assert (result.ended, result.exit_code, result.detail) == (Ended.EXITED, 7, "")
    assert (result.stdout, result.stderr, result.report) == (b"out\n", b"err\n", b"")
    assert 0 < result.seconds < 20


def test_a_missing_program_ends_with_127_like_in_a_shell(run: Runner) -> None:
    result = run("no-such-program-here")
    assert (result.ended, result.exit_code) == (Ended.EXITED, 127)
    assert b"no-such-program-here" in result.stderr


def test_arguments_are_not_read_by_a_shell(run: Runner) -> None:
    assert run("printf", "%s|", "$(id)", "a b", "").stdout == b"$(id)|a b||"


def test_death_by_a_signal_has_no_exit_code(run: Runner) -> None:
    result = run.shell("kill -SEGV $$")
    assert (result.ended, result.exit_code, result.detail) == (Ended.SIGNALLED, None, "SIGSEGV")


def test_sleeping_past_the_wall_limit_is_cut(run: Runner) -> None:
    result = run.shell("echo before; sleep 60", wall_seconds=0.5)
    assert (result.ended, result.exit_code) == (Ended.WALL_LIMIT, None)
    assert result.stdout == b"before\n"
    assert "0.5 s" in result.detail
    assert result.seconds < 5


def test_ignoring_every_signal_does_not_help(run: Runner) -> None:
    script = "trap '' TERM INT HUP QUIT XCPU; while :; do sleep 1; done"
    assert run.shell(script, wall_seconds=0.5).ended is Ended.WALL_LIMIT


def test_a_stopped_command_is_cut_too(run: Runner) -> None:
    assert run.shell("kill -STOP $$", wall_seconds=0.5).ended is Ended.WALL_LIMIT


def test_burning_the_cpu_is_cut(run: Runner) -> None:
    result = run.shell("while :; do :; done", cpu_seconds=1)
    assert (result.ended, result.exit_code) == (Ended.CPU_LIMIT, None)
    assert "1 s of CPU time" in result.detail


def test_ignoring_the_cpu_signal_is_cut_a_second_later(run: Runner) -> None:
    result = run.shell("trap '' XCPU; while :; do :; done", cpu_seconds=1)
    assert result.ended is Ended.CPU_LIMIT


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


def test_core_dumps_are_off(run: Runner) -> None:
    assert run.shell("ulimit -c; ulimit -H -c").stdout == b"0\n0\n"


def test_long_output_keeps_head_and_tail(run: Runner) -> None:
    code = "print('A' * 5000 + 'B' * 5000 + 'C' * 5000, end='')"
    result = run.python(code, output=4000)
    assert result.ended is Ended.EXITED
    assert result.stdout == b"A" * 2000 + b"\n[11000 bytes cut]\n" + b"C" * 2000


@pytest.mark.parametrize("stream", ["1", "2"])
def test_endless_output_is_cut(run: Runner, stream: str) -> None:
    result = run.shell(f"yes >&{stream}", output=10_000)
    assert result.ended is Ended.OUTPUT_LIMIT
    assert len(result.stdout) + len(result.stderr) < 11_000


def test_cancel_is_honoured_at_once(run: Runner) -> None:
    started = time.monotonic()
    result = run.shell("sleep 60", cancel_after=0.5)
    assert (result.ended, result.exit_code, result.detail) == (Ended.CANCELLED, None, "cancelled")
    # The driver's own start as another user takes most of it; an engine unmounts and forgets.
    assert result.seconds < 0.5 + (3.0 if run.backend == "container" else 0.3)
    assert time.monotonic() - started < 10


def test_standard_input_is_empty(run: Runner) -> None:
    assert run.shell("cat; echo end").stdout == b"end\n"


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
    result = run.shell("env", environment={"EXTRA": "a=b", "LANG": "C"})
    found = dict(line.partition("=")[::2] for line in result.stdout.decode().splitlines())
    changing = {
        "HOME",
        "TMPDIR",
        "PYTHONPYCACHEPREFIX",
        "PWD",
        "OLDPWD",
        "_",
        "SHLVL",
        "SANDBOX_RUN",
    }
    assert {name: found[name] for name in sorted(set(found) - changing)} == {
        "EXTRA": "a=b",
        "LANG": "C",
        "LOGNAME": "sandbox",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "USER": "sandbox",
    }


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_an_impossible_variable_is_refused(name: str) -> None:
    command = Command(argv=("true",), environment={name: "x"})
    with empty_workspace(mount=Path("/srv/x")) as workspace, pytest.raises(SandboxError):
        ProcessSandbox().run(command, workspace)


def test_home_and_temporary_files_are_private_and_writable(run: Runner) -> None:
    result = run.shell('touch "$HOME/a" "$TMPDIR/b" && cd "$HOME" && ls')
    assert result.stdout == b"a\n"


def test_the_workspace_can_be_written_and_is_where_the_command_starts(run: Runner) -> None:
    result = run.shell("cat a/b && echo new >a/c && cat a/c", files={"a/b": "old\n"})
    assert result.stdout == b"old\nnew\n"


def test_cwd_is_relative_to_the_workspace(run: Runner) -> None:
    assert run.shell("cat b", files={"a/b": "here"}, cwd="a").stdout == b"here"


@pytest.mark.parametrize("cwd", ["/", "/etc", "..", "a/../.."])
def test_cwd_outside_the_workspace_is_refused(cwd: str) -> None:
    with (
        empty_workspace(mount=Path("/srv/x")) as workspace,
        pytest.raises(SandboxError, match="workspace"),
    ):
        ProcessSandbox().run(Command(argv=("true",), cwd=cwd), workspace)


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


def test_nothing_to_run_is_refused() -> None:
    with (
        empty_workspace(mount=Path("/srv/x")) as workspace,
        pytest.raises(SandboxError, match="argv"),
    ):
        ProcessSandbox().run(Command(argv=()), workspace)


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
