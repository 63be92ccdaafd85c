"""What a reply proposes, and what becomes of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SearchReplace:
    """Replace the one occurrence of `search`; `line` (1-based, optional) makes it unique."""

    path: str
    search: str
    replace: str
    line: int | None = None


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

    `name` is the name of the repair. `saved` is the failure that it avoided: a `ParseKind`, an
    `ApplyKind`, or "broken-syntax". `edit` is the position in `PatchProposal.edits`, None for the
    reply as a whole.
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
    WHITE_SPACE = "white-space"  # lines agree apart from white space, also in their indentation
    PUNCTUATION = "punctuation"  # typographic quotes, dashes, spaces
    LINE_NUMBERS = "line-numbers"  # the reply repeats the numbers of the lines
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
