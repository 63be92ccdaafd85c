"""The page of one instance: what its files say, cut to size. Read when the page is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.batch.dataset import Task
from agent.batch.folder import LOG, PATCH, RECEIPT, RESULT, TAPE
from agent.pages.diffs import DiffFile, diff_files
from agent.pages.limits import Limits
from agent.pages.plots import Beam, waterfall
from agent.pages.prose import Block, blocks_of
from agent.pages.reading import Piece
from agent.pages.records import (
    AttemptRecord,
    DroppedRecord,
    ExchangeRecord,
    PieceRecord,
    ReceiptRecord,
    ResultRecord,
    TestFileRecord,
    TestRecord,
    ValidationRecord,
    read_record,
    record_of,
)
from agent.pages.rows import Row, Run
from agent.pages.run import INSTANCES, TASKS
from agent.pages.text import Cleaner, Shown

_REASONS_SHOWN = 4  # of one piece, the strongest
_MOST_CALLS = 60  # an iterative solve makes a dozen
_MOST_ROWS = 100  # of attempts, edits, repairs, stages and notes: more are a broken file

# Bytes read for each byte shown: UTF-8 and what is masked or escaped take more.
_READ = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """The first names of a list, and how many more there are."""

    name: str
    shown: tuple[str, ...]
    more: int
    tone: str = ""


@dataclass(frozen=True, slots=True)
class TestRow:
    """One test run of a verdict. `letter` as in docs/verdict.md."""

    __test__ = False

    letter: str
    what: str
    run: TestRecord


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with its evidence."""

    validation: ValidationRecord
    runs: tuple[TestRow, ...]
    lists: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class PieceRow:
    """One row of the receipt: the strongest reasons, as shares of the largest one."""

    piece: PieceRecord
    why: str


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """A receipt cut to size. `cuts`: (what cut chunks, how many), by name."""

    receipt: ReceiptRecord
    pieces: tuple[PieceRow, ...]
    more_pieces: int
    dropped: tuple[DroppedRecord, ...]
    more_dropped: int
    cuts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message of a prompt."""

    role: str
    body: Shown


@dataclass(frozen=True, slots=True)
class CallView:
    """One call: what was asked, answered, and what it took."""

    number: int
    exchange: ExchangeRecord
    messages: tuple[MessageView, ...]
    reply: Shown


@dataclass(frozen=True, slots=True)
class InstancePage:
    """All that is shown of one instance. Parts that are not known are empty or None."""

    row: Row
    issue: Shown
    blocks: tuple[Block, ...]
    result: ResultRecord | None
    attempts: tuple[AttemptRecord, ...]
    judged: Judged | None
    diff: tuple[DiffFile, ...]
    diff_cut: int
    receipt: ReceiptView | None
    calls: tuple[CallView, ...]
    more_calls: int
    test: Shown
    test_path: str
    thought: Shown
    beams: tuple[Beam, ...]
    outcomes: tuple[Listed, ...]
    log: Shown
    notes: tuple[str, ...]


class Pages:
    """Makes the pages of a run, one at a time."""

    def __init__(self, run: Run, clean: Cleaner, limits: Limits, *, bodies: bool = True) -> None:
        self._run = run
        self._clean = clean
        self._limits = limits
        self._bodies = bodies

    def __iter__(self) -> Iterator[InstancePage]:
        return map(self.page, self._run.rows)

    def page(self, row: Row) -> InstancePage:
        """The page of one instance."""
        notes: list[str] = []
        result = self._result(row, notes)
        known = result or ResultRecord(status=row.status)
        issue = self._issue(row)
        diff = self._diff(row, known)
        calls, more = self._calls(row, notes)
        test = known.reproduction_test or TestFileRecord()
        return InstancePage(
            row=row,
            issue=issue,
            blocks=blocks_of(issue.text),
            result=result,
            attempts=known.attempts[:_MOST_ROWS],
            judged=self._judged(known),
            diff=diff_files(diff.text),
            diff_cut=diff.cut,
            receipt=self._receipt(row, known, notes),
            calls=calls,
            more_calls=more,
            test=self._clean.head(test.content, self._limits.issue),
            test_path=test.path,
            thought=self._clean.head(known.thought, self._limits.issue),
            beams=waterfall(_stages(row, known)),
            outcomes=self._outcomes(row),
            log=self._log(row),
            notes=(*notes, *known.notes)[:_MOST_ROWS],
        )

    # --------------------------------------------------------------------------------- its files

    def _piece(self, row: Row, name: str) -> Piece:
        tree = self._run.tree
        return Piece() if tree is None else tree.document(INSTANCES, row.folder, name)

    def _result(self, row: Row, notes: list[str]) -> ResultRecord | None:
        if self._run.tree is None:
            return self._run.single
        found = record_of(ResultRecord, self._piece(row, RESULT))
        if isinstance(found, str):
            notes.extend([f"{RESULT}: {found}"] if found else [])
            return None
        return found

    def _issue(self, row: Row) -> Shown:
        tree, place = self._run.tree, row.place
        if tree is None or place is None:
            return Shown()
        data = tree.part(place.offset, place.length, TASKS).data
        try:
            task = Task.model_validate_json(data.decode("utf-8", "replace"))
        except ValueError:
            return Shown()  # the file has been written anew since
        return self._clean.head(task.problem_statement, self._limits.issue)

    def _diff(self, row: Row, result: ResultRecord) -> Shown:
        """The best patch: its own file where there is one, a killed worker leaves no result."""
        limit = self._limits.diff
        piece = Piece(problem="single")
        if self._run.tree is not None:
            piece = self._run.tree.head(limit * _READ, INSTANCES, row.folder, PATCH)
        if piece.problem:
            return self._clean.head(result.diff, limit)
        text = piece.data.decode("utf-8", "replace")
        return self._clean.head(text, limit, size=piece.size)

    def _log(self, row: Row) -> Shown:
        if self._run.tree is None:
            return Shown()
        limit = self._limits.log
        piece = self._run.tree.tail(limit * _READ, INSTANCES, row.folder, LOG)
        text = piece.data.decode("utf-8", "replace")
        return self._clean.tail(text, limit, size=piece.size)

    def _receipt(self, row: Row, result: ResultRecord, notes: list[str]) -> ReceiptView | None:
        found: ReceiptRecord | str | None = result.receipt
        if found is None and self._run.tree is not None:
            piece = self._piece(row, RECEIPT)
            nothing = not piece.problem and piece.data.strip() in (b"", b"null")
            found = None if nothing else record_of(ReceiptRecord, piece)
        if isinstance(found, str):
            notes.extend([f"{RECEIPT}: {found}"] if found else [])
            found = None
        return None if found is None else _receipt_view(found, self._limits.pieces)

    def _calls(self, row: Row, notes: list[str]) -> tuple[tuple[CallView, ...], int]:
        found: list[ExchangeRecord] = []
        bad = more = 0
        lines = self._run.tree.lines(INSTANCES, row.folder, TAPE) if self._run.tree else ()
        for line in lines:
            if len(found) == _MOST_CALLS:
                more += 1
                continue
            record = read_record(ExchangeRecord, line.data)
            if isinstance(record, str):
                bad += 1
            else:
                found.append(record)
        if bad:
            notes.append(f"{TAPE}: {bad:,} lines cannot be read")
        return tuple(self._call(n, one, len(found)) for n, one in enumerate(found, start=1)), more

    def _call(self, number: int, exchange: ExchangeRecord, calls: int) -> CallView:
        messages: tuple[MessageView, ...] = ()
        reply = Shown()
        if self._bodies:
            messages = self._messages(exchange, self._limits.prompts // calls)
            reply = self._clean.head(exchange.reply.text, self._limits.replies // calls)
        return CallView(number, exchange, messages, reply)

    def _messages(self, exchange: ExchangeRecord, room: int) -> tuple[MessageView, ...]:
        """The prompt. The last message says most, and takes what the others leave."""
        asked = exchange.request.messages[-_MOST_ROWS:]
        views: list[MessageView] = []
        for message in asked:
            share = room if message is asked[-1] else room // 4
            body = self._clean.head(message.content, share)
            room = max(0, room - len(body.text))
            views.append(MessageView(message.role, body))
        return tuple(views)

    # ------------------------------------------------------------------------------ the evidence

    def _judged(self, result: ResultRecord) -> Judged | None:
        """The evidence of the patch that was kept: the last with the verdict of the result."""
        all_of_them = [a.validation for a in result.attempts if a.validation is not None]
        same = [v for v in all_of_them if v.verdict == result.verdict]
        if not all_of_them:
            return None
        found = (same or all_of_them)[-1]
        return Judged(found, tuple(_runs(found)), tuple(self._changed(found)))

    def _changed(self, found: ValidationRecord) -> Iterator[Listed]:
        for name, names, tone in (
            ("fail newly", found.newly_failing, "bad"),
            ("pass newly", found.newly_passing, "good"),
            ("decide: failed before, pass now", found.fail_to_pass, "good"),
            ("given, and not as they should be", found.known_missed, "bad"),
        ):
            if names:
                yield self._listed(name, names, tone)

    def _outcomes(self, row: Row) -> tuple[Listed, ...]:
        """What the evaluation says of the tests that decide."""
        if row.evaluated is None:
            return ()
        status = row.evaluated.tests_status
        found = (
            ("FAIL_TO_PASS, failed", status.fail_to_pass.failure, "bad"),
            ("FAIL_TO_PASS, passed", status.fail_to_pass.success, "good"),
            ("PASS_TO_PASS, failed", status.pass_to_pass.failure, "bad"),
            ("PASS_TO_PASS, passed", status.pass_to_pass.success, "good"),
        )
        return tuple(self._listed(name, names, tone) for name, names, tone in found if names)

    def _listed(self, name: str, names: Sequence[str], tone: str) -> Listed:
        most = self._limits.names
        return Listed(name, tuple(names[:most]), max(0, len(names) - most), tone)


def _stages(row: Row, result: ResultRecord) -> list[tuple[str, float, str]]:
    """What took time, in order: as the journal tells it, or the sums of the result.

    The journal also tells of stages within others, which a result does not count.
    """
    told = [s for s in row.stages if not result.timings or s.name in result.timings]
    if told:
        return [(s.name, s.seconds, s.summary) for s in told[:_MOST_ROWS]]
    return [(name, max(0.0, s), "") for name, s in result.timings.items()][:_MOST_ROWS]


def _runs(found: ValidationRecord) -> Iterator[TestRow]:
    for letter, what, run in (
        ("A", "base, selected tests", found.before),
        ("B", "base, the reply's test", found.reproduction_before),
        ("C", "the patch's source, selected tests", found.after),
        ("C\N{PRIME}", "the patch's source, the reply's test", found.reproduction_after),
        ("D", "the whole patch, selected tests", found.whole),
    ):
        if run is not None:
            yield TestRow(letter, what, run)


def _receipt_view(receipt: ReceiptRecord, most: int) -> ReceiptView:
    cuts = Counter(one.cut_by for one in receipt.dropped)
    return ReceiptView(
        receipt,
        tuple(PieceRow(piece, _why(piece)) for piece in receipt.pieces[:most]),
        max(0, len(receipt.pieces) - most),
        receipt.dropped[: most // 2],
        max(0, len(receipt.dropped) - most // 2),
        tuple(sorted(cuts.items())),
    )


def _why(piece: PieceRecord) -> str:
    """The strongest reasons, as `agent context` words them."""
    if piece.form == "signatures":
        return "class headers, imports and signatures around the chosen chunks"
    telling = [reason for reason in piece.reasons if reason.value]
    strongest = sorted(telling, key=lambda r: (-abs(r.value), r.feature, r.note))[:_REASONS_SHOWN]
    return ", ".join(
        f"{r.feature} {r.value:.2f}" + (f" ({r.note})" if r.note else "") for r in strongest
    )
