"""A worker with several samples, at the driver's end of its pipes."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest

from agent.batch.journal import Journal
from agent.batch.messages import REPORTS, Answer, Paid, encode_line
from agent.batch.shared_budget import Bounds, SharedBudget
from agent.batch.worker import DriverPipe
from agent.llm.recording import ChatExchange, ChatReply, ChatRequest, RecordedUsage
from agent.types import Usage
from tests.support.batch import make_job


@pytest.mark.parametrize("remote", [False, True])
def test_a_sample_that_waits_for_money_lets_the_other_report_its_payment(
    tmp_path: Path, remote: bool
) -> None:
    """The driver hears one message of a worker at a time, as both engines do."""
    exchange = ChatExchange(
        sha256="a" * 64,
        request=ChatRequest(model="m", messages=(), max_output_tokens=1),
        reply=ChatReply(
            text="{}",
            model="m",
            finish_reason="stop",
            usage=RecordedUsage(input_tokens=1, output_tokens=1, cost_usd=0.1, calls=1),
        ),
        seconds=0.1,
    )

    async def serve(source: asyncio.StreamReader, answers: asyncio.StreamReader) -> None:
        with closing(Journal(tmp_path / "journal.jsonl")) as journal:
            budget = SharedBudget(journal, Bounds(total_cost=1.0))
            while line := await source.readline():
                report = REPORTS.validate_json(line)
                answer = await budget.handle(make_job(), report)
                if isinstance(report, Paid) and remote:
                    answer = Answer(granted=True)
                if answer is not None:
                    answers.feed_data(encode_line(answer))

    async def go() -> tuple[str, str]:
        ours, theirs = os.pipe()
        source, answers = asyncio.StreamReader(), asyncio.StreamReader()
        with os.fdopen(ours, "rb") as end:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(source), end
            )
            pipe = DriverPipe(BytesIO(), theirs, remote=remote)
            tasks = [
                asyncio.create_task(serve(source, answers)),
                asyncio.create_task(pipe.listen(answers)),
            ]
            first = await pipe.ask("a" * 64, 0.8)
            second = asyncio.create_task(pipe.ask("b" * 64, 0.8))
            await asyncio.sleep(0.05)
            assert not second.done()
            await pipe.paid(exchange, Usage(1, 1, 0.1, 1))
            answered = first, await second
            os.close(theirs)
            await tasks[0]
            tasks[1].cancel()
            transport.close()
        return answered

    assert asyncio.run(asyncio.wait_for(go(), 10)) == ("", "")
