"""A worker process of `agent.retrieval.pool`: reads texts, writes blocks, ends with its input.

Frames on both streams are a little-endian uint32 length and that many bytes. A request is a JSON
array of `[language, bytes of the text]` and a frame of the texts (UTF-8, lone surrogates passed);
its answer is one frame, the block of these files. `--static PATH` names the encoder of the pieces.
"""

from __future__ import annotations

import argparse
import importlib
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from agent.retrieval.blocks import encode
from agent.retrieval.records import PieceEncoder, RecordBuilder

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


def write_request(stream: BinaryIO, files: Sequence[tuple[str, str]]) -> None:
    """One request for the block of (language, text), flushed."""
    texts = [text.encode("utf-8", "surrogatepass") for _, text in files]
    sizes = [(language, len(text)) for (language, _), text in zip(files, texts, strict=True)]
    write_frame(stream, json.dumps(sizes).encode())
    write_frame(stream, b"".join(texts))
    stream.flush()


def read_request(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    """What `write_request` wrote; raises EOFError at the end of the stream."""
    sizes = json.loads(read_frame(stream))
    texts, start = read_frame(stream), 0
    for language, size in sizes:
        yield language, texts[start : start + size].decode("utf-8", "surrogatepass")
        start += size


def serve(source: BinaryIO, sink: BinaryIO, encoder: PieceEncoder | None = None) -> None:
    """Answer requests until the source ends."""
    builder = RecordBuilder(encoder)
    while True:
        try:
            request = list(read_request(source))
        except EOFError:
            return
        write_frame(sink, encode(builder.build(request)))
        sink.flush()


def load_encoder(path: Path) -> PieceEncoder:
    """The static encoder kept in `path`. Loaded by name: without one, no worker imports it."""
    module = importlib.import_module("agent.retrieval.static")
    encoder: PieceEncoder = module.load(path)
    return encoder


def main() -> None:
    """Serve on the standard streams."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--static", type=Path)
    path = parser.parse_args().static
    encoder = None if path is None else load_encoder(path)
    serve(sys.stdin.buffer, sys.stdout.buffer, encoder)


if __name__ == "__main__":
    main()
