"""What is wrong with a field of a foreign file, in words for whoever wrote the file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from pydantic import ValidationError


def mistake_in(
    error: ValidationError, expected: Mapping[str, str], known: Collection[str] = ()
) -> tuple[tuple[str | int, ...], str]:
    """The first mistake: where it is, and what is wrong there with the field named last.

    The place has no parts that only pydantic knows. `expected` says by field what it takes ("a
    text"), `known` are the fields that the writer gave or could have given, for a suggestion.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    place = first["loc"]
    named = [part for part in place if part in expected]
    field = str(named[-1]) if named else str(place[-1]) if place else ""
    while place and place[-1] != field and isinstance(place[-1], str) and named:
        place = place[:-1]  # "[key]", or the member of a union
    if first["type"] == "missing":
        return place, f"is missing ({expected.get(field, 'it is needed')})" + near(field, known)
    if first["type"] == "value_error":
        return place, str(first.get("ctx", {}).get("error", first["msg"]))
    wanted = expected.get(field)
    return place, f"{wanted} is needed" if wanted else first["msg"]


def near(name: str, known: Collection[str]) -> str:
    """A suggestion for a name that is mistyped, "" for none."""
    found = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""
