from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.index.contents import BlockBuilder
from agent.retrieval.index.corpus import Block, decode, encode, merge

FIRST = "import os\n\nclass Parser(Base):\n    def parse_url(self, url):\n        return url\n"
SECOND = "from .a import b\n\ndef main():\n    return parse_url()\n"


def build(text: str = FIRST) -> Block:
    return BlockBuilder().build([("python", text)])


def assert_same(left: Block | None, right: Block) -> None:
    assert left is not None
    assert left.dimension == right.dimension
    for name in Block.__slots__[:-1]:
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)


@pytest.mark.parametrize("text", [FIRST, SECOND, "", "é = '日本'\n"])
def test_encoding_is_lossless_and_stable(text: str) -> None:
    data = encode(build(text))
    assert_same(decode(data), build(text))
    assert encode(build(text)) == data


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_foreign_bytes_are_no_block(data: bytes) -> None:
    assert decode(data) is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 100_000), st.integers(1, 255))
def test_damaged_bytes_are_no_block(at: int, flip: int) -> None:
    data = bytearray(encode(build()))
    data[at % len(data)] ^= flip
    found = decode(bytes(data))
    assert found is None or at % len(data) in range(8, 10)  # the dimension is not summed


def test_cut_off_bytes_are_no_block() -> None:
    data = encode(build())
    assert all(decode(data[:size]) is None for size in range(0, len(data), 7))


def u32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array(values, dtype=np.uint32)


def test_a_forged_block_that_points_outside_is_refused() -> None:
    block = build()
    many = 10_000
    for change in (
        {"vocabulary": block.vocabulary[:-1]},
        {"vocabulary": block.vocabulary[::-1]},
        {"posting_pieces": block.posting_pieces + many},
        {"leaves": block.leaves + many},
        {"uses": u32(many), "use_sizes": u32(*[0] * (block.starts.size - 1), 1)},
        {"kinds": block.kinds + 50},
        {"starts": block.starts * 0},
        {"starts": block.ends + 1},
        {"ends": block.ends[:-1]},
        {"symbol_sizes": block.symbol_sizes + 1},
        {"hole_sizes": block.hole_sizes + 1},
        {"file_sizes": block.file_sizes + 1},
        {"import_sizes": u32(*block.import_sizes.tolist(), 0)},
        {"dimension": 3},
    ):
        assert decode(encode(replace(block, **change))) is None, change


# ----------------------------------------------------------------------------------------- merging


def postings(block: Block) -> set[tuple[int, int, int, int]]:
    terms = np.repeat(block.vocabulary, block.postings).tolist()
    rows = (block.posting_pieces, block.counts, block.name_counts)
    return set(zip(terms, *(row.tolist() for row in rows), strict=True))


def test_merging_keeps_every_piece_and_posting() -> None:
    first, second = build(FIRST), build(SECOND)
    merged = merge([first, second])
    count = first.starts.size
    shifted = {(term, piece + count, a, b) for term, piece, a, b in postings(second)}
    assert postings(merged) == postings(first) | shifted
    assert merged.file_sizes.tolist() == [count, second.starts.size]
    assert merged.names[merged.leaves].tolist() == [
        *first.names[first.leaves].tolist(),
        *second.names[second.leaves].tolist(),
    ]
    assert merged.names[merged.uses].tolist() == [
        *first.names[first.uses].tolist(),
        *second.names[second.uses].tolist(),
    ]
    assert decode(encode(merged)) is not None


def test_merging_in_steps_gives_the_same() -> None:
    blocks = [build(text) for text in (FIRST, SECOND, "", "x = parse_url(1)\n")]
    in_steps = merge([merge(blocks[:2]), merge(blocks[2:])])
    assert encode(in_steps) == encode(merge(blocks))


def test_many_small_columns_do_not_overflow_when_merged() -> None:
    """Piece numbers of single files fit in a byte, those of their block do not."""
    data = encode(build("def f():\n    pass\n\ndef g():\n    pass\n"))
    narrow = decode(data)
    assert narrow is not None
    assert narrow.posting_pieces.dtype == np.uint8
    merged = merge([narrow] * 300)
    assert int(merged.posting_pieces.max()) == 599
