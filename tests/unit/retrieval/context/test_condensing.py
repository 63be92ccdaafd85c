from __future__ import annotations

from collections.abc import Iterable

import pytest

from agent.retrieval.context.excerpt import condensed, little_told
from agent.types import Chunk, ChunkKind

DOCSTRING = '''\
def price(basket):
    """Return the price.

    It is the sum of what is in it.

    Args:
        basket: of any size

    Returns:
        dollars
    """
    return sum(basket)
'''
SHORT = 'def f():\n    """Do.\n\n    And more.\n    """\n    return 1\n'
NO_DOCSTRING = DOCSTRING.replace('    """Return', '    x = 1\n    """Return', 1)
LICENCE = "".join(f"# line {n}\n" for n in range(9)) + "import os\n"
CALLS = "".join(f"    call(x{n}),\n" for n in range(20))
FUNCTION, MODULE = ChunkKind.FUNCTION, ChunkKind.MODULE


def table(length: int) -> str:
    return "WORDS = {\n" + "".join(f'    "word{n}": {n},\n' for n in range(length)) + "}\n"


@pytest.mark.parametrize(
    ("text", "signature", "kind", "start", "left_out"),
    [
        (DOCSTRING, "def price(basket):", FUNCTION, 11, range(13, 21)),
        (SHORT, "def f():", FUNCTION, 1, ()),
        (NO_DOCSTRING, "def price(basket):", FUNCTION, 1, ()),
        (table(30), "", MODULE, 4, range(4 + 13, 4 + 27)),
        (table(20), "", MODULE, 1, ()),
        (f"RESULTS = [\n{CALLS}]\n", "", MODULE, 1, ()),
        (LICENCE, "", MODULE, 1, range(2, 10)),
        (LICENCE, "", MODULE, 30, ()),
    ],
)
def test_what_is_left_out(
    text: str, signature: str, kind: ChunkKind, start: int, left_out: Iterable[int]
) -> None:
    end = start + text.count("\n") - 1
    chunk = Chunk("a.py", start, end, "x", kind, text, "0" * 40, "python", signature)
    assert sorted(little_told(chunk)) == list(left_out)
    if not left_out:
        assert condensed(chunk).text == text
    if text == DOCSTRING:
        assert condensed(chunk).text == (
            'def price(basket):\n    """Return the price.\n    """\n    return sum(basket)'
        )
