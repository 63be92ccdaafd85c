"""Finds where in a file an edit belongs.

Tiers are tried in order, from an exact match to lenient ones. A tier that finds several occurrences
ends the search, since a more lenient one could only find more. Lenient tiers tolerate differences
in the context only: lines that a reply keeps stay the file's own, byte for byte. An occurrence is
used if it is the only one or if a hint decides. Beyond the exact tier, a file that parsed before
must still parse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rapidfuzz import fuzz

from agent.patching.file_text import FileText, plain
from agent.patching.lines import (
    MAX_OCCURRENCES,
    Normal,
    Page,
    Wanted,
    abbreviates,
    elision_parts,
    indent_of,
    is_blank,
    plain_punctuation,
    spaceless,
)
from agent.patching.near import near_window
from agent.patching.refusals import LINE_TOLERANCE, Miss, ambiguous, no_match, splits_word
from agent.patching.transplant import Window, mend_exact, transplant
from agent.types import MatchTier, Repair, SearchReplace

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Hints:
    """What may decide between occurrences. `line` is 1-based, in the present text.

    `within`: enclosing lines, outermost first. `shown`: inclusive line ranges that the model saw,
    empty if unknown.
    """

    line: int | None = None
    within: str = ""
    shown: Ranges = ()


@dataclass(frozen=True, slots=True)
class Match:
    """Replace `text[start:end]` by `replacement`."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Located:
    """The match of an edit, the tier that found it, and the repairs made on the way."""

    tier: MatchTier
    match: Match
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Replace `text[start:end]` by what `make` returns; None if the new text is not certain."""

    start: int
    end: int
    make: Callable[[], str | None]


Find = Callable[[Page, Wanted], Sequence[Occurrence]]

DEEP_TIERS = frozenset({MatchTier.WHITE_SPACE, MatchTier.BLANK_LINES, MatchTier.NEAR})
"""Tiers that could put a line at a wrong depth, not to be used where the result is not parsed."""


def _always(_: Match) -> bool:
    return True


def locate(
    file: FileText,
    edit: SearchReplace,
    hints: Hints | None = None,
    intact: Callable[[Match], bool] = _always,
    off: Collection[MatchTier] = (),
) -> Located | Miss:
    """Find the one match of an edit. `file` must be the state that the edit sees.

    `intact` says of a match whether a file that parses now would still parse. `off`: tiers that are
    not tried.
    """
    hints = hints or Hints(edit.line, edit.within)
    search, replace = plain(edit.search), plain(edit.replace)
    if search == replace:
        spans = occurrences(file.text, search) if search else ()
        if spans:  # the edit quotes the file and asks for no change
            return Located(MatchTier.ALREADY_APPLIED, Match(*spans[0], search))
        return Miss("no-change", "search and replace are the same text (apart from line ends)")
    if not search and file.text:
        if hints.line is not None:
            return _insertion(file, replace, hints.line, intact)
        reason = "the search text is empty, but the file is not"
        return Miss("no-match", reason, advice="quote the text to replace")
    return _Search(Page(file.text), edit, Wanted.of(search, replace), hints, intact, off).run()


def _insertion(
    file: FileText, text: str, line: int, intact: Callable[[Match], bool]
) -> Located | Miss:
    """Insert lines before a line that the reply names by its number alone."""
    page = Page(file.text)
    if line > len(page.lines) + 1:
        return Miss("no-match", f"the file has {len(page.lines)} lines, none can go before {line}")
    start = page.starts[line - 1]
    whole = text if text.endswith("\n") or not text else f"{text}\n"
    if start == len(page.text) and not page.text.endswith("\n"):
        whole = "\n" + whole.removesuffix("\n")
    match = Match(start, start, whole)
    if intact(match):
        return Located(MatchTier.EXACT, match)
    reason = f"before line {line} the new lines would break the syntax"
    return Miss("broken-syntax", reason, advice="quote lines around them")


@dataclass(slots=True)
class _Search:
    page: Page
    edit: SearchReplace
    wanted: Wanted
    hints: Hints
    intact: Callable[[Match], bool]
    off: Collection[MatchTier]
    broken: list[tuple[MatchTier, Match]] = field(default_factory=list)

    def run(self) -> Located | Miss:
        left_out = abbreviates(self.wanted)
        for tier, find, wanted, line in self._attempts():
            if tier in self.off or (left_out and tier is not MatchTier.ELISION):
                continue
            if tier is MatchTier.NEAR and already_applied(self.page, self.wanted) is not None:
                continue
            places = find(self.page, wanted)
            if not places:
                continue
            place = _choose(self.page, places, self.hints, line)
            if place is None:
                starts = [place.start for place in places]
                spans = [(one.start, one.end) for one in places[:3]]
                return ambiguous(self.page, self.edit, starts, spans, tier)
            outcome = self._take(tier, place)
            if outcome is not None:
                return outcome
        applied = already_applied(self.page, self.wanted)
        if applied is not None and not self.broken:
            match = Match(applied, applied + len(self.wanted.replace), self.wanted.replace)
            return Located(MatchTier.ALREADY_APPLIED, match)
        broken = (self.broken[0][0], self.broken[0][1].start) if self.broken else None
        return no_match(
            self.page, self.edit.path, self.wanted, applied, left_out=left_out, broken=broken
        )

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

    def _take(self, tier: MatchTier, place: Occurrence) -> Located | Miss | None:
        """Return the match with a text that leaves the file intact; None if there is none."""
        if tier is MatchTier.EXACT:
            span = (place.start, place.end)
            return splits_word(self.page, self.edit, *span) or self._exact(place)
        text = place.make()
        if text is None:
            return None
        match = Match(place.start, place.end, text)
        if self.page.text[place.start : place.end] == text:
            return Located(MatchTier.ALREADY_APPLIED, match)
        if self.intact(match):
            return Located(tier, match)
        self.broken.append((tier, match))
        return None

    def _exact(self, place: Occurrence) -> Located:
        start, end, literal = place.start, place.end, place.make() or ""
        if _already_added(self.page, self.wanted, start):
            return Located(MatchTier.ALREADY_APPLIED, Match(start, end, literal))
        text, repairs = mend_exact(self.page, self.wanted, (start, end), literal)
        return Located(MatchTier.EXACT, Match(start, end, text), repairs)


# ------------------------------------------------------------------------------------------- tiers

_ORDER = tuple(MatchTier)


def occurrences(text: str, search: str) -> Sequence[tuple[int, int]]:
    """Return start and end of all occurrences, including overlapping ones.

    A search text that ends with a line feed also matches a last line without one, since the model
    cannot see the difference.
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
    """Match the search text as it is. A final line feed that the file lacks is not added."""

    def place(start: int, end: int) -> Occurrence:
        past_end = end - start < len(wanted.search)
        new = wanted.replace.removesuffix("\n") if past_end else wanted.replace
        return Occurrence(start, end, lambda: new)

    return [place(*span) for span in occurrences(page.text, wanted.search)]


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
    """Match lines that agree without the blank ones, where no change is next to such a difference.

    New lines could go before or after a blank line that only one side has. Lines that replace
    others stand where those do, but not across it.
    """
    rows = [index for index, line in enumerate(wanted.old) if not is_blank(line)]
    runs = page.runs(spaceless, [wanted.old[i] for i in rows], blanks=False)
    places = [dict(zip(rows, at, strict=True)) for at in runs]
    return [_region(page, wanted, at) for at in places if is_placed(wanted, at)]


