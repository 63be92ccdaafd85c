"""`agent batch --engine ray` on two real nodes: killed, interrupted and resumed, calls counted."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.batch_command import RIGHT, WRONG, Bench, Held
from tests.support.behaviours import ChatRequest, Step
from tests.support.ray_cluster import RayCluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400)]

MakeBench = Callable[[Sequence[Step]], Bench]


@dataclass(frozen=True)
class TwoReplies:
    """Every instance is first answered wrongly; the right answer waits for `go`."""

    go: threading.Event = field(default_factory=threading.Event)
    asked: Counter[str] = field(default_factory=Counter)  # by prompt

    def __call__(self, request: ChatRequest) -> str:
        self.asked[request.prompt] += 1
        if "no such text" not in request.prompt:
            return WRONG
        self.go.wait(200)
        return RIGHT

    def repairs(self) -> int:
        return sum(number for prompt, number in self.asked.items() if "no such text" in prompt)


def on(cluster: RayCluster, bench: Bench, *more: str) -> tuple[str, ...]:
    """The options of a run on the cluster; its settings are the driver's alone."""
    bench.variables |= cluster.environment
    return ("--engine", "ray", "--address", cluster.address, *more)


def test_a_node_that_dies_costs_what_was_under_way_and_nothing_that_was_paid(
    make_bench: MakeBench, ray_is_here: None
) -> None:
    script = TwoReplies()
    bench = make_bench([script])
    bench.rows(*map(bench.row, range(1, 11)))
    with RayCluster() as cluster:
        started = bench.begin(*on(cluster, bench, "--workers", "4"))
        started.wait_until(lambda: script.repairs() == 4)
        lost = cluster.second.jobs()
        assert lost >= 1
        cluster.second.kill()
        script.go.set()
        code, summary = bench.finish(started)
        assert code == 0, bench.stderr
        assert (summary["finished"], summary["accepted"], summary["replies"]) == (10, 10, 20)
        assert len(bench.predictions()) == 10
        assert len(script.asked) == 20
        again = {prompt: number for prompt, number in script.asked.items() if number > 1}
        assert list(again.values()) == [2] * lost
        assert all("no such text" in prompt for prompt in again)  # those that were under way
        assert cluster.head.jobs() == 0
    assert "127.0.0.3" in bench.stderr


def test_a_folder_that_a_node_does_not_share_is_refused(
    make_bench: MakeBench, ray_is_here: None
) -> None:
    bench = make_bench([RIGHT])
    with RayCluster("--tmpfs", str(bench.home / "repos")) as cluster:
        code, summary = bench.batch(*on(cluster, bench, "--workers", "3"))
    assert code == 2
    assert "has to be in a shared folder" in summary["message"]


def test_ctrl_c_twice_leaves_nothing_on_the_nodes(
    make_bench: MakeBench, cluster: RayCluster
) -> None:
    held = Held(RIGHT)
    bench = make_bench([held, RIGHT])
    started = bench.begin(*on(cluster, bench, "--workers", "2"))
    started.wait_until(lambda: bench.calls == 1)
    started.process.send_signal(signal.SIGINT)
    started.wait_for("once more to stop")
    started.process.send_signal(signal.SIGINT)
    code, summary = bench.finish(started)
    assert code == 130, bench.stderr
    assert summary["finished"] + summary["pending"] == 3
    deadline = time.monotonic() + 100
    while cluster.head.jobs() + cluster.second.jobs():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    held.go.set()
    assert bench.batch(*on(cluster, bench))[1]["finished"] == 3


def test_ray_and_keys_are_not_heard_of(make_bench: MakeBench, cluster: RayCluster) -> None:
    bench = make_bench([RIGHT])
    bench.variables["PATCHSHOT_API_KEY"] = "s3cret-of-the-driver"
    options = on(cluster, bench, "--id", "owner__shop-2")
    code, _ = bench.batch(*options, "--quiet")
    assert (code, bench.stderr) == (0, "")
    assert bench.provider.chats[0].headers["authorization"] == "Bearer s3cret-of-the-driver"
    for node in (cluster.head, cluster.second):
        logs = [path for path in node.folder.rglob("*") if path.is_file()]
        assert logs
        assert not [path for path in logs if b"s3cret-of-the-driver" in path.read_bytes()]


def test_another_version_on_a_node_is_refused(
    make_bench: MakeBench, ray_is_here: None, tmp_path: Path
) -> None:
    bench = make_bench([RIGHT])
    module = ROOT / "agent" / "__init__.py"
    other = tmp_path / "other.py"
    other.write_text(module.read_text() + "\n# another release\n")
    with RayCluster("--bind", str(other), str(module)) as cluster:
        code, _ = bench.batch(*on(cluster, bench))
    assert code == 2
    (line,) = bench.stderr.splitlines()
    assert line.startswith("agent: node 127.0.0.3 has patchshot ")
    assert bench.calls == 0
