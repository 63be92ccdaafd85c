"""Matches a search text with the one place of a file that is much like it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rapidfuzz import fuzz, process

from agent.patching.diff import Step, steps
from agent.patching.lines import Page, Wanted, is_blank, plain_punctuation, spaceless
from agent.patching.transplant import merged_lines

# A search text needs this many non-blank lines and characters to be matched by similarity. Shorter
# ones are similar to too many places.
_NEAR_LINES = 3
_NEAR_CHARACTERS = 60

# Share of the characters of the search text that must be in the file as quoted, and the most that
# any other place may have, as a share of that.
_NEAR_SHARE = 0.6
_NEAR_RIVAL = 0.7

# Lines of a search text. Comparing costs the product of lines, and a longer text is no quotation.
_NEAR_MAX_LINES = 400

# Lines beyond both ends of a likely place that are compared: a share of the lines of the search
# text plus a few.
_SLACK_SHARE = 0.5
_SLACK_LINES = 12

# Lines of the file that a match may skip (a docstring, a branch): this many, or this share of the
# lines of the search text.
_PASSED = 10
_PASSED_SHARE = 0.5

# A line at least this similar (percent) counts as misquoted, otherwise as another line.
_LIKE = 60.0

_COMPARED = 8


@dataclass(frozen=True, slots=True)
class _Fit:
    """How a search text fits a place: lines of both sides that agree, and how many characters."""

    same: dict[int, int]
    at: dict[int, int]
    weight: int


def near_window(page: Page, wanted: Wanted) -> dict[int, int] | None:
    """Return the place with which most lines of the search text agree, if no other comes close.
    Lines that change and lines beside them must be in the file as quoted, or merge with it.
    """
    rows = [index for index, line in enumerate(wanted.old) if not is_blank(line)]
    size = sum(len(wanted.old[index].strip()) for index in rows)
    if len(rows) < _NEAR_LINES or size < _NEAR_CHARACTERS or len(wanted.old) > _NEAR_MAX_LINES:
        return None
    best = _best(page, wanted, size * _NEAR_SHARE)
    if best is None or any(index not in best.at for index in rows):
        return None
    sound = all(_is_sound(page, wanted, best, step) for step in wanted.changes)
    return best.at if sound else None


def _best(page: Page, wanted: Wanted, least: float) -> _Fit | None:
    """Return the fit that has enough of the search text and far more than any other."""
    size = len(wanted.old)
    reach = int(size * _SLACK_SHARE) + _SLACK_LINES
    starts = likely_starts(page.lines, wanted.old)[:_COMPARED]
    spans = [(max(0, s - reach), min(len(page.lines), s + size + reach)) for s in starts]
    fits = [fit for fit in (_fit(page, wanted, *span) for span in spans) if fit]
    best = max(fits, key=lambda fit: (fit.weight, -min(fit.at.values())), default=None)
    if best is None or best.weight < least:
        return None
    first, last = min(best.at.values()), max(best.at.values())
    beside = [side for a, b in spans for side in ((a, min(b, first)), (max(a, last + 1), b))]
    rivals = (_fit(page, wanted, low, high) for low, high in beside if low < high)
    if any(fit and fit.weight > best.weight * _NEAR_RIVAL for fit in rivals):
        return None
    lines = sum(not is_blank(line) for line in page.lines[first : last + 1])
    return best if lines - len(best.at) <= max(_PASSED, size * _PASSED_SHARE) else None


def _fit(page: Page, wanted: Wanted, low: int, high: int) -> _Fit | None:
    """Return how the search text fits lines `low:high`; None if no line agrees."""
    # Blank lines agree with one another and would disturb the alignment.
    old = [index for index, line in enumerate(wanted.old) if not is_blank(line)]
    new = [index for index in range(low, high) if not is_blank(page.lines[index])]
    same: dict[int, int] = {}
    like: dict[int, int] = {}
    keys = [_key(wanted.old[i]) for i in old], [_key(page.lines[k]) for k in new]
    for step in steps(*keys):
        pairs = zip(old[step.a_start : step.a_end], new[step.b_start : step.b_end], strict=False)
        if step.equal:
            same.update(pairs)
        elif step.a_end - step.a_start == step.b_end - step.b_start:
            like.update(
                (i, k)
                for i, k in pairs
                if fuzz.ratio(wanted.old[i].strip(), page.lines[k].strip()) >= _LIKE
            )
    weight = sum(len(wanted.old[i].strip()) for i in same)
    return _Fit(same, same | like, weight) if same else None


def _key(line: str) -> str:
    return spaceless(plain_punctuation(line))


def _is_sound(page: Page, wanted: Wanted, fit: _Fit, step: Step) -> bool:
    """Whether a change touches and adjoins lines that agree, with no line passed over."""
    around = wanted.around(step)
    lines = {i: page.lines[k] for i, k in fit.at.items() if i not in fit.same}
    mergeable = {i: fit.at[i] for i, _ in merged_lines(wanted, step, lines)}
    if not wanted.is_placed(step, {**fit.same, **mergeable}):
        return False
    if not any(i in fit.same for i in around if not step.a_start <= i < step.a_end):
        return False
    between = (page.lines[fit.at[i] + 1 : fit.at[j]] for i, j in pairwise(around))
    return all(is_blank(line) for lines in between for line in lines)


# A line that occurs more often than this ("return None", blank) says nothing about the place.
_RARE = 50

# Lines of the search text that are looked up by similarity where equal lines name few places.
_FEW = 3
_FUZZY_LINES = 4
_FUZZY_CUTOFF = 60.0
_FUZZY_CHARACTERS = 400
_FUZZY_PLACES = 12


def likely_starts(lines: Sequence[str], search: Sequence[str]) -> list[int]:
    """Return line indices at which a region like `search` may begin, most votes first."""
    votes: Counter[int] = Counter()
    for start, weight in _votes(lines, search):
        votes[min(max(start, 0), len(lines) - 1)] += weight
    for start, weight in _fuzzy_votes(lines, search) if len(votes) < _FEW else ():
        votes[min(max(start, 0), len(lines) - 1)] += weight
    return sorted(votes, key=lambda start: (-votes[start], start))


def _votes(lines: Sequence[str], search: Sequence[str]) -> Iterator[tuple[int, int]]:
    keys = [spaceless(line) for line in search]
    places: defaultdict[str, list[int]] = defaultdict(list)
    sought = set(keys) - {""}
    for index, line in enumerate(lines):
        key = spaceless(line)
        if key in sought:
            places[key].append(index)
    for number, key in enumerate(keys):
        found = places.get(key, [])
        if 0 < len(found) <= _RARE:
            yield from ((index - number, 1 + _RARE // len(found)) for index in found)


def _fuzzy_votes(lines: Sequence[str], search: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Return (start, similarity) of the places that have lines like the longest of `search`."""
    numbered = [(line.strip()[:_FUZZY_CHARACTERS], number) for number, line in enumerate(search)]
    longest = sorted(numbered, key=lambda pair: (-len(pair[0]), pair[1]))[:_FUZZY_LINES]
    choices = [line.strip()[:_FUZZY_CHARACTERS] for line in lines]
    for line, number in longest:
        hits = process.extract(
            line, choices, scorer=fuzz.ratio, limit=_FUZZY_PLACES, score_cutoff=_FUZZY_CUTOFF
        )
        for _, score, index in sorted(hits, key=lambda hit: (-hit[1], hit[2])):
            yield index - number, int(score)
