"""Reads a model's reply in any known shape as one `PatchProposal`, or says why it cannot.

Every reader of `agent.patching.readers.READERS` looks at the whole reply. A shape inside another
one belongs to the outer one: a diff in a JSON string, a JSON object in a SEARCH block. If several
shapes remain, they must ask for the same edits. A reply with one broken edit fails as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.patching.readers import READERS
from agent.patching.readers.json_objects import choose, fault_trouble
from agent.patching.readers.reply import (
    SHOWN,
    Reading,
    Reply,
    Trouble,
    is_placeholder_path,
    says_nothing,
    truncated,
)
from agent.patching.schema import MAX_EDITS, reproduction_test, to_proposal
from agent.patching.tolerant_json import Found, Scan, scan
from agent.types import (
    CreateFile,
    Edit,
    ParseFailure,
    PatchProposal,
    Repair,
    ReplaceSymbol,
    ReproductionTest,
    SearchReplace,
)

_ACTION_KEYS = frozenset({"action", "actions", "edits"})

# A reply with more lines is not a patch, and readers would be slow on it.
MAX_LINES = 1_000_000


def parse_reply(
    text: str, *, finish_reason: str = "stop", earlier: PatchProposal | None = None
) -> PatchProposal | ParseFailure:
    """Read a reply. The `finish_reason` "length" means that it was cut off at the output limit.

    `earlier` is the proposal whose edits a reply to a repair may keep.

    Never raises. Takes time linear in the length of the text.
    """
    reply = Reply(text, cut_off=finish_reason == "length", earlier=earlier)
    early = _nothing_to_read(reply)
    if early is not None:
        return early
    outcomes = _outermost(_outcomes(reply))
    if not outcomes:
        return _unreadable(reply, reply.json, 'a JSON object with "edits"')
    trouble = next((o for o in outcomes if isinstance(o, Trouble)), None)
    if trouble is not None:
        return trouble.failure
    readings = [outcome for outcome in outcomes if isinstance(outcome, Reading)]
    if len(readings[0].proposal.edits) > MAX_EDITS:
        return ParseFailure("malformed", f"the reply has more than {MAX_EDITS} edits")
    essences = [[_essence(edit) for edit in reading.proposal.edits] for reading in readings]
    rival = next((r for r, own in zip(readings, essences, strict=True) if own != essences[0]), None)
    if rival is not None:
        return _mixed(reply, readings[0], rival)
    return _meant(_with_repairs(reply, readings[0]))


def can_continue(text: str) -> bool:
    """Whether a reply that was cut off has begun its answer."""
    reply = Reply(text, cut_off=True)
    return not reply.only_thought and bool(reply.text.strip())


# A continuation may repeat the end of what it continues. Fewer characters agree by chance.
_LEAST_REPEATED, _MOST_REPEATED = 12, 400


def joined_reply(
    begun: str, rest: str, *, finish_reason: str, earlier: PatchProposal | None = None
) -> str:
    """Return a reply that was cut off together with its continuation.

    A model may begin again instead: the new reply is taken alone if only it can be read.
    """
    start, more = begun.rstrip(), rest.removeprefix("\ufeff")
    most = min(_MOST_REPEATED, len(more), len(start))
    sizes = [len(start), *range(most, _LEAST_REPEATED - 1, -1)]
    repeated = next((size for size in sizes if start.endswith(more[:size])), 0)
    more = more[repeated:] if len(more) >= repeated else more
    whole = start + more
    if not isinstance(
        parse_reply(whole, finish_reason=finish_reason, earlier=earlier), ParseFailure
    ):
        return whole
    alone = parse_reply(rest, finish_reason=finish_reason, earlier=earlier)
    return rest if isinstance(alone, PatchProposal) else whole


def _with_repairs(reply: Reply, reading: Reading) -> PatchProposal:
    """Report a code fence that is not closed as a repair."""
    last = reply.fences[-1] if reply.fences else None
    starts = [start for start, end in reading.spans if last and start >= last.start]
    if last is None or last.closed or not starts:
        return reading.proposal
    if any(start < last.start < end for start, end in reading.spans):
        return reading.proposal  # the fence is content
    note = f"the code fence of line {reply.line(last.start)} is not closed"
    repair = Repair("unclosed-fence", note, "truncated")
    return replace(reading.proposal, repairs=(*reading.proposal.repairs, repair))


def load_json(text: str, *, finish_reason: str = "stop") -> dict[str, Any] | ParseFailure:
    """Return the one JSON object of a reply in the iterative mode: an action or a patch.

    Never raises.
    """
    reply = Reply(text, cut_off=finish_reason == "length")
    early = _nothing_to_read(reply)
    if early is not None:
        return early
    result = scan(reply.text, _ACTION_KEYS, lambda keys: not _ACTION_KEYS.isdisjoint(keys))
    chosen = choose(reply, result)
    if chosen is None:
        return _unreadable(reply, result, 'a JSON object with "action"')
    if isinstance(chosen, Found):
        value: dict[str, Any] = chosen.value
        return value
    return chosen.failure


def read_test(text: str) -> ReproductionTest | None:
    """Return the reproduction test of a reply, whatever else it holds; None without one.

    Never raises.
    """
    for found in scan(text, {"reproduction_test"}, lambda keys: "reproduction_test" in keys).found:
        test = reproduction_test(found.value.get("reproduction_test"))
        if test is not None:
            return test
    return None


# -------------------------------------------------------------------------- choice between outcomes


def _outcomes(reply: Reply) -> list[Reading | Trouble]:
    """Return the outcomes of all readers, one for each set of spans (the first wins)."""
    found: list[Reading | Trouble] = []
    seen: set[tuple[tuple[int, int], ...]] = set()
    for reader in READERS:
        outcome = reader(reply)
        if outcome is None:
            continue
        spans = _spans(outcome)
        if spans not in seen:
            seen.add(spans)
            found.append(outcome)
    return found


def _spans(outcome: Reading | Trouble) -> tuple[tuple[int, int], ...]:
    return outcome.spans if isinstance(outcome, Reading) else (outcome.span,)


def _outermost(outcomes: Sequence[Reading | Trouble]) -> list[Reading | Trouble]:
    """Drop outcomes that lie wholly inside the spans of another one."""
    return [
        outcome
        for outcome in outcomes
        if not any(other is not outcome and _inside(outcome, other) for other in outcomes)
    ]


def _inside(inner: Reading | Trouble, outer: Reading | Trouble) -> bool:
    spans, around = sorted(_spans(inner)), sorted(_spans(outer))
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


def _mixed(reply: Reply, one: Reading, other: Reading) -> ParseFailure:
    def named(reading: Reading) -> str:
        line = reply.line(reading.spans[0][0])
        return f"{reading.proposal.reader} at line {line}"

    return ParseFailure(
        "malformed",
        f"the reply mixes shapes that ask for different edits ({named(one)}, {named(other)})",
        advice="give all edits in one JSON object and nothing else",
    )


def _meant(proposal: PatchProposal) -> PatchProposal | ParseFailure:
    """Drop the edits of a quoted example, and exact repetitions of an edit."""
    meant = [edit for edit in dict.fromkeys(proposal.edits) if not _is_example(edit)]
    if not meant and proposal.edits:
        path = proposal.edits[0].path
        return ParseFailure(
            "no-edit",
            f"the only edits are the placeholders of an example ({path[:80]!r})",
            advice="give real paths and real code",
        )
    return replace(proposal, edits=tuple(meant)) if len(meant) < len(proposal.edits) else proposal


def _is_example(edit: Edit) -> bool:
    if not is_placeholder_path(edit.path):
        return False
    match edit:
        case SearchReplace(search=search, replace=new):
            return says_nothing(search) or says_nothing(new)
        case ReplaceSymbol(replace=new):
            return says_nothing(new)
        case CreateFile(content=content):
            return says_nothing(content)
        case _:
            return True


# ---------------------------------------------------------------------------------------- failures


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


def _unreadable(reply: Reply, result: Scan, wanted: str) -> ParseFailure:
    if result.faults:
        return fault_trouble(reply, result.faults[0]).failure
    if reply.cut_off:
        return truncated(f"the reply was cut off at the output limit before {wanted} was complete")
    other = next((found.value for found in result.others if isinstance(found.value, dict)), None)
    if other is not None and other.get("missing") and "action" not in other:
        request = to_proposal({**other, "edits": []}, "json")  # an empty list may be left out
        if isinstance(request, ParseFailure):
            return request
    if other is not None:
        keys = ", ".join(repr(key[:40]) for key in list(other)[:8]) or "no key"
        key = wanted.rsplit('"', 2)[1]
        return ParseFailure("schema", f"{key}: missing (the object has {keys})")
    begin = " ".join(reply.text.split(maxsplit=12)[:12])[:SHOWN]
    what = f"the reply does not hold {wanted}; it begins {begin!r}"
    return ParseFailure("malformed", what, advice="answer with it alone")