def _near(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    at = near_window(page, wanted)
    return [] if at is None else [_region(page, wanted, at)]


def _region(page: Page, wanted: Wanted, at: dict[int, int]) -> Occurrence:
    """Replace the lines of the file `at` those of the search text, and all between them."""
    start, end = page.starts[min(at.values())], page.starts[max(at.values()) + 1]

    def make() -> str | None:
        new = transplant(wanted, Window.aligned(page, wanted, at))
        if new is None:
            return None
        text = "".join(f"{line}\n" for line in new)
        return text if page.text.endswith("\n", start, end) else text.removesuffix("\n")

    return Occurrence(start, end, make)


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
            changed = any(not step.equal for step in part.steps)
            new = place.make() if changed else page.text[place.start : place.end]
            if new is None:
                return None
            text += page.text[done : place.start] + new
            done = place.end
        return text

    return [Occurrence(pieces[0][1].start, pieces[-1][1].end, make)] if pieces else []


# ------------------------------------------------------------------------- forms of a search text

# A number and its separator from the line: `12: x`, `12| x`, `L12 x`, `cat -n`. Where the blank
# after a separator is missing, all lines are shifted by one column, which tiers handle.
_NUMBERED = (
    re.compile(r" *L?(\d{1,7})\t(.*)"),  # cat -n
    re.compile(r" *L?(\d{1,7})(?: ?[:|\u2502] ?| )(.*)"),
)


def _forms(page: Page, wanted: Wanted) -> Iterator[tuple[MatchTier, Wanted, int | None]]:
    """Return the texts as they are, and without line numbers or typographic signs if they have any.

    The last value is the number of the first line.
    """
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
    """Remove line numbers and return the number of the first line too; None without numbers.

    Every line of the search text must have a number, one more than the line before; blank lines may
    lack theirs. The replacement must have numbers on all lines or on none.
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


# ----------------------------------------------------------------------------- several occurrences


def _choose(
    page: Page, places: Sequence[Occurrence], hints: Hints, line: int | None
) -> Occurrence | None:
    """Return the only occurrence, or the only one that a hint selects; None if ambiguous."""
    if len(places) == 1:
        return places[0]
    if len(places) >= MAX_OCCURRENCES:
        return None
    inside = _inside(page, places, hints.within)
    if len(inside) == 1:
        return inside[0]
    left = inside or places
    hint = hints.line if hints.line is not None else line
    return _nearest(page, left, hint) or _only_shown(page, left, hints.shown)


def _nearest(page: Page, places: Sequence[Occurrence], hint: int | None) -> Occurrence | None:
    if hint is None:
        return None
    ranked = sorted((abs(page.line_of(p.start) - hint), k) for k, p in enumerate(places))
    (nearest, chosen), (runner_up, _) = ranked[:2]
    return places[chosen] if nearest <= LINE_TOLERANCE and nearest < runner_up else None


def _only_shown(page: Page, places: Sequence[Occurrence], shown: Ranges) -> Occurrence | None:
    """Return the one occurrence whose lines the model has all seen: it cannot quote another."""
    seen = []
    for place in places:
        first, last = page.line_of(place.start), page.line_of(max(place.start, place.end - 1))
        if any(start <= first and last <= end for start, end in shown):
            seen.append(place)
    return seen[0] if len(seen) == 1 else None


def _inside(page: Page, places: Sequence[Occurrence], within: str) -> Sequence[Occurrence]:
    """Return the occurrences inside the named lines, or else those after the innermost one.

    A header may be cut off or lack the rest of a signature.
    """
    headers = [line.strip() for line in within.split("\n") if not is_blank(line)]
    if not headers:
        return []
    inside = [place for place in places if _is_inside(page, place, headers)]
    if inside:
        return inside
    at = [k for k, line in enumerate(page.lines) if line.strip().startswith(headers[-1])]
    return [place for place in places if place.start >= page.starts[at[0]]] if len(at) == 1 else []


def _is_inside(page: Page, place: Occurrence, headers: Sequence[str]) -> bool:
    """Whether the headers, outermost first, are among the lines that enclose the occurrence."""
    pending = list(headers)
    index = page.line_of(place.start) - 1
    while index < len(page.lines) - 1 and is_blank(page.lines[index]):
        index += 1
    depth = None
    for line in reversed(page.lines[: index + 1]):
        own = len(indent_of(line).expandtabs())
        if depth is not None and (is_blank(line) or own >= depth):
            continue
        depth = own
        if line.strip().startswith(pending[-1]):
            pending.pop()
        if not pending or depth == 0:
            break
    return not pending


# ------------------------------------------------------------------------------ blank lines between


def is_placed(wanted: Wanted, at: dict[int, int]) -> bool:
    """Whether each change stands among lines that are as far apart in the file as in the reply."""
    for step in (step for step in wanted.steps if not step.equal):
        around = wanted.around(step)
        inside = [index for index in around if step.a_start <= index < step.a_end]
        for i, j in pairwise(inside or around):
            if i not in at or j not in at or at[j] - at[i] != j - i:
                return False
    return True


# ------------------------------------------------------------------------------------ applied edits

# A replacement, or the text that it adds, proves nothing in the file if it has fewer characters
# without white space: `return None` occurs everywhere.
_MIN_REPLACEMENT = 24
_MIN_ADDED = 12
# A replacement that shares no line with its search text must be this similar to it (percent).
# Otherwise the text in the file may be another place that happens to read like the replacement.
_ALIKE = 70.0
_COMPARED = 5_000


def already_applied(page: Page, wanted: Wanted) -> int | None:
    """Return the offset of the replacement in the file, if it seems to be applied already."""
    if len(spaceless(wanted.replace)) < _MIN_REPLACEMENT or not _related(wanted):
        return None
    if len(spaceless("".join(wanted.added))) < _MIN_ADDED:
        return None  # after a deletion the rest stands in the file either way
    spans = occurrences(page.text, wanted.replace)
    return spans[0][0] if len(spans) == 1 else None


def _already_added(page: Page, wanted: Wanted, start: int) -> bool:
    """Whether the text that the replacement adds around the search text at `start` is there."""
    old, new = wanted.search, wanted.replace
    before = len(new) - len(old)
    if not old or before <= 0 or len(spaceless(new)) - len(spaceless(old)) < _MIN_ADDED:
        return False
    if new.startswith(old) and page.text.startswith(new, start):
        return True
    return new.endswith(old) and start >= before and page.text.startswith(new, start - before)


def _related(wanted: Wanted) -> bool:
    equal = (wanted.old[s.a_start : s.a_end] for s in wanted.steps if s.equal)
    if any(not is_blank(line) for run in equal for line in run):
        return True
    return fuzz.ratio(wanted.search[:_COMPARED], wanted.replace[:_COMPARED]) >= _ALIKE
