"""The JSON files of a run, as far as they can be read: what is missing or unknown is left out.

They may come from another version of this program, or from another one: fields that are not known
are passed over, those that are missing are empty.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.pages.reading import Piece


def _listed(value: Any) -> Any:
    return () if value is None else value


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


_MOST = 10**15  # what is beyond counts nothing
Count = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Number = Annotated[float, Field(ge=-_MOST, le=_MOST)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class EditRecord(_Record):
    """One edit that was applied: where, and how its place was found."""

    path: str = ""
    tier: str = ""
    line: Count = 0
    path_as_written: str | None = None


class RepairRecord(_Record):
    """A slip of the reply that was put right. `edit` counts from 1."""

    name: str = ""
    note: str = ""
    saved: str = ""
    edit: Count | None = None


class TestRecord(_Record):
    """Counts of one test run."""

    __test__ = False

    command: Names = ()
    passed: Count = 0
    failed: Count = 0
    skipped: Count = 0
    seconds: Number = 0.0
    ended: str = ""
    channels: Names = ()
    disagreements: Names = ()
    cached: bool = False


class SelectedRecord(_Record):
    """A test file that was run, and why."""

    path: str = ""
    reason: str = ""


class ValidationRecord(_Record):
    """A verdict and its evidence."""

    verdict: str = ""
    reason: str = ""
    backend: str = ""
    interpreter: str = ""
    runner: str = ""
    selected: tuple[SelectedRecord, ...] = ()
    before: TestRecord | None = None
    after: TestRecord | None = None
    reproduction_before: TestRecord | None = None
    reproduction_after: TestRecord | None = None
    whole: TestRecord | None = None
    newly_failing: Names = ()
    newly_passing: Names = ()
    fail_to_pass: Names = ()
    pass_to_pass: Names = ()
    known_missed: Names = ()
    notes: Names = ()
    seconds: Number = 0.0


class AttemptRecord(_Record):
    """One reply and how far it came."""

    kind: str = ""
    status: str = ""
    reason: str = ""
    reader: str | None = None
    failure_kinds: Names = ()
    missing: Names = ()
    edits: tuple[EditRecord, ...] = ()
    repairs: tuple[RepairRecord, ...] = ()
    validation: ValidationRecord | None = None


class UsageRecord(_Record):
    """Calls, tokens and dollars."""

    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Number | None = None


class TestFileRecord(_Record):
    """The reply's own test."""

    __test__ = False

    path: str = ""
    content: str = ""


class ReasonRecord(_Record):
    """One contribution to the score of a chunk."""

    feature: str = ""
    value: Number = 0.0
    note: str = ""


class PieceRecord(_Record):
    """One piece of the context, and why it is there."""

    path: str = ""
    start: Count = 0
    end: Count = 0
    symbol: str = ""
    form: str = ""
    tokens: Count = 0
    rank: Count | None = None
    score: Number = 0.0
    reasons: tuple[ReasonRecord, ...] = ()


class DroppedRecord(_Record):
    """One ranked chunk that is not in the context, and what cut it."""

    path: str = ""
    start: Count = 0
    end: Count = 0
    symbol: str = ""
    tokens: Count = 0
    rank: Count | None = None
    cut_by: str = ""


class ReceiptRecord(_Record):
    """The account of one context."""

    tokens: Count = 0
    budget: Count = 0
    total_chunks: Count = 0
    ranked_chunks: Count = 0
    pieces: tuple[PieceRecord, ...] = ()
    dropped: tuple[DroppedRecord, ...] = ()
    notes: Names = ()


class ResultRecord(_Record):
    """The result of one solve (`agent solve --json`). Only `status` must be there."""

    status: str
    verdict: str | None = None
    message: str = ""
    diff: str = ""
    thought: str = ""
    reproduction_test: TestFileRecord | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    usage: UsageRecord = UsageRecord()
    timings: dict[str, Number] = Field(default_factory=dict)
    model: str | None = None
    commit: str = ""
    dirty: bool = False
    receipt: ReceiptRecord | None = None
    notes: Names = ()


class MadeWithRecord(_Record):
    """`run.json`: what a run was begun with. `dataset`: a hash."""

    dataset: str = ""
    model: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)


class MessageRecord(_Record):
    """One message of a prompt."""

    role: str = ""
    content: str = ""


class RequestRecord(_Record):
    """What a model was asked."""

    model: str = ""
    messages: tuple[MessageRecord, ...] = ()
    max_output_tokens: Count = 0


class ReplyRecord(_Record):
    """What it answered."""

    text: str = ""
    model: str = ""
    finish_reason: str = ""
    usage: UsageRecord = UsageRecord()


class ExchangeRecord(_Record):
    """One line of `exchanges.jsonl`."""

    sha256: str = ""
    request: RequestRecord = RequestRecord()
    reply: ReplyRecord = ReplyRecord()
    seconds: Number = 0.0


Record = TypeVar("Record", bound=_Record)


def read_record(kind: type[Record], data: bytes) -> Record | str:
    """The record of a JSON text, or in words what is wrong with it."""
    try:
        return kind.model_validate_json(data.decode("utf-8", "replace"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]


def record_of(kind: type[Record], piece: Piece) -> Record | str:
    """The record of a file, or why there is none: "" where the file is not there."""
    if piece.problem:
        return "" if piece.missing else piece.problem
    return read_record(kind, piece.data)
