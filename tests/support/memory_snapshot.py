"""A `Snapshot` of files given as strings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from agent.types import SkippedFile, SourceFile

_LANGUAGES = {".py": "python", ".js": "javascript", ".go": "go", ".md": "markdown"}


class MemorySnapshot:
    root = Path("/nonexistent")
    commit = "0" * 40
    dirty = False
    skipped: Sequence[SkippedFile] = ()

    def __init__(self, contents: Mapping[str, str]) -> None:
        self._contents = dict(sorted(contents.items()))

    @property
    def files(self) -> Mapping[str, SourceFile]:
        return {path: _source_file(path, text) for path, text in self._contents.items()}

    def read(self, path: str) -> bytes:
        return self._contents[path].encode()

    def text(self, path: str) -> str:
        return self._contents[path]

    def exists(self, path: str) -> bool:
        return path in self._contents

    def overlay(self) -> Mapping[str, bytes | None]:
        return {}


def _source_file(path: str, text: str) -> SourceFile:
    language = _LANGUAGES.get(PurePosixPath(path).suffix, "text")
    blob = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return SourceFile(path=path, blob=blob, size=len(text.encode()), language=language)
