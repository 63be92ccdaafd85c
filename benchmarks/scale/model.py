"""One run of many instances on many machines, as processes of `engine`. All times in seconds.

What an instance does is what `agent batch` does: a worker starts, the project is cloned and
indexed once a node (others of the project wait), chunks are ranked and packed, leave for the call
is written to the driver's journal, the call waits for its turn at the provider, tests run on the
node's cores, some instances call again. Processor time is served core by core, in order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import accumulate

from benchmarks.scale.engine import Gate, Pacer, Pool, Process, Simulation
from benchmarks.scale.inputs import Stages
from benchmarks.scale.waiting import Waiting

_SEED = 20261121


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines, and what the provider allows (0: no limit), the whole run's limits included.

    `shared_index`: the first node that indexes a project does it for all. `network` is what the
    driver's machine sends of repositories, megabytes a second. `affinity`: see `waiting`.
    """

    nodes: int = 100
    cores: int = 4
    workers: int = 8
    requests_a_minute: float = 0.0
    tokens_a_minute: float = 0.0
    network: float = 1_000.0
    shared_index: bool = True
    affinity: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """The instances and the provider's manners.

    `zipf` is the exponent of the projects' popularity. `latency` is the median of a call and
    `spread` the standard deviation of its logarithm; `refused` of the calls end with 429 and
    `lost` with nothing until `timeout`.
    """

    instances: int = 10_000
    projects: int = 200
    zipf: float = 1.0
    latency: float = 25.0
    spread: float = 0.6
    refused: float = 0.01
    lost: float = 0.002
    timeout: float = 300.0


@dataclass(slots=True)
class Tally:
    """What a run counted. `ends` are the seconds of the instances from their start to their end.

    `shares` are of the time until most instances had ended: in the tail after it all is idle.
    """

    ends: list[float] = field(default_factory=list)
    calls: int = 0
    retries: int = 0
    cost_usd: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)


