"""Source distributions by checksum: fetched once, kept in the user's cache, unpacked, committed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from tests.conftest import run_git
from tests.real.project import RealProject

_FETCH = Path(__file__).parent / "pip_fetch.py"
_FETCH_SECONDS = 120


class Unavailable(Exception):
    """The distribution cannot be fetched here; the message says why."""


def fetch(project: RealProject, environment: Mapping[str, str]) -> Path:
    """The project's source distribution in the cache, its checksum verified.

    `environment` is that of the user: pip's settings and proxies come from it. Raises Unavailable
    where there is no way to the file, AssertionError where the file is another one.
    """

    def get(target: Path) -> None:
        _run_fetch(project, target, environment)

    return fetch_once(project.filename, project.sha256, get, environment)


def fetch_once(
    filename: str, sha256: str, get: Callable[[Path], None], environment: Mapping[str, str]
) -> Path:
    """The file in the user's cache, its checksum verified; `get` writes it where it is missing."""
    folder = cache_folder(environment)
    archive = folder / filename
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            fetched = Path(scratch, filename)
            get(fetched)
            _verify(fetched, sha256)
            fetched.replace(archive)
    _verify(archive, sha256)
    return archive


def unpack(archive: Path, destination: Path) -> Path:
    """Unpack regular files into `destination` and give the one folder that the archive holds.

    By hand, because `extractall(filter="data")` is missing from Python 3.11.0 to 3.11.3.
    """
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                raise AssertionError(f"{archive.name}: a path that leads out: {member.name}")
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                place = destination / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.read())
                place.chmod(0o755 if member.mode & 0o100 else 0o644)
    (root,) = destination.iterdir()
    return root


def commit(root: Path) -> None:
    """Make a git repository of the tree, ignored files included, byte for byte."""
    run_git(root, "init", "-q")
    run_git(root, "-c", "core.autocrlf=false", "add", "-A", "-f")
    run_git(root, "commit", "-q", "-m", "release")


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where fetched files are kept between runs."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "patchshot-tests")


def _run_fetch(project: RealProject, target: Path, environment: Mapping[str, str]) -> None:
    arguments = [sys.executable, str(_FETCH), project.name, project.filename, str(target)]
    try:
        done = subprocess.run(
            arguments,
            env=dict(environment),
            cwd=target.parent,
            capture_output=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no answer from the package index in {_FETCH_SECONDS} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unavailable(lines[-1] if lines else f"pip ended with {done.returncode}")


def _verify(archive: Path, sha256: str) -> None:
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != sha256:
        raise AssertionError(
            f"{archive} has sha256 {found}, not {sha256}: delete it and look into the index"
        )
