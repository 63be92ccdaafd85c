"""The part that runs in the caller's process: it starts the worker and returns its patch in time.

`agent bundle` carries this file unchanged: standard library only, no dataclasses (the fourth
version's loader does not register the module), and a syntax that every Python since 3.7 reads.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

OLDEST_PYTHON = (3, 11)

# The contract's names (see docs/guide/miner.md). Nothing else is read, above all not `test_patch`.
INPUT_KEYS = ("instance_id", "problem_statement", "repo", "base_commit", "run_id")

# Used when no clock is given: the shortest that version three is known to have given.
DEFAULT_SECONDS = 1500.0

# The caller's clock also covers its own start and its check of the patch: 5% of it, within these.
RESERVE_SHARE = 0.05
RESERVE_RANGE = (15.0, 90.0)

# The worker ends by itself this long before its time is up, at most this share of a short clock.
WRAP_UP_SECONDS = 5.0
WRAP_UP_SHARE = 0.1
GRACE_SECONDS = 3.0  # for a worker after its last message, and after it was asked to end
# If the caller was killed and the worker hangs, the kernel ends it this long after the clock.
ALARM_SECONDS = 30.0
_LONGEST_ALARM = 1 << 30  # seconds that alarm(2) takes

# The worker's first lines. Any Python must be able to read them, and they use none of our modules.
BOOT = """
import json, os, signal, sys
out = os.dup(1)
os.dup2(2, 1)
task = json.loads(sys.stdin.buffer.readline())
signal.alarm(task["alarm"])
def end(error, message):
    line = json.dumps({"end": {"error": error, "message": message}}) + "\\n"
    os.write(out, line.encode())
    sys.exit(1)
if sys.version_info < tuple(task["oldest"]):
    end("ConfigurationError", "Python %s or newer is needed, this is %s at %s; name another one "
        "with PATCHSHOT_MINER_PYTHON" % (".".join(map(str, task["oldest"])),
        sys.version.split()[0], sys.executable))
sys.path[:] = [task["place"]] + (sys.path if task["path"] is None else task["path"])
from importlib.util import find_spec
missing = [need[1:] for need in task["requirements"] if find_spec(need[0]) is None]
if missing:
    end("ConfigurationError", "packages are missing: %s; install them: %s -m pip install %s" % (
        ", ".join(need[0] for need in missing), sys.executable,
        " ".join("'%s'" % need[1] for need in missing)))
from agent.miner.worker import main
main(task, out)
"""


class Program(NamedTuple):
    """The code that the worker runs: the folder `path`, or `files` (path -> text) to be written.

    `requirements`: (import name, package, requirement) of what must be installed.
    """

    path: str = ""
    files: Mapping[str, str] = MappingProxyType({})
    requirements: tuple[tuple[str, str, str], ...] = ()


class MinerResult(NamedTuple):
    """A patch, or the name of an error of `agent.errors` and its message."""

    patch: str = ""
    error: str = ""
    message: str = ""


class AgentFailure(RuntimeError):
    """Raised by a bundle when there is no valid patch, or something is missing to make one."""


class TransportFailure(AgentFailure, ConnectionError):
    """The model could not be reached or refused: not a failure of the agent."""


def answer(task: Any, program: Program, environ: Mapping[str, str]) -> str | dict[str, str]:
    """The result of a bundle's `agent_main`. Raises AgentFailure."""
    outcome = solve(task, program, environ)
    if outcome.patch:
        return as_answer(outcome.patch, environ)
    transport = outcome.error == "ProviderError"
    raise (TransportFailure if transport else AgentFailure)(outcome.message)


def solve(task: Any, program: Program, environ: Mapping[str, str]) -> MinerResult:
    """Run the worker on a task of the contract. Takes at most the clock and some seconds."""
    started = time.monotonic()
    if task is not None and not isinstance(task, Mapping):
        message = "the input must be a dict, as the contract says"
        return MinerResult(error="UsageError", message=message)
    given = {key: (task or {}).get(key) for key in INPUT_KEYS}
    for key, value in given.items():
        if not isinstance(value, (str, type(None))):
            return MinerResult(error="UsageError", message=f"input[{key!r}] must be a text or None")
    seconds = clock(environ)
    deadline = started + seconds
    wrap_up = min(WRAP_UP_SECONDS, WRAP_UP_SHARE * seconds)
    try:
        with _private_folder() as folder:
            place = Path(program.path) if program.path else _unpack(program.files, folder / "code")
            header = {
                **given,
                "caller": os.getpid(),
                "folder": str(folder),
                "alarm": min(math.ceil(deadline + ALARM_SECONDS - started), _LONGEST_ALARM),
                "seconds": deadline - wrap_up - time.monotonic(),
                "oldest": OLDEST_PYTHON,
                "place": str(place),
                "path": _import_path(),
                "requirements": list(program.requirements),
            }
            return _run(header, folder, environ, deadline)
    except OSError as error:
        return MinerResult(error="ConfigurationError", message=f"the worker cannot be run: {error}")


