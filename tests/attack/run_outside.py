"""Attacks on the network and the kernel."""

from __future__ import annotations

from tests.attack.cases import CHANGES, HARMFUL, RunCase
from tests.support.attack_sockets import listening
from tests.support.attack_traps import kernel_log, mounts

NETWORK = (
    RunCase(name="TCP",
        does="connects to servers on the host's loopback, IPv4 and IPv6, and on its own address",
        stopped_by="network namespace without any link", trap=listening("tcp", "tcp6", "tcp-any"),
        script="""
for host, port in json.loads(arguments[0]):
    attempt(lambda: socket.create_connection((host, port), 2).sendall(b"secret"))
for host in ("169.254.169.254", "192.0.2.1"):
    attempt(lambda: socket.create_connection((host, 80), 0.2))
"""),
    RunCase(name="UDP and DNS",
        does="sends datagrams to the host; puts a secret into a name that it looks up",
        stopped_by="network namespace; no resolver inside", trap=listening("udp", "udp-any"),
        limits={"wall_seconds": 15}, script="""
for host, port in json.loads(arguments[0]):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    attempt(sock.sendto, b"secret", (host, port))
if inside:
    attempt(socket.gethostbyname, "secret.example.invalid")
"""),
    RunCase(name="unix sockets",
        does="connects to a socket in the file system, as those of docker, ssh-agent and D-Bus are",
        stopped_by="allow-listed root: it is not there", trap=listening("unix"), script="""
(place,) = json.loads(arguments[0])
for address in (place, "/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock",
                "/run/dbus/system_bus_socket"):
    if attempt(lambda: socket.socket(socket.AF_UNIX).connect(address) or "connected"):
        print("got", address)
"""),
    RunCase(name="abstract sockets", does="connects to an abstract unix socket of the host",
        stopped_by="network namespace", trap=listening("abstract"), script="""
(name,) = json.loads(arguments[0])
attempt(lambda: socket.socket(socket.AF_UNIX).connect(name))
"""),
    RunCase(name="vsock", does="connects to the hypervisor and to this machine by AF_VSOCK",
        stopped_by="seccomp: only families that a network namespace holds", trap=listening("vsock"),
        control="few machines carry vsock to themselves", script="""
(port,) = json.loads(arguments[0])
for address in (2, 1):
    sock = attempt(lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
    if sock is not None:
        print("got a vsock")
        sock.settimeout(0.5)
        attempt(sock.connect, (address, port))
if attempt(lambda: open("/dev/vsock", "rb")):
    print("got /dev/vsock")
"""),
    RunCase(name="raw sockets", does="opens raw and packet sockets",
        stopped_by="no CAP_NET_RAW; seccomp", script="""
for family, kind in ((socket.AF_INET, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW)):
    if attempt(lambda: socket.socket(family, kind, 255)):
        print("got a raw socket")
"""),
)  # fmt: skip

KERNEL = (
    RunCase(name="nested namespaces",
        does="makes a user namespace of its own, by unshare, clone and clone3",
        stopped_by="seccomp, `--disable-userns`", script="""
NEWUSER = 0x10000000
UNSHARE, CLONE = (272, 56) if os.uname().machine == "x86_64" else (97, 220)
if os.fork() == 0:
    call("unshare", UNSHARE, NEWUSER)
    os._exit(0)
os.wait()
child = libc.syscall(CLONE, NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
print("got" if child > 0 else "refused", "clone", flush=True)
given = struct.pack("11Q", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
child = libc.syscall(435, given, len(given))
if child == 0:
    os._exit(0)
print("got" if child > 0 else "refused", "clone3", flush=True)
"""),
    RunCase(name="mount", does="mounts, unmounts, changes its root, joins other namespaces",
        stopped_by="no capabilities, seccomp", trap=mounts, control=CHANGES, script="""
word = arguments[0].encode()
for source, target, kind, flags in ((word, b"/tmp", b"tmpfs", 0), (b"/tmp", b"/usr", None, 4096)):
    if libc.mount(source, target, kind, flags, None) == 0:
        print("got a mount")
for name, given in (("umount2", (b"/proc/sys", 2)), ("chroot", (b"/tmp",)),
                    ("pivot_root", (b"/", b"/tmp"))):
    function = getattr(libc, name, None)
    if function is not None and function(*given) == 0:
        print("got", name)
for place in glob.glob("/proc/1/ns/*"):
    handle = attempt(os.open, place, os.O_RDONLY)
    if handle is not None and libc.setns(handle, 0) == 0:
        print("joined a namespace, its own")
"""),
    RunCase(name="io_uring", does="sets up a ring, past every later filter of system calls",
        stopped_by="seccomp",
        script='call("io_uring_setup", 425, 8, ctypes.create_string_buffer(120))'),
    RunCase(name="bpf", does="makes a BPF map", stopped_by="seccomp", script="""
BPF = 321 if os.uname().machine == "x86_64" else 280
given = ctypes.create_string_buffer(struct.pack("5I", 2, 4, 4, 1, 0), 128)
call("bpf", BPF, 0, given, 128)
"""),
    RunCase(name="perf_event_open", does="opens a performance counter", stopped_by="seccomp",
        script="""
PERF = 298 if os.uname().machine == "x86_64" else 241
given = ctypes.create_string_buffer(struct.pack("2IQ", 1, 112, 0), 112)
call("perf_event_open", PERF, given, 0, -1, -1, 0)
"""),
    RunCase(name="userfaultfd", does="takes over the handling of page faults", stopped_by="seccomp",
        script='call("userfaultfd", 323 if os.uname().machine == "x86_64" else 282, 0)'),
    RunCase(name="modules, kexec, reboot, clock",
        does="loads code into the kernel, restarts it, sets its clock",
        stopped_by="no capabilities, seccomp", control=HARMFUL, script="""
NUMBERS = {"x86_64": (175, 313, 246, 320, 169, 167, 164, 159)}.get(os.uname().machine)
for number in NUMBERS or (105, 273, 104, 294, 142, 224, 170, 171):
    call(str(number), number, 0, 0, 0, 0)
"""),
    RunCase(name="kernel log", does="reads the kernel's messages and writes one",
        stopped_by="no /dev/kmsg, seccomp", trap=kernel_log, script="""
attempt(lambda: open("/dev/kmsg", "w").write(arguments[0] + "\\n"))
SYSLOG = 103 if os.uname().machine == "x86_64" else 116
call("syslog", SYSLOG, 3, ctypes.create_string_buffer(4096), 4096)
"""),
    RunCase(name="file handles",
        does="opens a file of the host by its handle (the way out of docker of 2014)",
        stopped_by="no CAP_DAC_READ_SEARCH, seccomp", control="needs the disk's own handles",
        script="""
OPEN_BY_HANDLE = 304 if os.uname().machine == "x86_64" else 265
handle = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, 2, 0), 24)
here = os.open("/", os.O_RDONLY)
call("open_by_handle_at", OPEN_BY_HANDLE, here, handle, 0)
"""),
    RunCase(name="control groups", does="leaves its control group and raises its limits",
        stopped_by="no cgroup file system inside, or a read-only one", control=CHANGES, script="""
for place in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:50]:
    if attempt(lambda: open(place, "w").write(str(os.getpid()))):
        print("got", place)
if libc.mount(b"none", b"/tmp", b"cgroup2", 0, None) == 0:
    print("got a cgroup mount")
"""),
)  # fmt: skip
