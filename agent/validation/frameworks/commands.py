"""Commands of runners that are not Python's. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

from agent.validation.frameworks.base import Suite
from agent.validation.frameworks.runners import INSIDE
from agent.validation.frameworks.toolchain import Toolchain
from sandbox.environment import PATH
from sandbox.types import Command, Limits

# node, the JVM and Go reserve address space that they never use: WebAssembly alone takes 10 GiB of
# it for one module. What they really use is bounded by `Limits.memory`.
_RESERVED = 64 * 1024**3

_SHELL = "/bin/sh"

Mode = Literal["stdout", "merged", "files"]


def tool_command(
    argv: Sequence[str],
    suite: Suite,
    toolchain: Toolchain,
    limits: Limits,
    *,
    environment: Mapping[str, str] | None = None,
    folders: Sequence[str] = (),
) -> Command:
    """A command with the toolchain on PATH, after `folders`; its report is asked for."""
    path = dict.fromkeys((*folders, *toolchain.folders(), *PATH.split(":")))
    own = {**toolchain.environment, **(environment or {}), "PATH": ":".join(path)}
    return Command(
        tuple(argv),
        environment={**_allowed(suite.environment), **own},
        cwd=suite.cwd,
        limits=replace(limits, address_space=max(limits.address_space, _RESERVED)),
        read_only=(INSIDE, *toolchain.read_only),
        report=True,
    )


def collecting(mode: Mode, argv: Sequence[str], pattern: str = "-") -> tuple[str, ...]:
    """The command line through `patchshot_collect.sh`, a fixed script that gets it as arguments."""
    return (_SHELL, str(INSIDE / "patchshot_collect.sh"), mode, pattern, *argv)


def below(folder: str, path: str) -> str | None:
    """The path as seen from a folder of the tree; None where it does not lie in it."""
    if folder == ".":
        return path
    pure = PurePosixPath(path)
    return str(pure.relative_to(folder)) if pure.is_relative_to(folder) else None


def joined(folder: str, path: str) -> str:
    """The path of something in a folder of the tree, as seen from its root."""
    return path if folder == "." else f"{folder}/{path}"


def _allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """What a project may set for itself: not the loader, not the places of our reports."""
    return {
        name: text
        for name, text in sorted(environment.items())
        if name.isidentifier() and "\0" not in text and not name.startswith(("LD_", "SANDBOX_"))
    }
