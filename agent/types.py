"""Frozen values that the steps pass to each other.

Everything here is data, with small derived properties and no I/O. Lines are 1-based and inclusive;
paths are POSIX paths relative to the repository root. Expected failures (`ParseFailure`,
`ApplyFailure`, a `ValidationReport` that is not accepted) are values of this module too. Exceptions
are in `agent.errors`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

# -------------------------------------------------------------------------- problem and repository


@dataclass(frozen=True, slots=True)
class Problem:
    """The issue to solve. `title` is its first non-empty line without Markdown heading marks."""

    title: str
    body: str
    source: str = "<text>"

    @property
    def text(self) -> str:
        """Title and body as one text, the form in which a model is shown the problem."""
        return f"{self.title}\n\n{self.body}".strip() if self.body else self.title


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One usable text file of a snapshot. `blob` is the git blob id (SHA-1, hex) of its content."""

    path: str
    blob: str
    size: int
    language: str  # a name of agent.repository.languages, "text" when unknown
    executable: bool = False


SkipReason = Literal[
    "binary", "lfs-pointer", "submodule", "symlink", "too-large", "unreadable", "missing",
    "control-in-name", "name-not-utf-8", "name-outside",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A tracked path that retrieval does not see, and why."""

    path: str
    reason: SkipReason


# --------------------------------------------------------------------------------------- retrieval


class ChunkKind(enum.StrEnum):
    """The kind of a chunk. Functions, methods and classes do not overlap others of their kind."""

    FUNCTION = "function"  # with decorators
    METHOD = "method"  # with decorators
    CLASS = "class"  # the header: decorators, bases, docstring, attributes; not its methods
    MODULE = "module"  # the rest of a file: imports, constants, top-level code
    WINDOW = "window"  # a run of lines of a file that no parser reads


DEFINITIONS: Final = frozenset({ChunkKind.FUNCTION, ChunkKind.METHOD, ChunkKind.CLASS})

Dirty = Literal["include", "ignore", "refuse"]
"""What uncommitted changes are: a part of the snapshot, ignored, or an error."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one file, the unit of retrieval.

    `text` is the decoded text of lines `start`..`end` of the file with `\\n` line ends, unchanged
    otherwise. A class or module chunk may leave out inner line ranges (`holes`, inclusive pairs);
    its `text` is then only the remaining lines. `signature` represents the chunk where its body is
    not shown: decorators and the `def` or `class` lines.
    """

    path: str
    start: int
    end: int
    symbol: str  # qualified: "Class.method", "function", "" for module and window chunks
    kind: ChunkKind
    text: str
    blob: str
    language: str
    signature: str = ""
    holes: tuple[tuple[int, int], ...] = ()

    @property
    def id(self) -> str:
        """`path:L10-42`, with the symbol where there is one; unique within a snapshot."""
        name = f" {self.symbol}" if self.symbol else ""
        return f"{self.path}:L{self.start}-{self.end}{name}"


@dataclass(frozen=True, slots=True)
class Reason:
    """One named contribution to a score, as a receipt prints it. `note` explains it in words."""

    feature: str  # "lexical", "file", "cosine", "filename", "path", "symbol", "traceback", ...
    value: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class ScoredFile:
    path: str
    score: float
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    chunk: Chunk
    score: float
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Chunks and files in total order: `-score, path, start`. `notes` say what was degraded.

    `degraded` says why embeddings are missing where they were to be used, in words that do not
    depend on the problem; otherwise it is "".
    """

    # Kept out of `repr`: `asyncio.run` builds that of its result, which takes 20 ms.
    chunks: tuple[ScoredChunk, ...] = field(repr=False)
    files: tuple[ScoredFile, ...] = field(repr=False)
    total_chunks: int
    notes: tuple[str, ...] = ()
    degraded: str = ""


# ------------------------------------------------------------------------------ context and prompt


PieceForm = Literal["whole", "part", "signatures"]


@dataclass(frozen=True, slots=True)
class ContextPiece:
    """The part of one chunk, or of the rest of a file, that the model is shown.

    No line is in two pieces.

    `whole`: every line of the chunk. `part`: a cut-down oversized chunk. `signatures`: other
    lines of the file (class headers, imports, signatures, lines that close a short gap). `shown`
    are inclusive line ranges; `start`..`end` spans them. Pieces that touch are rendered as one.

    `tokens` is what the piece added to the rendered file when it was chosen: its lines, its class
    header if no other method had brought that, and a header and fence if it stands apart. A piece
    that closes the gap between others can add less than its own lines, even a negative number.
    """

    path: str
    start: int
    end: int
    symbol: str
    form: PieceForm
    tokens: int
    score: float
    reasons: tuple[Reason, ...] = ()
    shown: tuple[tuple[int, int], ...] = ()


CutBy = Literal["budget", "max-chunks", "overlap", "duplicate", "secret"]


@dataclass(frozen=True, slots=True)
class DroppedChunk:
    """A ranked chunk that is not in the context, and the limit that cut it."""

    path: str
    start: int
    end: int
    symbol: str
    tokens: int
    score: float
    cut_by: CutBy


@dataclass(frozen=True, slots=True)
class ContextBundle:
    """The packed context. `text` is the rendered whole, `tokens` its exact count (<= `budget`).

    `reserve` is the number of tokens held back on top of `budget`. `likely_complete` is the
    probability that all code to change is shown; None where it is not known.
    """

    pieces: tuple[ContextPiece, ...]
    text: str
    tokens: int
    budget: int
    dropped: tuple[DroppedChunk, ...] = ()
    notes: tuple[str, ...] = ()
    reserve: int = 0
    likely_complete: float | None = None

    @property
    def shown_lines(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """The line ranges that the model is shown, by path."""
        shown: dict[str, list[tuple[int, int]]] = {}
        for piece in self.pieces:
            shown.setdefault(piece.path, []).extend(piece.shown)
        return shown


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Tool:
    """An action that a model may call. `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool in a reply."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """A reply that calls tools, and the result of each call. `said`: its text beside the calls.

    A reply without calls has one result, which is the user's answer to it.
    """

    said: str
    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToolDialogue:
    """A conversation as servers take it that know tools: opening texts, tools, and turns."""

    system: str
    opening: str
    tools: tuple[Tool, ...]
    turns: tuple[ToolTurn, ...] = ()

    def mapped(self, change: Callable[[str], str]) -> ToolDialogue:
        """Return the dialogue with `change` applied to every text that is not a tool's."""
        turns = tuple(_mapped_turn(turn, change) for turn in self.turns)
        return ToolDialogue(change(self.system), change(self.opening), self.tools, turns)


def _mapped_turn(turn: ToolTurn, change: Callable[[str], str]) -> ToolTurn:
    calls = tuple(
        ToolCall(call.id, call.name, _mapped_json(dict(call.arguments), change))
        for call in turn.calls
    )
    return ToolTurn(change(turn.said), calls, tuple(map(change, turn.results)))


def _mapped_json(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _mapped_json(item, change) for key, item in value.items()}
        case list():
            return [_mapped_json(item, change) for item in value]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages of one call. `sha256` covers roles and contents; `tokens` is an upper bound.

    `dialogue` is the same conversation for a server that takes tools.
    """

    messages: tuple[Message, ...]
    sha256: str
    tokens: int
    dialogue: ToolDialogue | None = None


# ------------------------------------------------------------------------------------------- model


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and dollars of one or more calls. `cost_usd` is None where no price is known.

    `input_tokens` counts all input. `cache_read_tokens` and `cache_write_tokens` are the parts of
    it that were read from and written to the provider's prompt cache. `estimated`: the server did
    not count the tokens of a call, so that they are our own count.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    calls: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False

    @property
    def summary(self) -> str:
        """Tokens and cost in words."""
        cost = "" if self.cost_usd is None else f", ${self.cost_usd:.4f}"
        cost += " (estimated)" if self.estimated else ""
        return f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out{cost}"

    def __add__(self, other: Usage) -> Usage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
            self.calls + other.calls,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply. `finish_reason` "length" means it was cut off at the output limit."""

    text: str
    model: str
    finish_reason: str
    usage: Usage
    seconds: float


# ------------------------------------------------------------------------------------------- edits


@dataclass(frozen=True, slots=True)
class SearchReplace:
    """Replace the one occurrence of `search`; `line` (1-based, optional) makes it unique.

    `within` (optional) holds enclosing lines such as `class X:` or `def foo(`, outermost first, one
    a line. The match must come after them, and inside them where that can be told.
    """

    path: str
    search: str
    replace: str
    line: int | None = None
    within: str = ""


@dataclass(frozen=True, slots=True)
class CreateFile:
    """A new file. With `replace_existing` the reply gave a whole file, which may already exist."""

    path: str
    content: str
    replace_existing: bool = False


@dataclass(frozen=True, slots=True)
class DeleteFile:
    path: str


@dataclass(frozen=True, slots=True)
class RenameFile:
    """Move a file without changing its content or mode. Later edits use the new path."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class ReplaceSymbol:
    """Replace one whole function or method, decorators included. `symbol` is `Class.method`."""

    path: str
    symbol: str
    replace: str


Edit = SearchReplace | ReplaceSymbol | CreateFile | DeleteFile | RenameFile


@dataclass(frozen=True, slots=True)
class ReproductionTest:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class WrongTest:
    """A reproduction test of an earlier reply that a reply takes back, and why it was wrong."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class OutdatedTest:
    """An existing test that a reply says asserts what the issue calls wrong, and why.

    `replacement` is the edited source of the test's function, "" where the reply gives none.
    """

    id: str
    why: str
    replacement: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """A mistake in a reply that was corrected without asking the model again.

    `name` is the name of the repair, by which it can be switched off (`--no-repair`). `saved` is
    the failure that it avoided: a `ParseKind`, an `ApplyKind`, or "broken-syntax". `edit` is the
    position in `PatchProposal.edits`, None for the reply as a whole.
    """

    name: str
    note: str  # what was changed, in words
    saved: str
    edit: int | None = None


@dataclass(frozen=True, slots=True)
class PatchProposal:
    """The edits that a reply asks for. `reader` names the format that matched."""

    edits: tuple[Edit, ...]
    thought: str = ""
    reproduction_test: ReproductionTest | None = None
    missing: tuple[str, ...] = ()
    reader: str = "json"
    repairs: tuple[Repair, ...] = ()  # corrections made by the reader
    wrong_tests: tuple[WrongTest, ...] = ()
    outdated_tests: tuple[OutdatedTest, ...] = ()


ParseKind = Literal["empty", "no-edit", "needs-code", "truncated", "malformed", "schema"]


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A reply that asks for no edit or cannot be read, with the reason and advice to the model.

    "needs-code" is no mistake of the reply: it asks for the code `missing` before it edits. Its
    reproduction test is kept for the reply that edits.
    """

    kind: ParseKind
    reason: str  # for people and for the repair prompt
    missing: tuple[str, ...] = ()  # code that the reply said it lacked
    advice: str = ""  # for the model alone
    reproduction_test: ReproductionTest | None = None

    @property
    def told(self) -> str:
        """Reason and advice, as the model is told."""
        return "; ".join(part for part in (self.reason, self.advice) if part)


class MatchTier(enum.StrEnum):
    """How the location of an edit was found, strictest first; then edits that need no location."""

    EXACT = "exact"
    TRAILING_SPACE = "trailing-space"  # white space at the ends of lines is ignored
    INDENTATION = "indentation"  # all lines are shifted by the same white space
    TABS = "tabs"  # tabs and spaces differ, the columns agree up to one shift
    WHITE_SPACE = "white-space"  # lines agree apart from white space
    PUNCTUATION = "punctuation"  # typographic quotes, dashes, spaces, ellipses
    LINE_NUMBERS = "line-numbers"  # the reply repeats the numbers of the lines
    OUTER_BLANKS = "outer-blanks"  # blank lines before or after the search text are left out
    ELISION = "elision"  # both sides leave out the same lines by `...`
    BLANK_LINES = "blank-lines"  # the number of blank lines between lines differs
    NEAR = "near"  # a few characters differ, and nothing else comes close
    SYMBOL = "symbol"  # a whole function, found by its name
    CREATED = "created"
    DELETED = "deleted"
    RENAMED = "renamed"
    ALREADY_APPLIED = "already-applied"  # the file holds the replacement; nothing was changed


@dataclass(frozen=True, slots=True)
class AppliedEdit:
    index: int  # position in PatchProposal.edits, 0-based
    path: str
    tier: MatchTier
    line: int  # first line of the change in the file before this edit, 1-based
    path_as_written: str = ""  # the path in the reply, if it differs from `path`


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file before and after, as bytes. None means that it does not exist."""

    path: str
    before: bytes | None
    after: bytes | None
    executable: bool = False


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """All edits applied. `diff` is in git's format; `git apply` accepts it on the base.

    `notes` say what the edits leave to be done.
    """

    changes: tuple[FileChange, ...]
    diff: bytes
    edits: tuple[AppliedEdit, ...]
    repairs: tuple[Repair, ...] = ()
    notes: tuple[str, ...] = ()


ApplyKind = Literal[
    "unknown-file",
    "no-match",
    "not-shown",
    "generated",
    "ambiguous",
    "exists",
    "no-change",
    "already-applied",
    "refused-path",
    "not-text",
    "too-large",
    "broken-syntax",
    "secret",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A region of a file that an unmatched or ambiguous edit may have meant."""

    path: str
    start: int
    end: int
    text: str
    similarity: float  # 0..1


@dataclass(frozen=True, slots=True)
class EditFailure:
    index: int
    path: str
    kind: ApplyKind
    reason: str  # for people and for the repair prompt
    candidates: tuple[Candidate, ...] = ()
    advice: str = ""  # for the model alone

    @property
    def told(self) -> str:
        """Reason and advice, as the model is told."""
        return "; ".join(part for part in (self.reason, self.advice) if part)


@dataclass(frozen=True, slots=True)
class ApplyFailure:
    """Nothing was applied. Holds one entry for each edit that could not be applied."""

    failures: tuple[EditFailure, ...]

    @property
    def is_already_there(self) -> bool:
        """Whether the files hold all that the reply asks for."""
        return all(failure.kind == "already-applied" for failure in self.failures)

    @property
    def reason(self) -> str:
        """All reasons, one a line."""
        return "\n".join(f"edit {f.index + 1} ({f.path}): {f.reason}" for f in self.failures)


# -------------------------------------------------------------------------------------- validation


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"  # in set-up, tear-down or collection
    SKIPPED = "skipped"  # expected failures too


BAD_OUTCOMES: Final = (Outcome.FAILED, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Channels:
    """The independent accounts of one test run, and where they disagree.

    `read` names the accounts that were read: "report", "junit", "exit code". `disagreements` are
    clauses for people. `traces` name changes to the test runner that were found when the run
    ended, such as replaced functions and steering plugins. Projects make such changes too, so only
    those that the base does not have count.
    """

    read: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Execution:
    """What a test executed of a patch.

    `lines` (`path:line`) are of functions that the patch changes. `names` are those that its other
    statements bind and that functions of the project used. Of the changed files, `read` were read
    by the project's code, and `opened` by the test itself.
    """

    lines: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()

    def __or__(self, other: Execution) -> Execution:
        return Execution(
            self.lines | other.lines,
            self.names | other.names,
            self.read | other.read,
            self.opened | other.opened,
        )


@dataclass(frozen=True, slots=True)
class TestRun:
    """One run of tests. `outcomes` maps a test id to its outcome; empty when none could be read.

    `cached`: the result comes from an earlier run of the same base, command and environment.
    `expected_failures` are the skipped tests that were marked to fail and did. `executed` is by
    test id, with "" for what happened outside of tests; empty where that was not recorded.
    `file_seconds` is what each test file took, where our own runner tells it.
    """

    command: tuple[str, ...]
    outcomes: Mapping[str, Outcome]
    exit_code: int | None  # None: killed at a limit
    seconds: float
    ended: str  # "exited", "wall-limit", "cpu-limit", "output-limit", ...
    output_tail: str
    failures: Mapping[str, str] = field(default_factory=dict)  # test id -> the end of its report
    channels: Channels = Channels()
    cached: bool = False
    expected_failures: tuple[str, ...] = ()
    executed: Mapping[str, Execution] = field(default_factory=dict)
    file_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A shell command that ran on the patched tree, which is gone afterwards.

    `output` is stdout, then stderr. `written` has the files that it changed, None for deleted ones;
    `left_out` are changed paths that were not read: large ones, links, or too many.
    """

    output: str
    exit_code: int | None = None  # None: it did not run, or was killed at a limit
    ended: str = "exited"
    written: Mapping[str, bytes | None] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectedTest:
    """A test file chosen to run, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class KnownTests:
    """Ids of the tests that decide, as SWE-bench gives them. Empty when none are known."""

    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()


class Verdict(enum.StrEnum):
    """The result of validation. The policy accepts VERIFIED and NOT_REGRESSED only.

    VERIFIED: at least one test failed before and passes after, and no test fails newly.
    NOT_REGRESSED: tests ran and none fails newly, but none shows that the issue is fixed.
    SUSPECT: the test report cannot be trusted: the channels disagree, the code under test ended or
        steered the run, or the patch takes a failing test out of the run.
    UNVERIFIED: no test could be run; only the syntax was checked.
    REGRESSED: tests fail newly, or the reply's own reproduction test still fails.
    BROKEN_SYNTAX: an edited file no longer parses.
    """

    VERIFIED = "verified"
    NOT_REGRESSED = "not-regressed"
    UNVERIFIED = "unverified"
    REGRESSED = "regressed"
    BROKEN_SYNTAX = "broken-syntax"
    SUSPECT = "suspect"


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class OutdatedFinding:
    """A failing test that the reply calls outdated, and what its runs show.

    `shown` is its assertion with the values. `refusal` says why it is not accepted as outdated, ""
    where it is.
    """

    id: str
    why: str
    shown: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The verdict and its evidence. `reason` is one paragraph, used in the repair prompt too."""

    verdict: Verdict
    reason: str
    backend: str  # sandbox backend, "none" when nothing was run
    syntax_problems: tuple[SyntaxProblem, ...] = ()
    selected: tuple[SelectedTest, ...] = ()
    before: TestRun | None = None
    after: TestRun | None = None
    reproduction_before: TestRun | None = None
    reproduction_after: TestRun | None = None
    newly_failing: tuple[str, ...] = ()
    newly_passing: tuple[str, ...] = ()
    outdated: tuple[OutdatedFinding, ...] = ()
    whole: TestRun | None = None  # with the patch's own changes to tests and configuration
    fail_to_pass: tuple[str, ...] = ()  # failed on the base, pass with the source change
    pass_to_pass: tuple[str, ...] = ()
    known_missed: tuple[str, ...] = ()  # the `KnownTests` without their expected outcome
    interpreter: str = ""
    runner: str = ""  # the test framework, and why it was chosen
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
