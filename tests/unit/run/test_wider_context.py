"""The context of the iterative mode: as before, more of the same ranking, or as a plan chooses."""

from __future__ import annotations

import json

from agent.errors import ContextTooLong, Status
from agent.retrieval.context.builder import PackingOptions
from agent.settings import HISTORY_TOKENS, WIDER_TOKENS
from tests.support import solving
from tests.support.scripted_model import Reply
from tests.support.solving import modules

FILES = modules(40)
NO_EDIT = json.dumps({"thought": "?", "edits": [], "missing": ["module_39.py:add_39"]})
FINISH = json.dumps({"action": "finish", "thought": "done"})


class Bench(solving.Bench):
    """One run: a first reply that edits nothing, then the iterative mode."""

    def __init__(self, *replies: Reply, history_tokens: int = HISTORY_TOKENS, rounds: int = 0):
        super().__init__(
            *(replies or (NO_EDIT, FINISH)),
            files=FILES,
            packing=PackingOptions(budget=3000),
            repairs=0,
            code_rounds=rounds,
            history_tokens=history_tokens,
        )

    @property
    def start(self) -> str:
        """What the iterative mode was shown first."""
        return self.chat.prompts[-1].messages[1].content


def shown(text: str) -> list[str]:
    return [path for path in FILES if f"### {path}" in text]


def test_the_iterative_mode_is_shown_more_of_the_same_ranking() -> None:
    bench = Bench()
    result = bench.solve()
    assert result.status is Status.NO_EDIT
    first = shown(bench.chat.prompts[0].messages[1].content)
    wider = shown(bench.start)
    assert wider[: len(first)] == first
    assert len(wider) > len(first)
    assert bench.ledger.bundle is not None
    assert bench.ledger.bundle.budget == int(WIDER_TOKENS * 0.85)
    assert result.receipt is not None
    assert "widened to 12,000 tokens for the iterative mode" in result.receipt.notes


def test_the_conversation_keeps_half_of_its_room() -> None:
    bench = Bench(history_tokens=8000)
    bench.solve()
    assert bench.ledger.bundle is not None
    assert bench.ledger.bundle.budget == int(4000 * 0.85)


def test_a_window_that_was_told_is_not_exceeded() -> None:
    too_long = ContextTooLong("the prompt is too long", limit=4000, counted=None)
    bench = Bench(too_long, NO_EDIT, FINISH)
    assert bench.solve().status is Status.NO_EDIT
    last = bench.chat.calls[-1]
    assert last.prompt.tokens + last.max_output_tokens <= 4000
