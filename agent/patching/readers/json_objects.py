"""JSON: the object with "edits" that the prompt asks for, alone, in a code fence or in prose."""

from __future__ import annotations

from agent.patching.readers.reply import SHOWN, Outcome, Reading, Reply, Trouble, truncated
from agent.patching.schema import to_proposal
from agent.patching.tolerant_json import Fault, Found, Scan
from agent.types import ParseFailure


def read_json(reply: Reply) -> Outcome:
    """Read the one object with "edits"."""
    chosen = choose(reply, reply.json)
    if not isinstance(chosen, Found):
        return chosen
    name = "json-lenient" if chosen.lenient else "json"
    proposal = to_proposal(chosen.value, name, reply.earlier)
    span = (chosen.start, chosen.end)
    if isinstance(proposal, ParseFailure):
        return Trouble(proposal, (span,))
    return Reading(proposal, (span,))


def choose(reply: Reply, result: Scan) -> Found | Trouble | None:
    """Return the one object that is meant. Broken or competing objects fail the reply."""
    if result.ours is not None:
        return fault_trouble(reply, result.ours)
    meaningful = [one for one in result.objects if one.value.get("edits") != []]
    rivals = [one for one in meaningful[1:] if one.value != meaningful[0].value]
    if not rivals:
        return next(iter([*meaningful, *result.objects]), None)
    lines = ", ".join(str(reply.line(one.start)) for one in [meaningful[0], *rivals][:5])
    failure = ParseFailure(
        "malformed",
        f"the reply holds several different JSON objects (at lines {lines})",
        advice="give exactly one that has everything",
    )
    return Trouble(failure, ((meaningful[0].start, rivals[-1].end),))


def fault_trouble(reply: Reply, fault: Fault) -> Trouble:
    """Turn a broken object into a failure: cut off, or malformed and where."""
    place = reply.place(fault.offset)
    span = (fault.start, max(fault.reached, fault.start + 1))
    if fault.truncated:
        return Trouble(truncated(f"{fault.message} ({place})"), (span,))
    first = max(0, fault.offset - SHOWN // 2)
    near = repr(reply.text[first : first + SHOWN])
    what = f"not valid JSON at {place} (near {near}): {fault.message}"
    return Trouble(ParseFailure("malformed", what), (span,))
