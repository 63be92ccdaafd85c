"""The predictions file, in any of the three forms that the SWE-bench harness accepts.

`dict` {id: {...}}, `list` [{...}], `jsonl`: each entry has `instance_id`, `model_name_or_path` and
`model_patch`. The file is replaced as a whole, its entries in the order of the data set.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from agent.batch.durable import replace_file
from agent.errors import ConfigurationError

Form = Literal["dict", "list", "jsonl"]

# At most a tenth of the time goes into writing: a file of many thousand entries is written again
# after some instances, not after each. Nothing is lost by it: results are in the run's folder.
_SHARE = 9.0


def form_of(output: Path, chosen: Form | None) -> Form:
    """The form that was chosen, or the one that the file's name tells."""
    if chosen is not None:
        return chosen
    return "jsonl" if output.suffix == ".jsonl" else "dict"


class Predictions:
    """Entries by position in the data set.

    A file that cannot be written is tried again with the next entry; `failure` says why it was not.
    """

    def __init__(self, path: Path, form: Form, model: str, ids: Sequence[str]) -> None:
        """Raises ConfigurationError when `path` cannot be a file."""
        if not path.parent.is_dir():
            raise ConfigurationError(f"--output {path}: there is no folder {path.parent}; make it")
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"--output {path}: not a file; name one to write to")
        self._path = path
        self._form = form
        self._model = model
        self._ids = ids
        self._entries: dict[int, bytes] = {}
        self._rest_until = 0.0
        self._dirty = True
        self.failure: OSError | None = None

    @property
    def name(self) -> str:
        """Where they are written."""
        return str(self._path)

    def put(self, position: int, patch: str) -> None:
        """Keep an entry; `write` writes it."""
        entry = {
            "instance_id": self._ids[position],
            "model_name_or_path": self._model,
            "model_patch": patch,
        }
        self._entries[position] = json.dumps(entry).encode("ascii")
        self._dirty = True

    def write(self, *, now: bool = False) -> None:
        """Replace the file if something is new; `now`: even where that was done a moment ago."""
        begin = time.monotonic()
        if not self._dirty or (begin < self._rest_until and not now):
            return
        try:
            replace_file(self._path, self._parts())
        except OSError as error:
            self.failure = error
            return
        self.failure, self._dirty = None, False
        end = time.monotonic()
        self._rest_until = end + _SHARE * (end - begin)

    def _parts(self) -> Iterator[bytes]:
        opening, closing, between = {
            "dict": (b"{\n", b"\n}\n", b",\n"),
            "list": (b"[\n", b"\n]\n", b",\n"),
            "jsonl": (b"", b"\n" if self._entries else b"", b"\n"),
        }[self._form]
        yield opening
        for number, position in enumerate(sorted(self._entries)):
            key = json.dumps(self._ids[position]).encode("ascii") + b": "
            yield between if number else b""
            yield key if self._form == "dict" else b""
            yield self._entries[position]
        yield closing
