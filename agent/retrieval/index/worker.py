"""A worker process of `agent.retrieval.index.pool`: reads texts and answers with blocks.

A request is two frames (`agent.shared.workers`): a JSON array of `[language, bytes of the text]`,
and the texts (UTF-8 with lone surrogates allowed). The answer is the encoded block of these files.
`--static PATH` names the encoder of the pieces.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from agent.retrieval.index.blocks import encode
from agent.retrieval.index.records import PieceEncoder, RecordBuilder
from agent.shared.workers import read_frame, write_frame


def request_frames(files: Sequence[tuple[str, str]]) -> tuple[bytes, bytes]:
    """Return the two frames that request the block of (language, text)."""
    texts = [text.encode("utf-8", "surrogatepass") for _, text in files]
    sizes = [(language, len(text)) for (language, _), text in zip(files, texts, strict=True)]
    return json.dumps(sizes).encode(), b"".join(texts)


def read_request(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    """Read a request. Raises EOFError at the end of the stream."""
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
    """Load the static encoder in `path`. Only workers that need it import its module."""
    module = importlib.import_module("agent.retrieval.embedding.static")
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
