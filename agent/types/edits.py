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
    path: str
    symbol: str  # "Class.method" or "function"
    replace: str


@dataclass(frozen=True, slots=True)
class ReplaceLines:
    """Replace whole lines, 1-based and inclusive, of a file as it was shown. The texts guard them:
    `begins` is the first of these lines, or several, and `ends` the last.
    """

    path: str
    first: int
    last: int
    begins: str
    ends: str
    replace: str


Edit = SearchReplace | ReplaceSymbol | ReplaceLines | CreateFile | DeleteFile | RenameFile


@dataclass(frozen=True, slots=True)
class ReproductionTest:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class WrongTest:
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class OutdatedTest:
    id: str
    why: str
    replacement: str = ""  # the edited source of the test's function
    edits: tuple[Edit, ...] = ()  # of the test's file, in the place of a replacement


@dataclass(frozen=True, slots=True)
class Repair:
    name: str
    note: str  # what was changed, in words
    saved: str  # the failure that it avoided
    edit: int | None = None  # position in `PatchProposal.edits`


@dataclass(frozen=True, slots=True)
class PatchProposal:
    edits: tuple[Edit, ...]
    thought: str = ""
    reproduction_test: ReproductionTest | None = None
    missing: tuple[str, ...] = ()
    reader: str = "json"  # the format that matched
    wrong_tests: tuple[WrongTest, ...] = ()
    outdated_tests: tuple[OutdatedTest, ...] = ()


ParseKind = Literal["empty", "no-edit", "needs-code", "truncated", "malformed", "schema"]


@dataclass(frozen=True, slots=True)
class ParseFailure:
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
    path: str
    before: bytes | None  # None: it does not exist
    after: bytes | None
    executable: bool = False


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """All edits applied. `git apply` accepts `diff` on the base."""

    changes: tuple[FileChange, ...]
    diff: bytes
    edits: tuple[AppliedEdit, ...]
    repairs: tuple[Repair, ...] = ()
    notes: tuple[str, ...] = ()  # what the edits leave to be done


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
    failures: tuple[EditFailure, ...]

    @property
    def is_already_there(self) -> bool:
        """Whether the files hold all that the reply asks for."""
        return all(failure.kind == "already-applied" for failure in self.failures)

    @property
    def reason(self) -> str:
        """All reasons, one a line."""
        return "\n".join(f"edit {f.index + 1} ({f.path}): {f.reason}" for f in self.failures)
