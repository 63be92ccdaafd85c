"""Keeps a run of `agent solve` while it goes on: each reply at once, the result at the end.

If a run is cut off, the next run of the same issue on the same base opens its folder again, and its
paid replies are served from there. A run that cannot be kept goes on with one warning.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from agent.errors import ConfigurationError, Status
from agent.llm.recording import ChatExchange, ReplyGate, ReplyRecording
from agent.results.kept.store import (
    EXCHANGES,
    ISSUE,
    LARGEST_FILE,
    LOCK,
    ORIGIN,
    RunOrigin,
    newest_first,
    read_model,
    read_result,
    write_result,
)
from agent.run.record import RunRecord
from agent.shared.files import locked, make_private_folder
from agent.types import AppliedPatch, Problem, mapped_json
from agent.types.events import Notice
from agent.types.protocols import Reporter, Snapshot

# Some thousand runs: one takes 50 to 300 kB.
MOST_BYTES = 256 * 1024 * 1024

# Ends that another run may get past. All others are the answer to the issue.
_UNFINISHED = frozenset(
    {
        Status.BUDGET, Status.CRASHED, Status.INTERRUPTED, Status.PROVIDER, Status.SANDBOX,
        Status.TIME_LIMIT, Status.USAGE,
    }
)  # fmt: skip

_ID_DIGITS = 8  # hex; the first four tell most runs apart, also those of one issue


def make_origin(
    problem: Problem,
    snapshot: Snapshot,
    *others: object,
    settings: dict[str, Any],
    retry_of: str = "",
) -> RunOrigin:
    """Describe a run that begins. `others` are further values that tell runs apart."""
    root, commit, changed = str(snapshot.root), snapshot.commit, changed_files(snapshot)
    told = [problem.text, root, commit, sorted(changed.items()), retry_of, *map(str, others)]
    file = Path(problem.source).absolute()
    return RunOrigin(
        key=hashlib.sha256(json.dumps(told).encode()).hexdigest(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        repository=root,
        commit=commit,
        dirty=snapshot.dirty,
        changed=changed,
        source=str(file) if file.is_file() else problem.source,
        title=problem.title,
        settings=settings,
        retry_of=retry_of,
    )


def changed_files(snapshot: Snapshot) -> dict[str, str]:
    """Return the SHA-256 of each uncommitted file, in hex, by path; "" for a deleted one."""
    return {
        path: "" if data is None else hashlib.sha256(data).hexdigest()
        for path, data in snapshot.overlay().items()
    }


@contextmanager
def keep_run(
    store: Path, origin: RunOrigin, issue: str, report: Reporter
) -> Iterator[RunKeeper | None]:
    """Give the keeper of a run, None with one warning if the run cannot be kept.

    A run that ends with an exception before it has a reply leaves nothing behind.
    """
    with ExitStack() as stack:
        keeper: RunKeeper | None = None
        try:
            make_private_folder(store)
            folder = _take_up(store, origin, stack) or _begin(store, origin, issue, stack)
            keeper = RunKeeper(folder, report)
            stack.enter_context(closing(keeper.replies))
        except OSError as error:
            _warn(report, store, error)
        try:
            yield keeper
        except BaseException:
            if keeper is not None and not keeper.replies.exchanges:
                shutil.rmtree(keeper.folder, ignore_errors=True)
            raise


def _take_up(store: Path, origin: RunOrigin, stack: ExitStack) -> Path | None:
    """Lock the newest run of this key, if it is unfinished and no process works on it."""
    for folder in newest_first(store):
        found = read_model(RunOrigin, folder / ORIGIN)
        if found is None or found.key != origin.key:
            continue
        result = read_result(folder)
        if result is not None and result.status not in _UNFINISHED:
            return None
        return folder if _usable(folder) and _lock(folder, stack) else None
    return None


def _usable(folder: Path) -> bool:
    path = folder / EXCHANGES
    if path.is_symlink() or (path.exists() and path.stat().st_size > LARGEST_FILE):
        return False
    try:
        ReplyRecording(path).close()
    except ConfigurationError:
        return False
    return True


def _begin(store: Path, origin: RunOrigin, issue: str, stack: ExitStack) -> Path:
    """Make and lock the folder of a new run. Its id is a hash of the key and a number."""
    for number in count():
        folder = store / hashlib.sha256(f"{origin.key}{number}".encode()).hexdigest()[:_ID_DIGITS]
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        if _lock(folder, stack):  # another process may have taken it up just now
            hide = _hider()
            safe = RunOrigin.model_validate(mapped_json(origin.model_dump(mode="json"), hide))
            (folder / ISSUE).write_text(hide(issue), "utf-8", "replace")
            (folder / ORIGIN).write_text(safe.model_dump_json(indent=2) + "\n", "utf-8")
            return folder
    raise AssertionError


def _lock(folder: Path, stack: ExitStack) -> bool:
    try:
        stack.enter_context(locked(folder / LOCK))
    except ConfigurationError:
        return False
    return True


def _warn(report: Reporter, place: Path, error: OSError) -> None:
    why = error.strerror or error
    report(Notice(f"this run is not kept ({error.filename or place}: {why})", "warning"))


class RunKeeper:
    """Writes one kept run. `gate` is for `agent.wiring.open_services`."""

    def __init__(self, folder: Path, report: Reporter) -> None:
        self.folder = folder
        self._report = report
        self._hide = _hider()
        self.replies = _KeptReplies(folder / EXCHANGES, self._hide, self._fail)
        text = f"run {folder.name} has paid for this reply: it is used again, without a call"
        self.gate = ReplyGate(self.replies, lambda: report(Notice(text)))
        self._failed = False

    @property
    def id(self) -> str:
        """The name of the run."""
        return self.folder.name

    def end(self, result: RunRecord, patch: AppliedPatch | None) -> None:
        """Write the result, and remove the oldest runs if all take too much room."""
        masked = RunRecord.model_validate(mapped_json(result.model_dump(mode="json"), self._hide))
        diff = patch.diff if patch is not None else b""
        try:
            write_result(self.folder, masked, diff if masked.diff == result.diff else None)
            remove_oldest(self.folder.parent, MOST_BYTES, spare=self.folder)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            _warn(self._report, self.folder, error)


class _KeptReplies(ReplyRecording):
    """A recording whose failures are reported instead of raised: the reply itself is there."""

    def __init__(
        self, path: Path, hide: Callable[[str], str], failed: Callable[[OSError], None]
    ) -> None:
        super().__init__(path, hide)
        self._report_failure = failed

    def add(self, exchange: ChatExchange) -> None:
        try:
            super().add(exchange)
        except OSError as error:
            self._report_failure(error)


def remove_oldest(store: Path, most: int, *, spare: Path) -> None:
    """Remove the oldest runs until all take at most `most` bytes. Runs in progress stay."""
    sizes = {folder: _size(folder) for folder in newest_first(store)}
    total = sum(sizes.values())
    for folder in reversed(sizes):
        if total <= most:
            return
        if folder == spare:
            continue
        with ExitStack() as stack, suppress(OSError):
            if _lock(folder, stack):
                shutil.rmtree(folder, ignore_errors=True)
                total -= sizes[folder]


def _size(folder: Path) -> int:
    with suppress(OSError):
        return sum(path.lstat().st_size for path in folder.iterdir())
    return 0


def _hider() -> Callable[[str], str]:
    from agent.llm import own_redactor
    from agent.shared.secrets import mask_secrets

    known = own_redactor().known
    # A receipt repeats the same few names and words thousands of times.
    return lru_cache(maxsize=4096)(lambda text: mask_secrets(known(text)).text)
