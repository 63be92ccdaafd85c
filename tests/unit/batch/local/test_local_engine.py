"""`agent.batch.local.local_engine`: a worker that dies or hangs costs its own job alone."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from agent.batch.local.local_engine import LocalEngine
from agent.batch.local.worker_processes import CommandSpawner
from agent.batch.messages import Answer, Ask, AttemptEnded, Pace, SolveJob, WorkerReport
from agent.errors import Status
from tests.support.batch import make_job

# What every scripted worker begins with: the job is read, `say` sends a report.
BEGIN = """
import json, os, signal, sys, time
job = json.loads(sys.stdin.readline())
def say(**report):
    print(json.dumps(report), flush=True)
def end():
    say(kind="ended", status="accepted", blame="none", message=job["task"]["instance_id"])
"""


class Listener:
    """A handler that keeps what it hears and answers with `answer`."""

    def __init__(self, answer: Callable[[], Answer | None] = lambda: Answer(granted=True)) -> None:
        self.heard: list[WorkerReport] = []
        self.left: list[str] = []
        self._answer = answer
        self.stuck = asyncio.Event()

    async def handle(self, job: SolveJob, report: WorkerReport) -> Answer | None:
        self.heard.append(report)
        if isinstance(report, Pace):
            self.stuck.set()
            await asyncio.Event().wait()  # a turn that never comes
        return self._answer() if isinstance(report, Ask) else None

    async def worker_exited(self, job: SolveJob) -> None:
        self.left.append(job.task.instance_id)


def run(
    folder: Path,
    *scripts: str,
    seconds: float = 20.0,
    listener: Listener | None = None,
    cores: int | None = None,
    slot_seconds: float = 60.0,
) -> list[AttemptEnded]:
    """How a job for each script ends, all at once, in the order of the scripts."""

    async def go() -> list[AttemptEnded]:
        script = f"{BEGIN}\nexec({list(scripts)!r}[job['attempt'] - 1])"
        command = (sys.executable, "-c", script)
        engine = LocalEngine(
            listener or Listener(),
            seconds,
            CommandSpawner(command),
            stop_seconds=5.0,
            cores=cores,
            slot_seconds=slot_seconds,
        )
        for number in range(1, len(scripts) + 1):
            job = make_job(number, folder / str(number))
            engine.submit(job.model_copy(update={"attempt": number}))
        found = {job.attempt: ended async for job, ended in engine.as_completed()}
        return [found[number] for number in sorted(found)]

    return asyncio.run(go())


def test_the_last_word_is_what_comes_out(tmp_path: Path) -> None:
    listener = Listener()
    done = run(tmp_path, "end()", "end()", listener=listener)
    assert [ended.message for ended in done] == ["owner__shop-1", "owner__shop-2"]
    assert sorted(listener.left) == ["owner__shop-1", "owner__shop-2"]


def test_each_death_has_its_reason_and_the_others_live(tmp_path: Path) -> None:
    dead = run(
        tmp_path,
        "os.kill(os.getpid(), signal.SIGKILL)",
        "print('no such thing', file=sys.stderr); sys.exit(3)",
        "os.abort()",
        "print('nonsense', flush=True); time.sleep(60)",
        "end()",
    )
    assert [ended.blame for ended in dead] == ["crash"] * 4 + ["none"]
    assert [ended.message for ended in dead][:3] == [
        "the worker was killed by SIGKILL (out of memory?)",
        "the worker ended with exit code 3: no such thing",
        "the worker was killed by SIGABRT",
    ]
    assert {ended.status for ended in dead[:4]} == {Status.CRASHED}


def test_one_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    hang = (
        "import subprocess; child = subprocess.Popen(['sleep', '60']); "
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    )
    begin = time.monotonic()
    (ended,) = run(tmp_path, hang, seconds=1.0)
    assert time.monotonic() - begin < 10
    assert (ended.blame, ended.message) == ("crash", "took longer than 1 s and was ended")
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not _lives(child):
            return
        time.sleep(0.05)
    pytest.fail("the worker's child outlived it")


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_question_is_answered(tmp_path: Path) -> None:
    script = (
        "say(kind='ask', sha256='a', worst_usd=0.5); answer = json.loads(sys.stdin.readline()); "
        "say(kind='ended', status='budget', blame='budget', message=answer['reason'])"
    )
    listener = Listener(lambda: Answer(granted=False, reason="nothing is left"))
    (ended,) = run(tmp_path, script, listener=listener)
    assert ended.message == "nothing is left"
    assert listener.heard == [Ask(sha256="a", worst_usd=0.5)]


@pytest.mark.slow
def test_tests_of_all_workers_share_the_cores(tmp_path: Path) -> None:
    """The second worker's turn comes when the first gives its back, the third's when it dies."""
    script = f"""
