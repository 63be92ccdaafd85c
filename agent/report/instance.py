"""The section of the page for one instance. Its files are read while the page is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.datasets import SolverTask
from agent.report.diffs import ShownFile, diff_files
from agent.report.plots import Beam, waterfall
from agent.report.records import (
    AttemptRecord,
    DroppedRecord,
    ExchangeRecord,
    FilePart,
    PieceRecord,
    ReceiptRecord,
    ResultRecord,
    TestFileRecord,
    TestRecord,
    ValidationRecord,
    read_record,
    record_of,
)
from agent.report.rows import ReportRow, ReportRun
from agent.report.run_reader import TASKS
from agent.report.text import Cleaner, Shown, TextBlock, blocks_of
from agent.results.kept import EXCHANGES, ISSUE, LOG, PATCH, RECEIPT, RESULT

_REASONS_SHOWN = 4  # strongest reasons of one piece
_MOST_CALLS = 60  # an iterative solve makes a dozen
_MOST_ROWS = 100  # attempts, edits, repairs, stages, notes; a file with more is broken

# Bytes read for each byte shown, because UTF-8, masking and escaping change the size.
_READ = 4


@dataclass(frozen=True, slots=True)
class NameList:
    """The first names of a list, and the number of further ones."""

    name: str
    shown: tuple[str, ...]
    more: int
    tone: str = ""


@dataclass(frozen=True, slots=True)
class TestRow:
    """One test run of a verdict. `letter` is its name in the documentation of verdicts."""

    __test__ = False

    letter: str
    what: str
    run: TestRecord


@dataclass(frozen=True, slots=True)
class VerdictView:
    """A verdict with its evidence."""

    validation: ValidationRecord
    runs: tuple[TestRow, ...]
    lists: tuple[NameList, ...]


@dataclass(frozen=True, slots=True)
class PieceRow:
    """One row of the receipt, with its strongest reasons."""

    piece: PieceRecord
    why: str


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """A receipt cut to size. `cuts` are (what cut chunks, number of chunks), by name."""

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
    """One model call."""

    number: int
    exchange: ExchangeRecord
    messages: tuple[MessageView, ...]
    reply: Shown


@dataclass(frozen=True, slots=True)
class InstancePage:
    """The values that the page shows of one instance. Unknown parts are empty or None."""

    row: ReportRow
    issue: Shown
    blocks: tuple[TextBlock, ...]
    result: ResultRecord | None
    attempts: tuple[AttemptRecord, ...]
    judged: VerdictView | None
    diff: tuple[ShownFile, ...]
    diff_cut: int
    receipt: ReceiptView | None
    calls: tuple[CallView, ...]
    more_calls: int
    test: Shown
    test_path: str
    thought: Shown
    beams: tuple[Beam, ...]
    outcomes: tuple[NameList, ...]
    log: Shown
    notes: tuple[str, ...]


class Pages:
    """Makes the pages of a run, one at a time."""

    def __init__(
        self, run: ReportRun, clean: Cleaner, limits: TextLimits, *, bodies: bool = True
    ) -> None:
        self._run = run
        self._clean = clean
        self._limits = limits
        self._bodies = bodies

    def __iter__(self) -> Iterator[InstancePage]:
        return map(self.page, self._run.rows)

    def page(self, row: ReportRow) -> InstancePage:
        """Return the page of one instance."""
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

    def _piece(self, row: ReportRow, name: str) -> FilePart:
        tree = self._run.tree
        return FilePart() if tree is None else tree.document(*self._run.instances, row.folder, name)

    def _result(self, row: ReportRow, notes: list[str]) -> ResultRecord | None:
        if self._run.single is not None:
            return self._run.single
        found = record_of(ResultRecord, self._piece(row, RESULT))
        if isinstance(found, str):
            notes.extend([f"{RESULT}: {found}"] if found else [])
            return None
        return found

    def _issue(self, row: ReportRow) -> Shown:
        tree, place, single = self._run.tree, row.place, self._run.single
        if single is not None and single.issue is not None:
            text = f"{single.issue.title}\n\n{single.issue.body}"
            return self._clean.head(text.strip(), self._limits.issue)
        if tree is not None and single is not None:
            piece = tree.head(self._limits.issue * _READ, *self._run.instances, row.folder, ISSUE)
            text = piece.data.decode("utf-8", "replace")
            return self._clean.head(text, self._limits.issue, size=piece.size)
        if tree is None or place is None:
            return Shown()
        data = tree.part(place.offset, place.length, TASKS).data
        try:
            task = SolverTask.model_validate_json(data.decode("utf-8", "replace"))
        except ValueError:
            return Shown()  # the file has been rewritten meanwhile
        return self._clean.head(task.problem_statement, self._limits.issue)

    def _diff(self, row: ReportRow, result: ResultRecord) -> Shown:
        """Return the best patch from its own file, or else from the result."""
        limit = self._limits.diff
        piece = FilePart(problem="single")
        if self._run.tree is not None:
            piece = self._run.tree.head(limit * _READ, *self._run.instances, row.folder, PATCH)
        if piece.problem:
            return self._clean.head(result.diff, limit)
        text = piece.data.decode("utf-8", "replace")
        return self._clean.head(text, limit, size=piece.size)

    def _log(self, row: ReportRow) -> Shown:
        if self._run.tree is None:
            return Shown()
        limit = self._limits.log
        piece = self._run.tree.tail(limit * _READ, *self._run.instances, row.folder, LOG)
        text = piece.data.decode("utf-8", "replace")
        return self._clean.tail(text, limit, size=piece.size)

    def _receipt(
        self, row: ReportRow, result: ResultRecord, notes: list[str]
    ) -> ReceiptView | None:
        found: ReceiptRecord | str | None = result.receipt
        if found is None and self._run.tree is not None:
            piece = self._piece(row, RECEIPT)
            nothing = not piece.problem and piece.data.strip() in (b"", b"null")
            found = None if nothing else record_of(ReceiptRecord, piece)
        if isinstance(found, str):
            notes.extend([f"{RECEIPT}: {found}"] if found else [])
            found = None
        return None if found is None else _receipt_view(found, self._limits.pieces)

    def _calls(self, row: ReportRow, notes: list[str]) -> tuple[tuple[CallView, ...], int]:
        found: list[ExchangeRecord] = []
        bad = more = 0
        tree, place = self._run.tree, (*self._run.instances, row.folder, EXCHANGES)
        lines = tree.lines(*place) if tree else ()
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
            notes.append(f"{EXCHANGES}: {bad:,} lines cannot be read")
        return tuple(self._call(n, one, len(found)) for n, one in enumerate(found, start=1)), more

    def _call(self, number: int, exchange: ExchangeRecord, calls: int) -> CallView:
        messages: tuple[MessageView, ...] = ()
        reply = Shown()
        if self._bodies:
            messages = self._messages(exchange, self._limits.prompts // calls)
            reply = self._clean.head(exchange.reply.text, self._limits.replies // calls)
        return CallView(number, exchange, messages, reply)

    def _messages(self, exchange: ExchangeRecord, room: int) -> tuple[MessageView, ...]:
        """Return the prompt. The last message is the most useful and gets the space that others
        leave.
        """
        asked = exchange.request.messages[-_MOST_ROWS:]
        views: list[MessageView] = []
        for message in asked:
            share = room if message is asked[-1] else room // 4
            body = self._clean.head(message.content, share)
            room = max(0, room - len(body.text))
            views.append(MessageView(message.role, body))
        return tuple(views)

    # ------------------------------------------------------------------------------ the evidence

    def _judged(self, result: ResultRecord) -> VerdictView | None:
        """Return the evidence of the best patch: the last one with the verdict of the result."""
        all_of_them = [a.validation for a in result.attempts if a.validation is not None]
        same = [v for v in all_of_them if v.verdict == result.verdict]
        if not all_of_them:
            return None
        found = (same or all_of_them)[-1]
        return VerdictView(found, tuple(_runs(found)), tuple(self._changed(found)))

    def _changed(self, found: ValidationRecord) -> Iterator[NameList]:
        for name, names, tone in (
            ("fail newly", found.newly_failing, "bad"),
            ("pass newly", found.newly_passing, "good"),
            ("decide: failed before, pass now", found.fail_to_pass, "good"),
            ("given, and not as they should be", found.known_missed, "bad"),
        ):
            if names:
                yield self._listed(name, names, tone)

    def _outcomes(self, row: ReportRow) -> tuple[NameList, ...]:
        """Return the results of the deciding tests in the evaluation."""
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

    def _listed(self, name: str, names: Sequence[str], tone: str) -> NameList:
        most = self._limits.names
        return NameList(name, tuple(names[:most]), max(0, len(names) - most), tone)


def _stages(row: ReportRow, result: ResultRecord) -> list[tuple[str, float, str]]:
    """Return the stages with their times, from the journal or else from the sums of the result.

    The journal also has nested stages, which a result does not count.
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
    """Return the strongest reasons, in the words of `agent context`."""
    if piece.form == "signatures":
        return "class headers, imports and signatures around the chosen chunks"
    telling = [reason for reason in piece.reasons if reason.value]
    strongest = sorted(telling, key=lambda r: (-abs(r.value), r.feature, r.note))[:_REASONS_SHOWN]
    return ", ".join(
        f"{r.feature} {r.value:.2f}" + (f" ({r.note})" if r.note else "") for r in strongest
    )


# With these limits, 500 instances make a file below 30 MB, which a phone can open.
_TOTAL = 13 * 1024 * 1024
_LEAST, _MOST = 4 * 1024, 512 * 1024


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Limits of the texts of one instance in bytes of HTML; `diff` is in bytes of the diff."""

    issue: int
    diff: int
    prompts: int
    replies: int
    log: int
    names: int  # of tests, in one list
    pieces: int  # rows of the receipt


def limits_for(instances: int) -> TextLimits:
    """Return the limits of each instance of a report. More instances get lower limits."""
    share = min(_MOST, max(_LEAST, _TOTAL // max(1, instances)))
    return TextLimits(
        issue=share // 8,
        diff=share // 5,
        prompts=share // 4,
        replies=share // 5,
        log=share // 8,
        names=max(5, min(100, share // 800)),
        pieces=max(4, min(60, share // 1600)),
    )
