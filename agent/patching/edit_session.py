"""Applies the edits of one reply in order to files in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from agent.patching.file_text import FileText, Spliced, open_text, plain
from agent.patching.file_tree import Tree
from agent.patching.lines import is_version_of, not_whole
from agent.patching.matching import DEEP_TIERS, Located, Match, find_lines, find_place
from agent.patching.paths import (
    DIFF_SIDES,
    RefusedPath,
    check_path,
    is_allowed,
    resolve_existing,
    resolve_new,
)
from agent.patching.refusals import Miss
from agent.patching.syntax import Checker, SymbolSite, find_symbol, fitted
from agent.repository import language_of
from agent.types import (
    AppliedEdit,
    CreateFile,
    DeleteFile,
    Edit,
    MatchTier,
    RenameFile,
    Repair,
    ReplaceLines,
    ReplaceSymbol,
    SearchReplace,
)

# Bytes that one edit may write. Source files that people write are far smaller.
MAX_WRITTEN = 1024 * 1024

# A search text with fewer characters (without white space) is not searched in other files.
_DISTINCT = 20

# A match by these tiers does not prove that a file of another path is meant.
_NO_EVIDENCE = (MatchTier.NEAR, MatchTier.ELISION)


@dataclass(slots=True)
class EditSession:
    """The files and what is known about them while edits are applied one after the other. `allow`
    and `shown` are those of `applying.apply_proposal`. `shifts`: by path, the line of each edit and
    how many lines it added.
    """

    tree: Tree
    allow: Collection[str]
    shown: Mapping[str, Sequence[tuple[int, int]]]
    repairs: list[Repair] = field(default_factory=list)
    shifts: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    checker: Checker = field(default_factory=Checker)

    def apply(self, index: int, edit: Edit) -> AppliedEdit | Miss:
        """Apply one edit, or return why it cannot be applied. The caller sets the index."""
        path = self._path_of(index, edit)
        if isinstance(path, Miss):
            return path
        refused = self.tree.off_limits(path)
        if refused is not None and not is_allowed(path, self.allow):
            return refused
        match edit:
            case CreateFile(replace_existing=True) if self.tree.exists(path):
                return self._rewrite(path, edit.content)
            case CreateFile(content=content):
                return self._create(path, content)
            case DeleteFile():
                return self._delete(path)
            case RenameFile(to=to):
                return self._rename(path, to)
            case SearchReplace(search="", replace=content) if not self.tree.exists(path):
                return self._create(path, content)  # how SEARCH/REPLACE blocks make a file
        file = self._editable(path, edit.replace)
        if isinstance(file, Miss):
            return file
        match edit:
            case SearchReplace():
                return self._replace(index, path, file, edit)
            case ReplaceSymbol():
                return self._replace_symbol(index, path, file, edit)
            case ReplaceLines():
                return self._replace_lines(index, path, file, edit)

    def _create(self, path: str, content: str) -> AppliedEdit | Miss:
        data = _hidden(content) or _encoded(content)
        if isinstance(data, Miss):
            return data
        refusal = self.tree.no_room(path, data, self.allow)
        if refusal is not None:
            return refusal
        self.tree.put(path, data)
        return AppliedEdit(0, path, MatchTier.CREATED, 1)

    def _rewrite(self, path: str, content: str) -> AppliedEdit | Miss:
        """Replace the content of an existing file and keep its encoding and line ends."""
        file = self._editable(path, content)
        if isinstance(file, Miss):
            return file
        text = plain(content)
        text = text if file.text.endswith("\n") else text.removesuffix("\n")
        refusal = not_whole(file.text, text)
        if refusal is not None:
            return Miss("no-match", refusal)
        return self._splice(0, path, file, Located(MatchTier.EXACT, Match(0, len(file.text), text)))

    def _delete(self, path: str) -> AppliedEdit | Miss:
        content = self.tree.content(path)
        if isinstance(content, Miss):
            return content
        self.tree.remove(path)
        return AppliedEdit(0, path, MatchTier.DELETED, 1)

    def _rename(self, path: str, to: str) -> AppliedEdit | Miss:
        content = self.tree.content(path)
        if isinstance(content, Miss):
            return content
        target = check_path(to, allow=self.allow, new=True)
        if isinstance(target, RefusedPath):
            return Miss("refused-path", f"the new path: {target.reason}")
        if target == path:
            return Miss("no-change", "the file already has this path")
        refusal = self.tree.move(path, target, content, self.allow)
        if refusal is not None:
            return Miss(refusal.kind, f"the new path {target}: {refusal.reason}")
        return AppliedEdit(0, target, MatchTier.RENAMED, 1)

    def _replace(
        self, index: int, path: str, file: FileText, edit: SearchReplace
    ) -> AppliedEdit | Miss:
        shown = [(self._moved(path, a), self._moved(path, b)) for a, b in self.shown.get(path, ())]
        if edit.line is not None:
            edit = replace(edit, line=self._moved(path, edit.line))
        off = () if self.checker.affords(file.data) else DEEP_TIERS
        place = find_place(file, edit, shown, partial(self.checker.intact, path, file), off)
        return place if isinstance(place, Miss) else self._splice(index, path, file, place)

    def _replace_symbol(
        self, index: int, path: str, file: FileText, edit: ReplaceSymbol
    ) -> AppliedEdit | Miss:
        site = find_symbol(file.text, language_of(path), edit.symbol)
        if isinstance(site, Miss):
            return site
        old = file.text[site.start : site.end]
        first = self._as_shown(path)
        shown = find_symbol(first.text, language_of(path), edit.symbol) if first else None
        # A function that is not in the file as it was shown is one that an edit of the reply wrote.
        if isinstance(shown, SymbolSite) and not self._is_shown(path, shown.first, shown.last):
            return _not_shown(edit.symbol)
        match = Match(site.start, site.end, fitted(old, plain(edit.replace)))
        if not self.checker.intact(path, file, match):
            reason = f"with the new text of {edit.symbol} the file would no longer parse"
            return Miss("broken-syntax", reason, advice="give the whole function")
        return self._splice(index, path, file, Located(MatchTier.SYMBOL, match))

    def _replace_lines(
        self, index: int, path: str, file: FileText, edit: ReplaceLines
    ) -> AppliedEdit | Miss:
        off = () if self.checker.affords(file.data) else DEEP_TIERS
        now = replace(edit, first=self._moved(path, edit.first), last=self._moved(path, edit.last))
        place = find_lines(file, now, partial(self.checker.intact, path, file), off)
        if isinstance(place, Miss):
            return place
        first = edit.first + file.line_at(place.match.start) - now.first
        last = edit.last + file.line_at(max(place.match.end - 1, 0)) - now.last
        if not self._is_shown(path, first, last):
            return _not_shown(f"lines {edit.first}-{edit.last}")
        return self._splice(index, path, file, place)

    def _as_shown(self, path: str) -> FileText | None:
        """Return a file before all edits; None for a new one."""
        data = self.tree.files.read(path) if path in self.tree.files.files else None
        return open_text(data, python=self.tree.language(path) == "python") if data else None

    def _is_shown(self, path: str, first: int, last: int) -> bool:
        """Whether the model was shown all of these lines. True if that is not known."""
        file = self._as_shown(path)
        if not self.shown or file is None:
            return True
        rows = {row for a, b in self.shown.get(path, ()) for row in range(a, b + 1)}
        lines = file.text.split("\n")[:last]
        return all(
            row in rows or not lines[row - 1].strip() for row in range(first, len(lines) + 1)
        )

    def _splice(self, index: int, path: str, file: FileText, place: Located) -> AppliedEdit | Miss:
        match = place.match
        old = file.text[match.start : match.end]
        hidden = _hidden(match.replacement, old)
        if hidden is not None:
            return hidden
        new = file.splice(match.start, match.end, match.replacement)
        if not isinstance(new, Spliced):
            return Miss("not-text", new)
        if place.tier is MatchTier.ALREADY_APPLIED or new.data == file.data:
            return AppliedEdit(0, path, MatchTier.ALREADY_APPLIED, file.line_at(match.start))
        added = match.replacement.count("\n") - old.count("\n")
        self.shifts.setdefault(path, []).append((file.line_at(match.start), added))
        self.tree.put(path, new.data)
        if place.ended:
            note = "the replacement's last line would have run into the next one"
            self.repairs.append(Repair("final-newline", note, "broken-syntax", index))
        return AppliedEdit(0, path, place.tier, new.line)

    def _moved(self, path: str, line: int) -> int:
        """Return where a line that the model was shown is after the edits so far, about."""
        for at, added in self.shifts.get(path, ()):
            line += added if line > at else 0
        return line

    def _text(self, path: str) -> FileText | Miss:
        data = self.tree.content(path)
        if isinstance(data, Miss):
            return data
        return open_text(data, python=self.tree.language(path) == "python") or _NOT_TEXT

    def _editable(self, path: str, new: str) -> FileText | Miss:
        """Return a file if a text of this size may be written into it."""
        written = _encoded(new)
        return written if isinstance(written, Miss) else self._text(path)

    def _path_of(self, index: int, edit: Edit) -> str | Miss:
        path = check_path(edit.path, allow=self.allow)
        if isinstance(path, str) and self.tree.exists(path):
            return path
        is_whole = isinstance(edit, CreateFile) and edit.replace_existing
        is_new = isinstance(edit, CreateFile) or (
            isinstance(edit, SearchReplace) and not edit.search
        )
        meant = self._existing(edit) if is_whole or not is_new else None
        if is_whole and meant is None:
            ending = "/" + edit.path.removeprefix("./").casefold()
            alike = sorted(p for p in self.tree.known if p.casefold().endswith(ending))
            if alike:
                reason = f"there is no such file; did you mean {' or '.join(alike[:3])}"
                return Miss("unknown-file", reason, advice="give the whole path")
        if meant is None and is_new and (isinstance(path, RefusedPath) or path[:2] in DIFF_SIDES):
            meant = resolve_new(edit.path, self.tree.known) if edit.path.isprintable() else None
        if meant is None or meant == path:
            return Miss("refused-path", path.reason) if isinstance(path, RefusedPath) else path
        resolved = check_path(meant, allow=self.allow)
        if isinstance(resolved, RefusedPath):
            return Miss("refused-path", f"{meant}: {resolved.reason}")
        saved = "refused-path" if isinstance(path, RefusedPath) else "unknown-file"
        self.repairs.append(Repair("path", f"taken for {resolved}", saved, index))
        return resolved

    def _existing(self, edit: Edit) -> str | None:
        if not edit.path.isprintable():
            return None
        search = edit.search if isinstance(edit, SearchReplace) else ""
        distinct = len("".join(search.split())) >= _DISTINCT
        known = self.tree.known
        return resolve_existing(
            edit.path, known, lambda path: self._fits(path, edit), distinct=distinct
        )

    def _fits(self, path: str, edit: Edit) -> bool:
        file = self._text(path)
        if isinstance(edit, CreateFile):
            return not isinstance(file, Miss) and is_version_of(file.text, plain(edit.content))
        if not isinstance(edit, SearchReplace):
            return isinstance(self.tree.content(path), bytes)
        if isinstance(file, Miss):
            return False
        place = find_place(file, edit, off=_NO_EVIDENCE)
        return isinstance(place, Located) and place.tier is not MatchTier.ALREADY_APPLIED


def _not_shown(what: str) -> Miss:
    reason = f"not all of {what} was shown, so that what is there would be lost"
    advice = 'replace lines that you were shown, or ask for these in "missing"'
    return Miss("not-shown", reason, advice=advice)


_NOT_TEXT = Miss("not-text", "the file is binary or not decodable; it cannot be edited")

# CVE-2021-42574: these characters make code read differently from how it runs.
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _hidden(text: str, before: str = "") -> Miss | None:
    """Refuse characters that hide what code does. `before`: the text that is replaced."""
    hidden = next((c for c in text if c == "\0" or (c in _DIRECTIONS and c not in before)), None)
    if hidden is None:
        return None
    reason = f"the new text has U+{ord(hidden):04X}, which hides what code does"
    return Miss("not-text", reason, advice="write an escape sequence")


def _encoded(text: str) -> bytes | Miss:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return Miss("not-text", "the new text has half of a surrogate pair, which is no character")
    if len(data) > MAX_WRITTEN:
        return Miss("too-large", f"the new text has {len(data)} bytes, at most {MAX_WRITTEN} go")
    return data
