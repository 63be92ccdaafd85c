"""Finds where in a file an edit belongs. Tiers are tried in order, from an exact match to lenient
ones; the first that finds anything ends the search. Lenient tiers tolerate differences in the
context only: lines that a reply keeps stay the file's own. Beyond the exact tier, a file that
parsed before must still parse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from rapidfuzz import fuzz

from agent.patching.file_text import FileText, plain
from agent.patching.lines import (
    MAX_OCCURRENCES,
    Normal,
    Page,
    Wanted,
    abbreviates,
    elision_parts,
    is_blank,
    plain_punctuation,
    spaceless,
)
from agent.patching.near import near_window
from agent.patching.refusals import LINE_TOLERANCE, Miss, ambiguous, no_match, wrong_lines
from agent.patching.transplant import transplant
from agent.types import MatchTier, ReplaceLines, SearchReplace

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Match:
    """Replace `text[start:end]` by `replacement`."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Located:
    """The match of an edit, the tier that found it, and whether a last line feed was added."""

    tier: MatchTier
    match: Match
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Replace `text[start:end]` by what `make` returns; None if the new text is not certain."""

    start: int
    end: int
    make: Callable[[], str | None]


Find = Callable[[Page, Wanted], Sequence[Occurrence]]

DEEP_TIERS = frozenset({MatchTier.WHITE_SPACE, MatchTier.BLANK_LINES, MatchTier.NEAR})
"""Tiers that could put a line at a wrong depth, not to be used where the result is not parsed."""


def find_place(
    file: FileText,
    edit: SearchReplace,
    shown: Ranges = (),
    intact: Callable[[Match], bool] = lambda _: True,
    off: Collection[MatchTier] = (),
) -> Located | Miss:
    """Find the one match of an edit. `file` must be the state that the edit sees. `shown`:
    inclusive line ranges that the model saw, empty if unknown. `intact` says of a match whether a
    file that parses now would still parse. `off`: tiers that are not tried.
    """
    search, replace = plain(edit.search), plain(edit.replace)
    if search == replace:
        spans = occurrences(file.text, search) if search else ()
        if spans:  # the edit quotes the file and asks for no change
            return Located(MatchTier.ALREADY_APPLIED, Match(*spans[0], search))
        return Miss("no-change", "search and replace are the same text (apart from line ends)")
    if not search and file.text:
        reason = "the search text is empty, but the file is not"
        return Miss("no-match", reason, advice="quote the text to replace")
    return _Search(Page(file.text), edit, Wanted.of(search, replace), shown, intact, off).run()


def find_lines(
    file: FileText,
    edit: ReplaceLines,
    intact: Callable[[Match], bool],
    off: Collection[MatchTier] = (),
) -> Located | Miss:
    """Find whole lines by their numbers, if both texts stand there, or else by their texts."""
    page = Page(file.text)
    first, last = (plain(text).strip("\n").split("\n") for text in (edit.begins, edit.ends))
    tier, start, close = MatchTier.EXACT, edit.first, edit.last - len(last) + 1
    if not _stand(page, str.rstrip, (first, start), (last, close)):
        tier = MatchTier.WHITE_SPACE
    if not _stand(page, spaceless, (first, start), (last, close)):
        tier, start = MatchTier.NEAR, _nearest(page, first, edit.first)
        close = start and _nearest(page, last, close + start - edit.first, after=start)
    if not close or tier in off or not re.search(r"\w", edit.begins + edit.ends):
        return wrong_lines(page, edit, [_starts(page, spaceless, text) for text in (first, last)])
    begin, end = page.starts[start - 1], page.starts[close + len(last) - 1]
    new = plain(edit.replace)
    new += "\n" if new and not new.endswith("\n") else ""
    match = Match(begin, end, _ended_like(page, begin, end, new))
    wanted = Wanted.of(page.text[begin:end], new)
    left_out = abbreviates(wanted)
    if left_out is not None:
        return no_match(page, edit.path, wanted, left_out=left_out, broken=None)
    if tier is MatchTier.EXACT or intact(match):
        return Located(tier, match)
    reason = f"with lines {start}-{close + len(last) - 1} replaced the file no longer parses"
    return Miss("broken-syntax", reason, advice='copy "first" and "last" with their indentation')


def _starts(page: Page, normal: Normal, text: Sequence[str], after: int = 1) -> list[int]:
    """Return the numbers of the lines, from `after` on, at which a text begins."""
    return [at[0] + 1 for at in page.runs(normal, text) if at[0] + 1 >= after]


def _stand(page: Page, normal: Normal, *places: tuple[Sequence[str], int]) -> bool:
    """Whether each text stands at its line."""
    return all(
        line > 0
        and [*map(normal, page.lines[line - 1 : line - 1 + len(text)])] == [*map(normal, text)]
        for text, line in places
    )


def _nearest(page: Page, text: Sequence[str], line: int, after: int = 1) -> int:
    """Return where a text begins: near the line, or anywhere; 0 without exactly one place."""
    for normal in (spaceless, str.rstrip):
        starts = _starts(page, normal, text, after)
        near = [start for start in starts if abs(start - line) <= LINE_TOLERANCE]
        if line in starts or len(near or starts) == 1:
            return line if line in starts else (near or starts)[0]
    return 0


@dataclass(slots=True)
class _Search:
    page: Page
    edit: SearchReplace
    wanted: Wanted
    shown: Ranges
    intact: Callable[[Match], bool]
    off: Collection[MatchTier]
    broken: list[Match] = field(default_factory=list)  # with which the file would not parse

    def run(self) -> Located | Miss:
        left_out = abbreviates(self.wanted)
        applied = already_applied(self.page, self.wanted)
        for tier, find, wanted, line in self._attempts():
            if tier in self.off or (left_out and tier is not MatchTier.ELISION):
                continue
            if tier is MatchTier.NEAR and applied is not None:
                continue
            places = find(self.page, wanted)
            if not places:
                continue
            hint = self.edit.line if self.edit.line is not None else line
            place = _choose(self.page, places, hint, self.shown)
            if place is None:
                return ambiguous(self.page, self.edit, [(one.start, one.end) for one in places])
            outcome = self._take(tier, place)
            if outcome is not None:
                return outcome
        if applied is not None and not self.broken:
            match = Match(applied, applied + len(self.wanted.replace), self.wanted.replace)
            return Located(MatchTier.ALREADY_APPLIED, match)
        broken = self.broken[0].start if self.broken else None
        return no_match(self.page, self.edit.path, self.wanted, left_out=left_out, broken=broken)

    def _attempts(self) -> Iterator[tuple[MatchTier, Find, Wanted, int | None]]:
        """Return what to try, strictest first: tier, how to find it, texts, line that they give."""
        yield MatchTier.EXACT, _exact, self.wanted, None
        if not self.wanted.says_something:
            return
        for form, wanted, line in _forms(self.page, self.wanted):
            for tier, normal in _LINE_TIERS:
                yield max(tier, form, key=_ORDER.index), _by_lines(normal), wanted, line
        yield MatchTier.ELISION, _elision, wanted, line
        yield MatchTier.BLANK_LINES, _without_blanks, wanted, line
        yield MatchTier.NEAR, _near, wanted, line

    def _take(self, tier: MatchTier, place: Occurrence) -> Located | None:
        """Return the match with a text that leaves the file intact; None if there is none."""
        text = place.make()
        if text is None:
            return None
        joins = tier is MatchTier.EXACT and self._joins_lines(place, text)
        text += "\n" if joins else ""
        match = Match(place.start, place.end, text)
        if self.page.text[place.start : place.end] == text:
            return Located(MatchTier.ALREADY_APPLIED, match)
        if tier is MatchTier.EXACT or self.intact(match):
            return Located(tier, match, joins)
        self.broken.append(match)
        return None

    def _joins_lines(self, place: Occurrence, text: str) -> bool:
        ends_line = self.wanted.search.endswith("\n") and place.end < len(self.page.text)
        return ends_line and bool(text) and not text.endswith("\n")


_ORDER = tuple(MatchTier)

# Two characters that belong to one word.
_INSIDE = re.compile(r"\w\w")


def occurrences(text: str, search: str) -> Sequence[tuple[int, int]]:
    """Return start and end of all occurrences, including overlapping ones. A last line without a
    line feed matches one with it: the model cannot see the difference.
    """
    haystack = text
    if search.endswith("\n") and not text.endswith("\n"):
        haystack = text + "\n"
    spans: list[tuple[int, int]] = []
    start = haystack.find(search)
    while start >= 0 and len(spans) < MAX_OCCURRENCES:
        spans.append((start, min(start + len(search), len(text))))
        start = haystack.find(search, start + 1)
    return spans


def _exact(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match the search text as it is, but not inside a word: `x = 1` is not in `max = 1`."""

    def place(start: int, end: int) -> Occurrence:
        past_end = end - start < len(wanted.search)
        new = wanted.replace.removesuffix("\n") if past_end else wanted.replace
        return Occurrence(start, end, lambda: new)

    spans = occurrences(page.text, wanted.search)
    if len(wanted.old) == 1 and len(spans) == 1:
        ends = (page.text[max(at - 1, 0) : at + 1] for at in spans[0])
        spans = () if any(map(_INSIDE.fullmatch, ends)) else spans
    return [place(*span) for span in spans]


