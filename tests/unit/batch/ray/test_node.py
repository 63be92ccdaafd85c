"""`agent.batch.ray.node`: one run on one node, without Ray: workers are scripted commands."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent.batch.local.worker_processes import CommandSpawner
from agent.batch.messages import Answer, Ask, AttemptEnded, Paid, StageDone
from agent.batch.ray.node import AttemptFiles, Node, NodeSetup, add_replies, parse, program_version
from agent.errors import Status
from agent.results import kept as files
from agent.shared.files import locked
from tests.support.batch import make_job
from tests.unit.batch.local.test_local_engine import BEGIN

A, B = b'{"a":1}\n', b'{"b":2}\n'


def setup(**other: object) -> NodeSetup:
    values = {
        "key": "k1", "environment": {}, "unset": (), "job_seconds": 20.0, "call_seconds": 5.0,
        "slot_seconds": 9.0,
    }  # fmt: skip
    return NodeSetup.model_validate({**values, **other})


def node_of(script: str) -> Node:
    return Node(CommandSpawner((sys.executable, "-c", f"{BEGIN}\n{script}")))


def begun(
    script: str, do: Callable[[Node], Awaitable[None]], told: NodeSetup | None = None
) -> None:
    async def go() -> None:
        node = node_of(script)
        await node.begin((told or setup()).model_dump_json())
        try:
            await do(node)
        finally:
            await node.close()
            await node.clear()

    asyncio.run(asyncio.wait_for(go(), 40))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_reports_go_out_answers_come_in_and_files_come_last(cache: Path) -> None:
    script = (
        "import pathlib; f = pathlib.Path(job['folder'])\n"
        "assert (f / 'exchanges.jsonl').read_text() == '{\"a\":1}\\n' and job['remote']\n"
        "say(kind='ask', sha256='a', worst_usd=0.5); json.loads(sys.stdin.readline())\n"
        "say(kind='paid', sha256='a', cost_usd=None, input_tokens=1, output_tokens=1, "
        "exchange='x')\n"
        "answer = json.loads(sys.stdin.readline())\n"
        "(f / 'result.json').write_text('{}'); (f / 'stranger').write_text('no')\n"
        "(f / 'prompts').mkdir(); (f / 'prompts' / '001.md').write_text('p')\n"
        "say(kind='stage', stage='call', seconds=1, summary=answer['reason']); end()"
    )

    async def do(node: Node) -> None:
        job, heard = make_job(), []
        async for line in node.run(job.model_dump_json(), A):
            heard.append(parse(line))
            if isinstance(heard[-1], Ask | Paid):
                answer = Answer(granted=True, reason="as you like")
                await node.answer(job.task.instance_id, 1, answer.model_dump_json())
        assert [type(message) for message in heard] == [Ask, Paid, StageDone, AttemptFiles]
        stage, parcel = heard[2], heard[3]
        assert isinstance(stage, StageDone)
        assert isinstance(parcel, AttemptFiles)
        assert stage.summary == "as you like"
        names = list(parcel.contents())
        assert names == ["exchanges.jsonl", "log.txt", "prompts/001.md", "result.json"]
        assert parcel.ended.message == "owner__shop-1"

    begun(script, do)
    assert not (cache / "nodes/k1").exists()


def test_a_worker_that_dies_comes_out_as_a_crash() -> None:
    async def do(node: Node) -> None:
        (line,) = [line async for line in node.run(make_job().model_dump_json(), b"")]
        parcel = parse(line)
        assert isinstance(parcel, AttemptFiles)
        assert (parcel.ended.blame, parcel.ended.status) == ("crash", Status.CRASHED)

    begun("os.abort()", do)


def test_names_that_are_not_ours_are_left_out() -> None:
    ended = AttemptEnded(status=Status.ACCEPTED, blame="none", message="")
    strange = ("../up", "/etc/passwd", "prompts/../x.md", "result.json2", "lock")
    assert not AttemptFiles(ended=ended, files=dict.fromkeys(strange, "")).contents()


def test_the_recording_of_a_driver_that_was_killed_is_waited_for(cache: Path) -> None:
    folder = cache / "nodes/k1/instances/x"
    folder.mkdir(parents=True)
    (folder / files.EXCHANGES).write_bytes(A)

    async def do(node: Node) -> None:
        with locked(folder / files.LOCK):
            waiting = asyncio.create_task(node.left_behind())
            await asyncio.sleep(0.5)
            assert not waiting.done()
            (folder / files.EXCHANGES).write_bytes(A + B)
        assert await waiting == [("x", A + B)]

    begun("", do)


def test_settings_are_the_drivers_but_places_are_the_nodes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHSHOT_MODEL", "of the node")
    monkeypatch.setenv("OPENAI_API_KEY", "of the node")
    monkeypatch.setenv("PATCHSHOT_API_KEY", "of the node")

    async def do(_: Node) -> None:
        assert "PATCHSHOT_MODEL" not in os.environ
        assert "OPENAI_API_KEY" not in os.environ
        assert os.environ["PATCHSHOT_API_KEY"] == "of the driver"
        assert os.environ["PATCHSHOT_CACHE_DIR"] == str(cache)

    told = setup(environment={"PATCHSHOT_API_KEY": "of the driver"}, unset=("OPENAI_API_KEY",))
    begun("", do, told)


def test_a_recording_gets_what_it_lacks(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    assert add_replies(recording, A + B) == 2
    assert add_replies(recording, A + B + B + b"torn") == 1
    assert add_replies(recording, A, repeated=True) == 1
    assert recording.read_bytes() == A + B + B + A


def test_the_version_is_the_same_twice_and_names_everything() -> None:
    assert program_version() == program_version()
    assert all(name in program_version() for name in ("patchshot", "Python", "Ray"))
