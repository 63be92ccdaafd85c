"""Finds podman or docker and asks it, with a time limit on each answer."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.host import run_program
from sandbox.types import SandboxError

# podman first: it needs no daemon that runs as root.
ENGINES = ("podman", "docker")

# `podman info` on a cold machine takes seconds. A docker daemon that hangs counts as none.
_ANSWER_SECONDS = 30.0

# Time to end and unmount one container on a machine under heavy load.
_REMOVE_SECONDS = 60.0

_PAUSE_SECONDS = 0.1

# Older versions lack `rm --time` or `run --pull never`.
_OLDEST = {"podman": (4, 0), "docker": (20, 10)}

_INSTALL = "install podman (apt, dnf, pacman, zypper, apk: podman) or start the docker daemon"

# The characters of references (registry/project/name:tag@digest) and ids.
_IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")

# Marks our containers.
LABEL = "patchshot.sandbox"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that answered. `seccomp` is its default filter, None where that is compiled in.

    `groups`: whether it can bound memory and processes together.
    """

    program: str
    kind: str  # "podman" or "docker"
    rootless: bool
    groups: bool
    selinux: bool = False
    seccomp: Path | None = None

    def ask(self, *arguments: str, seconds: float = _ANSWER_SECONDS) -> str:
        """Return what a short command prints. Raises SandboxError with the engine's last line."""
        output = run_program(self.program, *arguments, seconds=seconds)
        return output.decode("utf-8", errors="replace")

    def kill(self, name: str) -> None:
        """Kill a container, which then removes itself. A missing container is no error."""
        with suppress(SandboxError):  # `remove` finds out whether it is gone
            self.ask("kill", name)

    def remove(self, name: str) -> None:
        """Kill a container and delete it. Raises SandboxError when it stays."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        while True:
            try:
                self.ask(*self.removal(), name, seconds=_REMOVE_SECONDS)
            except SandboxError as error:
                reason = str(error)
            else:
                return
            if name not in self._names():
                return
            if time.monotonic() > deadline:
                raise SandboxError(f"{self.kind} cannot remove a container: {reason}")
            time.sleep(_PAUSE_SECONDS)  # the engine itself is removing it

    def _names(self) -> list[str]:
        label = ("--filter", f"label={LABEL}")
        return self.ask("ps", "--all", *label, "--format", "{{.Names}}").split()

    def removal(self) -> tuple[str, ...]:
        """The arguments that remove a container without a grace period; its name follows."""
        grace = ("--time", "0", "--ignore") if self.kind == "podman" else ()
        return ("rm", "--force", "--volumes", *grace)


@dataclass(frozen=True, slots=True)
class Image:
    """What a run must know about an image."""

    identity: str
    environment: Mapping[str, str]


def find_engine(name_or_path: str | None = None) -> Engine:
    """Return the first engine that answers, or `name_or_path`. Raises SandboxError."""
    problems = []
    for name in (name_or_path,) if name_or_path else ENGINES:
        program = shutil.which(name)
        if program is None:
            problems.append(f"{name} is not installed")
            continue
        try:
            return _describe_engine(program)
        except SandboxError as error:
            problems.append(str(error))
    raise SandboxError(f"no container engine works here ({'; '.join(problems)}); {_INSTALL}")


def find_image(engine: Engine, name: str) -> Image:
    """Find a local image. Raises SandboxError when it is missing: nothing is ever pulled.

    Docker would make the volumes of an image writable without a bound, so it may have none there.
    """
    if not _IMAGE_NAME.fullmatch(name):
        raise SandboxError(f"not the name of an image: {name!r}; one looks like python:3.12-slim")
    try:
        text = engine.ask("image", "inspect", name)
    except SandboxError as error:
        raise SandboxError(
            f"no image {name!r} here ({error}); `{engine.kind} images` shows those that are, and "
            f"{engine.kind} pull {name} gets it from its registry"
        ) from None
    try:
        answer = json.loads(text)[0]
        config = answer.get("Config") or {}
        entries = (entry.partition("=") for entry in config.get("Env") or ())
        environment = {key: value for key, _, value in entries if key}
        image = Image(str(answer["Id"]), environment)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SandboxError(f"{engine.kind} describes the image {name!r} in no known way") from error
    if engine.kind == "docker" and config.get("Volumes"):
        raise SandboxError(f"the image {name} has volumes: use podman, which leaves them out")
    return image


def _describe_engine(program: str) -> Engine:
    asked = Engine(program, "", rootless=False, groups=False)
    # `docker` may be podman under another name (the package podman-docker).
    version = asked.ask("--version").lower()
    kind = "podman" if "podman" in version else "docker"
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and tuple(map(int, match.groups())) < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        raise SandboxError(f"{version.strip()} is too old; {kind} {oldest} or later is needed")
    try:
        answer = dict(json.loads(asked.ask("info", "--format", "{{json .}}")))
        return _of_podman(program, answer) if kind == "podman" else _of_docker(program, answer)
    except (ValueError, LookupError, TypeError) as error:
        raise SandboxError(f"{program} describes itself in no known way") from error


def _of_podman(program: str, info: Mapping[str, Any]) -> Engine:
    host = info["host"]
    if host.get("serviceIsRemote"):
        raise SandboxError("this podman works on another machine, which private copies are not on")
    security = host["security"]
    rootless = bool(security["rootless"])
    profile = security.get("seccompProfilePath")
    return Engine(
        program,
        "podman",
        rootless=rootless,
        groups=not rootless or host.get("cgroupVersion") == "v2",
        selinux=bool(security.get("selinuxEnabled")),
        seccomp=Path(profile) if profile else None,
    )


def _of_docker(program: str, info: Mapping[str, Any]) -> Engine:
    if info.get("ServerErrors"):
        raise SandboxError(str(info["ServerErrors"][0]))
    options = " ".join(map(str, info.get("SecurityOptions") or ()))
    if "rootless" in options:
        raise SandboxError(
            "rootless docker gives private copies no owner inside; use podman, or docker as root"
        )
    groups = bool(info["MemoryLimit"]) and bool(info["PidsLimit"])
    return Engine(program, "docker", rootless=False, groups=groups, selinux="selinux" in options)
