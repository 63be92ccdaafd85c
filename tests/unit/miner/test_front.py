"""The caller's side of the miner contract, with small workers in place of the real one."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.miner import front
from agent.miner.front import MinerResult, Program, as_answer, clock, solve

TASK = {"problem_statement": "It fails."}
SAY = """
import json, os
def main(task, out):
    def say(**line):
        os.write(out, json.dumps(line).encode() + b"\\n")
"""


def program(body: str, requirements: tuple[tuple[str, str, str], ...] = ()) -> Program:
    """A program whose worker does `body`; `say` reports and `task` is what it was sent."""
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    files = {
        "agent/__init__.py": "",
        "agent/miner/__init__.py": "",
        "agent/miner/worker.py": SAY + indented,
    }
    return Program(files=files, requirements=requirements)


def environ(**more: str) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], **more}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory and a temporary folder of the test's own; the latter is empty after."""
    places = tmp_path / "cwd", tmp_path / "tmp"
    for place in places:
        place.mkdir()
    monkeypatch.chdir(places[0])
    monkeypatch.setattr(tempfile, "tempdir", str(places[1]))
    monkeypatch.setattr(front, "GRACE_SECONDS", 0.5)
    yield places[1]
    assert [path.name for path in places[1].iterdir()] == []


# --------------------------------------------------------------------------- clock, answer, input


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, 1500.0),
        ({"AGENT_TIMEOUT": "2400"}, 2310.0),  # 5% would be 120: at most 90
        ({"AGENT_TIMEOUT": "1500"}, 1425.0),
        ({"AGENT_TIMEOUT": "100"}, 85.0),  # at least 15
        ({"AGENT_TIMEOUT": "20"}, 10.0),  # never more than half
        ({"AGENT_TIMEOUT": "1500", "PATCHSHOT_TIMEOUT": "60"}, 60.0),
        ({"AGENT_TIMEOUT": "100", "PATCHSHOT_TIMEOUT": "600"}, 85.0),
        ({"PATCHSHOT_TIMEOUT": "60"}, 60.0),
        ({"AGENT_TIMEOUT": ""}, 1500.0),
        ({"AGENT_TIMEOUT": "soon"}, 1500.0),
        ({"AGENT_TIMEOUT": "-5"}, 1500.0),
        ({"AGENT_TIMEOUT": "nan"}, 1500.0),
        ({"AGENT_TIMEOUT": "inf"}, 1500.0),
    ],
)
def test_clock(variables: Mapping[str, str], seconds: float) -> None:
    assert clock(variables) == seconds


V1 = {"AI_PROXY_URL": "http://proxy", "AI_EMBEDDING_PROXY_URL": "http://proxy"}
V2 = {"SANDBOX_PROXY_URL": "http://proxy", "RUN_ID": "r"}
V3 = {"SANDBOX_PROXY_URL": "http://proxy", "EVALUATION_RUN_ID": "r", "AGENT_TIMEOUT": "1500"}
V4 = {**V3, "RIDGES_MAX_COST_USD": "1", "OPENROUTER_API_KEY": "k"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (V1, {"patch": "diff"}),
        (V2, "diff"),
        (V3, "diff"),
        (V4, "diff"),
        ({}, "diff"),
        ({**V1, **V3}, "diff"),
        ({**V1, "PATCHSHOT_MINER_ANSWER": "text"}, "diff"),
        ({**V4, "PATCHSHOT_MINER_ANSWER": "dict"}, {"patch": "diff"}),
    ],
)
def test_answer_of_each_version(
    variables: Mapping[str, str], expected: str | dict[str, str]
) -> None:
    assert as_answer("diff", variables) == expected


class Guarded(dict[str, object]):
    """An input whose `test_patch` must not be looked at."""

    def __getitem__(self, key: str) -> object:
        assert key != "test_patch"
        return super().__getitem__(key)

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        assert key != "test_patch"
        return super().get(key, default)

    def items(self) -> object:  # type: ignore[override]
        raise AssertionError("the input is read key by key")

    values = keys = __iter__ = items  # type: ignore[assignment]


def test_the_worker_gets_the_named_keys_and_nothing_else() -> None:
    task = Guarded(problem_statement="It fails.", run_id=None, test_patch="secret", extra=1)
    echo = program("say(patch=json.dumps(sorted(k for k in task if task[k] is not None)))")
    outcome = solve(task, echo, environ())
    ours = {"alarm", "caller", "folder", "oldest", "path", "place", "requirements", "seconds"}
    assert set(_json(outcome.patch)) == {"problem_statement", *ours}


@pytest.mark.parametrize("task", [["It fails."], "It fails.", {"problem_statement": 3}])
def test_other_inputs_are_refused(task: object) -> None:
    outcome = solve(task, program('say(patch="diff")'), environ())
    assert (outcome.patch, outcome.error) == ("", "UsageError")
    assert "input" in outcome.message


# ------------------------------------------------------------------ what becomes of the worker


@pytest.mark.parametrize(("last", "patch"), [('"two"', "two"), ("None", "")])
def test_the_last_patch_is_handed_back_unless_it_is_taken_back(last: str, patch: str) -> None:
    end = 'say(end={"error": "BudgetExceeded", "message": "m"})'
    worker = program(f'say(patch="one")\nsay(patch={last})\n{end}')
    assert solve(TASK, worker, environ()) == MinerResult(patch, "BudgetExceeded", "m")


