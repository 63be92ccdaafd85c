"""Finds the interpreters and build products that an image brings for its project's tests.

A shell inside a container looks for both, and what comes back is data that is checked again.
"""

from __future__ import annotations

import itertools
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from sandbox.files import open_regular, split_path
from sandbox.types import Command, Limits, Sandbox, SandboxError
from sandbox.workspace import empty_workspace

# The project's directory in the images of SWE-bench.
TESTBED = PurePosixPath("/testbed")

# Room for the compiled extensions of a large project; files beyond it are left out.
MOST_BYTES = 512 * 1024 * 1024
_MOST_FILES = 20_000

_MOUNT = Path("/sandbox-work")
_ARCHIVE = "products.tar"
_SECONDS = 300.0

# Files that builds leave beside the sources: extensions, generated versions, and the metadata of an
# editable install.
_PRODUCT = re.compile(
    r"(?:.*/)?(?:_*(?:scm_|generated_|build_)?version_*\.py|[^/]*\.(?:so|pyd|egg-link)(?:\.[0-9.]+)?)"
    r"|(?:.*/)?[^/]+\.egg-info/.*"
)
_NEVER = frozenset({".git", "__pycache__", "node_modules", ".tox", ".nox"})
_BYTE_CODE = (".pyc", ".pyo", ".pth")

# POSIX find and tar, as busybox has them. tar reads names line by line and unquotes backslashes.
_PACK = r"""
cd "$1" || exit 3
find . -xdev \( -name .git -o -name __pycache__ -o -name node_modules \) -prune -o \
  -type f ! -name '*\\*' ! -name '*
*' \( -name '*.so' -o -name '*.so.*' -o -name '*.pyd' -o -name '*.egg-link' \
  -o -name '*version*.py' -o -path '*.egg-info/*' \) -print >"$2/names"
tar -cf "$2/$3" -T "$2/names"
"""

# Prints one interpreter a line, best first: `certain` for an environment's, `guess` for PATH's.
_LOOK = r"""
say() { [ -f "$2" ] && [ -x "$2" ] && echo "$1 $2"; }
for prefix in "$CONDA_PREFIX" "$VIRTUAL_ENV" /opt/*/envs/testbed /opt/venv /venv; do
  [ -n "$prefix" ] && say certain "$prefix/bin/python"
done
IFS=:
for folder in $PATH; do say guess "$folder/python3"; say guess "$folder/python"; done
exit 0
"""


def candidate_interpreters(sandbox: Sandbox) -> Mapping[PurePosixPath, bool]:
    """Return the image's interpreters, best first: active environment, conda's `testbed`, PATH; and
    whether the environment of each was made for the project. Raises SandboxError.
    """
    command = Command(("/bin/sh", "-c", _LOOK), limits=Limits(wall_seconds=_SECONDS))
    with empty_workspace(mount=_MOUNT) as workspace:
        result = sandbox.run(command, workspace)
    interpreters: dict[PurePosixPath, bool] = {}
    for line in result.stdout.decode("utf-8", errors="replace").splitlines():
        kind, _, name = line.partition(" ")
        path = PurePosixPath(name)
        if path.is_absolute():
            interpreters.setdefault(path, kind == "certain")
    return interpreters


def prepare_products(
    sandbox: Sandbox,
    path: PurePosixPath = TESTBED,
    *,
    tracked: Callable[[str], bool] = lambda _: False,
    most_bytes: int = MOST_BYTES,
) -> Mapping[str, bytes]:
    """Return the build products below `path` of the image: relative path -> bytes, in path order.

    They are for a workspace that is mounted at `path`, because it hides the image's tree. Includes
    `most_bytes` of regular files, without those of the repository (`tracked`). Raises SandboxError.
    """
    limits = Limits(_SECONDS, int(_SECONDS), file_size=most_bytes, workspace=2 * most_bytes)
    argv = ("/bin/sh", "-c", _PACK, "sh", str(path), str(_MOUNT), _ARCHIVE)
    with empty_workspace(mount=_MOUNT) as workspace:
        sandbox.run(Command(argv, limits=limits), workspace)
        return dict(sorted(_products(workspace.path / _ARCHIVE, tracked, most_bytes)))


def _products(
    archive: Path, tracked: Callable[[str], bool], most_bytes: int
) -> Iterator[tuple[str, bytes]]:
    if (file := open_regular(archive)) is None:
        return
    with file:
        left = most_bytes
        try:
            with tarfile.open(fileobj=file, mode="r:") as opened:
                for member in itertools.islice(opened, _MOST_FILES):
                    name = member.name.removeprefix("./")
                    content = opened.extractfile(member) if member.isreg() else None
                    fits = member.size <= left and is_product(name) and not tracked(name)
                    if content is not None and fits:
                        data = content.read()
                        left -= len(data)
                        yield name, data
        except (tarfile.TarError, ValueError, EOFError, OSError) as error:
            raise SandboxError(f"the image's build products cannot be read: {error}") from error


def is_product(path: str) -> bool:
    """Whether a relative path looks like a harmless build product."""
    try:
        parts = split_path(path)
    except ValueError:
        return False
    harmless = _NEVER.isdisjoint(part.lower() for part in parts) and not path.endswith(_BYTE_CODE)
    return harmless and _PRODUCT.fullmatch("/".join(parts)) is not None