def note(what):
    with open({str(tmp_path / "notes")!r}, "a") as notes:
        notes.write(f"{{what}} {{job['attempt']}}\\n")
time.sleep(0.5 * job["attempt"])
say(kind="slot-request")
assert json.loads(sys.stdin.readline())["kind"] == "slot-granted"
note("begin")
say(kind="ask", sha256="a", worst_usd=None)
assert json.loads(sys.stdin.readline())["granted"]
time.sleep(1.5)
note("end")
if job["attempt"] == 2:
    os.kill(os.getpid(), signal.SIGKILL)
say(kind="slot-released")
time.sleep(0.5)
end()
"""
    done = run(tmp_path, script, script, script, cores=1)
    assert [ended.blame for ended in done] == ["none", "crash", "none"]
    noted = (tmp_path / "notes").read_text().split("\n")
    assert noted[:-1] == [f"{what} {number}" for number in (1, 2, 3) for what in ("begin", "end")]


WAITS = """
say(kind="slot-request")
assert json.loads(sys.stdin.readline())["kind"] == "slot-granted"
"""


def test_waiting_for_a_turn_does_not_count(tmp_path: Path) -> None:
    first = f"{WAITS}\ntime.sleep(2.0); say(kind='slot-released'); end()"
    second = f"time.sleep(0.5)\n{WAITS}\ntime.sleep(0.5); say(kind='slot-released'); end()"
    begin = time.monotonic()
    done = run(tmp_path, first, second, cores=1, seconds=2.4)
    assert [ended.blame for ended in done] == ["none", "none"]
    assert time.monotonic() - begin > 2.4, "the second has taken longer than its limit"
    (ended,) = run(tmp_path / "late", f"{WAITS}\ntime.sleep(60)", cores=1, seconds=1.0)
    assert ended.message == "took longer than 1 s and was ended"


def test_a_worker_that_hangs_in_its_turn_does_not_keep_it(tmp_path: Path) -> None:
    hangs = f"{WAITS}\ntime.sleep(60)"
    waits = f"time.sleep(0.3)\n{WAITS}\nsay(kind='slot-released'); end()"
    done = run(tmp_path, hangs, waits, cores=1, seconds=4.0, slot_seconds=1.0)
    assert [ended.blame for ended in done] == ["crash", "none"]


def test_nobody_waits_on_behalf_of_a_worker_that_is_gone(tmp_path: Path) -> None:
    begin = time.monotonic()
    (ended,) = run(tmp_path, "say(kind='pace'); os.kill(os.getpid(), signal.SIGKILL)")
    assert ended.blame == "crash"
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("polite", [True, False])
def test_cancelled_workers_are_asked_then_made_to_stop(tmp_path: Path, polite: bool) -> None:
    stop = (
        "signal.signal(signal.SIGTERM, lambda *_: (say(kind='ended', status='interrupted', "
        "blame='stopped', message='as asked'), os._exit(0)))"
        if polite
        else "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    script = f"{BEGIN}\n{stop}\nsay(kind='pace')\ntime.sleep(60)"

    async def go() -> AttemptEnded:
        listener = Listener()
        command = (sys.executable, "-c", script)
        engine = LocalEngine(listener, 60.0, CommandSpawner(command), stop_seconds=0.5)
        engine.submit(make_job(1, tmp_path / "1"))
        completed = engine.as_completed()
        first = asyncio.ensure_future(anext(completed))
        await listener.stuck.wait()
        await engine.cancel()
        ended = (await first)[1]
        await completed.aclose()
        return ended

    ended = asyncio.run(asyncio.wait_for(go(), 20))
    assert ended.blame == "stopped"


def test_a_broker_that_fails_ends_the_run_and_leaves_no_worker(tmp_path: Path) -> None:
    def full() -> Answer:
        raise OSError(28, "No space left on device")

    waits = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); sys.stdin.read()"
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path, waits, "time.sleep(1); say(kind='ask', sha256='a', worst_usd=0.5)",
            listener=Listener(full))  # fmt: skip
    assert not _lives(int((tmp_path / "pid").read_text()))


def test_what_a_worker_prints_is_in_its_log(tmp_path: Path) -> None:
    run(tmp_path, "print('a word', file=sys.stderr); end()")
    assert (tmp_path / "1" / "log.txt").read_text() == "a word\n"


def test_the_worker_finds_the_package_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)

    async def go() -> AttemptEnded:
        engine = LocalEngine(Listener(lambda: None), 60.0)
        engine.submit(make_job(1, tmp_path / "1"))
        async with aclosing(engine.as_completed()) as completed:
            return (await anext(completed))[1]

    ended = asyncio.run(go())
    assert (ended.blame, ended.status) == ("row", Status.USAGE)
    assert "nowhere" in ended.message
    assert (tmp_path / "1" / "lock").exists()
