"""A `FileSource` in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.types import SkippedFile, SourceFile


class MemoryFiles:
    """Files by path; `read` raises KeyError for unknown ones, as a snapshot does."""

    def __init__(
        self,
        contents: Mapping[str, bytes | str],
        *,
        skipped: Sequence[SkippedFile] = (),
        executable: Sequence[str] = (),
    ) -> None:
        self._contents = {
            path: content.encode() if isinstance(content, str) else content
            for path, content in sorted(contents.items())
        }
        self._skipped = tuple(skipped)
        self._files = {
            path: SourceFile(path, "0" * 40, len(content), "python", path in executable)
            for path, content in self._contents.items()
        }

    @property
    def files(self) -> Mapping[str, SourceFile]:
        return self._files

    @property
    def skipped(self) -> Sequence[SkippedFile]:
        return self._skipped

    def read(self, path: str) -> bytes:
        return self._contents[path]

    def exists(self, path: str) -> bool:
        return path in self._contents or any(file.path == path for file in self._skipped)
