"""Finds where in a file an edit belongs.

Tiers (`agent.patching.tiers`) are tried in order, from an exact match to lenient ones. A tier that
finds several occurrences ends the search, since a more lenient one could only find more. Lenient
tiers tolerate differences in the context only: lines that a reply keeps stay the file's own, byte
for byte. An occurrence is used if it is the only one or if a hint decides. Beyond the exact tier,
a file that parsed before must still parse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from agent.patching.file_text import FileText, plain
from agent.patching.refusals import Miss, ambiguous, no_match, splits_word
from agent.patching.repair import mend_exact
from agent.patching.tiers import basic
from agent.patching.tiers.basic import Find, Occurrence, already_added, already_applied
from agent.patching.tiers.elision import abbreviates, elision
from agent.patching.tiers.hints import Hints, choose
from agent.patching.tiers.lines import Page, Wanted
from agent.patching.tiers.loose import blank_lines, near
from agent.patching.tiers.variants import Variant, variants
from agent.types import MatchTier, Repair, SearchReplace


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


Intact = Callable[[Match], bool]


def _always(_: Match) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known beside the texts of an edit.

    `intact` says of a match whether a file that parses now would still parse. `off`: names of tiers
    and repairs that are switched off.
    """

    hints: Hints = field(default_factory=Hints)
    intact: Intact = _always
    off: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Tier:
    """One way to match. `find` returns all occurrences (at most MAX_OCCURRENCES) in order."""

    name: MatchTier
    find: Find


_LINES = (basic.trailing_space, basic.indentation, basic.tabs, basic.white_space)


def _elision(page: Page, wanted: Wanted) -> Sequence[Occurrence]:
    return elision(page, wanted, _LINES)


TIERS: Sequence[Tier] = (
    Tier(MatchTier.EXACT, basic.exact),
    Tier(MatchTier.TRAILING_SPACE, basic.trailing_space),
    Tier(MatchTier.INDENTATION, basic.indentation),
    Tier(MatchTier.TABS, basic.tabs),
    Tier(MatchTier.WHITE_SPACE, basic.white_space),
    Tier(MatchTier.PUNCTUATION, basic.punctuation),
)
"""Tried with every variant of the search text (`tiers.variants`)."""

LOOSE_TIERS: Sequence[Tier] = (
    Tier(MatchTier.ELISION, _elision),
    Tier(MatchTier.BLANK_LINES, blank_lines),
    Tier(MatchTier.NEAR, near),
)
"""Tried after all others, with the last variant only."""

_ORDER = tuple(MatchTier)


def locate(file: FileText, edit: SearchReplace, sight: Sight | None = None) -> Located | Miss:
    """Find the one match of an edit. `file` must be the state that the edit sees."""
    sight = sight or Sight(Hints(edit.line, edit.within))
    search, replace = plain(edit.search), plain(edit.replace)
    if search == replace:
        return _unchanged(file, search)
    if not search and file.text and sight.hints.line is not None:
        return _insertion(file, replace, sight)
    if not search and file.text:
        return Miss(
            "no-match",
            "the search text is empty, but the file is not",
            advice="quote the text to replace",
        )
    return _Search(Page(file.text), edit, Wanted.of(search, replace), sight).run()


def _unchanged(file: FileText, text: str) -> Located | Miss:
    """Accept an edit that asks for no change if it quotes the file."""
    found = basic.occurrences(file.text, text) if text else ()
    if not found:
        return Miss("no-change", "search and replace are the same text (apart from line ends)")
    return Located(MatchTier.ALREADY_APPLIED, Match(*found[0], text))