HANGS = {
    "sleeping": "import time\ntime.sleep(60)",
    # A match that takes ages holds the interpreter's lock: no thread of that process could act.
    "holding the lock": 'import re\nre.match("(a+)+$", "a" * 60 + "b")',
    "deaf to signals": (
        "import signal, time\n"
        "for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
        "time.sleep(60)"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS.keys())
def test_a_stage_that_hangs_does_not_cost_the_patch(hang: str) -> None:
    begin = time.monotonic()
    outcome = solve(TASK, program(f'say(patch="diff")\n{hang}'), environ(PATCHSHOT_TIMEOUT="4"))
    assert outcome.patch == "diff"
    assert time.monotonic() - begin < 4 + front.GRACE_SECONDS + 3


DEATHS = {
    "killed": "import signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "aborted": "os.abort()",
    "an error": 'raise RuntimeError("a bug")',
}


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS.keys())
def test_a_worker_that_dies_leaves_its_patch(death: str) -> None:
    assert solve(TASK, program(f'say(patch="diff")\n{death}'), environ()).patch == "diff"
    without = solve(TASK, program(death), environ())
    assert (without.patch, without.error) == ("", "PatchshotError")
    assert "stderr" in without.message


@pytest.mark.slow
def test_what_the_worker_started_dies_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"""
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
nested = "import subprocess; subprocess.Popen(%r, start_new_session=True).wait()" % sleep
child = subprocess.Popen([sys.executable, "-c", nested], start_new_session=True)
time.sleep(0.5)
open({str(pids)!r}, "w").write(str(child.pid))
{HANGS["deaf to signals"]}
"""
    solve(TASK, program(body), environ(PATCHSHOT_TIMEOUT="5"))
    deadline = time.monotonic() + 5
    while _alive(int(pids.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(int(pids.read_text()))
    assert not [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"time.sleep(60)" in _bytes(path) and b"start_new_session" in _bytes(path)
    ]


def _alive(pid: int) -> bool:
    status = _bytes(Path(f"/proc/{pid}/stat"))
    return bool(status) and status.rpartition(b")")[2].split()[0] != b"Z"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_worker_without_a_caller_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "ALARM_SECONDS", 0.0)
    monkeypatch.setattr(front, "GRACE_SECONDS", 20.0)  # so it is not the front that kills it
    begin = time.monotonic()
    body = f'say(patch="diff")\n{HANGS["holding the lock"]}'
    assert solve(TASK, program(body), environ(PATCHSHOT_TIMEOUT="4")).patch == "diff"
    assert time.monotonic() - begin < 15


def test_the_worker_hears_when_its_caller_has_had_enough(tmp_path: Path) -> None:
    told = tmp_path / "told"
    body = f'import sys\nsys.stdin.buffer.read()\nopen({str(told)!r}, "w").close()'
    solve(TASK, program(body), environ(PATCHSHOT_TIMEOUT="3"))
    assert told.exists()


# --------------------------------------------------------------------------- where and what it runs


def test_the_worker_has_folders_of_its_own(elsewhere: Path) -> None:
    names = ("TMPDIR", "PATCHSHOT_CACHE_DIR", "HOME")
    echo = program(f"say(patch=json.dumps([os.environ.get(n) for n in {names}] + [os.getcwd()]))")
    temporary, cache, home, cwd = _json(solve(TASK, echo, environ(HOME="/nowhere")).patch)
    assert Path(temporary).is_relative_to(elsewhere)
    assert Path(cache).is_relative_to(elsewhere)
    assert (home, cwd) == ("/nowhere", str(Path.cwd()))
    kept = solve(TASK, echo, environ(PATCHSHOT_CACHE_DIR="/some/cache"))
    assert _json(kept.patch)[1] == "/some/cache"


def _json(text: str) -> list[str]:
    return list(json.loads(text))


def test_modules_of_the_target_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_tree = tmp_path / "target"
    (work_tree / ".git").mkdir(parents=True)
    for folder in (Path.cwd(), work_tree):
        for name in ("json", "trap"):
            (folder / f"{name}.py").write_text('raise SystemExit("of the target")')
    monkeypatch.setattr(sys, "path", ["", str(Path.cwd()), str(work_tree), *sys.path])
    body = "try:\n    import trap\nexcept ImportError:\n    say(patch='none')"
    assert solve(TASK, program(body), environ(PYTHONPATH=str(work_tree))).patch == "none"


def test_missing_packages_are_named_with_their_remedy() -> None:
    wanted = (
        ("json", "json", "json"),
        ("no_such_module", "no-such", "no-such<2,>=1"),
        ("nor_this_one", "nor-this", "nor-this==3"),
    )
    outcome = solve(TASK, program('say(patch="diff")', wanted), environ())
    assert outcome == MinerResult(
        "",
        "ConfigurationError",
        "packages are missing: no-such, nor-this; install them: "
        f"{sys.executable} -m pip install 'no-such<2,>=1' 'nor-this==3'",
    )


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "OLDEST_PYTHON", (3, 99))
    outcome = solve(TASK, program('say(patch="diff")'), environ())
    assert outcome.error == "ConfigurationError"
    assert "Python 3.99 or newer is needed" in outcome.message
    assert "PATCHSHOT_MINER_PYTHON" in outcome.message


def test_nothing_is_written_into_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(Path.cwd()))  # what Python falls back to
    outcome = solve(TASK, program('say(patch="diff")'), environ())
    assert outcome.error == "ConfigurationError"
    assert "TMPDIR" in outcome.message
    assert list(Path.cwd().iterdir()) == []
