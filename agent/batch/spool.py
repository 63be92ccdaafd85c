"""The selected instances on disk: read one at a time, so that a large data set costs little memory.

Made anew at each start from the data set, and with nothing in it that a solver may not know.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from agent.batch.dataset import BadRow, Task


class Spool:
    """Tasks by position, in the order of the data set. `bad` are the rows that were left out.

    `sha256` covers all tasks. A context manager.
    """

    def __init__(self, path: Path, rows: Iterable[Task | BadRow]) -> None:
        """Write `path`. Raises OSError, and what `rows` raises."""
        self.bad: list[BadRow] = []
        self.ids: list[str] = []
        self._ends = array("Q", [0])
        digest = hashlib.sha256()
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        with os.fdopen(os.dup(self._handle), "wb") as file:
            for row in rows:
                if isinstance(row, BadRow):
                    self.bad.append(row)
                    continue
                line = row.model_dump_json().encode() + b"\n"
                file.write(line)
                digest.update(line)
                self.ids.append(row.instance_id)
                self._ends.append(self._ends[-1] + len(line))
        self.sha256 = digest.hexdigest()

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, position: int) -> Task:
        start, end = self._ends[position], self._ends[position + 1]
        return Task.model_validate_json(os.pread(self._handle, end - start, start))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
