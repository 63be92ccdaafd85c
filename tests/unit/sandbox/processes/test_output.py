"""Captured streams, and a report through a pipe."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.supervise import Capture, ReportPipe, watch
from sandbox.types import Ended, Limits
from tests.support.sandboxes import SYSTEM_PYTHON, Runner
from tests.support.watching import started


@given(st.lists(st.binary(max_size=50)), st.integers(min_value=1, max_value=60))
def test_head_and_tail_of_any_stream_are_kept(pieces: list[bytes], limit: int) -> None:
    capture = Capture(limit)
    for piece in pieces:
        capture.feed(piece)
    whole = b"".join(pieces)
    head, tail = whole[: limit // 2], whole[len(whole) - (limit - limit // 2) :]
    gap = f"\n[{len(whole) - limit} bytes cut]\n".encode()
    assert capture.total == len(whole)
    assert capture.value() == (whole if len(whole) <= limit else head + gap + tail)


@pytest.mark.parametrize(
    "script",
    [
        'printf new >"$SANDBOX_REPORT"',
        'printf ne >>"$SANDBOX_REPORT"; printf w >"$SANDBOX_REPORT"',
        'exec 3>"$SANDBOX_REPORT"; (printf n >&3); printf ew >&3',
        # As the plugin opens it.
        f"{SYSTEM_PYTHON} -c \"import os; os.write(os.open(os.environ['SANDBOX_REPORT'], "
        "os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), b'new')\"",
    ],
)
def test_every_way_of_writing_reaches_the_pipe(run: Runner, script: str) -> None:
    assert run.shell(script, report=True).report == b"new"


@pytest.mark.parametrize(
    "attack",
    [
        *('rm -f "$SANDBOX_REPORT"', ': >"$SANDBOX_REPORT"', 'mv /dev/null "$SANDBOX_REPORT"'),
        *('ln -sf /etc/passwd "$SANDBOX_REPORT"',),
        *('cp -f /etc/passwd "$SANDBOX_REPORT.new" && mv "$SANDBOX_REPORT.new" "$SANDBOX_REPORT"',),
        *('chmod 0666 "$SANDBOX_REPORT"', 'truncate -s 0 "$SANDBOX_REPORT"'),
        *('timeout 1 cat "$SANDBOX_REPORT"', 'mv "${SANDBOX_REPORT%/*}" /tmp/away'),
    ],
)
def test_what_was_written_cannot_be_taken_back(isolated: Runner, attack: str) -> None:
    script = f'printf truth >"$SANDBOX_REPORT"; {attack} 2>/dev/null; test -p "$SANDBOX_REPORT"'
    result = isolated.shell(script, report=True)
    assert (result.exit_code, result.report) == (0, b"truth")


def test_the_command_cannot_read_its_report(isolated: Runner) -> None:
    result = isolated.shell('cat "$SANDBOX_REPORT"', report=True)
    assert result.exit_code == 1
    assert b"Permission denied" in result.stderr


def test_an_open_pipe_does_not_open_itself_for_reading(isolated: Runner) -> None:
    code = """
import os, errno
path = os.environ["SANDBOX_REPORT"]
held = os.open(path, os.O_WRONLY)
os.write(held, b"truth")
refused = 0
for attempt in (
    lambda: os.fchmod(held, 0o666),
    lambda: os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK),
    lambda: os.open(path, os.O_RDWR | os.O_NONBLOCK),
    lambda: os.link(path, "/tmp/report"),
    lambda: os.truncate(path, 0),
):
    try: attempt()
    except OSError: refused += 1
raise SystemExit(refused)
"""
    result = isolated.python(code, report=True)
    assert (result.exit_code, result.report) == (5, b"truth")


def test_a_report_is_cut_at_its_limit_and_the_rest_counted(run: Runner) -> None:
    script = 'head -c 500000 /dev/zero >"$SANDBOX_REPORT"'
    result = run.shell(script, report=True, report_size=40_000)
    assert (result.ended, result.exit_code) == (Ended.EXITED, 0)
    assert (result.report, result.report_dropped) == (bytes(40_000), 460_000)


def test_a_daemon_that_holds_the_pipe_does_not_delay_the_result(run: Runner) -> None:
    result = run.shell('sleep 20 3>"$SANDBOX_REPORT" & printf x >"$SANDBOX_REPORT"', report=True)
    assert (result.exit_code, result.report) == (0, b"x")
    assert result.seconds < 5


def test_without_a_report_there_is_no_place_for_one(run: Runner) -> None:
    script = 'echo "${SANDBOX_REPORT-none}"; test ! -e /report'
    assert run.shell(script).stdout == b"none\n"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[ReportPipe]:
    made = ReportPipe(tmp_path / "report", limit=1 << 20)
    yield made
    made.close()


def test_an_idle_pipe_costs_no_time(pipe: ReportPipe) -> None:
    """Without a writer, a pipe would report end of file again and again."""
    process = started("sleep", "0.5")
    before = time.thread_time()
    outcome = watch(process, Limits(), None, process.kill, report=pipe)
    assert time.thread_time() - before < 0.1
    assert outcome.cut is None


def test_a_reader_that_is_behind_loses_nothing(tmp_path: Path, pipe: ReportPipe) -> None:
    """A thread of a process that ends at once writes more than the pipe holds."""
    size = 3 * 1024 * 1024
    target = str(tmp_path / "report")
    process = started("sh", "-c", f'head -c {size} /dev/zero >"$1"', "sh", target)
    watch(process, Limits(), threading.Event(), process.kill, report=pipe)
    assert pipe.capture.total == size
