"""Finds people who are planned twice at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rota.model import Slot


def overlaps(a: Slot, b: Slot) -> bool:
    return a.begin < b.end and b.begin < a.end


def conflicts(slots: Iterable[Slot]) -> list[tuple[Slot, Slot]]:
    """Pairs of neighbouring slots of one person that overlap."""
    ordered = sorted(slots, key=lambda slot: (slot.person, slot.begin, slot.end))
    found = []
    for _, own in groupby(ordered, key=lambda slot: slot.person):
        mine = list(own)
        found += [(a, b) for a, b in zip(mine, mine[1:]) if overlaps(a, b)]
    return found
