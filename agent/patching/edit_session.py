"""Applies the edits of one reply in order to files in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from agent.patching.file_text import FileText, Narrow, Spliced, Track, open_text, plain
from agent.patching.file_tree import Tree
from agent.patching.lines import is_version_of, not_whole
from agent.patching.matching import DEEP_TIERS, Hints, Located, Match, locate
from agent.patching.paths import (
    DIFF_SIDES,
    RefusedPath,
    check_path,
    is_allowed,
    resolve_existing,
    resolve_new,
)
from agent.patching.refusals import Miss
from agent.patching.syntax import Checker, find_symbol, fitted
from agent.repository import language_of
from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    MatchTier,
    RenameFile,
    Repair,
    ReplaceSymbol,
    SearchReplace,
)

# Bytes that one edit may write. Source files that people write are far smaller.
MAX_WRITTEN = 1024 * 1024

# A search text with fewer characters (without white space) is not searched in other files.
_DISTINCT = 20

# A match by these tiers does not prove that a file of another path is meant.
_NO_EVIDENCE = (MatchTier.NEAR, MatchTier.ELISION)


@dataclass(frozen=True, slots=True)
class EditOutcome:
    """Where one edit was applied: resolved path, matching tier, first changed line (1-based)."""

    path: str
    tier: MatchTier
    line: int


@dataclass(slots=True)
class EditSession:
    """The files and what is known about them while edits are applied one after the other.

    `allow` and `shown` are those of `applying.apply_proposal`.
    """

    tree: Tree
    allow: Collection[str]
    shown: Mapping[str, Sequence[tuple[int, int]]]
    repairs: list[Repair] = field(default_factory=list)
    tracks: dict[str, Track] = field(default_factory=dict)
    checker: Checker = field(default_factory=Checker)
    _open: dict[str, FileText] = field(default_factory=dict)  # files as the last edit left them

    def apply(self, index: int, edit: Edit) -> EditOutcome | Miss:
        """Apply one edit, or return why it cannot be applied."""
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
            case SearchReplace():
                return self._replace(index, path, edit)
            case ReplaceSymbol():
                return self._replace_symbol(index, path, edit)

    # ------------------------------------------------------------------------------------ edits

    def _create(self, path: str, content: str) -> EditOutcome | Miss:
        data = _encoded(content)
        if isinstance(data, Miss):
            return data
        refusal = self.tree.no_room(path, data, self.allow)
        if refusal is not None:
            return refusal
        self._put(path, data)
        return EditOutcome(path, MatchTier.CREATED, 1)

    def _put(self, path: str, data: bytes) -> None:
        """Write a whole file. The lines that the model was shown of it no longer count."""
        self.tree.put(path, data)
        self.tracks.pop(path, None)

    def _rewrite(self, path: str, content: str) -> EditOutcome | Miss:
        """Replace the content of an existing file and keep its encoding and line ends."""
        file = self._text(path)
        written = _encoded(content, known="" if isinstance(file, Miss) else file.text)
        if isinstance(file, Miss):
            return file
        if isinstance(written, Miss):
            return written
        text = plain(content)
        text = text if file.text.endswith("\n") else text.removesuffix("\n")
        refusal = not_whole(file.text, text)
        if refusal is not None:
            return Miss("no-match", refusal)
        new = file.splice(0, len(file.text), text)
        if not isinstance(new, Spliced):
            return Miss("not-text", new)
        if new.data == file.data:
            return EditOutcome(path, MatchTier.ALREADY_APPLIED, 1)
        self._put(path, new.data)
        return EditOutcome(path, MatchTier.EXACT, new.line)

    def _delete(self, path: str) -> EditOutcome | Miss:
        content = self.tree.content(path)
        if isinstance(content, Miss):
            return content
        self.tree.remove(path)
        return EditOutcome(path, MatchTier.DELETED, 1)

    def _rename(self, path: str, to: str) -> EditOutcome | Miss:
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
        if path in self.tracks:
            self.tracks[target] = self.tracks.pop(path)
        return EditOutcome(target, MatchTier.RENAMED, 1)

    def _replace(self, index: int, path: str, edit: SearchReplace) -> EditOutcome | Miss:
        file = self._text(path)
        if isinstance(file, Miss):
            return file
        written = _encoded(edit.replace, known=edit.search)
        if isinstance(written, Miss):
            return written
        track = self.tracks.setdefault(path, Track(file))
        place = self._locate(path, file, edit, track)
        if isinstance(place, Miss):
            return place
        if place.tier is MatchTier.ALREADY_APPLIED:
            return EditOutcome(path, place.tier, file.line_at(place.match.start))
        return self._splice(index, path, file, track, place)

    def _replace_symbol(self, index: int, path: str, edit: ReplaceSymbol) -> EditOutcome | Miss:
        file = self._text(path)
        if isinstance(file, Miss):
            return file
        site = find_symbol(file.text, language_of(path), edit.symbol)
        if isinstance(site, Miss):
            return site
        old = file.text[site.start : site.end]
        written = _encoded(edit.replace, known=old)
        if isinstance(written, Miss):
            return written
        track = self.tracks.setdefault(path, Track(file))
        if not self._is_shown(path, track, edit.symbol):
            reason = f"{edit.symbol} was not wholly shown, so that what it holds would be lost"
            advice = 'replace lines that you were shown, or ask for it in "missing"'
            return Miss("not-shown", reason, advice=advice)
        match = Match(site.start, site.end, fitted(old, plain(edit.replace)))
        if match.replacement == old:
            return EditOutcome(path, MatchTier.ALREADY_APPLIED, site.first)
        if not self.checker.intact(path, file, match):
            reason = f"with the new text of {edit.symbol} the file would no longer parse"
            return Miss("broken-syntax", reason, advice="give the whole function")
        return self._splice(index, path, file, track, Located(MatchTier.SYMBOL, match))

    def _is_shown(self, path: str, track: Track, symbol: str) -> bool:
        """Whether the model was shown a whole function, or wrote it. True if that is not known."""
        if not self.shown:
            return True
        first = track.file
        site = find_symbol(first.text, language_of(path), symbol)
        if isinstance(site, Miss) or path not in self.tree.files.files:
            return True  # an edit of this reply brought it
        rows = {row for a, b in self.shown.get(path, ()) for row in range(a, b + 1)}
        lines = first.text.split("\n")
        wanted = range(site.first, site.last + 1)
        return all(row in rows or not lines[row - 1].strip() for row in wanted)

    def _splice(
        self, index: int, path: str, file: FileText, track: Track, place: Located
    ) -> EditOutcome | Miss:
        match = place.match
        new = file.splice(match.start, match.end, match.replacement)
        if not isinstance(new, Spliced):
            return Miss("not-text", new)
        track.record(Narrow.of(file.text, match.start, match.end, match.replacement))
        self.tree.contents[path] = new.data
        if new.file is not None:
            self._open[path] = new.file
        self.repairs.extend(Repair(r.name, r.note, r.saved, index) for r in place.repairs)
        return EditOutcome(path, place.tier, new.line)

    def _locate(
        self, path: str, file: FileText, edit: SearchReplace, track: Track
    ) -> Located | Miss:
        """Find the edit in the file as it is now, or else in the file as it was shown."""

        def moved(line: int) -> int:
            return track.line(line, file.text) if track.touched else line

        shown = self.shown.get(path, ())
        line = moved(edit.line) if edit.line is not None else None
        hints = Hints(line, edit.within, tuple((moved(a), moved(b)) for a, b in shown))
        off = () if self.checker.affords(file.data) else DEEP_TIERS
        place = locate(file, edit, hints, lambda match: self.checker.intact(path, file, match), off)
        if not (isinstance(place, Miss) and place.kind in ("no-match", "ambiguous")):
            return place
        return (self._in_original(path, file, edit, track) if track.touched else None) or place

    def _in_original(
        self, path: str, file: FileText, edit: SearchReplace, track: Track
    ) -> Located | None:
        """Find the edit in the text that the model saw, if earlier edits left the match alone."""
        first = track.file
        was = locate(first, edit, Hints(edit.line, edit.within, self.shown.get(path, ())))
        if isinstance(was, Miss) or was.tier is MatchTier.ALREADY_APPLIED:
            return None
        narrow = Narrow.of(first.text, was.match.start, was.match.end, was.match.replacement)
        place = track.place(narrow.start, narrow.end)
        if place is None:
            return None
        match = Match(*place, narrow.text)
        if was.tier is not MatchTier.EXACT and not self.checker.intact(path, file, match):
            return None
        return Located(was.tier, match, was.repairs)

    def _text(self, path: str) -> FileText | Miss:
        """Return the text of a file. After an edit the text is known and not decoded again."""
        data = self.tree.content(path)
        if isinstance(data, Miss):
            return data
        file = self._open.get(path)
        if file is not None and file.data is data:
            return file
        return open_text(data, python=self.tree.language(path) == "python") or _NOT_TEXT

    # ------------------------------------------------------------------------------------ paths

    def _path_of(self, index: int, edit: Edit) -> str | Miss:
        """Return the checked path that an edit means."""
        path = check_path(edit.path, allow=self.allow)
        there = isinstance(path, str) and self.tree.exists(path)
        is_new = isinstance(edit, CreateFile) or (
            isinstance(edit, SearchReplace) and not edit.search and edit.line is None
        )
        settled = there or (is_new and isinstance(path, str) and path[:2] not in DIFF_SIDES)
        is_whole = isinstance(edit, CreateFile) and edit.replace_existing
        meant = None if there else self._meant(edit, is_new=False) if is_whole else None
        if is_whole and not there and meant is None:
            ending = "/" + edit.path.removeprefix("./").casefold()
            alike = sorted(p for p in self.tree.known if p.casefold().endswith(ending))
            if alike:
                reason = f"there is no such file; did you mean {' or '.join(alike[:3])}"
                return Miss("unknown-file", reason, advice="give the whole path")
        if meant is None and not settled:
            meant = self._meant(edit, is_new=is_new)
        if meant is None or meant == path:
            return Miss("refused-path", path.reason) if isinstance(path, RefusedPath) else path
        resolved = check_path(meant, allow=self.allow)
        if isinstance(resolved, RefusedPath):
            return Miss("refused-path", f"{meant}: {resolved.reason}")
        saved = "refused-path" if isinstance(path, RefusedPath) else "unknown-file"
        self.repairs.append(Repair("path", f"taken for {resolved}", saved, index))
        return resolved

    def _meant(self, edit: Edit, *, is_new: bool) -> str | None:
        known = self.tree.known
        if not edit.path.isprintable():
            return None
        if is_new:
            return resolve_new(edit.path, known)
        shown = {*self.shown, *self.tree.contents}
        search = edit.search if isinstance(edit, SearchReplace) else ""
        distinct = len("".join(search.split())) >= _DISTINCT
        return resolve_existing(
            edit.path, known, shown, lambda path: self._fits(path, edit), distinct=distinct
        )

    def _fits(self, path: str, edit: Edit) -> bool:
        """Whether an edit can be applied to this file."""
        file = self._text(path)
        if isinstance(edit, CreateFile):
            return not isinstance(file, Miss) and is_version_of(file.text, plain(edit.content))
        if not isinstance(edit, SearchReplace):
            return isinstance(self.tree.content(path), bytes)
        if isinstance(file, Miss):
            return False
        place = locate(file, edit, off=_NO_EVIDENCE)
        return isinstance(place, Located) and place.tier is not MatchTier.ALREADY_APPLIED


_NOT_TEXT = Miss("not-text", "the file is binary or not decodable; it cannot be edited")

# CVE-2021-42574: these characters make code read differently from how it runs.
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _encoded(text: str, *, known: str = "") -> bytes | Miss:
    """Encode a text that may be written into a source file. `known`: the text that it replaces."""
    hidden = next((c for c in text if c in _DIRECTIONS and c not in known), None)
    if hidden is not None:
        return Miss(
            "not-text",
            f"the new text has U+{ord(hidden):04X}, which changes the direction of text and hides "
            "what code does",
            advice="write an escape sequence",
        )
    if "\0" in text:
        reason = "the new text has a NUL character"
        return Miss("not-text", reason, advice="write an escape sequence")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return Miss("not-text", "the new text has half of a surrogate pair, which is no character")
    if len(data) > MAX_WRITTEN:
        return Miss("too-large", f"the new text has {len(data)} bytes, at most {MAX_WRITTEN} go")
    return data
