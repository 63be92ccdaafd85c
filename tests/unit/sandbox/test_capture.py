from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.capture import Capture, HeadCapture


@given(st.lists(st.binary(max_size=50)), st.integers(min_value=1, max_value=60))
def test_head_and_tail_of_any_stream_are_kept(pieces: list[bytes], limit: int) -> None:
    capture = Capture(limit)
    for piece in pieces:
        capture.feed(piece)
    whole = b"".join(pieces)
    head, tail = whole[: limit // 2], whole[len(whole) - (limit - limit // 2) :]
    gap = f"\n[{len(whole) - limit} bytes cut]\n".encode()
    assert capture.total == len(whole)
    assert capture.value() == (whole if len(whole) <= limit else head + gap + tail)


def test_memory_is_bounded_while_reading() -> None:
    capture = Capture(1000)
    for _ in range(1000):
        capture.feed(b"x" * 1000)
    assert len(capture._head) + len(capture._tail) <= 2500


@given(st.lists(st.binary(max_size=50)), st.integers(min_value=0, max_value=60))
def test_only_the_head_is_kept_and_the_rest_counted(pieces: list[bytes], limit: int) -> None:
    capture = HeadCapture(limit)
    for piece in pieces:
        capture.feed(piece)
    whole = b"".join(pieces)
    assert capture.value() == whole[:limit]
    assert (capture.total, capture.dropped) == (len(whole), max(0, len(whole) - limit))