def clock(environ: Mapping[str, str]) -> float:
    """Seconds for the whole call: AGENT_TIMEOUT less a reserve, else PATCHSHOT_TIMEOUT or 1500.

    With both, the shorter one. A value that is not a positive number counts as not given.
    """
    own = _seconds(environ.get("PATCHSHOT_TIMEOUT"))
    agreed = _seconds(environ.get("AGENT_TIMEOUT"))
    if agreed is None:
        return own or DEFAULT_SECONDS
    least, most = RESERVE_RANGE
    reserve = min(max(RESERVE_SHARE * agreed, least), most, agreed / 2)
    return min(agreed - reserve, own or math.inf)


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def as_answer(patch: str, environ: Mapping[str, str]) -> str | dict[str, str]:
    """The patch in the form of the caller's version of the contract.

    The first version alone names its proxy AI_PROXY_URL. PATCHSHOT_MINER_ANSWER wins over that.
    """
    wish = environ.get("PATCHSHOT_MINER_ANSWER", "").strip().lower()
    later = ("SANDBOX_PROXY_URL", "EVALUATION_RUN_ID", "OPENROUTER_API_KEY")
    first = bool(environ.get("AI_PROXY_URL")) and not any(environ.get(name) for name in later)
    return {"patch": patch} if wish == "dict" or (first and wish != "text") else patch


# ------------------------------------------------------------------------------------- the worker


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    """A folder for everything that the worker writes; it is removed afterwards in any case."""
    base = tempfile.gettempdir()
    if Path(base).resolve() == Path.cwd().resolve():
        raise OSError("no temporary folder can be written; set TMPDIR to one outside the tree")
    folder = Path(tempfile.mkdtemp(prefix="patchshot-miner-", dir=base))
    try:
        (folder / "tmp").mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(files: Mapping[str, str], folder: Path) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8"))
    return folder


def _import_path() -> list[str]:
    """The caller's path without the working directory and work trees: they hold target modules."""
    here = Path.cwd().resolve()
    entries = [Path(entry) for entry in sys.path if Path(entry).is_absolute()]
    return [
        str(entry) for entry in entries if entry.resolve() != here and not (entry / ".git").exists()
    ]


def _run(
    header: Mapping[str, Any], folder: Path, environ: Mapping[str, str], deadline: float
) -> MinerResult:
    python = environ.get("PATCHSHOT_MINER_PYTHON") or sys.executable
    if not python:
        raise OSError("the interpreter is unknown; name one with PATCHSHOT_MINER_PYTHON")
    if python != sys.executable:
        header = {**header, "path": None}
    private = {
        "TMPDIR": str(folder / "tmp"),
        "PATCHSHOT_CACHE_DIR": environ.get("PATCHSHOT_CACHE_DIR") or str(folder / "cache"),
    }
    # -I: neither a variable nor the working directory decides where modules come from.
    process = subprocess.Popen(
        [python, "-I", "-c", BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environ, **private},
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once; its output tells how
            process.stdin.write(json.dumps(header).encode("ascii") + b"\n")
            process.stdin.flush()
        return _collect(process, deadline)
    finally:
        _end(process)


def _collect(process: subprocess.Popen[bytes], deadline: float) -> MinerResult:
    patch = ""
    for line in _lines(process, deadline):
        if "end" in line:
            end = line["end"]
            return MinerResult(patch, end["error"], end["message"])
        patch = line["patch"] or ""
    if time.monotonic() >= deadline:
        message = "no valid patch within the time (AGENT_TIMEOUT less a reserve, else 1500 s)"
        return MinerResult(patch, "TimeLimitExceeded", message)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    how = "without a word" if process.returncode is None else f"with code {process.returncode}"
    message = f"the worker ended early, {how}; its last lines on stderr say why"
    return MinerResult(patch, "PatchshotError", message)


def _lines(process: subprocess.Popen[bytes], deadline: float) -> Iterator[dict[str, Any]]:
    """Yield `{"patch": text or null}` for each better patch, then `{"end": {...}}`."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    rest = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if not poll.poll(min(left, 60.0) * 1000):
            continue
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line.decode("ascii"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the worker to end, then kill it with all that descends from it."""
    with contextlib.suppress(OSError):
        process.stdin.close()  # type: ignore[union-attr]
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    if process.poll() is None:
        for pid in [process.pid, *_descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)  # a process that hangs inside the kernel is left there
    if process.stdout is not None:
        process.stdout.close()


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    descendants = [root]
    for pid in descendants:
        descendants.extend(children.get(pid, []))
    return descendants[1:]
