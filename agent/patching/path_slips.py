"""Which file a path means that names none: another spelling, a shorter form, a place it has left.

Rules are tried in order; the first that knows any file decides, and only if one file remains after
the edit's own text was looked for in each. Nothing is guessed from likeness.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence

from agent.patching.files import parents

# Files of one name that are looked into; `__init__.py` stands a thousand times in a large project.
_MAX_LOOKED_INTO = 50

# Where containers keep the project, and what diffs put before paths.
_ROOTS = ("/testbed/", "/repo/", "/workspace/", "/app/", "/code/", "/src/", "/project/")
_DIFF_SIDES = ("a/", "b/")

_Fits = Callable[[str], bool]


def resolve_existing(
    written: str, known: Collection[str], shown: Collection[str], fits: _Fits, *, distinct: bool
) -> str | None:
    """The one existing file that `written` means, None if there is none or there are several.

    `fits`: whether the edit has its place in a file. `distinct`: whether its text says enough to be
    looked for in files of quite another path. `shown`: the files that the model was shown.
    """
    path = _unquoted(written)
    if ".." in path.split("/") or not path.strip("/"):
        return None
    for candidates in _rules(path, known, shown, distinct=distinct):
        if candidates:
            fitting = [one for one in candidates[:_MAX_LOOKED_INTO] if fits(one)]
            if len(candidates) > _MAX_LOOKED_INTO or len(fitting) > 1:
                return None
            if fitting:
                return fitting[0]
    return None


def namesakes(written: str, known: Collection[str]) -> list[str]:
    """Existing files that a path may name in another spelling or a shorter form, sorted."""
    path = _unquoted(written)
    if ".." in path.split("/") or not path.strip("/"):
        return []
    normal = posixpath.normpath(path).strip("/").casefold()
    tails = {tail.casefold() for tail in _tails(path)} | {normal}
    ending = f"/{normal}"
    return sorted(
        other for other in known if other.casefold() in tails or other.casefold().endswith(ending)
    )


def shortened(written: str, others: Collection[str]) -> list[str]:
    """Those of other files whose path ends with the whole of a path, sorted."""
    ending = f"/{posixpath.normpath(_unquoted(written)).strip('/')}".casefold()
    return sorted(other for other in others if other.casefold().endswith(ending))


def resolve_new(written: str, known: Collection[str]) -> str | None:
    """The path of a new file without a container's root or a diff's side before it."""
    path = written.strip().strip("`'\"").strip()
    if ".." in path.split("/") or "\\" in path:
        return None
    folders = {folder for other in known for folder in parents(other)}
    if path.startswith("/"):
        root = next((root for root in _ROOTS if path.startswith(root)), None)
        inside = [tail for tail in _tails(path) if posixpath.dirname(tail) in folders]
        if inside:
            return inside[0]
        return path.removeprefix(root) if root else None
    side = next((side for side in _DIFF_SIDES if path.startswith(side)), None)
    if side is None or side.rstrip("/") in folders:
        return path if path != written else None
    return path.removeprefix(side)


def _rules(
    path: str, known: Collection[str], shown: Collection[str], *, distinct: bool
) -> Iterator[Sequence[str]]:
    normal = posixpath.normpath(path).lstrip("/")
    if normal in known:
        yield [normal]
    yield [tail for tail in _tails(path) if tail in known][:1]
    ending = f"/{normal}"
    yield sorted(other for other in known if other.endswith(ending))
    lower = normal.casefold()
    yield sorted(other for other in known if other.casefold() == lower)
    yield sorted(other for other in known if other.casefold().endswith(f"/{lower}"))
    if distinct:
        name = posixpath.basename(normal)
        yield sorted(other for other in known if posixpath.basename(other) == name)
        yield sorted(other for other in shown if other in known)


def _tails(path: str) -> Iterator[str]:
    """The path without its first folder, its first two, and so on; longest first."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    first = 0 if path.startswith("/") else 1
    for start in range(first, len(parts)):
        yield "/".join(parts[start:])


def _unquoted(written: str) -> str:
    path = written.strip().strip("`'\"").strip()
    return path if "/" in path else path.replace("\\", "/")
