"""Which instance a node is given next."""

from __future__ import annotations

from benchmarks.scale.waiting import Waiting


def test_in_order_every_node_takes_what_comes() -> None:
    waiting = Waiting([3, 1, 3], affinity=False)

    assert [waiting.take(node) for node in (0, 1, 0, 1)] == [3, 1, 3, None]


def test_a_node_goes_on_with_its_project_then_helps_where_most_waits() -> None:
    waiting = Waiting([1, 2, 2, 2, 1], affinity=True)

    assert waiting.take(0) == 2  # most wait of it
    assert waiting.take(1) == 1  # 2 waiting by one node against 2 by none
    assert waiting.take(0) == 2
    assert waiting.take(1) == 1
    assert waiting.take(1) == 2
    assert waiting.take(0) is None
