"""The ranking that a plan makes of the issue's, from its chunks and from new ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from agent.search.plans.grounding import Grounded, numbers_of
from agent.search.plans.planner import PlanWidener, read_plans, widened
from agent.search.plans.search import ScoredPlan
from agent.types import Ranking
from tests.support.fakes import EventLog, MemorySnapshot
from tests.support.planning import FILES, PROBLEM, make_planner, make_queries, rank
from tests.support.scripted_model import ScriptedChatModel
from tests.unit.search.plans.test_asking import bundle

SNAPSHOT = MemorySnapshot(FILES)


def symbols(ranking: Ranking) -> list[str]:
    return [scored.chunk.symbol for scored in ranking.chunks]


def widen(ranking: Ranking, *names: str) -> Ranking:
    corpus = make_queries().corpus
    pieces = [corpus.symbols.index(name) for name in names]
    (plan,) = read_plans('{"plans": ["x"]}')
    grounded = (Grounded(plan.intents[0], tuple(pieces), 1.0, 1.0),) if pieces else ()
    return widened(
        ranking, numbers_of(ranking, corpus), ScoredPlan(plan, grounded), corpus, SNAPSHOT
    )


def test_without_hits_the_order_is_the_issues() -> None:
    assert symbols(widen(rank())) == symbols(rank())


def test_hits_of_a_plan_move_up_and_say_why() -> None:
    before, after = rank(), widen(rank(), "read_config")
    assert symbols(before)[0] != "read_config"
    first = after.chunks[0]
    assert first.chunk.symbol == "read_config"
    assert [reason.feature for reason in first.reasons] == ["issue", "plan"]
    assert sum(reason.value for reason in first.reasons) == first.score
    assert sorted(symbols(before)) == sorted(symbols(after))


def test_what_the_issue_did_not_rank_joins_by_the_plan() -> None:
    short = replace(rank(), chunks=rank().chunks[:2])
    after = widen(short, "read_config")
    assert len(after.chunks) == 3
    joined = next(s for s in after.chunks if s.chunk.symbol == "read_config")
    assert joined.chunk in [scored.chunk for scored in rank().chunks]


def test_chunks_that_the_corpus_lacks_stay_last() -> None:
    lost = replace(rank().chunks[0], chunk=replace(rank().chunks[0].chunk, start=99, end=99))
    after = widen(replace(rank(), chunks=(lost, *rank().chunks[1:])), "read_config")
    assert after.chunks[-1].chunk == lost.chunk


def test_search_is_deterministic_and_total() -> None:
    planner = make_planner()
    first = asyncio.run(planner.plan(PROBLEM, SNAPSHOT, rank()))
    assert first == asyncio.run(planner.plan(PROBLEM, SNAPSHOT, rank()))
    keys = [(-s.score, s.chunk.path, s.chunk.start) for s in first.ranking.chunks]
    assert keys == sorted(set(keys))
    assert 0 < first.rankings <= 40


def test_what_a_reply_lacked_is_part_of_the_plan() -> None:
    planner = make_planner(expansions=0)
    told = asyncio.run(planner.plan(PROBLEM, SNAPSHOT, rank(), told=["read_config"]))
    assert told.winner.plan.intents[0].query == "read_config"


def test_steps_that_found_no_code_are_not_shown() -> None:
    planner = make_planner(expansions=0)
    planned = asyncio.run(planner.plan(PROBLEM, SNAPSHOT, rank(), told=["zzz"]))
    assert planned.winner.plan.intents[0].query == "zzz"
    shown = [step.intent for step in planned.steps]
    assert shown == [intent.text for intent in planned.winner.plan.intents[1:]]


def test_the_widener_notes_what_it_did() -> None:
    log = EventLog()
    widener = PlanWidener(make_planner(calls=1), ScriptedChatModel(["no plan"]), log)
    ranking = asyncio.run(widener.widen(PROBLEM, SNAPSHOT, rank(), bundle(), ()))
    assert ranking.notes[-1].startswith("context widened by a plan of")
    assert "held no plan" in log.events[0].message  # type: ignore[union-attr]
