"""Attacks that exhaust processes, memory, disk, time or output."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.types import Ended, RunResult
from tests.attack.cases import HARMFUL, MIB, RunCase
from tests.support.attack_traps import canaries, survivors


def ended(*how: Ended) -> Callable[[RunResult], str]:
    """Make a check that the run ended in one of these ways."""
    return lambda result: "" if result.ended in how else f"it ended by {result.ended}"


def _few_processes(result: RunResult) -> str:
    started = [int(line.split()[1]) for line in result.stdout.splitlines() if b"started" in line]
    if not started:
        return "" if result.ended is Ended.PROCESS_LIMIT else "it did not say how far it came"
    return "" if started[-1] <= 40 else f"it started {started[-1]} processes"


def _at_most(written: int) -> Callable[[RunResult], str]:
    def problem(result: RunResult) -> str:
        sizes = [int(line.split()[1]) for line in result.stdout.splitlines() if b"wrote" in line]
        if result.ended is Ended.DISK_LIMIT:
            return ""
        if not sizes and result.ended is Ended.EXITED:
            return "it did not say how far it came"
        return "" if max(sizes, default=0) <= written else f"it wrote {max(sizes)} bytes"

    return problem


def _little_output(result: RunResult) -> str:
    kept = len(result.stdout) + len(result.stderr)
    return "" if kept <= 3 * MIB else f"{kept} bytes were kept"


EXHAUSTING = (
    RunCase(name="fork bomb", does="forks until it is refused; every child sleeps",
        stopped_by="process limit (pids cgroup, RLIMIT_NPROC of a uid of its own)", trap=survivors,
        limits={"processes": 40, "wall_seconds": 10}, problem=_few_processes, control=HARMFUL,
        script="""
started = 0
try:
    while started < 2000:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        started += 1
except OSError:
    pass
print("started", started, flush=True)
"""),
    RunCase(name="endless output", does="writes to both streams without end",
        stopped_by="output limit; head and tail are kept",
        limits={"output": MIB, "wall_seconds": 10, "cpu_seconds": 5}, problem=_little_output,
        control=HARMFUL, script="""
block = b"x" * 65536
while True:
    os.write(1, block)
    os.write(2, block)
"""),
    RunCase(name="endless report", does="writes a report without end",
        stopped_by="report limit; what came beyond it is dropped", report=True,
        limits={"report": MIB, "wall_seconds": 4, "cpu_seconds": 4},
        problem=lambda result: "" if len(result.report) <= MIB else f"{len(result.report)} kept",
        control=HARMFUL, script="""
with open(os.environ["SANDBOX_REPORT"], "wb", buffering=0) as report:
    while True:
        report.write(b"x" * 65536)
"""),
    RunCase(name="one huge file", does="writes one file without end", stopped_by="RLIMIT_FSIZE",
        limits={"file_size": 4 * MIB, "wall_seconds": 10}, problem=_at_most(4 * MIB),
        control=HARMFUL, script="""
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
written = 0
with open("fill", "wb", buffering=0) as file:
    while written < 64 * 2**20:
        done = attempt(file.write, b"x" * 2**20)
        if not done:
            break
        written += done
print("wrote", written, flush=True)
"""),
    RunCase(name="full workspace", does="writes many files into its workspace",
        stopped_by="workspace limit, watched while it runs",
        limits={"workspace": 24 * MIB, "file_size": 8 * MIB, "wall_seconds": 20},
        problem=ended(Ended.DISK_LIMIT), control=HARMFUL, script="""
for number in range(400):
    with open(f"fill-{number}", "wb") as file:
        file.write(b"x" * 2**20)
    time.sleep(0.03)
"""),
    RunCase(name="full /tmp", does="writes into /tmp and /dev/shm until they are full",
        stopped_by="both are part of the workspace; the container's /dev/shm has a fixed size",
        limits={"workspace": 64 * MIB, "wall_seconds": 25},
        problem=_at_most(64 * MIB + 64 * MIB), control=HARMFUL, script="""
written = 0
for place in (temporary, "/dev/shm"):
    for number in range(200):
        try:
            with open(f"{place}/fill-{number}", "wb", buffering=0) as file:
                written += file.write(b"x" * 2**20)
        except OSError:
            break
        time.sleep(0.03)
print("wrote", written, flush=True)
"""),
    RunCase(name="many empty files", does="makes empty files in its workspace without end",
        stopped_by="workspace limit: an entry counts as a block",
        limits={"workspace": 8 * MIB, "wall_seconds": 25}, problem=ended(Ended.DISK_LIMIT),
        control=HARMFUL, script="""
