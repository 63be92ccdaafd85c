"""Releases in other languages, from npm and from Debian's package index, by checksum.

Nothing of a package runs: npm packs its file as published, and apt only downloads. apt works in
folders of its own, so that it needs no rights and changes nothing of the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real.sdist import Unavailable, cache_folder, fetch_once, unpack

_FETCH_SECONDS = 240
_DEBIAN = "debian-archive-keyring"  # in the sources that Debian signs


@dataclass(frozen=True, slots=True)
class Release:
    """One published file. `registry` is `npm`, `debian` (a package) or `debian-source`.

    `folder` is where the project lies in it. `filename` is how the registry names the file.
    """

    registry: str
    name: str
    version: str
    filename: str
    sha256: str
    folder: str = "."


def fetch_release(release: Release, environment: Mapping[str, str], destination: Path) -> Path:
    """Fetch a release into the cache, unpack it, and give its project's folder.

    Raises Unavailable where there is no way to the file, AssertionError where it is another one.
    """

    def get(target: Path) -> None:
        _FETCHERS[release.registry](release, target, environment)

    archive = fetch_once(release.filename, release.sha256, get, environment)
    if release.registry == "debian":
        content = destination.with_suffix(".tar")
        content.write_bytes(_run(["dpkg-deb", "--fsys-tarfile", str(archive)], environment))
        archive = content
    return unpack(archive, destination) / release.folder


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


def _npm(release: Release, target: Path, environment: Mapping[str, str]) -> None:
    wanted = f"{release.name}@{release.version}"
    _run(["npm", "pack", "--ignore-scripts", "--silent", wanted], environment, target.parent)


def _debian(release: Release, target: Path, environment: Mapping[str, str]) -> None:
    wanted = f"{release.name}={release.version}"
    _apt_get(["download", wanted], environment, target)


def _debian_source(release: Release, target: Path, environment: Mapping[str, str]) -> None:
    wanted = f"{release.name}={release.version}"
    _apt_get(["source", "--download-only", "--tar-only", wanted], environment, target)


_FETCHERS = {"npm": _npm, "debian": _debian, "debian-source": _debian_source}


def _apt_get(words: Sequence[str], environment: Mapping[str, str], target: Path) -> None:
    state = cache_folder(environment) / "apt"
    for folder in ("lists/partial", "archives/partial", "sources"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    for file in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        text = file.read_text("utf-8")
        if _DEBIAN in text:
            kept = state / "sources" / file.name
            kept.write_text(text.replace("Types: deb\n", "Types: deb deb-src\n"), "utf-8")
    command = ["apt-get", "-q"]
    for option in (
        "Dir::Etc::sourcelist=/dev/null",
        f"Dir::Etc::sourceparts={state}/sources",
        f"Dir::State::lists={state}/lists",
        f"Dir::Cache={state}",
        "Acquire::Languages=none",
        "Acquire::Retries=1",
        "APT::Sandbox::User=",
    ):
        command += ["-o", option]
    try:
        _run([*command, *words], environment, target.parent)  # with the lists of an earlier run
    except Unavailable:
        _run([*command, "update"], environment)
        _run([*command, *words], environment, target.parent)
    if not target.exists():
        raise Unavailable(f"apt-get fetched another file than {target.name}")


def _run(command: Sequence[str], environment: Mapping[str, str], folder: Path = Path("/")) -> bytes:
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
    return done.stdout
