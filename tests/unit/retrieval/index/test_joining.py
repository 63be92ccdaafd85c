from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.index.blocks import Block, decode, encode, merge, select
from agent.retrieval.index.records import RecordBuilder
from tests.support.models import LengthEncoder

FIRST = "import os\n\nclass Parser(Base):\n    def parse_url(self, url):\n        return url\n"
SECOND = "from .a import b\n\ndef main():\n    return parse_url()\n"


def build(text: str) -> Block:
    return RecordBuilder().build([("python", text)])


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


TEXTS = [
    FIRST,
    SECOND,
    "",
    "x = parse_url(1)\n",
    "class A(B, C):\n    def é(self): pass\n    y = 1\n",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(TEXTS) - 1), min_size=1, max_size=8))
def test_selected_files_are_what_they_are_when_cut_together(chosen: list[int]) -> None:
    builder = RecordBuilder(LengthEncoder())
    whole = builder.build([("python", text) for text in TEXTS])
    wanted = builder.build([("python", TEXTS[number]) for number in chosen])
    assert encode(select(whole, np.array(chosen))) == encode(wanted)


def test_many_small_columns_do_not_overflow_when_merged() -> None:
    """Piece numbers of single files fit in a byte, those of their block do not."""
    data = encode(build("def f():\n    pass\n\ndef g():\n    pass\n"))
    narrow = decode(data)
    assert narrow is not None
    assert narrow.posting_pieces.dtype == np.uint8
    merged = merge([narrow] * 300)
    assert int(merged.posting_pieces.max()) == 599
