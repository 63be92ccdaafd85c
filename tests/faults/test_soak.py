"""Thousands of calls of which one in ten fails: nothing is lost, nothing leaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.errors import Status
from tests.support.faults import Fault, FaultServer, Plan, always, at_random
from tests.support.faults_clients import RUN_ID
from tests.support.faults_dialects import KEY, Generation
from tests.support.soak import ADDED, FILES, REPLY, soak
from tests.support.solve_command import Solved, solve

# Beyond what a warm process needs: caches of the standard library grow a little for long.
_MEMORY_MB = 24.0
# At most so much for one command with all its tries; an idle machine takes two seconds.
_RUN_SECONDS = 60.0

LONG = [pytest.mark.soak, pytest.mark.timeout(3_600)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]


@pytest.mark.slow
@pytest.mark.parametrize(
    "solves", [pytest.param(80, id="short"), pytest.param(2_000, id="long", marks=LONG)]
)
def test_no_result_is_lost_and_nothing_leaks(solves: int) -> None:
    figures = soak(solves)
    print(figures)  # noqa: T201 - `make soak` shows it
    assert figures.solves == solves
    assert not figures.lost, "\n".join(figures.lost)
    assert figures.faults > 0.05 * figures.calls
    assert figures.warm is not None
    assert figures.end is not None
    assert figures.end.memory - figures.warm.memory < _MEMORY_MB
    assert figures.end.tasks == figures.warm.tasks == 0
    assert figures.end.sockets <= figures.warm.sockets + 16  # the servers close theirs a bit later
    assert figures.left_open == 0


@dataclass(frozen=True, slots=True)
class Case:
    """A server, the settings that name it, and the expected end of the run."""

    name: str
    status: Status
    plan: Callable[[int], Plan]  # from a seed
    variables: Mapping[str, str] = field(default_factory=dict)  # `{url}` is the server's
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    generation: Generation = "p3"


def _faults(seed: int) -> Plan:
    return at_random(0.1, seed)


# Nothing explicit: the usual variables of each provider choose it.
_UNSET = {"BASE_URL": "", "API_KEY": ""}
_MINER = {"SANDBOX_PROXY_URL": "{url}", "EVALUATION_RUN_ID": RUN_ID}

CASES = (
    Case("openai", Status.ACCEPTED, _faults),
    Case(
        "openai-by-its-own-variables",
        Status.ACCEPTED,
        _faults,
        {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": KEY},
        _UNSET,
    ),
    Case(
        "anthropic",
        Status.ACCEPTED,
        _faults,
        {"ANTHROPIC_BASE_URL": "{url}/v1", "ANTHROPIC_API_KEY": KEY},
        _UNSET,
    ),
    Case("miner-p3", Status.ACCEPTED, _faults, _MINER, _UNSET),
    Case(
        "miner-p1",
        Status.ACCEPTED,
        _faults,
        {"AI_PROXY_URL": "{url}", "RUN_ID": RUN_ID},
        _UNSET,
        generation="p1",
    ),
    Case("wrong-key", Status.PROVIDER, _faults, settings={"API_KEY": "sk-wrong-0123456789"}),
    Case("no-call-left", Status.BUDGET, _faults, settings={"MAX_CALLS": "0"}),
    Case("hanging", Status.TIME_LIMIT, lambda _: always(Fault.HANG), arguments=("--timeout", "5")),
    Case("empty", Status.NO_EDIT, lambda _: always(Fault.EMPTY)),
)
SHORT = ("anthropic", "miner-p3", "no-call-left")


def run(case: Case, seed: int, repository: Path, home: Path) -> Solved:
    problem = home / "issue.md"
    problem.write_text("# add subtracts\n\n`add(1, 2)` gives -1.\n", "utf-8")
    quick = {"ITERATIVE": "false", "REPAIRS": "0", "TESTS": "false", "ACCEPT_UNVERIFIED": "true"}
    with FaultServer(case.plan(seed), reply=lambda _: REPLY, generation=case.generation) as server:
        return solve(
            problem,
            repository,
            server,
            home=home,
            arguments=case.arguments,
            settings={**quick, "API_KEY": KEY, **case.settings},
            variables={k: v.format(url=server.url) for k, v in case.variables.items()},
            limit=_RUN_SECONDS,
        )


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(
    "rounds", [pytest.param(1, id="short"), pytest.param(4, id="long", marks=LONG)]
)
def test_runs_of_the_command_end_as_they_must(
    rounds: int, make_repository: MakeRepository, tmp_path: Path
) -> None:
    repository = make_repository(FILES)
    chosen = [case for case in CASES if rounds > 1 or case.name in SHORT]
    for number in range(rounds):
        for case in chosen:
            home = tmp_path / f"{case.name}-{number}"
            home.mkdir()
            solved = run(case, number, repository, home)
            told = f"{case.name}, round {number}: {solved.explain()}"
            assert (solved.result.status, solved.exit_code) == (
                case.status,
                case.status.exit_code,
            ), told
            assert (ADDED in solved.result.diff) == (case.status is Status.ACCEPTED), told
            assert KEY not in solved.stderr