_LINE_TIERS: Sequence[tuple[MatchTier, Normal]] = (
    (MatchTier.TRAILING_SPACE, str.rstrip),
    (MatchTier.WHITE_SPACE, spaceless),
)
"""Tiers that match whole lines one to one, by what they compare of a line."""


def _by_lines(normal: Normal) -> Find:
    def find(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
        runs = page.runs(normal, wanted.old)
        return [_region(page, wanted, dict(enumerate(at))) for at in runs]

    return find


def _without_blanks(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match lines that agree without the blank ones, where no change is next to a difference."""
    rows = [index for index, line in enumerate(wanted.old) if not is_blank(line)]
    runs = page.runs(spaceless, [wanted.old[i] for i in rows], blanks=False)
    places = [dict(zip(rows, at, strict=True)) for at in runs]
    return [
        _region(page, wanted, at)
        for at in places
        if all(wanted.is_placed(step, at) for step in wanted.changes)
    ]


def _near(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    at = near_window(page, wanted)
    return [] if at is None else [_region(page, wanted, at)]


def _region(page: Page, wanted: Wanted, at: dict[int, int]) -> Occurrence:
    """Replace the lines of the file `at` those of the search text, and all between them."""
    start, end = page.starts[min(at.values())], page.starts[max(at.values()) + 1]

    def make() -> str | None:
        new = transplant(page, wanted, at)
        if new is None:
            return None
        return _ended_like(page, start, end, "".join(f"{line}\n" for line in new))

    return Occurrence(start, end, make)


def _ended_like(page: Page, start: int, end: int, lines: str) -> str:
    """Return whole lines without their last line feed if the lines that they replace lack it."""
    return lines if page.text.endswith("\n", start, end) else lines.removesuffix("\n")


def _elision(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    """Match a search text with `...`. Each part has one occurrence after the one before it."""
    pieces: list[tuple[Wanted, Occurrence]] = []
    for part in elision_parts(wanted):
        tiers = (_by_lines(normal)(page, part) for _, normal in _LINE_TIERS)
        places = next(filter(None, tiers), ())
        after = [place for place in places if not pieces or place.start >= pieces[-1][1].end]
        if len(after) != 1:
            return []
        pieces.append((part, after[0]))

    def make() -> str | None:
        text, done = "", pieces[0][1].start
        for part, place in pieces:
            new = place.make() if part.changes else page.text[place.start : place.end]
            if new is None:
                return None
            text += page.text[done : place.start] + new
            done = place.end
        return text

    return [Occurrence(pieces[0][1].start, pieces[-1][1].end, make)] if pieces else []


# A number and its separator from the line: `12: x`, `12| x`, `L12 x`, `cat -n`. Where the blank
# after a separator is missing, all lines are shifted by one column, which tiers handle.
_NUMBERED = (
    re.compile(r" *L?(\d{1,7})\t(.*)"),  # cat -n
    re.compile(r" *L?(\d{1,7})(?: ?[:|\u2502] ?| )(.*)"),
)


def _forms(page: Page, wanted: Wanted) -> Iterator[tuple[MatchTier, Wanted, int | None]]:
    """Return the texts as they are, without line numbers, and without typographic signs."""
    yield MatchTier.EXACT, wanted, None
    numbered = _without_numbers(wanted)
    if numbered is not None:
        yield MatchTier.LINE_NUMBERS, *numbered
    slips = {c for c in wanted.search if c != plain_punctuation(c) and c not in page.text}
    if slips:
        table = {ord(c): plain_punctuation(c) for c in slips}
        old, new = wanted.search.translate(table), wanted.replace.translate(table)
        yield MatchTier.PUNCTUATION, Wanted.of(old, new), None


def _without_numbers(wanted: Wanted) -> tuple[Wanted, int] | None:
    """Remove line numbers and return the number of the first line too; None without numbers. The
    lines of the search text must have them in sequence, those of the replacement all or none.
    """
    for form in _NUMBERED:
        old = _read(wanted.old, form)
        firsts = {number - k for k, (number, _) in enumerate(old or ()) if number is not None}
        if old is None or len(firsts) != 1:
            continue
        new = _read(wanted.new, form)
        if new is None and any(form.fullmatch(line) for line in wanted.new):
            continue
        lines = list(wanted.new) if new is None else [text for _, text in new]
        ends_blank = not wanted.search.endswith("\n") and is_blank(old[-1][1])
        if new is None and ends_blank and wanted.replace.endswith("\n"):
            lines.append("")  # the last number of the search text stands for a blank line
        return Wanted.of_lines([text for _, text in old], lines), firsts.pop()
    return None


def _read(lines: Sequence[str], form: re.Pattern[str]) -> list[tuple[int | None, str]] | None:
    """Return number and text of each line; None if one lacks its number, or all do."""
    read: list[tuple[int | None, str]] = []
    for line in lines:
        numbered = form.fullmatch(line) or form.fullmatch(f"{line} ")
        if numbered:
            read.append((int(numbered[1]), numbered[2]))
        elif is_blank(line):
            read.append((None, line))
        else:
            return None
    return read if any(number is not None for number, _ in read) else None


def _choose(
    page: Page, places: Sequence[Occurrence], line: int | None, shown: Ranges
) -> Occurrence | None:
    """Return the only occurrence, or the only one that a hint selects; None if ambiguous."""
    if len(places) == 1:
        return places[0]
    if len(places) >= MAX_OCCURRENCES:
        return None
    if line is not None:
        ranked = sorted((abs(page.line_of(p.start) - line), k) for k, p in enumerate(places))
        (nearest, chosen), (runner_up, _) = ranked[:2]
        if nearest <= LINE_TOLERANCE and nearest < runner_up:
            return places[chosen]
    seen = [place for place in places if _is_shown(page, place, shown)]
    return seen[0] if len(seen) == 1 else None  # a model cannot quote what it has not seen


def _is_shown(page: Page, place: Occurrence, shown: Ranges) -> bool:
    first, last = page.line_of(place.start), page.line_of(max(place.start, place.end - 1))
    return any(start <= first and last <= end for start, end in shown)


# A replacement, or the text that it adds, proves nothing in the file if it has fewer characters
# without white space: `return None` occurs everywhere.
_MIN_REPLACEMENT = 24
_MIN_ADDED = 12
# A replacement less like its search text (percent) may be another place that reads like it.
_ALIKE = 70.0
_COMPARED = 5_000  # characters


def already_applied(page: Page, wanted: Wanted) -> int | None:
    """Return the offset of the replacement in the file, if it seems to be applied already."""
    if len(spaceless(wanted.replace)) < _MIN_REPLACEMENT:
        return None
    if len(spaceless("".join(wanted.added))) < _MIN_ADDED:
        return None  # after a deletion the rest stands in the file either way
    if fuzz.ratio(wanted.search[:_COMPARED], wanted.replace[:_COMPARED]) < _ALIKE:
        return None
    spans = occurrences(page.text, wanted.replace)
    return spans[0][0] if len(spans) == 1 else None
