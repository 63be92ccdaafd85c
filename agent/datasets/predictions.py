"""Predictions: patches by instance, as the SWE-bench harness accepts them.

`preds.json` is {id: {...}} (or [{...}], read only), `all_preds.jsonl` has one {...} a line. An
entry has `instance_id`, `model_name_or_path` and `model_patch`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, Field

from agent.errors import ConfigurationError
from agent.shared.files import replace_file


class Prediction(BaseModel, frozen=True, strict=True, protected_namespaces=()):
    """One model's patch for one instance; None and blank text stand for no patch."""

    instance_id: str = Field(min_length=1)
    model_name_or_path: str = ""
    model_patch: str | None

    @property
    def patch(self) -> str:
        """The patch, "" if there is none."""
        text = self.model_patch or ""
        return text if text.strip() else ""


def check_output(path: Path) -> None:
    """Raise ConfigurationError if no file can be written at `path`."""
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--output {path}: not a file; name one to write to")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise ConfigurationError(
            f"--output {path}: nothing can be written in {path.parent} ({error.strerror})"
        ) from None


class PredictionsWriter:
    """Collects predictions and replaces the file as a whole, as JSON lines for `.jsonl`.

    Entries stand in the order of `ids`, and other entries after them in the order in which they
    come. If the file cannot be written, `failure` says why, and the next `write` tries again.
    """

    def __init__(self, path: Path, model: str, ids: Iterable[str]) -> None:
        """Raises ConfigurationError if no file can be written at `path`."""
        check_output(path)
        self.path = path
        self._model = model
        self._entries: dict[str, bytes | None] = dict.fromkeys(ids)
        self._dirty = True
        self.failure: OSError | None = None

    def put(self, name: str, patch: str) -> None:
        """Add or replace an entry; `write` writes it."""
        entry = {"instance_id": name, "model_name_or_path": self._model, "model_patch": patch}
        self._entries[name] = json.dumps(entry).encode("ascii")
        self._dirty = True

    def write(self) -> None:
        """Write the file if an entry is new."""
        if not self._dirty:
            return
        try:
            replace_file(self.path, self._parts())
        except OSError as error:
            self.failure = error
        else:
            self.failure, self._dirty = None, False

    def _parts(self) -> Iterator[bytes]:
        entries = [(name, entry) for name, entry in self._entries.items() if entry is not None]
        if self.path.suffix == ".jsonl":
            yield from (entry + b"\n" for _, entry in entries)
            return
        yield b"{"
        for number, (name, entry) in enumerate(entries):
            yield b",\n" if number else b"\n"
            yield json.dumps(name).encode("ascii") + b": " + entry
        yield b"\n}\n" if entries else b"}\n"
