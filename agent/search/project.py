"""A project's name, the files that are kept for it, and JSON lines that cost money to produce.

The name is the same on every machine, because entries of a shared store contain it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from agent.errors import ConfigurationError, RepositoryError
from agent.repository import locate_repository, open_repository
from agent.shared.files import AppendFile, open_locked

if TYPE_CHECKING:
    from agent.types.protocols import Snapshot

_SCHEME = re.compile(r"^(?:[a-z][a-z0-9+.-]*+://)?(?:[^@/\s]*+@)?", re.IGNORECASE)
_MAX_README = 20_000  # characters
_MIN_DESCRIPTION, _MAX_DESCRIPTION = 30, 400  # characters


def project_name(snapshot: Snapshot) -> str:
    """Return `host/owner/name` of the remote `origin`, or a name of this machine without one."""
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
                return text[:_MAX_DESCRIPTION]
    return ""


def project_key(project: str) -> str:
    """Return a file name for a project."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", project).strip("-.")[-40:] or "project"
    return f"{readable}-{sha256(project.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def normalised_url(url: str) -> str:
    """Normalise `https://user:key@host/a/b.git`, `ssh://git@host/a/b` and `git@host:a/b.git`."""
    rest = _SCHEME.sub("", url, count=1)
    if rest.startswith(("/", ".")):  # a folder of this machine
        return rest.strip("/").removesuffix(".git")
    is_scp = "://" not in url and ":" in rest
    host, separator, path = rest.partition(":" if is_scp else "/")
    host = host.partition(":")[0].lower()
    path = path.strip("/").removesuffix(".git")
    return f"{host}/{path}" if separator and host else path or host


def _origin(root: Path) -> str:
    try:
        with open_repository(locate_repository(root).root) as git:
            return git.setting("remote.origin.url")
    except RepositoryError:
        return ""


@dataclass(frozen=True, slots=True)
class SearchPaths:
    """Files in `cache` can be rebuilt; files in `data` cost money or belong to the user."""

    cache: Path
    data: Path

    @property
    def index(self) -> Path:
        """Return the path of the chunk index."""
        return self.cache / "index.sqlite"

    @property
    def store_url(self) -> str:
        """Return the URL of the embedded vector store."""
        return f"sqlite://{quote(str((self.cache / 'passages.sqlite').absolute()))}"

    @property
    def keywords(self) -> Path:
        """Return the path of the keywords that models gave for queries."""
        return self.data / "keywords.jsonl"

    def intents(self, project: str) -> Path:
        """Return the path of the intents that models wrote for a project's symbols."""
        return self.data / "intents" / f"{project_key(project)}.jsonl"

    def memory(self, project: str) -> Path:
        """Return the path of the patches of a project that the user accepted."""
        return self.data / "memory" / f"{project_key(project)}.jsonl"


_MAX_LINE = 1_000_000  # bytes; this program writes no longer lines
_Line = TypeVar("_Line", bound=BaseModel)


class JsonLines(Generic[_Line]):
    """A file whose lines are instances of one pydantic model. Not thread-safe."""

    def __init__(self, path: Path, kind: type[_Line]) -> None:
        self.path = path
        self._kind = kind
        self._read_to = 0

    def news(self) -> Iterator[_Line]:
        """Yield the lines that this or another process added since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_to)
                for line in file:
                    if not line.endswith(b"\n"):
                        return  # truncated, or still being written
                    self._read_to += len(line)
                    if len(line) <= _MAX_LINE:
                        with suppress(ValidationError):  # anybody may have edited the file
                            yield self._kind.model_validate_json(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be read ({error.strerror}): check XDG_DATA_HOME"
            ) from None

    def append(self, line: _Line) -> None:
        """Append a line and sync it to disk. Raises OSError and leaves the file unchanged."""
        self._make_folder()
        self.path.touch(0o600)
        handle = open_locked(self.path, wait=True)
        assert handle is not None
        try:
            with closing(AppendFile(self.path)) as file:
                file.append(line.model_dump_json().encode("utf-8", "surrogatepass") + b"\n")
        finally:
            os.close(handle)

    @contextmanager
    def making(self) -> Iterator[bool]:
        """Hold the lock for producing lines. Yields False if another process holds it."""
        self._make_folder()
        handle = open_locked(self.path.with_name(f"{self.path.name}.lock"))
        try:
            yield handle is not None
        finally:
            if handle is not None:
                os.close(handle)

    def _make_folder(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
