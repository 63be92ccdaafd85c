"""Reads a model's reply in any known shape as one `PatchProposal`, or says why it cannot. Every
reader looks at the whole reply. A shape inside another one belongs to the outer one, such as a diff
in a JSON string. If several remain, they must ask for the same edits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.patching.readers import READERS
from agent.patching.readers.json_objects import choose, fault_trouble
from agent.patching.readers.reply import SHOWN, Reading, Reply, Trouble, truncated
from agent.patching.schema import MAX_EDITS, reproduction_test, to_proposal
from agent.patching.tolerant_json import Found, Scan, scan
from agent.types import (
    CreateFile,
    Edit,
    ParseFailure,
    PatchProposal,
    ReproductionTest,
    SearchReplace,
)

_ACTION_KEYS = frozenset({"action", "actions", "edits"})

# A reply with more lines is not a patch, and readers would be slow on it.
MAX_LINES = 1_000_000


def parse_reply(
    text: str, *, finish_reason: str = "stop", earlier: PatchProposal | None = None
) -> PatchProposal | ParseFailure:
    """Read a reply, in time linear in its length. Never raises. `earlier` is the proposal whose
    edits a reply to a repair may keep.
    """
    cut_off = finish_reason == "length"
    reply = Reply(_unwrapped(text), cut_off=cut_off, earlier=earlier)
    early = _nothing_to_read(reply)
    if early is not None:
        return early
    outcomes = _outcomes(reply)
    if not outcomes:
        return _unreadable(reply, reply.json, "edits")
    trouble = next((one for one in outcomes if isinstance(one, Trouble)), None)
    if trouble is not None:
        return trouble.failure
    first, *others = [one for one in outcomes if isinstance(one, Reading)]
    proposal = first.proposal
    if len(proposal.edits) > MAX_EDITS:
        return ParseFailure("malformed", f"the reply has more than {MAX_EDITS} edits")
    essence = [*map(_essence, proposal.edits)]
    rival = next((r for r in others if [*map(_essence, r.proposal.edits)] != essence), None)
    if rival is not None:
        shapes = " and ".join(
            f"{one.proposal.reader} at line {reply.line(one.spans[0][0])}" for one in (first, rival)
        )
        reason = f"the reply mixes shapes that ask for different edits: {shapes}"
        advice = "give all edits in one JSON object and nothing else"
        return ParseFailure("malformed", reason, advice=advice)
    return replace(proposal, edits=tuple(dict.fromkeys(proposal.edits)))


def _unwrapped(text: str) -> str:
    """Return the fenced string of `{"code_response": "..."}`, which is a reply of its own."""
    key = "code_response"
    if f'"{key}"' not in text:
        return text
    objects = [one.value for one in scan(text, {key}, lambda keys: key in keys).objects]
    inner = objects[0][key] if len(objects) == 1 and "edits" not in objects[0] else None
    return inner if isinstance(inner, str) and "```" in inner else text


def can_continue(text: str) -> bool:
    """Whether a reply that was cut off has begun its answer."""
    reply = Reply(text, cut_off=True)
    return not reply.only_thought and bool(reply.text.strip())


# A continuation may repeat the end of what it continues. Fewer characters agree by chance.
_LEAST_REPEATED, _MOST_REPEATED = 12, 400


def joined_reply(
    begun: str, rest: str, *, finish_reason: str, earlier: PatchProposal | None = None
) -> str:
    """Return a cut reply with its continuation, or the latter alone if only it can be read."""
    start, more = begun.rstrip(), rest.removeprefix("\ufeff")
    most = min(_MOST_REPEATED, len(more), len(start))
    sizes = [len(start), *range(most, _LEAST_REPEATED - 1, -1)]
    repeated = next((size for size in sizes if start.endswith(more[:size])), 0)
    whole = start + (more[repeated:] if len(more) >= repeated else more)
    for text in (whole, rest):
        if isinstance(
            parse_reply(text, finish_reason=finish_reason, earlier=earlier), PatchProposal
        ):
            return text
    return whole


def load_json(text: str, *, finish_reason: str = "stop") -> dict[str, Any] | ParseFailure:
    """Return the one JSON object of a reply in the iterative mode. Never raises."""
    reply = Reply(text, cut_off=finish_reason == "length")
    early = _nothing_to_read(reply)
    if early is not None:
        return early
    result = scan(reply.text, _ACTION_KEYS, lambda keys: not _ACTION_KEYS.isdisjoint(keys))
    chosen = choose(reply, result)
    if chosen is None:
        return _unreadable(reply, result, "action")
    if isinstance(chosen, Found):
        value: dict[str, Any] = chosen.value
        return value
    return chosen.failure


def read_test(text: str) -> ReproductionTest | None:
    """Return the reproduction test of a reply, None without one. Never raises."""
    key = "reproduction_test"
    objects = scan(text, {key}, lambda keys: key in keys).objects
    tests = (reproduction_test(one.value[key]) for one in objects)
    return next((test for test in tests if test is not None), None)


def _outcomes(reply: Reply) -> list[Reading | Trouble]:
    """Return what the readers say, without what lies inside another one's part."""
    outcomes: dict[tuple[tuple[int, int], ...], Reading | Trouble] = {}
    for reader in READERS:
        outcome = reader(reply)
        if outcome is not None:
            outcomes.setdefault(outcome.spans, outcome)
    every = outcomes.values()
    return [one for one in every if not any(_inside(one, other) for other in every)]