def _insertion(file: FileText, text: str, sight: Sight) -> Located | Miss:
    """Insert lines before a line that the reply names by its number alone."""
    page, line = Page(file.text), sight.hints.line or 0
    if line > len(page.lines) + 1:
        return Miss("no-match", f"the file has {len(page.lines)} lines, none can go before {line}")
    start = page.starts[line - 1]
    whole = text if text.endswith("\n") or not text else f"{text}\n"
    if start == len(page.text) and not page.text.endswith("\n"):
        whole = "\n" + whole.removesuffix("\n")
    match = Match(start, start, whole)
    if sight.intact(match):
        return Located(MatchTier.EXACT, match)
    reason = f"before line {line} the new lines would break the syntax"
    return Miss("broken-syntax", reason, advice="quote lines around them")


@dataclass(slots=True)
class _Search:
    page: Page
    edit: SearchReplace
    wanted: Wanted
    sight: Sight
    broken: list[tuple[MatchTier, Match]] = field(default_factory=list)

    def run(self) -> Located | Miss:
        for name, tier, variant in self._attempts():
            places = tier.find(self.page, variant.wanted)
            if not places:
                continue
            place = choose(self.page, places, self._hints(variant))
            if place is None:
                return ambiguous(self.page, self.edit, places, name)
            outcome = self._take(name, place, variant)
            if outcome is not None:
                return outcome
        return self._nowhere()

    def _attempts(self) -> Iterator[tuple[MatchTier, Tier, Variant]]:
        """Return what to try, strictest first, with the name of the tier that is reported."""
        yield from self._named([TIERS[0]], Variant(MatchTier.EXACT, self.wanted))
        forms = list(variants(self.wanted)) if self.wanted.says_something else []
        for form in forms:
            # An exact match of a variant counts as a match by whole lines.
            yield from self._named(TIERS[1:], form)
        if forms:
            yield from self._named(LOOSE_TIERS, forms[-1])

    def _named(
        self, tiers: Sequence[Tier], form: Variant
    ) -> Iterator[tuple[MatchTier, Tier, Variant]]:
        left_out = abbreviates(self.wanted)
        for tier in tiers:
            name = max(tier.name, form.tier, key=_ORDER.index)
            if name.value in self.sight.off or (left_out and tier.name is not MatchTier.ELISION):
                continue
            if name is MatchTier.NEAR and already_applied(self.page, self.wanted) is not None:
                continue
            yield name, tier, form

    def _hints(self, variant: Variant) -> Hints:
        hints = self.sight.hints
        if hints.line is not None or variant.line is None:
            return hints
        return Hints(variant.line, hints.within, hints.shown)

    def _take(self, name: MatchTier, place: Occurrence, variant: Variant) -> Located | Miss | None:
        """Return the match with a text that leaves the file intact; None if there is none."""
        if name is MatchTier.EXACT:
            return splits_word(self.page, self.edit, place) or self._exact(place)
        text = place.make()
        if text is None:
            return None
        match = Match(place.start, place.end, text)
        if self.page.text[place.start : place.end] == text:
            return Located(MatchTier.ALREADY_APPLIED, match)
        if self.sight.intact(match):
            return Located(name, match)
        self.broken.append((name, match))
        return None

    def _exact(self, place: Occurrence) -> Located:
        literal = Match(place.start, place.end, place.make() or "")
        if already_added(self.page, self.wanted, place.start):
            return Located(MatchTier.ALREADY_APPLIED, literal)

        def intact(text: str) -> bool:
            return self.sight.intact(Match(place.start, place.end, text))

        text, repairs = mend_exact(
            self.page, self.wanted, place, literal.replacement, intact, self.sight.off
        )
        return Located(MatchTier.EXACT, Match(place.start, place.end, text), repairs)

    def _nowhere(self) -> Located | Miss:
        offset = already_applied(self.page, self.wanted)
        if offset is not None and not self.broken:
            end = offset + len(self.wanted.replace)
            return Located(MatchTier.ALREADY_APPLIED, Match(offset, end, self.wanted.replace))
        left_out = abbreviates(self.wanted)
        first = self.broken[0] if self.broken else None
        return no_match(
            self.page,
            self.edit.path,
            self.wanted,
            left_out=left_out,
            broken=(first[0], first[1].start) if first else None,
        )
