from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.index import BlockBuilder
from agent.retrieval.index.corpus import Block, decode, encode

FIRST = "import os\n\nclass Parser(Base):\n    def parse_url(self, url):\n        return url\n"


def build(text: str = FIRST) -> Block:
    return BlockBuilder().build([("python", text)])


@pytest.mark.parametrize("text", [FIRST, "from .a import b\nx = b()\n", "", "é = '日本'\n"])
def test_encoding_is_lossless_and_stable(text: str) -> None:
    data = encode(build(text))
    np.testing.assert_equal(decode(data), build(text))
    assert encode(build(text)) == data


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 100_000), st.integers(1, 255))
def test_damaged_bytes_are_no_block(at: int, flip: int) -> None:
    data = bytearray(encode(build()))
    data[at % len(data)] ^= flip
    assert decode(bytes(data)) is None


def u32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array(values, dtype=np.uint32)


def test_a_forged_block_that_points_outside_is_refused() -> None:
    block = build()
    many = 10_000
    for change in (
        {"vocabulary": block["vocabulary"][:-1]},
        {"vocabulary": block["vocabulary"][::-1]},
        {"posting_pieces": block["posting_pieces"] + many},
        {"leaves": block["leaves"] + many},
        {"uses": u32(many), "use_sizes": u32(*[0] * (block["starts"].size - 1), 1)},
        {"kinds": block["kinds"] + 50},
        {"starts": block["starts"] * 0},
        {"starts": block["ends"] + 1},
        {"ends": block["ends"][:-1]},
        {"symbol_sizes": block["symbol_sizes"] + 1},
        {"hole_sizes": block["hole_sizes"] + 1},
        {"file_sizes": block["file_sizes"] + 1},
        {"import_sizes": u32(*block["import_sizes"].tolist(), 0)},
    ):
        assert decode(encode({**block, **change})) is None, change
    assert decode(encode(block), dimension=3) is None
