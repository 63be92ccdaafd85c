"""A container image made from this machine's own files: no registry is needed.

It holds a shell, the tools that tests use, the system's Python with its libraries, and a project
as SWE-bench's images have it: a repository in /testbed, whose environment lies in conda's place and
whose build products git does not know.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_TOOLS = (
    *("sh", "env", "cat", "chmod", "chown", "cp", "cut", "date", "dd", "echo", "find", "grep"),
    *("head", "hostname", "id", "kill", "mknod", "nproc", "ps", "stty", "umount", "expr", "bash"),
    *("ln", "ls", "mkdir", "mkfifo", "mktemp", "mv", "nohup", "od", "printf", "readlink", "rm"),
    *("seq", "sed", "setsid", "sleep", "sort", "stat", "tail", "tar", "tee", "timeout", "touch"),
    *("tr", "uname", "unshare", "wc", "xargs", "yes", "true", "false", "test", "mount", "python3"),
)

# Large, and of no use to a test.
_LEFT_OUT = ("test", "idlelib", "tkinter", "ensurepip", "dist-packages", "config-*", "__pycache__")

# What pytest consists of, all of it Python: put beside the environment of /testbed.
_PYTEST = ("_pytest", "iniconfig", "packaging", "pluggy", "py", "pygments", "pytest")

TESTBED_PYTHON = "/opt/miniconda3/envs/testbed/bin/python"

# Found in the image's /testbed and not in its git, as builds leave them; and what is no product.
PRODUCTS = {
    "pkg/_version.py": b"version = '1.2.3'\n",
    "pkg/fast.cpython-311-x86_64-linux-gnu.so": b"\x7fELF not really\n",
    "pkg.egg-info/PKG-INFO": b"Name: pkg\n",
}
_OTHERS = {
    "pkg/__init__.py": b"from pkg._version import version\n",
    "pkg/__pycache__/__init__.cpython-311.pyc": b"byte code",
    "pkg/notes.txt": b"left behind\n",
    ".git/config": b"[core]\n\tfsmonitor = touch /tmp/ran\n",
    ".git/hook.so": b"not a product",
}

_REPOSITORY = "localhost/patchshot-test"

_SECONDS = 300.0


@functools.cache
def test_image() -> str:
    """The image's name, built on the first call of a session. Raises OSError or SubprocessError."""
    _remove_left_over()
    name = f"{_REPOSITORY}:{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        root = Path(folder, "root")
        _fill(root)
        _run("tar", "-cf", f"{folder}/root.tar", "--owner=0", "--group=0", "-C", str(root), ".")
        change = ("--change", "ENV PATH=/usr/local/bin:/usr/bin:/bin")
        _run("podman", "import", "--quiet", *change, f"{folder}/root.tar", name)
    return name


def _remove_left_over() -> None:
    """Images of sessions that were killed."""
    for tag in _run("podman", "images", "--format", "{{.Tag}}", _REPOSITORY).split():
        if tag.isdigit() and not Path("/proc", tag).exists():
            _run("podman", "image", "rm", "--force", f"{_REPOSITORY}:{tag}")


def remove_image() -> None:
    """Remove what `test_image` built, when it was called."""
    if test_image.cache_info().currsize:
        _run("podman", "image", "rm", "--force", test_image())
        test_image.cache_clear()


def require_container() -> str:
    """The test image; skips where podman is missing, fails under PATCHSHOT_REQUIRE_PODMAN=1."""
    reason = _problem()
    if not reason:
        return test_image()
    if os.environ.get("PATCHSHOT_REQUIRE_PODMAN") == "1":
        pytest.fail(f"podman is required: {reason}")
    pytest.skip(f"no containers here: {reason}")


@functools.cache
def _problem() -> str:
    if shutil.which("podman") is None:
        return "podman is not installed (apt install podman)"
    if not Path("/usr/bin/python3").exists():
        return "no system Python to make an image of"
    try:
        image = _with_some_driver()
    except (OSError, subprocess.SubprocessError) as error:
        return f"the test image cannot be built: {error}"
    from sandbox.container import ContainerSandbox

    problem = ContainerSandbox(image, "podman").probe().problem
    if "crun" in problem and shutil.which("runc"):  # it refuses both versions of cgroups together
        configuration = Path(tempfile.gettempdir(), "patchshot-test-containers.conf")
        configuration.write_text('[engine]\nruntime = "runc"\n', encoding="ascii")
        os.environ["CONTAINERS_CONF"] = str(configuration)  # containers.conf(5)
        problem = ContainerSandbox(image, "podman").probe().problem
    return problem


def _with_some_driver() -> str:
    """The image, by the usual storage driver or, in containers that forbid it, by the plain one."""
    try:
        return test_image()
    except subprocess.CalledProcessError:
        if "STORAGE_DRIVER" in os.environ:
            raise
        os.environ["STORAGE_DRIVER"] = "vfs"  # containers-storage.conf(5)
        return test_image()


def _fill(root: Path) -> None:
    for folder in ("usr/bin", "usr/lib", "usr/lib64", "etc", "proc", "sys", "dev", "root", "tmp"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    programs = {tool: Path(os.path.realpath(f"/usr/bin/{tool}")) for tool in _TOOLS}
    for tool, program in programs.items():
        if program.exists():
            shutil.copy(program, root / "usr/bin" / tool)
    library = _standard_library(programs["python3"])
    shutil.copytree(
        library,
        root / library.relative_to("/"),
        symlinks=True,
        ignore=shutil.ignore_patterns(*_LEFT_OUT),
        ignore_dangling_symlinks=True,
    )
    extensions = sorted((library / "lib-dynload").glob("*.so"))
    for needed in _shared_objects([*programs.values(), *extensions]):
        _place(needed, root)
    _fill_testbed(root, library.name)


def _fill_testbed(root: Path, version: str) -> None:
    for path, content in {**PRODUCTS, **_OTHERS}.items():
        file = root / "testbed" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (root / "testbed/pkg/linked.so").symlink_to("/etc/passwd")
    environment = root / "opt/miniconda3/envs/testbed"
    packages = environment / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin/python").symlink_to("/usr/bin/python3")
    # A virtual environment rather than conda's: what matters is the place and the packages.
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n", encoding="ascii")
    for name in _PYTEST:
        _copy_package(name, packages)


def _copy_package(name: str, packages: Path) -> None:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin)
    if source.name != "__init__.py":
        shutil.copy(source, packages)
        return
    source = source.parent
    no_cache = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, packages / name, ignore=no_cache)
    for info in sorted(source.parent.glob(f"{name}-*.dist-info")):
        shutil.copytree(info, packages / info.name, ignore=no_cache)


def _standard_library(python: Path) -> Path:
    code = "import os; print(os.path.dirname(os.__file__))"
    return Path(_run(str(python), "-I", "-S", "-c", code).strip())


def _shared_objects(files: list[Path]) -> list[Path]:
    """What the dynamic linker loads for these files: ldd(1)."""
    existing = [str(file) for file in files if file.exists()]
    done = subprocess.run(
        ["ldd", *existing], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    paths = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE)
    return [Path(path) for path in sorted(set(paths))]


def _place(library: Path, root: Path) -> None:
    """At its own path, below /usr as on every distribution of today."""
    parts = library.parts[1:]
    target = root.joinpath(*(parts if parts[0] == "usr" else ("usr", *parts)))
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(library, target)


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout


if __name__ == "__main__":
    sys.stdout.write(test_image() + "\n")