def _inside(inner: Reading | Trouble, outer: Reading | Trouble) -> bool:
    spans, around = sorted(inner.spans), sorted(outer.spans)
    if spans == around:
        return False
    index = 0
    for start, end in spans:
        while index < len(around) and around[index][1] < end:
            index += 1
        if index == len(around) or start < around[index][0]:
            return False
    return True


def _essence(edit: Edit) -> Edit:
    """Return the edit without hints and the last line break, which shapes write differently."""
    match edit:
        case SearchReplace(path=path, search=search, replace=new):
            return SearchReplace(path, search.removesuffix("\n"), new.removesuffix("\n"))
        case CreateFile(path=path, content=content):
            return CreateFile(path, content.removesuffix("\n"))
        case _:
            return edit


def _nothing_to_read(reply: Reply) -> ParseFailure | None:
    if reply.only_thought:
        return truncated("the reply ends inside its thinking, before any answer")
    if not reply.text.strip():
        if reply.cut_off:
            return truncated("the output limit was reached before any answer was written")
        return ParseFailure("empty", "the reply is empty", advice="answer with the JSON object")
    lines = reply.text.count("\n")
    if lines > MAX_LINES:
        what = f"the reply has {lines} lines, at most {MAX_LINES} are read"
        return ParseFailure("malformed", what, advice="answer with the edits only")
    return None


def _unreadable(reply: Reply, result: Scan, key: str) -> ParseFailure:
    """Return why a reply without an object that has the key cannot be read."""
    if result.faults:
        return fault_trouble(reply, result.faults[0]).failure
    if reply.cut_off:
        return truncated("the reply was cut off at the output limit before its JSON was complete")
    other = next((one.value for one in result.others if isinstance(one.value, dict)), None)
    if other is not None and other.get("missing") and "action" not in other:
        request = to_proposal({**other, "edits": []}, "json")  # an empty list may be left out
        if isinstance(request, ParseFailure):
            return request
    if other is not None:
        keys = ", ".join(repr(name[:40]) for name in list(other)[:8]) or "no key"
        return ParseFailure("schema", f"{key}: missing (the object has {keys})")
    begin = " ".join(reply.text.split(maxsplit=12)[:12])[:SHOWN]
    what = f'the reply does not hold a JSON object with "{key}"; it begins {begin!r}'
    return ParseFailure("malformed", what, advice="answer with it alone")
