from __future__ import annotations

import io
import json
import struct

import pytest

from agent.retrieval.index.blocks import encode
from agent.retrieval.index.records import RecordBuilder
from agent.retrieval.index.worker import read_request, request_frames, serve
from agent.shared.workers import read_frame, write_frame

FILES = [("python", "def f():\n    pass\n"), ("text", "é \udc80\n"), ("python", "")]


def write_request(stream: io.BytesIO) -> None:
    for frame in request_frames(FILES):
        write_frame(stream, frame)


def test_requests_survive_the_wire() -> None:
    stream = io.BytesIO()
    write_request(stream)
    stream.seek(0)
    assert list(read_request(stream)) == FILES


def test_each_request_is_answered_until_the_input_ends() -> None:
    source, sink = io.BytesIO(), io.BytesIO()
    for _ in range(2):
        write_request(source)
    source.seek(0)
    serve(source, sink)
    sink.seek(0)
    builder = RecordBuilder()
    expected = [encode(builder.build(FILES))] * 2
    assert [read_frame(sink) for _ in expected] == expected
    assert sink.read() == b""


def test_a_cut_off_frame_is_the_end() -> None:
    stream = io.BytesIO()
    write_frame(stream, b"whole")
    data = stream.getvalue()
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(data[:-1]))


def test_nonsense_is_refused() -> None:
    body = json.dumps("nonsense").encode()
    with pytest.raises((ValueError, EOFError)):
        list(read_request(io.BytesIO(struct.pack("<I", len(body)) + body)))
