"""Reads and writes the folder of one solve, and finds kept runs in the user's folder.

The files may be damaged or foreign: they are read with limits, and links are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from agent.errors import ConfigurationError
from agent.llm.recording import ChatExchange, parse_exchange
from agent.repository.unified_diff import DiffError, read_diff
from agent.run.problem import problem_from_text
from agent.run.record import RunRecord
from agent.settings import state_folder
from agent.shared.files import read_small_file, replace_file
from agent.types import Problem

LARGEST_FILE = 32 * 1024 * 1024
"""Bytes of one file at most. A result takes some ten kilobytes, a receipt some hundred."""

RESULT, PATCH, EXCHANGES = "result.json", "patch.diff", "exchanges.jsonl"
LOG, LOCK = "log.txt", "lock"


def write_patch(folder: Path, diff: bytes) -> None:
    """Write the best patch so far. Raises OSError."""
    replace_file(folder / PATCH, [diff])


def write_result(folder: Path, result: RunRecord, diff: bytes | None) -> None:
    """Write the files of a finished attempt, `result.json` last. Raises OSError.

    There is no file of a `diff` that is None.
    """
    if diff is None:
        (folder / PATCH).unlink(missing_ok=True)
    else:
        write_patch(folder, diff)
    replace_file(folder / RESULT, [(result.model_dump_json(indent=2) + "\n").encode()])


def read_result(folder: Path) -> RunRecord | None:
    """Return the result in the folder, None if there is none that can be read."""
    return read_model(RunRecord, folder / RESULT)


Model = TypeVar("Model", bound=BaseModel)


def read_model(kind: type[Model], path: Path) -> Model | None:
    """Return the record in a JSON file, None if there is none that can be read."""
    try:
        return kind.model_validate_json(read_small_file(path, LARGEST_FILE) or b"")
    except (OSError, ConfigurationError, ValidationError):
        return None


def read_patch(folder: Path) -> str:
    """Return the best patch as text, "" if there is none."""
    try:
        return (folder / PATCH).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def last_log_line(folder: Path) -> str:
    """Return the last line of the log, at most 160 characters: why a worker died."""
    try:
        with (folder / LOG).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4096))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:160] if lines else ""


ORIGIN, ISSUE, FEEDBACK = "origin.json", "issue.md", "feedback"
_REQUEST = "pull-request"

Feedback = Literal["accepted", "rejected", ""]
"""What the user said of a run; "" for nothing."""

_ID = re.compile(r"[0-9a-f]{8,12}")


class RunOrigin(BaseModel, frozen=True):
    """What was solved, when and where.

    `key` is a hash of all that tells runs apart, in hex. `started` is UTC, ISO 8601. `changed` has
    the hashes of uncommitted files (`changed_files`). `settings` were given on the command line.
    """

    format: Literal[1] = 1
    key: str
    started: str
    repository: str
    commit: str
    dirty: bool
    changed: dict[str, str]
    source: str
    title: str
    settings: dict[str, Any]
    retry_of: str = ""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """One kept run. `result` is None if the run was killed, or is still going."""

    id: str
    folder: Path
    origin: RunOrigin
    result: RunRecord | None

    @property
    def problem(self) -> Problem:
        """The issue, with its secrets masked. Raises ProblemError if it is not there."""
        data = read_small_file(self.folder / ISSUE, LARGEST_FILE) or b""
        return problem_from_text(data.decode("utf-8", "replace"), self.origin.source)

    @property
    def diff(self) -> bytes | None:
        """The best patch, None if there is none or if it held a secret, which is not kept."""
        return read_small_file(self.folder / PATCH, LARGEST_FILE) or None

    @property
    def feedback(self) -> Feedback:
        """What the user said last of this run."""
        said = read_small_file(self.folder / FEEDBACK, LARGEST_FILE) or b""
        known: tuple[Feedback, ...] = ("accepted", "rejected")
        return next((word for word in known if said.strip() == word.encode()), "")

    def say(self, feedback: Feedback) -> None:
        """Write down what the user says of this run. Raises OSError."""
        replace_file(self.folder / FEEDBACK, [feedback.encode(), b"\n"])

    @property
    def pull_request(self) -> str:
        """The address of the pull request that was opened with this run's patch, "" for none."""
        return (read_small_file(self.folder / _REQUEST, LARGEST_FILE) or b"").decode().strip()

    def keep_pull_request(self, address: str) -> None:
        """Write down the address of the run's pull request. Raises OSError."""
        replace_file(self.folder / _REQUEST, [address.encode(), b"\n"])

    def concerns(self, paths: Collection[str]) -> bool:
        """Whether the model was shown one of the files, or the patch changes one."""
        receipt = self.result.receipt if self.result else None
        if receipt is None:
            return bool(paths)
        named = {piece.path for piece in receipt.pieces}
        with suppress(DiffError):
            for file in read_diff(self.diff or b""):
                named |= {file.old or "", file.new or ""}
        return not named.isdisjoint(paths)

    @property
    def exchanges(self) -> tuple[ChatExchange, ...]:
        """The replies with their prompts. Lines that cannot be read are left out."""
        data = read_small_file(self.folder / EXCHANGES, LARGEST_FILE) or b""
        found = (parse_exchange(line) for line in data.split(b"\n"))
        return tuple(one for one in found if isinstance(one, ChatExchange))


def runs_folder() -> Path:
    """Return the user's folder of kept runs, whether or not it exists."""
    return state_folder() / "runs"


def newest_first(store: Path, prefix: str = "") -> tuple[Path, ...]:
    """Return the folders of all runs whose id begins with `prefix`, the newest first."""
    found = []
    for folder in _folders(store):
        if folder.name.startswith(prefix):
            try:
                found.append(((folder / ORIGIN).lstat().st_mtime_ns, folder.name, folder))
            except OSError:  # it is just being made or removed
                continue
    return tuple(folder for *_, folder in sorted(found, reverse=True))


def _folders(store: Path) -> Iterator[Path]:
    try:
        for path in store.iterdir():
            if _ID.fullmatch(path.name) and not path.is_symlink():
                yield path
    except FileNotFoundError:
        return


def list_runs(store: Path) -> Iterator[KeptRun]:
    """Yield all runs that can be read, the newest first."""
    for folder in newest_first(store):
        run = read_run(folder)
        if run is not None:
            yield run


def read_run(folder: Path) -> KeptRun | None:
    """Return the kept run in a folder, None if there is none that can be read."""
    origin = read_model(RunOrigin, folder / ORIGIN)
    return None if origin is None else KeptRun(folder.name, folder, origin, read_result(folder))


def is_id(text: str) -> bool:
    """Whether a text may be the beginning of an id."""
    return re.fullmatch(r"[0-9a-f]{1,12}", text) is not None


def find_run(store: Path, prefix: str | None) -> KeptRun:
    """Return the run whose id begins with `prefix`, or the last one. Raises ConfigurationError."""
    found = newest_first(store, prefix or "")
    if not found:
        wanted = f"no kept run begins with {prefix!r}" if prefix else "no run is kept yet"
        raise ConfigurationError(f"{wanted} ({store}): see `agent runs`")
    if prefix and len(found) > 1:
        names = ", ".join(folder.name for folder in found[:5])
        raise ConfigurationError(f"{len(found)} runs begin with {prefix!r} ({names}): say more")
    run = read_run(found[0])
    if run is None:
        raise ConfigurationError(f"{found[0]}: its {ORIGIN} cannot be read: remove the folder")
    return run
