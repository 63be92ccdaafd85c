"""Reads a model's reply, whatever shape it was written in, as one `PatchProposal`, or says why not.

Readers are tried in the order of `READERS`; the first that recognises its shape decides, with a
proposal or with a failure, and its name is reported. A further shape is one more entry. Nothing is
ever half read: a reply with one broken edit is a failure as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.patching.blocks import has_blocks, read_blocks
from agent.patching.scanning import Found, Scan, scan, without_thinking
from agent.patching.schema import ReplyModel, to_proposal, unknown_keys
from agent.patching.tolerant_json import Fault
from agent.types import ParseFailure, PatchProposal

_EDITS = frozenset({"edits"})
_REPLY_KEYS = frozenset(ReplyModel.model_fields)
_ACTION_KEYS = frozenset({"action", "edits"})

# Characters of the reply shown around the place of a fault.
_SHOWN = 60


def parse_reply(text: str, *, finish_reason: str = "stop") -> PatchProposal | ParseFailure:
    """Read a reply. `finish_reason` "length" says that it was cut off at the output limit.

    Never raises; takes time linear in the length of the text.
    """
    reply = _Reply(without_thinking(text), cut_off=finish_reason == "length")
    if not reply.text.strip():
        return _empty(reply)
    for reader in READERS:
        outcome = reader.read(reply, reader.name)
        if outcome is not None:
            return outcome
    return _unreadable(reply, reply.scan, 'a JSON object with "edits"')


def load_json(text: str, *, finish_reason: str = "stop") -> dict[str, Any] | ParseFailure:
    """The one JSON object of a reply in the iterative mode: an action, or a patch. Never raises."""
    reply = _Reply(without_thinking(text), cut_off=finish_reason == "length")
    if not reply.text.strip():
        return _empty(reply)
    result = scan(reply.text, _ACTION_KEYS, _ACTION_KEYS)
    chosen = _choose(reply, result)
    if chosen is None:
        return _unreadable(reply, result, 'a JSON object with "action"')
    return chosen.value if isinstance(chosen, Found) else chosen


# ----------------------------------------------------------------------------------------- readers


class _Reply:
    def __init__(self, text: str, *, cut_off: bool) -> None:
        self.text = text
        self.cut_off = cut_off

    @functools.cached_property
    def scan(self) -> Scan:
        return scan(self.text, _EDITS, _REPLY_KEYS)

    @functools.cached_property
    def chosen(self) -> Found | ParseFailure | None:
        return _choose(self, self.scan)


Outcome = PatchProposal | ParseFailure | None


@dataclass(frozen=True, slots=True)
class Reader:
    """A shape of reply. `read` gives None for a reply that is not of this shape."""

    name: str
    read: Callable[[_Reply, str], Outcome]


def _json(accepts: Callable[[Found], bool]) -> Callable[[_Reply, str], Outcome]:
    def read(reply: _Reply, name: str) -> Outcome:
        chosen = reply.chosen
        if chosen is None or isinstance(chosen, ParseFailure):
            return chosen
        return to_proposal(chosen.value, name) if accepts(chosen) else None

    return read


def _clean(found: Found) -> bool:
    return not found.slips and not unknown_keys(found.value)


def _blocks(reply: _Reply, name: str) -> Outcome:
    if not has_blocks(reply.text):
        return None
    if reply.cut_off:
        return _truncated(
            "the reply was cut off at the output limit; further blocks may be missing"
        )
    edits = read_blocks(reply.text)
    return edits if isinstance(edits, ParseFailure) else PatchProposal(edits, reader=name)


READERS: Sequence[Reader] = (
    Reader("json", _json(lambda found: found.whole and _clean(found))),
    Reader("json-fenced", _json(lambda found: found.fenced and _clean(found))),
    Reader("json-prose", _json(_clean)),
    Reader("json-lenient", _json(lambda _: True)),
    Reader("search-replace", _blocks),
)


def _choose(reply: _Reply, result: Scan) -> Found | ParseFailure | None:
    """The object that is meant. Broken or competing objects fail the reply: none is preferred."""
    if result.faults and (result.faults[0].ours or not result.found):
        return _fault_failure(reply, result.faults[0].fault)
    meaningful = [found for found in result.found if found.value.get("edits") != []]
    rivals = [f for f in meaningful[1:] if f.value != meaningful[0].value]
    if rivals:
        where = ", ".join(str(_line(reply.text, f.start)) for f in [meaningful[0], *rivals][:5])
        return ParseFailure(
            "malformed",
            f"the reply holds several different JSON objects (at lines {where}); "
            "give exactly one that has everything",
        )
    chosen = next(iter([*meaningful, *result.found]), None)
    if chosen and has_blocks(reply.text[: chosen.start]) | has_blocks(reply.text[chosen.end :]):
        return ParseFailure("malformed", "the reply mixes JSON and SEARCH blocks; give JSON alone")
    return chosen


# ---------------------------------------------------------------------------------------- failures


def _empty(reply: _Reply) -> ParseFailure:
    if reply.cut_off:
        return _truncated("the output limit was reached before any answer was written")
    return ParseFailure("empty", "the reply is empty; answer with the JSON object")


def _unreadable(reply: _Reply, result: Scan, wanted: str) -> ParseFailure:
    if reply.cut_off:
        return _truncated(f"the reply was cut off at the output limit before {wanted} was complete")
    if result.others and isinstance(result.others[0], Mapping):
        keys = ", ".join(repr(key[:40]) for key in list(result.others[0])[:8]) or "no key"
        key = wanted.rsplit('"', 2)[1]
        return ParseFailure("schema", f"{key}: missing (the object has {keys})")
    begin = " ".join(reply.text.split(maxsplit=12)[:12])[:_SHOWN]
    return ParseFailure(
        "malformed", f"the reply does not hold {wanted}; it begins {begin!r}. Answer with it alone"
    )


def _fault_failure(reply: _Reply, fault: Fault) -> ParseFailure:
    line = _line(reply.text, fault.offset)
    column = fault.offset - reply.text.rfind("\n", 0, fault.offset)
    if fault.truncated:
        return _truncated(f"{fault.message} (line {line}, column {column})")
    shown = _excerpt(reply.text, max(0, fault.offset - _SHOWN // 2))
    return ParseFailure(
        "malformed",
        f"not valid JSON at line {line}, column {column} (near {shown}): {fault.message}",
    )


def _truncated(what: str) -> ParseFailure:
    return ParseFailure(
        "truncated",
        f"{what}; answer again, complete and shorter: less thought, shorter search texts",
    )


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _excerpt(text: str, offset: int) -> str:
    return repr(text[offset : offset + _SHOWN])
