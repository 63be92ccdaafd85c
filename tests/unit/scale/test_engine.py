"""The simulation against what is known without it: formulas of queues, countable runs."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from benchmarks.scale.engine import Gate, Pacer, Pool, Process, Simulation


def erlang_c(servers: int, load: float) -> float:
    """The chance that a customer of M/M/c has to wait (Erlang, 1917); `load` = rate * service."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last)


def queue(servers: int, use: float, seed: int, customers: int) -> tuple[float, float]:
    """The mean wait and the share of its places that were in use."""
    clock, chance = Simulation(), random.Random(seed)
    pool = Pool(clock, servers)

    def arrivals() -> Process:
        for _ in range(customers):
            yield chance.expovariate(use * servers)
            clock.start(pool.use(chance.expovariate(1.0)))

    clock.start(arrivals())
    seconds = clock.run()
    return pool.waited / customers, pool.share_of(seconds)


@pytest.mark.parametrize(("servers", "use"), [(1, 0.5), (3, 0.7), (8, 0.8)])
def test_the_mean_wait_of_m_m_c_is_erlangs(servers: int, use: float) -> None:
    # Of several runs: in one long run waits hang together, and the mean of it moves by a tenth.
    runs = [queue(servers, use, seed, 20_000) for seed in range(8)]

    expected = erlang_c(servers, use * servers) / (servers - use * servers)
    assert statistics.mean(wait for wait, _ in runs) == pytest.approx(expected, rel=0.06)
    assert statistics.mean(share for _, share in runs) == pytest.approx(use, rel=0.02)


def test_jobs_of_one_length_take_as_many_rounds_as_they_must() -> None:
    clock = Simulation()
    pool = Pool(clock, 4)
    for _ in range(10):
        clock.start(pool.use(3.0))

    assert clock.run() == 9.0  # 4, 4 and 2
    assert pool.busy == 30.0


def test_a_pool_serves_in_the_order_of_asking() -> None:
    clock, order = Simulation(), list[int]()
    pool = Pool(clock, 1)

    def job(number: int) -> Process:
        yield from pool.use(1.0)
        order.append(number)

    for number in range(5):
        clock.start(job(number))
    clock.run()

    assert order == [0, 1, 2, 3, 4]


def test_a_pacer_lets_units_out_at_even_distances_and_catches_up_on_nothing() -> None:
    clock = Simulation()
    pacer = Pacer(clock, rate=0.5)

    assert [pacer.wait(), pacer.wait(), pacer.wait(2.0), pacer.wait()] == [0.0, 2.0, 4.0, 8.0]
    clock.now = 100.0
    assert [pacer.wait(), pacer.wait()] == [0.0, 2.0]
    assert Pacer(clock, rate=0.0).wait(1e9) == 0.0


def test_a_gate_is_made_once_and_the_others_wait_for_it() -> None:
    clock, made, ends = Simulation(), list[float](), list[float]()
    gate = Gate(clock)

    def comer(after: float) -> Process:
        yield after
        if gate.first():
            yield 10.0
            made.append(clock.now)
            gate.open()
        yield gate.wait
        ends.append(clock.now)

    for after in (0.0, 1.0, 12.0):
        clock.start(comer(after))
    clock.run()

    assert (made, ends) == ([10.0], [10.0, 10.0, 12.0])
