"""The predictions file, in any of the three forms that the SWE-bench harness accepts.

`dict` {id: {...}}, `list` [{...}], `jsonl`: each entry has `instance_id`, `model_name_or_path` and
`model_patch`. The file is replaced as a whole, its entries in the order of the data set.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from agent.durable import replace_file
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


def check_output(path: Path) -> None:
    """Raises ConfigurationError when `path` cannot be a file."""
    if not path.parent.is_dir():
        raise ConfigurationError(f"--output {path}: there is no folder {path.parent}; make it")
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--output {path}: not a file; name one to write to")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise ConfigurationError(
            f"--output {path}: nothing can be written in {path.parent} ({error.strerror}); name "
            "another place"
        ) from None


class Predictions:
    """Entries by id, in the order of `ids`; others follow in the order in which they come.

    A file that cannot be written is tried again with the next entry; `failure` says why it was not.
    """

    def __init__(self, path: Path, form: Form, model: str, ids: Iterable[str]) -> None:
        """Raises ConfigurationError when `path` cannot be a file."""
        check_output(path)
        self._path = path
        self._form = form
        self._model = model
        self._ranks = {name: rank for rank, name in enumerate(ids)}
        self._entries: dict[str, bytes] = {}
        self._rest_until = 0.0
        self._dirty = True
        self.failure: OSError | None = None

    @property
    def name(self) -> str:
        """Where they are written."""
        return str(self._path)

    def put(self, name: str, patch: str) -> None:
        """Keep an entry; `write` writes it."""
        self._ranks.setdefault(name, len(self._ranks))
        entry = {
            "instance_id": name,
            "model_name_or_path": self._model,
            "model_patch": patch,
        }
        self._entries[name] = json.dumps(entry).encode("ascii")
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
        if not self._entries:
            yield {"dict": b"{}\n", "list": b"[]\n", "jsonl": b""}[self._form]
            return
        opening, closing, between = {
            "dict": (b"{\n", b"\n}\n", b",\n"),
            "list": (b"[\n", b"\n]\n", b",\n"),
            "jsonl": (b"", b"\n", b"\n"),
        }[self._form]
        yield opening
        for number, name in enumerate(sorted(self._entries, key=self._ranks.__getitem__)):
            key = json.dumps(name).encode("ascii") + b": "
            yield between if number else b""
            yield key if self._form == "dict" else b""
            yield self._entries[name]
        yield closing
