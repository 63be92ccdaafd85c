"""A project name that is the same on every machine. Entries of a shared store contain it."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import RepositoryError
from agent.repository import locate
from sandbox import WorkspaceError, find_git_directory, read_control_file

if TYPE_CHECKING:
    from agent.types.protocols import Snapshot

_SECTION = re.compile(r'^\s*+\[\s*+([\w.-]+)(?:\s++"([^"]*+)")?\s*+\]')
_URL = re.compile(r"^\s*+url\s*+=\s*+(\S++)")
_SCHEME = re.compile(r"^(?:[a-z][a-z0-9+.-]*+://)?(?:[^@/\s]*+@)?", re.IGNORECASE)
_MAX_CONFIG = 1_000_000
_MAX_README = 20_000  # characters
_MIN_DESCRIPTION = 30
MAX_DESCRIPTION = 400
"""Most characters of a project's description."""


def project_name(snapshot: Snapshot) -> str:
    """Return `host/owner/name` of the remote `origin`, or a name of this machine if there is none.

    The URL is read from the repository's configuration file without running git.
    """
    url = _origin(snapshot.root)
    if url:
        return normalised_url(url)
    root = snapshot.root.resolve()
    digest = sha256(str(root).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"local/{root.name or 'root'}-{digest}"


def project_description(snapshot: Snapshot) -> str:
    """Return the first paragraph of prose of the README at the top, in one line; "" for none."""
    named = sorted(path for path in snapshot.files if path.lower().startswith("readme"))
    for path in (path for path in named if "/" not in path):
        for paragraph in snapshot.text(path)[:_MAX_README].split("\n\n"):
            text = " ".join(paragraph.split())
            if len(text) >= _MIN_DESCRIPTION and text[0].isalpha() and "](" not in text:
                return text[:MAX_DESCRIPTION]
    return ""


def project_key(project: str) -> str:
    """Return a file name for a project."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", project).strip("-.")[-40:] or "project"
    return f"{readable}-{sha256(project.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def normalised_url(url: str) -> str:
    """Normalise `https://user:key@host/a/b.git`, `ssh://git@host/a/b` and `git@host:a/b.git`."""
    rest = _SCHEME.sub("", url, count=1)
    host, separator, path = rest.partition("/") if "://" in url else _scp_parts(rest)
    host = host.partition(":")[0].lower()
    path = path.strip("/").removesuffix(".git")
    return f"{host}/{path}" if separator and host else path or host


def _scp_parts(rest: str) -> tuple[str, str, str]:
    if rest.startswith(("/", ".")) or ":" not in rest:
        return rest.partition("/") if not rest.startswith(("/", ".")) else ("", "", rest)
    return rest.partition(":")


def _origin(root: Path) -> str:
    try:
        config = find_git_directory(locate(root).root).common / "config"
        text = (read_control_file(config, _MAX_CONFIG) or b"").decode("utf-8", "replace")
    except (RepositoryError, WorkspaceError, OSError):
        return ""
    section = ("", "")
    for line in text.split("\n"):
        if found := _SECTION.match(line):
            section = (found.group(1).lower(), found.group(2) or "")
        elif section == ("remote", "origin") and (found := _URL.match(line)):
            return found.group(1).strip('"')
    return ""
