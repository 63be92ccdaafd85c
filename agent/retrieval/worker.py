"""A worker process of `agent.retrieval.pool`: reads texts, writes records, ends with its input.

Frames on both streams are a little-endian uint32 length and that many bytes. A request is a JSON
array of `[language, text]`; its answer is one frame for each, in order.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import BinaryIO

from agent.retrieval.records import RecordBuilder, encode

LENGTH = struct.Struct("<I")


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """`size` bytes; raises EOFError when the stream ends before."""
    data = stream.read(size)
    if data is None or len(data) != size:
        raise EOFError
    return data


def read_frame(stream: BinaryIO) -> bytes:
    """One frame; raises EOFError at the end of the stream or inside a frame."""
    (size,) = LENGTH.unpack(read_exactly(stream, LENGTH.size))
    return read_exactly(stream, size)


def write_frame(stream: BinaryIO, data: bytes) -> None:
    """One frame, unflushed."""
    stream.write(LENGTH.pack(len(data)))
    stream.write(data)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the source ends."""
    builder = RecordBuilder()
    while True:
        try:
            request = json.loads(read_frame(source))
        except EOFError:
            return
        for language, text in request:
            write_frame(sink, encode(builder.build(text, language)))
        sink.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
