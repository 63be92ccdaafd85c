"""Releases of npm packages, by checksum. Nothing of a package runs: npm packs it as published."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real.sdist import Unavailable, fetch_once, unpack

_FETCH_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Release:
    """One published file. `filename` is how the registry names it."""

    name: str
    version: str
    filename: str
    sha256: str


def fetch_release(release: Release, environment: Mapping[str, str], destination: Path) -> Path:
    """Fetch a release into the cache, unpack it, and give its project's folder.

    Raises Unavailable where there is no way to the file, AssertionError where it is another one.
    """

    def get(target: Path) -> None:
        name = f"{release.name}@{release.version}"
        _run(["npm", "pack", "--ignore-scripts", "--silent", name], environment, target.parent)

    return unpack(fetch_once(release.filename, release.sha256, get, environment), destination)


def install_npm_packages(
    packages: Sequence[str], root: Path, environment: Mapping[str, str]
) -> None:
    """Install exact versions into `node_modules` of a folder, without running their scripts.

    npm checks each against the registry's checksum. The project's own package.json is set aside
    meanwhile, because its ranges would bring other packages.
    """
    if not packages:
        return
    own = root / "package.json"
    content = own.read_bytes()
    own.write_text('{"private": true}\n', "utf-8")
    options = ("--no-save", "--no-package-lock", "--ignore-scripts", "--legacy-peer-deps")
    try:
        _run(["npm", "install", "--silent", *options, *packages], environment, root)
    finally:
        own.write_bytes(content)


def _run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no answer to {command[0]} in {_FETCH_SECONDS} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unavailable(lines[-1] if lines else f"{command[0]} ended with {done.returncode}")
