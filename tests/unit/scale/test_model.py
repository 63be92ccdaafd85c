"""Whole simulated runs: countable ones to the second, and what moves when something is varied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.scale.__main__ import main
from benchmarks.scale.inputs import Stages
from benchmarks.scale.model import Cluster, Load, World
from benchmarks.scale.report import Case, simulate, table

PLAIN = Stages(
    start=(1.0,), cold=(4.0,), retrieve=(2.0,), validate=(6.0,), runs_at_once=2, journal=0.0,
    report=0.0, repository_bytes=0.0, repair_share=0.0,
)  # fmt: skip
CALM = Load(instances=12, projects=1, latency=10.0, spread=0.0, refused=0.0, lost=0.0)
ONE = Cluster(nodes=1, cores=2, workers=1)


def test_one_worker_does_one_after_the_other() -> None:
    found = simulate(ONE, CALM, PLAIN)

    # 1 start + 2 retrieve + 10 call + 6 / 2 trial, twelve times; the index once.
    assert found.makespan == pytest.approx(12 * 16.0 + 4.0)
    assert (found.calls, found.retries) == (12, 0)
    assert found.p50 == pytest.approx(16.0)


def test_two_workers_take_half_as_long_while_cores_are_free() -> None:
    found = simulate(replace(ONE, cores=8, workers=2), CALM, PLAIN)

    assert found.makespan == pytest.approx(6 * 16.0 + 4.0)  # both wait for the one index
    assert found.bottleneck == "workers"


def test_more_workers_than_the_cores_can_feed_make_the_cores_the_bottleneck() -> None:
    load = replace(CALM, instances=400)
    found = simulate(replace(ONE, workers=24), load, PLAIN)

    assert found.bottleneck == "cores"
    assert found.makespan >= 400 * 9.0 / 2  # 9 core-seconds an instance on two cores
    assert found.shares["cores"] > 0.95


def test_a_limit_of_requests_is_never_passed_and_becomes_the_bottleneck() -> None:
    load = replace(CALM, instances=200)
    cluster = Cluster(nodes=50, cores=4, workers=4, requests_a_minute=20)
    found = simulate(cluster, load, PLAIN)

    assert found.bottleneck == "requests"
    assert found.makespan >= 199 * 3.0


def test_a_limit_of_tokens_counts_both_directions() -> None:
    stages = replace(PLAIN, input_tokens=7_000, output_tokens=3_000)
    found = simulate(replace(ONE, workers=50, cores=64, tokens_a_minute=60_000), CALM, stages)

    assert found.makespan >= 11 * 10.0
    assert found.bottleneck == "tokens"


def test_without_a_shared_index_every_node_makes_its_own() -> None:
    cluster = Cluster(nodes=6, cores=2, workers=1)
    busy = []
    for shared in (True, False):
        world = World(replace(cluster, shared_index=shared), CALM, PLAIN)
        world.run()
        busy.append(sum(pool.busy for pool in world.cores))

    assert busy[1] - busy[0] == pytest.approx(5 * 4.0)


def test_a_node_that_keeps_to_its_projects_is_sent_fewer_of_them() -> None:
    stages, load = replace(PLAIN, repository_bytes=1e9), replace(CALM, instances=200, projects=20)
    cluster = Cluster(nodes=10, cores=4, workers=2, network=100.0)
    sent = {}
    for affinity in (True, False):
        world = World(replace(cluster, affinity=affinity), load, stages)
        world.run()
        sent[affinity] = world.network.busy / 10.0  # seconds for each repository

    assert 20 <= sent[True] <= 40
    assert sent[False] > 2 * sent[True]


def test_refused_and_lost_calls_are_tried_again_and_paid_once() -> None:
    load = replace(CALM, instances=500, refused=0.2, lost=0.05)
    found = simulate(Cluster(nodes=10), load, PLAIN)

    assert found.calls == 500 + found.retries
    assert found.retries / found.calls == pytest.approx(0.25, abs=0.04)
    assert found.cost_usd == pytest.approx(500 * PLAIN.price(PLAIN.input_tokens))


def test_repairs_and_steps_call_again() -> None:
    stages = replace(PLAIN, repair_share=1.0, iterative_share=1.0, iterative_steps=3)

    assert simulate(ONE, CALM, stages).calls == 12 * 5


def test_the_same_input_gives_the_same_bytes() -> None:
    case = Case("here", Cluster(nodes=5), Load(instances=300, projects=9), Stages())

    assert table("x", [case]) == table("x", [case])


def test_the_command_tells_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--instances", "50", "--nodes", "2", "--projects", "3"]) == 0

    said = capsys.readouterr().out
    assert "50 instances of 3 projects on 2 nodes" in said
    assert "held back by:" in said
