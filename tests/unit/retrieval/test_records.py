from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.identifiers import term_hash
from agent.retrieval.records import FileRecord, RecordBuilder, decode, encode

SOURCE = """\
import os

class Parser:
    def parse_url(self, url):
        return url, url

def main():
    pass
"""


def build() -> FileRecord:
    return RecordBuilder().build(SOURCE, "python")


def postings(record: FileRecord, piece: int) -> dict[int, tuple[int, int]]:
    """Term hash -> (occurrences in the text, in the symbol) of one piece."""
    vocabulary = np.frombuffer(record.vocabulary, "<u8")
    offsets = np.frombuffer(record.offsets, "<u4")
    terms = np.frombuffer(record.terms, "<u4")
    counts = np.frombuffer(record.counts, "<u2")
    names = np.frombuffer(record.name_counts, "u1")
    return {
        int(vocabulary[terms[i]]): (int(counts[i]), int(names[i]))
        for i in range(offsets[piece], offsets[piece + 1])
    }


def test_a_piece_counts_its_text_and_its_name() -> None:
    record = build()
    number = [piece.symbol for piece in record.pieces].index("Parser.parse_url")
    counted = postings(record, number)
    assert counted[term_hash("url")] == (4, 1)  # parse_url, url, url, url
    assert counted[term_hash("parser")] == (0, 1)  # in the name only
    assert counted[term_hash("return")] == (1, 0)


def test_encoding_is_lossless_and_stable() -> None:
    record = build()
    assert decode(encode(record)) == record
    assert encode(build()) == encode(record)


def test_records_of_files_without_lines() -> None:
    record = RecordBuilder().build("", "python")
    assert record.pieces == ()
    assert decode(encode(record)) == record


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_foreign_bytes_are_no_record(data: bytes) -> None:
    assert decode(data) is None
    assert decode(zlib.compress(data)) is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_bytes_never_raise(at: int, value: int) -> None:
    raw = bytearray(zlib.decompress(encode(build())))
    raw[at % len(raw)] = value
    record = decode(zlib.compress(bytes(raw)))
    if record is not None:
        assert len(record.pieces) == len(build().pieces)
        for number in range(len(record.pieces)):
            postings(record, number)


def test_a_record_that_points_outside_is_refused() -> None:
    record = build()
    assert decode(encode(replace(record, vocabulary=record.vocabulary[:8]))) is None
    shuffled = record.offsets[4:8] + record.offsets[:4] + record.offsets[8:]
    assert decode(encode(replace(record, offsets=shuffled))) is None


def test_an_endless_record_is_refused() -> None:
    assert decode(zlib.compress(b"\0" * 40_000_000, level=1)) is None
