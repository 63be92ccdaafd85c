"""What is kept of an evaluation, and how a later one goes on from it.

FOLDER/instances/ID/result.json       all that is known (`Scored`), with the key that it rests on
FOLDER/instances/ID/report.json       the harness's report of one instance
FOLDER/instances/ID/patch.diff        the prediction
FOLDER/instances/ID/test_output.txt   what the test runs printed
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.batch.dataset import Task
from agent.durable import replace_file
from agent.scoring.report import InstanceReport, Scored

RESULT, REPORT, PATCH, LOG = "result.json", "report.json", "patch.diff", "test_output.txt"

# Changes when results of before cannot be compared any more.
_FORMAT = 1


def folder_name(instance_id: str) -> str:
    """The name of an instance's folder, the same as in a run of `agent batch`."""
    return Task.model_construct(instance_id=instance_id).folder_name


def key_of(parts: Mapping[str, Any]) -> str:
    """Names everything that a result depends on: SHA-256 in hex of JSON-able parts."""
    text = json.dumps({**parts, "format": _FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Keeper:
    """The folder of one instance; made when something is written. Methods raise OSError."""

    def __init__(self, folder: Path, instance_id: str, *, fresh: bool = False) -> None:
        """`fresh`: what was kept before is not taken."""
        self._folder = folder / "instances" / folder_name(instance_id)
        self._fresh = fresh

    def read(self, key: str) -> Scored | None:
        """The kept result of this key, None where there is none."""
        if self._fresh:
            return None
        try:
            found = Scored.model_validate_json((self._folder / RESULT).read_bytes())
        except (OSError, ValidationError):
            return None
        return found if found.key == key else None

    def open_log(self) -> Path:
        """An empty log."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / LOG
        log.write_bytes(b"")
        return log

    def write(self, scored: Scored, patch: str) -> None:
        """Keep a result; `result.json` comes last."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / PATCH, [patch.encode("utf-8", "surrogatepass")])
        report = {scored.instance_id: of_harness(scored.report)}
        replace_file(self._folder / REPORT, [_json(report)])
        replace_file(self._folder / RESULT, [_json(scored.model_dump(mode="json"))])


def of_harness(report: InstanceReport) -> dict[str, Any]:
    """The report as the harness writes it: without tests where none could be run."""
    return report.model_dump(mode="json", exclude_none=True)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode("ascii")
