"""The Ray engine on scripted nodes: where jobs go, and what is written before it is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agent.batch.messages import Answer, AttemptEnded, Paid, SolveJob, WorkerReport, encode_line
from agent.batch.ray import ray_engine
from agent.batch.ray.cluster import Cluster, ClusterNode, NodeLost
from agent.batch.ray.node import AttemptFiles, NodeSetup
from agent.batch.ray.ray_engine import RayEngine, make_setup, shipped_flags
from agent.batch.ray.repository_transfer import Pack
from agent.errors import Status
from agent.settings import load
from tests.support.batch import make_job
from tests.support.evaluation import bare_repository

LINE = '{"a":1}\n'
PAID = Paid(sha256="a", cost_usd=0.5, input_tokens=1, output_tokens=1, exchange=LINE)
ENDED = AttemptEnded(status=Status.ACCEPTED, blame="none", message="")
SETUP = NodeSetup(
    key="k", environment={}, unset=(), job_seconds=10.0, call_seconds=1.0, slot_seconds=9.0
)


class FakeNode:
    """A node that sends `lines`; NodeLost in their midst is raised."""

    def __init__(self, identity: str, cores: float, lines: list[Any], *, here: bool = True) -> None:
        self.identity = self.address = identity
        self.cores, self.running, self.here = cores, 0, here
        self.projects: set[str] = set()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.log: list[object] = []
        self._lines = lines

    async def find(self, job: SolveJob, commit: str) -> tuple[str, list[str]]:
        return ("/there" if self.here else "", [])

    async def receive(self, project: str, commit: str, pack: Pack) -> tuple[str, str]:
        self.log.append((project, pack.data[:4]))
        return "/copy", ""

    async def run(self, job: SolveJob, recording: bytes) -> AsyncIterator[bytes]:
        self.log.append((job.task.instance_id, job.repository, recording))
        for line in self._lines:
            await asyncio.sleep(0.01)
            if isinstance(line, NodeLost):
                self.gone.cancel()
                raise line
            yield encode_line(line)

    def answer(self, job: SolveJob, answer: Answer) -> None:
        self.log.append(answer.granted)

    async def close(self, seconds: float) -> None: ...

    async def clear(self) -> None:
        self.log.append("cleared")

    def kill(self) -> None: ...


class FakeHandler:
    def __init__(self, hear: Callable[[WorkerReport], Answer | None]) -> None:
        self._hear = hear
        self.left: list[str] = []

    async def handle(self, job: SolveJob, report: WorkerReport) -> Answer | None:
        return self._hear(report)

    async def worker_exited(self, job: SolveJob) -> None:
        self.left.append(job.task.instance_id)


def run(
    tmp_path: Path,
    nodes: Callable[[], list[FakeNode]],
    *,
    jobs: int = 1,
    hear: Callable[[WorkerReport], Answer | None] = lambda _: None,
) -> tuple[list[AttemptEnded], list[FakeNode]]:
    commit = bare_repository(tmp_path / "repos")

    async def go() -> tuple[list[AttemptEnded], list[FakeNode]]:
        engine = RayEngine(FakeHandler(hear), Cluster(), SETUP, {"embed": "off"}, lambda _: None)
        found = nodes()
        engine._nodes = {node.identity: cast("ClusterNode", node) for node in found}
        for number in range(1, jobs + 1):
            job = make_job(number, tmp_path / str(number))
            task = job.task.model_copy(update={"base_commit": commit})
            repository = str(tmp_path / "repos" / "owner__shop.git")
            engine.submit(job.model_copy(update={"task": task, "repository": repository}))
        try:
            return [ended async for _, ended in engine.as_completed()], found
        except OSError as error:
            message = str(error)
            return [ENDED.model_copy(update={"message": message})], found

    return asyncio.run(asyncio.wait_for(go(), 60))


def parcel(**files: str) -> AttemptFiles:
    return AttemptFiles(ended=ENDED, files=files)


def test_a_reply_is_on_this_disk_before_it_is_answered(tmp_path: Path) -> None:
    seen = []

    def hear(report: WorkerReport) -> None:
        seen.append((tmp_path / "1/exchanges.jsonl").read_text())

    (ended,), (node,) = run(tmp_path, lambda: [FakeNode("a", 1, [PAID, parcel()])], hear=hear)
    assert (ended, seen) == (ENDED, [LINE])
    assert node.log == [("owner__shop-1", "/there", b""), True, "cleared"]


def test_what_cannot_be_kept_here_stays_on_the_node(tmp_path: Path) -> None:
    def full(_: WorkerReport) -> None:
        raise OSError(28, "No space left on device")

    (ended,), (node,) = run(tmp_path, lambda: [FakeNode("a", 1, [PAID, parcel()])], hear=full)
    assert "No space left" in ended.message
    assert node.log == [("owner__shop-1", "/there", b"")]  # no answer, nothing cleared


def test_jobs_go_where_cores_have_least_to_do(tmp_path: Path) -> None:
    _, (small, large) = run(
        tmp_path, lambda: [FakeNode("a", 1, [parcel()]), FakeNode("b", 3, [parcel()])], jobs=4
    )
    assert [len([x for x in node.log if isinstance(x, tuple)]) for node in (small, large)] == [1, 3]


def test_a_busy_node_keeps_to_its_projects_up_to_half_a_job_a_core() -> None:
    async def chosen(running: int, *, idle: int) -> str:
        engine = RayEngine(FakeHandler(lambda _: None), Cluster(), SETUP, {}, lambda _: None)
        has, has_not = FakeNode("has", 4, []), FakeNode("has-not", 4, [])
        has.projects.add("owner/shop")
        has.running, has_not.running = running, idle
        engine._nodes = {n.identity: cast("ClusterNode", n) for n in (has_not, has)}
        node = await engine._choose_node("owner/shop")
        return node.identity if node else ""

    assert asyncio.run(chosen(9, idle=8)) == "has"
    assert asyncio.run(chosen(11, idle=8)) == "has-not"
    assert asyncio.run(chosen(4, idle=3)) == "has-not"  # a core has nothing to do


def test_a_repository_is_sent_to_a_node_that_lacks_it(tmp_path: Path) -> None:
    _, (node,) = run(tmp_path, lambda: [FakeNode("a", 1, [parcel()], here=False)])
    assert node.log[:2] == [("owner/shop", b"PACK"), ("owner__shop-1", "/copy", b"")]


def test_a_lost_node_is_no_fault_of_the_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_NODE_SECONDS", 0.1)
    lost = NodeLost("it was switched off")
    (first, second), _ = run(tmp_path, lambda: [FakeNode("a", 1, [PAID, lost])], jobs=2)
    assert {first.blame, second.blame} == {"environment"}
    assert first.message == "node a has failed: it was switched off"
    assert (tmp_path / "1/exchanges.jsonl").read_text() == LINE


def test_nodes_get_the_same_settings_and_keys_go_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHSHOT_API_KEY", "s3cret")
    monkeypatch.setenv("PATCHSHOT_MAX_CALLS", "7")
    monkeypatch.setenv("OPENAI_API_KEY", "0ther")
    given = {"without": ["history"], "embed": "off", "python": "/usr/bin/python3"}
    settings = load(given)
    flags, setup = shipped_flags(settings, given), make_setup(tmp_path, settings, 9.0, 9.0)
    assert "s3cret" not in str(flags)
    keys = ("PATCHSHOT_API_KEY", "OPENAI_API_KEY")
    assert [setup.environment[name] for name in keys] == ["s3cret", "0ther"]
    assert "ANTHROPIC_API_KEY" in setup.unset
    assert make_setup(tmp_path, settings, 9.0, 9.0).key == setup.key
    monkeypatch.delenv("PATCHSHOT_MAX_CALLS")
    monkeypatch.setenv("PATCHSHOT_CONTEXT_TOKENS", "999")
    assert load(flags) == settings
