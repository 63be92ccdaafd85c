"""Checks the paths that edits name, and resolves paths that are slightly wrong. Paths that git, a
file system or an interpreter could read differently from how they look are refused. Files that
decide how code is run or checked are protected: a user must allow their edits. Sources: git's
`verify_path` and `is_ntfs_dotgit` (path.c), CVE-2014-9390 and CVE-2019-1352; Python's `site` module
for start-up files.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from agent.patching.protected import PROTECTED, first_match
from agent.shared.secrets import is_secret_path

# NAME_MAX of Linux file systems, in bytes.
_MAX_NAME = 255

# Far below PATH_MAX (4096), since the path of the work tree comes before it.
_MAX_PATH = 1024

# Characters that an edit never needs and that hide what a path is: controls, format characters
# (bidi, zero-width), surrogates, private use, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

# Letters without a visible form (Unicode: Default_Ignorable_Code_Point).
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}

# Short names that NTFS gives to other names: git~1 and gi7eba~1 to .git, github~1 to .github.
_SHORT_NAME = re.compile(r"[^.~]{1,6}~[0-9]{1,6}(?:\.[^.]{1,3})?")
_DRIVE = re.compile(r"[A-Za-z]:")
_ABSOLUTE = "the path is absolute; give it relative to the repository root"

_GIT_CONTROL = frozenset({".git", ".gitmodules", ".gitattributes"})
_STARTUP = frozenset({"sitecustomize", "usercustomize"})
_STARTUP_SUFFIXES = (".pyc", ".pyo", ".pth")
_METADATA_SUFFIXES = (".egg-info", ".dist-info", ".egg-link")

# Characters that no new file needs: slips of models in quoting, and what Windows forbids.
_ODD_IN_NEW = re.compile(r"[<>:\"|?*`]")


@dataclass(frozen=True, slots=True)
class RefusedPath:
    """Why a path is refused."""

    reason: str


def check_path(path: str, *, allow: Collection[str] = (), new: bool = False) -> str | RefusedPath:
    """Return the normalised path (without `./`), or why it is refused. `new`: it is to be created.
    `allow` lifts the protection of paths by shell patterns, matched against the whole path, or
    against the name alone if they have no slash.
    """
    form = _form_problem(path)
    if form:
        return RefusedPath(form)
    parts = [part for part in path.split("/") if part != "."]
    if not parts:
        return RefusedPath("the path names no file")
    for part in parts:
        problem = _part_problem(part)
        if problem:
            return RefusedPath(problem)
    normal = "/".join(parts)
    if normal.startswith("~") or _DRIVE.match(normal):
        return RefusedPath(_ABSOLUTE)
    if new and _ODD_IN_NEW.search(normal):
        return RefusedPath("a new file's path must not have any of < > : \" | ? * `")
    protected = _protection(normal)
    if protected and not is_allowed(normal, allow):
        return RefusedPath(protected)
    return normal


def is_allowed(path: str, allow: Collection[str]) -> bool:
    """Whether a pattern of `allow` covers a normalised path."""
    return first_match(path, allow) is not None


def folded(name: str) -> str:
    """Return a name as a file system sees it that ignores case, width and invisible characters."""
    shown = (c for c in name if c not in _INVISIBLE and unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", "".join(shown)).casefold()


def _protection(normal: str) -> str | None:
    path = folded(normal)
    if is_secret_path(path):
        return "files such as this hold secrets"
    for one in PROTECTED:
        if (rule := one.rule(path)) is not None:
            return f"the path is protected by the rule {rule} ({one.why})"
    return None


def _form_problem(path: str) -> str | None:
    if not path:
        return "the path is empty"
    if any(unicodedata.category(c) in _HIDDEN or c in _INVISIBLE for c in path):
        return "the path has control, invisible or direction-changing characters"
    if "\\" in path:
        return "the path has a backslash; separate folders by /"
    if path.startswith("/"):
        return _ABSOLUTE
    if "//" in path or path.endswith("/"):
        return "the path has an empty part (// or a trailing /)"
    if len(path.encode()) > _MAX_PATH:
        return f"the path is longer than {_MAX_PATH} bytes"
    return None


def _part_problem(part: str) -> str | None:
    if part == "..":
        return 'the path has ".."; it must stay inside the repository'
    if part != part.strip() or part.endswith("."):
        return "a part of the path begins or ends with a space, or ends with a dot"
    if len(part.encode()) > _MAX_NAME:
        return f"a part of the path is longer than {_MAX_NAME} bytes"
    # NTFS: "name:stream" is "name", and trailing dots and spaces do not count.
    name = folded(part).split(":")[0].rstrip(". ")
    if name in _GIT_CONTROL:
        return f"{part} is git's own (or can be read as such)"
    if _SHORT_NAME.fullmatch(name):
        return f"{part} can be read as the short name of another file (git~1 is .git)"
    if name.split(".")[0] in _STARTUP or name.endswith(_STARTUP_SUFFIXES):
        return f"{part} is run or loaded by the interpreter at start-up"
    if name.endswith(_METADATA_SUFFIXES):
        return f"{part} is installation metadata, not source"
    return None


def parents(path: str) -> Iterator[str]:
    """Return the folders above a path, innermost first."""
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        yield path


# Files of one name that are opened. A large project has a thousand files `__init__.py`.
_MAX_LOOKED_INTO = 50
# Folders in which containers keep the project, and the prefixes that diffs put before paths.
_ROOTS = ("/testbed/", "/repo/", "/workspace/", "/app/", "/code/", "/src/", "/project/")
DIFF_SIDES = ("a/", "b/")


def resolve_existing(
    written: str, known: Collection[str], fits: Callable[[str], bool], *, distinct: bool
) -> str | None:
    """Return the one existing file that `written` means: the first rule that finds any decides.
    `fits`: whether the edit can be applied to a file. `distinct`: other folders are searched too.
    """
    path = _unquoted(written)
    if ".." in path.split("/") or not path.strip("/"):
        return None
    for candidates in _rules(path, known, distinct=distinct):
        if candidates:
            fitting = [one for one in candidates[:_MAX_LOOKED_INTO] if fits(one)]
            if len(candidates) > _MAX_LOOKED_INTO or len(fitting) > 1:
                return None
            if fitting:
                return fitting[0]
    return None


def resolve_new(written: str, known: Collection[str]) -> str | None:
    """Return the path of a new file without the root of a container or the prefix of a diff."""
    path = written.strip(" `'\"")
    if ".." in path.split("/") or "\\" in path:
        return None
    folders = {folder for other in known for folder in parents(other)}
    if path.startswith("/"):
        root = next((root for root in _ROOTS if path.startswith(root)), None)
        inside = [tail for tail in _tails(path) if posixpath.dirname(tail) in folders]
        if inside:
            return inside[0]
        return path.removeprefix(root) if root else None
    side = next((side for side in DIFF_SIDES if path.startswith(side)), None)
    if side is None or side.rstrip("/") in folders:
        return path if path != written else None
    return path.removeprefix(side)


def _rules(path: str, known: Collection[str], *, distinct: bool) -> Iterator[Sequence[str]]:
    normal = posixpath.normpath(path).lstrip("/")
    yield [tail for tail in (normal, *_tails(path)) if tail in known][:1]
    yield sorted(other for other in known if other.endswith(f"/{normal}"))
    lower = f"/{normal.casefold()}"
    yield sorted(other for other in known if f"/{other.casefold()}".endswith(lower))
    if distinct:
        name = posixpath.basename(normal)
        yield sorted(other for other in known if posixpath.basename(other) == name)


def _tails(path: str) -> Iterator[str]:
    """Return the path without its first folder, its first two, and so on; longest first."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    first = 0 if path.startswith("/") else 1
    for start in range(first, len(parts)):
        yield "/".join(parts[start:])


def _unquoted(written: str) -> str:
    path = written.strip(" `'\"")
    return path if "/" in path else path.replace("\\", "/")
