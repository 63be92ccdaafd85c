"""Attacks on the files and processes of the host."""

from __future__ import annotations

from tests.attack.cases import CHANGES, RunCase
from tests.support.attack_traps import (
    canaries,
    environment,
    keyring,
    open_files,
    settings,
    shared_memory,
    system,
    victim,
)

_READ_WRITE = """
places, word = json.loads(arguments[0]), arguments[1]
for place in places:
    print(attempt(lambda: open(place).read()))
    attempt(lambda: open(place, "a").write("owned"))
    attempt(lambda: open(os.path.join(os.path.dirname(place), word + "-new"), "w").write("owned"))
    attempt(os.rename, place, place + "-moved")
    attempt(os.unlink, place)
"""

FILES = (
    RunCase(name="files of the host",
        does="reads, changes, moves, removes files in $HOME, /etc, /var, /run, a repository, .git",
        stopped_by="allow-listed root, private copy of the repository", trap=canaries,
        script=_READ_WRITE),
    RunCase(name="search for secrets",
        does="walks the whole file system for private keys and password files",
        stopped_by="allow-listed root", trap=canaries, limits={"wall_seconds": 15},
        control="the whole disk takes too long; the case above has one", script="""
word = arguments[1]
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "usr")]
    folders[:] = [name for name in folders if name not in ("site-packages", ".cache")]
    for name in files:
        if name == word or name in ("id_rsa", "id_ed25519", ".netrc", "shadow"):
            print(attempt(lambda: open(os.path.join(folder, name)).read()))
"""),
    RunCase(name="links out of the workspace",
        does="reads and writes through links that it makes, by open, rename and hard link",
        stopped_by="there is nothing behind a link", trap=canaries, script="""
places, word = json.loads(arguments[0]), arguments[1]
for number, place in enumerate(places):
    attempt(os.symlink, place, f"link-{number}")
    attempt(os.link, place, f"hard-{number}")
    for name in (f"link-{number}", f"hard-{number}"):
        print(attempt(lambda: open(name).read()))
        attempt(lambda: open(name, "a").write("owned"))
"""),
    RunCase(name="report that is a link",
        does="puts a link to a secret in the place of the report",
        stopped_by="the report is a pipe held by us", trap=canaries,
        report=True, limits={"wall_seconds": 5}, control="reads of reports are our own", script="""
places = json.loads(arguments[0])
place = os.environ["SANDBOX_REPORT"]
attempt(os.unlink, place)
attempt(os.symlink, places[0], place)
"""),
    RunCase(name="report that is a pipe",
        does="puts a pipe that nobody writes in the place of the report",
        stopped_by="the report is a pipe held by us", report=True,
        limits={"wall_seconds": 5}, control="reads of reports are our own", script="""
place = os.environ["SANDBOX_REPORT"]
attempt(os.unlink, place)
attempt(os.mkfifo, place)
"""),
    RunCase(name="writable system",
        does="makes files in /, /usr, /etc, /dev, /boot and wherever else it may",
        stopped_by="read-only root and read-only /dev", trap=system, script="""
for place in json.loads(arguments[0]):
    attempt(lambda: open(place, "w").write("owned"))
"""),
    RunCase(name="devices", does="makes device nodes; reads disks, memory and the kernel's image",
        stopped_by="no CAP_MKNOD, a /dev of six harmless nodes",
        control="would read the disks of the machine", script="""
for name, device in (("disk", os.makedev(254, 0)), ("memory", os.makedev(1, 1))):
    if attempt(os.mknod, name, 0o600 | 0o060000, device) is None and os.path.exists(name):
        print("got a device node")
for place in ("/dev/mem", "/dev/kmem", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/proc/kcore"):
    if attempt(lambda: open(place, "rb").read(16)):
        print("got", place)
"""),
    RunCase(name="kernel settings",
        does="writes core_pattern, modprobe, hostname and others below /proc/sys; sysrq",
        stopped_by="/proc/sys is read-only, no capabilities, own UTS namespace", trap=settings,
        control=CHANGES, script="""
for place in json.loads(arguments[0]):
    if "oom" not in place:
        attempt(lambda: open(place, "w").write("|/tmp/owned\\n"))
name = b"owned"
attempt(lambda: open("/proc/sysrq-trigger", "w").write("h"))
if libc.sethostname(name, len(name)) == 0:
    print("renamed, inside")
"""),
    RunCase(name="setuid programs",
        does="runs su and others of the system, and a copy of its own with the setuid bit",
        stopped_by="no_new_privs, nosuid mounts, a uid that owns nothing",
        control="root would gain nothing by them", script="""
import shutil, subprocess
shutil.copy("/usr/bin/id", "id")
attempt(os.chmod, "id", 0o6755)
for command in (["./id", "-u"], ["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"],
                ["pkexec", "id", "-u"], ["newgrp"], ["mount", "-t", "tmpfs", "none", "/tmp"]):
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        continue
    if done.stdout.strip() == b"0":
        print("got root by", command)
if os.geteuid() == 0 or os.getegid() == 0:
    print("got root")
"""),
)  # fmt: skip

PROCESSES = (
    RunCase(name="signals to the host",
        does="kills, stops and lowers a process of the host by its id, then everything (kill -1)",
        stopped_by="PID namespace", trap=victim, script="""
target = int(arguments[0])
for number in (signal.SIGSTOP, signal.SIGKILL):
    attempt(os.kill, target, number)
if inside:
    attempt(os.kill, -1, signal.SIGTERM)
"""),
    RunCase(name="memory of the host's processes",
        does="ptrace, process_vm_writev and /proc/PID/mem on a process of the host",
        stopped_by="PID namespace, no capabilities", trap=victim, script="""
target, address = map(int, arguments)
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
def through_proc():
    with open(f"/proc/{target}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(b"owned\\0")
attempt(through_proc)
if libc.ptrace(PTRACE_ATTACH, target, None, None) == 0:
    libc.ptrace(PTRACE_DETACH, target, None, None)
"""),
    RunCase(name="environment",
        does="reads its own environment and that of every process it can see",
        stopped_by="an environment by allow-list, also for process 1 of the namespace",
        trap=environment, script="""
print(dict(os.environ))
for place in glob.glob("/proc/*/environ") + glob.glob("/proc/*/task/*/environ"):
    print(attempt(lambda: open(place, "rb").read()))
for place in glob.glob("/proc/*/cmdline"):
    print(attempt(lambda: open(place, "rb").read()))
"""),
    RunCase(name="inherited descriptors",
        does="reads and writes every open descriptor beyond the standard three",
        stopped_by="descriptors are closed before the command starts", trap=open_files, here=True,
        script="""
for number in range(3, 256):
    try:
        os.write(number, b"owned")
        print(os.pread(number, 100, 0))
    except OSError:
        pass
"""),
    RunCase(name="shared memory", does="leaves System V and POSIX shared memory behind",
        stopped_by="IPC namespace, a /dev/shm of its own", needs="ipc-namespace",
        trap=shared_memory, script="""
key, word = int(arguments[0]), arguments[1]
libc.shmget(key, 4096, 0o1666)
attempt(lambda: open(f"/dev/shm/{word}", "w").write("owned"))
"""),
    RunCase(name="keyrings", does="adds a key to the user's keyring and reads the session's",
        stopped_by="seccomp", trap=keyring, script="""
word = arguments[0].encode()
ADD_KEY, KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
libc.syscall(ADD_KEY, b"user", word, b"owned", 5, -4)
call("session keyring", KEYCTL, 0, -3, 0)
"""),
)  # fmt: skip