for number in range(100_000):
    os.close(os.open(f"empty-{number}", os.O_CREAT))
    if number % 1000 == 0:
        time.sleep(0.1)
time.sleep(10)
"""),
    RunCase(name="many empty files in /tmp", does="makes empty files in /tmp without end",
        stopped_by="part of the workspace: an entry counts as a block",
        limits={"workspace": 8 * MIB, "wall_seconds": 25},
        problem=ended(Ended.DISK_LIMIT), control=HARMFUL, script="""
for number in range(100_000):
    os.close(os.open(f"{temporary}/empty-{number}", os.O_CREAT))
    if number % 1000 == 0:
        time.sleep(0.1)
time.sleep(10)
"""),
    RunCase(name="memory", does="takes memory until it is refused",
        stopped_by="memory cgroup where there is one, RLIMIT_AS of each process",
        limits={"address_space": 512 * MIB, "memory": 512 * MIB, "wall_seconds": 15},
        control=HARMFUL, script="""
held = []
try:
    for _ in range(64):
        held.append(bytearray(64 * 2**20))
except MemoryError:
    print("refused after", len(held), flush=True)
else:
    print("got 4 GiB", flush=True)
"""),
    RunCase(name="memory of many",
        does="shares the taking of memory among processes, each below its own limit",
        stopped_by="memory cgroup (without one: out of reach, `agent doctor` says so)",
        needs="total-memory-limit",
        limits={"address_space": 512 * MIB, "memory": 384 * MIB, "wall_seconds": 20},
        control=HARMFUL, script="""
alive = []
for number in range(8):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        held = bytearray(128 * 2**20)
        os.write(write, b"held")
        time.sleep(20)
        os._exit(0)
    os.close(write)
    alive.append((child, read))
held = [child for child, read in alive if os.read(read, 4) == b"held"]
print("got 1 GiB" if len(held) == 8 else f"refused: {len(held)} of 8", flush=True)
for child, _ in alive:
    attempt(os.kill, child, signal.SIGKILL)
"""),
    RunCase(name="endless computation", does="computes without end, in several processes",
        stopped_by="RLIMIT_CPU of each process and the wall clock",
        limits={"cpu_seconds": 2, "wall_seconds": 4}, trap=survivors,
        problem=ended(Ended.CPU_LIMIT, Ended.WALL_LIMIT, Ended.SIGNALLED), control=HARMFUL,
        script="""
for _ in range(3):
    os.fork()
while True:
    pass
"""),
    RunCase(name="sleep", does="sleeps without end and ignores every signal that it may",
        stopped_by="wall clock, then SIGKILL to the whole PID namespace",
        limits={"wall_seconds": 1}, trap=survivors, problem=ended(Ended.WALL_LIMIT),
        control="would only sleep", script="""
for number in range(1, 32):
    attempt(signal.signal, number, signal.SIG_IGN)
while True:
    time.sleep(60)
"""),
    RunCase(name="surviving daemon",
        does="forks twice, leaves the session and the process group, closes its streams",
        stopped_by="PID namespace: nothing of it outlives the run", needs="pid-namespace",
        trap=survivors, limits={"wall_seconds": 10}, script="""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        time.sleep(60)
    os._exit(0)
time.sleep(0.2)
"""),
    RunCase(name="stopped first process", does="stops and kills process 1 of its namespace",
        stopped_by="a signal of a child does not stop it; if it dies everything dies",
        trap=survivors, limits={"wall_seconds": 3}, control="process 1 of this machine is not ours",
        script="""
for number in (signal.SIGSTOP, signal.SIGKILL):
    attempt(os.kill, 1, number)
time.sleep(0.3)
"""),
    RunCase(name="deep and closed folders",
        does="leaves folders that are 1,000 deep, without permissions, and links to the host",
        stopped_by="removal by file descriptor, which follows no link", trap=canaries,
        limits={"wall_seconds": 15}, control="the removal is our own", script="""
places, word = json.loads(arguments[0]), arguments[1]
for number, place in enumerate(places):
    os.symlink(os.path.dirname(place), f"link-{number}")
os.mkfifo("pipe")
here = os.open(".", os.O_RDONLY)
for _ in range(1000):
    os.mkdir("d")
    os.chdir("d")
os.fchdir(here)
os.mkdir("closed")
os.mkdir("closed/inner")
os.chmod("closed", 0)
"""),
)  # fmt: skip
