from __future__ import annotations

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


def chunk(
    text: str, signature: str = "", kind: ChunkKind = ChunkKind.FUNCTION, start: int = 1
) -> Chunk:
    end = start + text.count("\n") - 1
    return Chunk("a.py", start, end, "x", kind, text, "0" * 40, "python", signature)


def test_a_docstring_keeps_its_first_paragraph_and_its_end() -> None:
    function = chunk(DOCSTRING, "def price(basket):", start=11)
    assert sorted(little_told(function)) == list(range(13, 21))
    assert condensed(function).text == (
        'def price(basket):\n    """Return the price.\n    """\n    return sum(basket)'
    )


def test_a_short_docstring_stays() -> None:
    text = 'def f():\n    """Do.\n\n    And more.\n    """\n    return 1\n'
    assert not little_told(chunk(text, "def f():"))
    assert condensed(chunk(text, "def f():")).text == text


def test_a_string_that_is_no_docstring_stays() -> None:
    text = DOCSTRING.replace('    """Return', '    x = 1\n    """Return', 1)
    assert not little_told(chunk(text, "def price(basket):"))


def test_a_table_of_literals_keeps_its_first_and_last_entries() -> None:
    entries = "".join(f'    "word{n}": {n},\n' for n in range(30))
    table = chunk(f"WORDS = {{\n{entries}}}\n", kind=ChunkKind.MODULE, start=4)
    assert sorted(little_told(table)) == list(range(4 + 13, 4 + 27))


def test_a_table_that_is_not_really_long_stays() -> None:
    entries = "".join(f'    "word{n}": {n},\n' for n in range(20))
    assert not little_told(chunk(f"WORDS = {{\n{entries}}}\n", kind=ChunkKind.MODULE))


def test_arguments_of_calls_are_no_table() -> None:
    lines = "".join(f"    call(x{n}),\n" for n in range(20))
    assert not little_told(chunk(f"RESULTS = [\n{lines}]\n", kind=ChunkKind.MODULE))


def test_a_licence_at_the_top_is_left_out() -> None:
    text = "".join(f"# line {n}\n" for n in range(9)) + "import os\n"
    assert sorted(little_told(chunk(text, kind=ChunkKind.MODULE))) == list(range(2, 10))
    assert not little_told(chunk(text, kind=ChunkKind.MODULE, start=30))


def test_lines_of_holes_are_not_counted() -> None:
    text = "class A:\n" + DOCSTRING.split("\n", 1)[1].rsplit("    return", 1)[0] + "    x = 1\n"
    one = Chunk(
        "a.py", 1, 20, "A", ChunkKind.CLASS, text, "0" * 40, "python", "class A:", ((12, 19),)
    )
    assert sorted(little_told(one)) == list(range(3, 11))
    assert condensed(one).text.endswith("    x = 1")