_BACK_OFF = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds before a try after a refusal; the last one repeats. As `agent.llm.server`, no jitter."""

_MEGABYTE = 1e6
_BULK = 0.9  # of the instances


class World:
    """Resources and processes of one run; `run` gives the makespan."""

    def __init__(self, cluster: Cluster, load: Load, stages: Stages, seed: int = _SEED) -> None:
        self.clock = clock = Simulation()
        self.cluster, self.load, self.stages, self.tally = cluster, load, stages, Tally()
        self._seed, self._begun = seed, 0
        self.cores = [Pool(clock, cluster.cores) for _ in range(cluster.nodes)]
        self.network = Pool(clock, 1)
        self.driver = Pool(clock, 1)
        self.requests = Pacer(clock, cluster.requests_a_minute / 60)
        self.tokens = Pacer(clock, cluster.tokens_a_minute / 60)
        self._clones: dict[tuple[int, int], Gate] = {}
        self._indexes: dict[tuple[int, int], Gate] = {}
        self._waiting = Waiting(self._projects(), affinity=cluster.affinity)
        self._most = max(1, int(_BULK * load.instances))

    def run(self) -> float:
        """Run everything; seconds until the last instance has ended."""
        for _ in range(self.cluster.workers):
            for node in range(self.cluster.nodes):
                self.clock.start(self._worker(node))
        return self.clock.run()

    def _projects(self) -> list[int]:
        """The project of each instance: popularity falls as 1 / rank ** zipf."""
        weights = accumulate(rank**-self.load.zipf for rank in range(1, self.load.projects + 1))
        return random.Random(self._seed).choices(
            range(self.load.projects), cum_weights=list(weights), k=self.load.instances
        )

    def _chance(self) -> random.Random:
        """Of the next instance alone: what is varied elsewhere does not change its luck."""
        self._begun += 1
        return random.Random(self._seed + self._begun)

    def _shares(self) -> dict[str, float]:
        """How busy each resource was until now."""
        seconds = self.clock.now
        places = len(self.cores) * self.cluster.cores
        return {
            "cores": sum(pool.busy for pool in self.cores) / (places * seconds) if seconds else 0.0,
            "network": self.network.share_of(seconds),
            "driver": self.driver.share_of(seconds),
            "requests": self.requests.share_of(seconds),
            "tokens": self.tokens.share_of(seconds),
        }

    # ------------------------------------------------------------------------------- an instance

    def _worker(self, node: int) -> Process:
        while (project := self._waiting.take(node)) is not None:
            started = self.clock.now
            yield from self._instance(node, project, self._chance())
            self.tally.ends.append(self.clock.now - started)
            if len(self.tally.ends) == self._most:
                self.tally.shares = self._shares()

    def _instance(self, node: int, project: int, chance: random.Random) -> Process:
        stages, cpu = self.stages, self.cores[node]
        again = chance.random() < stages.repair_share
        steps = stages.iterative_steps if chance.random() < stages.iterative_share else 0
        yield from self.driver.use(stages.journal)  # started
        yield from cpu.use(_one(stages.start, chance))
        yield from self._clone(node, project)
        yield from self._index(node, project, chance)
        yield from cpu.use(_one(stages.retrieve, chance))
        yield from self._turn(node, stages.input_tokens, chance)
        if again:
            yield from self._turn(node, 2 * stages.input_tokens, chance)
            for step in range(steps):
                yield from self._call(stages.input_tokens * (1 + step // 2), chance)
                yield from cpu.use(_one(stages.step, chance))
        yield from self.driver.use(stages.journal + stages.report)  # finished, predictions

    def _turn(self, node: int, tokens: int, chance: random.Random) -> Process:
        """A call, and its patch on trial: the runs take places of the node's cores at once."""
        yield from self._call(tokens, chance)
        runs, left = Gate(self.clock), [self.stages.runs_at_once]
        seconds = _one(self.stages.validate, chance) / left[0]

        def one() -> Process:
            yield from self.cores[node].use(seconds)
            left[0] -= 1
            if not left[0]:
                runs.open()

        for _ in range(left[0]):
            self.clock.start(one())
        yield runs.wait

    # --------------------------------------------------------------------------------- its parts

    def _clone(self, node: int, project: int) -> Process:
        """Ship the project's repository to the node, once."""
        gate = self._clones.setdefault((node, project), Gate(self.clock))
        if gate.first():
            yield from self.network.use(
                self.stages.repository_bytes / _MEGABYTE / self.cluster.network
            )
            gate.open()
        yield gate.wait

    def _index(self, node: int, project: int, chance: random.Random) -> Process:
        """A cold index where nobody has made one yet."""
        owner = 0 if self.cluster.shared_index else 1 + node
        gate = self._indexes.setdefault((owner, project), Gate(self.clock))
        if gate.first():
            yield from self.cores[node].use(_one(self.stages.cold, chance))
            gate.open()
        yield gate.wait

    def _call(self, tokens: int, chance: random.Random) -> Process:
        """Leave, turn, latency, reply. Refused and lost calls are tried again."""
        stages, load = self.stages, self.load
        yield from self.driver.use(stages.journal)  # granted
        for attempt in range(10 * len(_BACK_OFF)):
            yield max(self.requests.wait(), self.tokens.wait(float(tokens + stages.output_tokens)))
            self.tally.calls += 1
            fate = chance.random()
            if fate >= load.refused + load.lost:
                break
            self.tally.retries += 1
            yield load.timeout if fate < load.lost else 0.2
            yield _BACK_OFF[min(attempt, len(_BACK_OFF) - 1)]
        yield load.latency * chance.lognormvariate(0.0, load.spread)
        self.tally.cost_usd += stages.price(tokens)
        yield from self.driver.use(stages.journal)  # settled


def _one(samples: tuple[float, ...], chance: random.Random) -> float:
    """One of the measured times."""
    return samples[0] if len(samples) == 1 else chance.choice(samples)
