"""What goes wrong between `agent solve` and its model, and how the run must end.

The table is used twice: on a small synthetic repository and on a real project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.errors import Status
from tests.support.behaviours import (
    DropConnection,
    EmptyCompletion,
    Good,
    HtmlError,
    Malformed,
    RateLimited,
    SchemaRefused,
    Slow,
    Truncated,
    Unauthorized,
    UnknownModel,
    WrongPath,
)
from tests.support.scripted_provider import Step

# One repair call and no iterative mode: how many requests a case takes is then fixed.
_ONE_REPAIR = {"REPAIRS": "1", "MAX_STEPS": "0"}
_SLOW_SECONDS = 90.0  # longer than any case may take
_TIMEOUT = 8.0  # long enough to retrieve and to send the call, on a slow machine too


@dataclass(frozen=True, slots=True)
class Replies:
    """Replies that fit the repository at hand: the fix, and an edit that breaks its tests."""

    good: str
    breaking: str


@dataclass(frozen=True, slots=True)
class FaultCase:
    """A script and the end it must lead to. `requests` counts chat requests, refused ones too."""

    name: str
    script: Callable[[Replies], list[Step]]
    status: Status
    requests: int | None
    kinds: tuple[str, ...] = ()  # of the attempts that are reported
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=lambda: dict(_ONE_REPAIR))


_ONE, _TWO = ("one-shot",), ("one-shot", "repair")

FAULT_CASES: tuple[FaultCase, ...] = (
    FaultCase("good", lambda r: [Good(r.good)], Status.ACCEPTED, 1, _ONE),
    FaultCase(
        "malformed-then-good", lambda r: [Malformed(), Good(r.good)], Status.ACCEPTED, 2, _TWO
    ),
    FaultCase(
        "wrong-path-then-good", lambda r: [WrongPath(), Good(r.good)], Status.ACCEPTED, 2, _TWO
    ),
    FaultCase(
        "breaking-then-good", lambda r: [Good(r.breaking), Good(r.good)], Status.ACCEPTED, 2, _TWO
    ),
    FaultCase("always-malformed", lambda r: [Malformed()], Status.UNPARSEABLE, 2, _TWO),
    FaultCase(  # the repair continues the reply, and so do the two rounds for code
        "truncated", lambda r: [Truncated(r.good)], Status.UNPARSEABLE, 4, (*_TWO, *_TWO[1:] * 2)
    ),
    FaultCase("empty", lambda r: [EmptyCompletion()], Status.NO_EDIT, 2, _TWO),
    FaultCase("no-edits", lambda r: [Good('{"edits": []}')], Status.NO_EDIT, 2, _TWO),
    FaultCase("wrong-path", lambda r: [WrongPath()], Status.NOT_APPLIED, 2, _TWO),
    FaultCase("breaks-tests", lambda r: [Good(r.breaking)], Status.BROKEN, 2, _TWO),
    FaultCase(
        "slow",
        lambda r: [Slow(_SLOW_SECONDS, Good(r.good))],
        Status.TIME_LIMIT,
        1,
        arguments=("--timeout", f"{_TIMEOUT:g}"),
    ),
    FaultCase(
        "rate-limited-then-good", lambda r: [RateLimited(1), Good(r.good)], Status.ACCEPTED, 2, _ONE
    ),
    FaultCase(
        "dropped-then-good", lambda r: [DropConnection(), Good(r.good)], Status.ACCEPTED, 2, _ONE
    ),
    FaultCase("gateway-then-good", lambda r: [HtmlError(), Good(r.good)], Status.ACCEPTED, 2, _ONE),
    # The first call may ask for a schema or not; either way one good reply is all it takes.
    FaultCase(
        "schema-refused", lambda r: [SchemaRefused(Good(r.good))], Status.ACCEPTED, None, _ONE
    ),
    FaultCase("unauthorized", lambda r: [Unauthorized()], Status.PROVIDER, 1),
    FaultCase("unknown-model", lambda r: [UnknownModel()], Status.PROVIDER, 1),
    FaultCase(
        "no-call-left",
        lambda r: [Good(r.good)],
        Status.BUDGET,
        0,
        settings={**_ONE_REPAIR, "MAX_CALLS": "0"},
    ),
)


def case_id(case: FaultCase) -> str:
    """The name under which pytest lists a case."""
    return case.name
