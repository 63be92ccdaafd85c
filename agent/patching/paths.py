"""Which paths an edit may name. Everything that git, a file system or an interpreter could read in
another way than it looks is refused; what decides how code is run or checked needs leave.

Sources: git's own `verify_path` and `is_ntfs_dotgit` (path.c), CVE-2014-9390 and CVE-2019-1352;
Python's `site` module for start-up files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from agent.patching.protected import PROTECTED
from agent.secrets.files import is_secret_path

# NAME_MAX of Linux file systems, in bytes.
_MAX_NAME = 255

# Far below PATH_MAX (4096): the work tree's own place comes before it.
_MAX_PATH = 1024

# Characters that an edit never needs and that hide what a path is: controls, format characters
# (bidi, zero-width), surrogates, private use, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

# Letters that are drawn as nothing (Unicode: Default_Ignorable_Code_Point).
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}

# Short names that NTFS gives to other names: git~1 and gi7eba~1 to .git, github~1 to .github.
_SHORT_NAME = re.compile(r"[^.~]{1,6}~[0-9]{1,6}(?:\.[^.]{1,3})?")
_DRIVE = re.compile(r"[A-Za-z]:")

_GIT_CONTROL = frozenset({".git", ".gitmodules", ".gitattributes"})
_STARTUP = frozenset({"sitecustomize", "usercustomize"})
_STARTUP_SUFFIXES = (".pyc", ".pyo", ".pth")
_METADATA_SUFFIXES = (".egg-info", ".dist-info", ".egg-link")

# Signs that no new file needs: quoting accidents of models, and what Windows cannot hold.
_ODD_IN_NEW = re.compile(r"[<>:\"|?*`]")


@dataclass(frozen=True, slots=True)
class RefusedPath:
    """Why a path is not taken."""

    reason: str


def check_path(path: str, *, allow: Collection[str] = (), new: bool = False) -> str | RefusedPath:
    """The normalised path (without `./`), or why it is refused.

    `allow` lifts the protection of paths: shell patterns, matched against the whole path, or
    against the name alone if they have no slash; `*` also spans slashes. What is refused for
    safety cannot be allowed. `new`: the path is to be created.
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
    if new and _ODD_IN_NEW.search(normal):
        return RefusedPath("a new file's path must not have any of < > : \" | ? * `")
    protected = _protection(normal)
    if protected and not is_allowed(normal, allow):
        return RefusedPath(f"{protected}; leave it as it is")
    return normal


def is_allowed(path: str, allow: Collection[str]) -> bool:
    """Whether a user's leave covers a normalised path."""
    return _matching(path, allow) is not None


def folded(name: str) -> str:
    """A name as a file system that ignores case, width and invisible characters sees it."""
    shown = (c for c in name if c not in _INVISIBLE and unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", "".join(shown)).casefold()


def _protection(normal: str) -> str | None:
    if is_secret_path(folded(normal)):
        return "files such as this hold secrets"
    pattern = _matching(folded(normal), PROTECTED)
    if pattern is None:
        return None
    return (
        f"the path is protected by the rule {pattern} (CI, hooks, lock files and conftest.py "
        "decide what checks mean)"
    )


def _form_problem(path: str) -> str | None:
    if not path:
        return "the path is empty"
    if any(unicodedata.category(c) in _HIDDEN or c in _INVISIBLE for c in path):
        return "the path has control, invisible or direction-changing characters"
    if "\\" in path:
        return "the path has a backslash; separate folders by /"
    if path.startswith("/") or _DRIVE.match(path) or path.startswith("~"):
        return "the path is absolute; give it relative to the repository root"
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


def _matching(path: str, patterns: Collection[str]) -> str | None:
    """The first pattern that covers the path."""
    name = path.rsplit("/", 1)[-1]
    for pattern in patterns:
        if fnmatchcase(path if "/" in pattern else name, pattern):
            return pattern
    return None
