"""The outline that needs no tree, against the one that is made from a tree."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
import tree_sitter_python
from tree_sitter import Language, Parser

from agent.retrieval.index.chunking import TreeSitterChunker
from agent.retrieval.index.outline import GRAMMARS, MAX_DEPTH, Definition, Outliner, roles_of
from agent.retrieval.index.python_outline import python_outline

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11, 5), reason="patterns are not used there: CPython's issue 106052"
)

_PARSER = Parser(Language(tree_sitter_python.language()))
_GRAMMAR = GRAMMARS["python"]
_ROLES = roles_of(_GRAMMAR)


def from_tree(text: str) -> tuple[list[Definition], bool]:
    """What a tree says, and whether it is one of well-formed code."""
    data = text.encode("utf-8", "replace")
    root = _PARSER.parse(data).root_node
    found = Outliner(_GRAMMAR, _ROLES, data.split(b"\n")).collect(root)
    return found, not root.has_error


CASES = {
    "a comment at the end without line end": "def f():\n    return 1\n    # last",
    "trailing spaces": "def f():   \n    return 1   \n   \n\nx = 1\n",
    "decorators": """\
        # Above.
        @one
        @two(
            a, "def x():",
            [1, {2: 3}],
        )  # behind
        # Between.

        @three.four
        async def f(): pass
        @five
        class A:
            # Above.
            @six
            # Below.
            def f(self): pass
        """,
    "matrix products": """\
        x = (a
        @ b)
        class A:
            y = [b
        @ c, d
            @ e]
            def f(self):
                return (a
        @ b)
            z = 1
        """,
    "strings that look like code": '''\
        """
        def no(): pass
        # no comment"""
        def f():
            """
        def no():
            pass
        """
            x = \'\'\'
        class No: \\\'\'\'
        @no
            \'\'\'
            return """ "" """ + 'a\\
        def no(): pass' "#" # "
        def g():
            r'\\''; b"\\""; rb"""\\""""
            return "\\\\"
        class A:
            """No."""; x = """
        y = 1
        # no"""
            def f(self): pass
        ''',
    "formatted strings": """\
        def f(x):
            a = f"{x!r:>{width}} {{ {x['a']} }}" if f"{x}}}{{" else F""
            return f'''{x["a"]:{x}} {{'
        def no(): pass
        {x}'''
        def g():
            return rf"\\{{2}}{x}" fr'{x:\\d}' F"{ {1: 2}[1] }" f"{x:%H:%M}" f"\\N{EM DASH}"
        def h(): pass
        """,
    "continued lines": """\
        def f():
            x = 1 + \\
        2
            assert x, \\
                "a"
            return x
        def e(): return 1 + \\
        2; \\

        if a and \\
        b:
            def g(): pass
        y = \\
            1
        def h(): pass
        """,
    "brackets in brackets in brackets": """\
        class A:
            x = {"a": [{"b": [({"c": [1, [
        2, (3,
        )], # ]
        ']', '''
        ] def no(): pass
        ''']},)]}]}
            def f(self):
                y = [[[[[[[[
        1
        ]]]]]]]]
                return y
            def g(self):
                [[[[[2]]]]]
        def h(): pass
        """,
    "comments at the end of blocks": """\
        class A:
            def f(self):
                if a:
                    pass
                    # of the if
                # of f

                  # of f, too
            # of A, above g
            def g(self):
                pass
          # of the module, but nobody's
                # not of g
            # not of A, either
        x = 1
        class B:
            def f(self):
                pass
                # of f
            # of B
        # of the module
            # above C
        class C:
            x = 1
            # of C, and above f
        def f():
            pass
        # not of f
            y = 1
            # of f
        """,
    "comments above": """\
        # not above

        # one
            # two
        def f(): pass
        # three
        x = 1  # four
        # five
        @a
        def g(): pass
        def h(): pass  # six
        # seven
        class A:  # eight
            # nine
            # ten
            def f(self):  # eleven
                # twelve
                pass
            x = [
                # thirteen
            ]
            def g(self): pass
        if a:
            # fourteen
            def i(): pass
            # fifteen
        else:  # sixteen
            # seventeen
            def j(): pass
            # eighteen
        # nineteen
        def k(): pass
        """,
    "blank lines of spaces and tabs": "def f():\n    x = 1\n\t\n  \t \n    y = 2\n \t\nz = 1\n",
    "a long name": f"class {'A' * 150}:\n    class {'B' * 150}:\n        def f(self): pass\n",
}


@pytest.mark.parametrize("case", CASES)
def test_is_what_the_tree_says(case: str) -> None:
    text = textwrap.dedent(CASES[case])
    expected, well_formed = from_tree(text)
    assert well_formed
    assert python_outline(text) == expected


UNSURE = {
    "tabs in an indentation": "class A:\n\tdef f(self):\n\t\tpass\n",
    "a tab before a definition": "class A:\n    if x:\n    \tdef f(self): pass\n",
    "a form feed": "def f():\n    pass\n\f\ndef g():\n    pass\n",
    "carriage returns": "def f():\r\n    pass\r\n",
    "a byte order mark": "\ufeffdef f(): pass\n",
    "a lone surrogate": "def f(a='\udc80'): pass\n",
    "an open bracket": "x = (1,\n\ndef f():\n    pass\n",
    "a bracket too many": "def f():\n    x = 1)\n\n\ndef g():\n    pass\n",
    "an open string": "def f():\n    x = 'a\n    return 1\n",
    "an open long string": "def f():\n    '''\n    return 1\n",
    "no block": "def f():\ndef g():\n    pass\n",
    "no block at the end": "class A:\n    def f(self):\n",
    "only a comment for a block": "def f():\n    # nothing\n",
    "a continued header": "def f(a) \\\n        -> int:\n    pass\n",
    "a lambda for an annotation": "def f() -> lambda x: 1: pass\n",
    "a lone backslash": "x=1\n\\\ndef f(): pass\n",
    "a lone backslash before a clause": (
        "class A:\n    try:\n        def f(self): pass\n    except E: pass\n\\\n    finally:\n"
        "        def g(self):\n            pass\n"
    ),
    "a lone backslash for a first line": "def f():\n\\\n    pass\nx = 1\n",
    "a body on a continued line": "def f():\\\n    pass\n",
    "an identifier of more than words": "def a·b(): pass\ndef x℮(): pass\n",
    "a space of no width": "x = 1\u200b\ndef f(): pass\n",
    "quotes in a field": 'def f():\n    return f"{x["a"]}"\n',
    "a magic": "!pip install x\ndef f(): pass\n",
    "classes in classes in classes": "\n".join(
        "  " * depth + f"class A{depth}:" for depth in range(MAX_DEPTH + 2)
    )
    + "\n"
    + "  " * (MAX_DEPTH + 2)
    + "x = 1\n",
    "a far indentation": "def f():\n" + " " * 100 + "pass\n",
}


@pytest.mark.parametrize("text", UNSURE.values(), ids=UNSURE)
def test_leaves_to_the_tree_what_is_not_certain(text: str) -> None:
    assert python_outline(text) is None


def test_chunks_of_what_is_left_to_the_tree_are_made_all_the_same() -> None:
    text = "class A:\n\tdef f(self):\n\t\tpass\n"
    assert [piece.symbol for piece in TreeSitterChunker().pieces(text, "python")] == ["A", "A.f"]


def test_no_parser_is_loaded_for_what_needs_no_tree() -> None:
    """In a process of its own: here, it is loaded."""
    code = textwrap.dedent(
        """
        import sys
        from agent.retrieval.index.chunking import TreeSitterChunker
        chunker = TreeSitterChunker()
        assert [p.symbol for p in chunker.pieces("def f():\\n    pass\\n", "python")] == ["f"]
        assert "tree_sitter" not in sys.modules
        assert [p.symbol for p in chunker.pieces("def f():\\n\\tpass\\n", "python")] == ["f"]
        assert "tree_sitter" in sys.modules
        """
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_deep_and_open_things_are_passed_over_once() -> None:
    """Each of them would take minutes if anything were looked at once more for each level."""
    for text in (
        "(" * 200_000,
        "x = " + "[" * 50_000 + "]" * 50_000 + "\n",
        "f'" * 200_000,
        '"""' * 100_001,
        "# c\n" * 100_000 + "x = 1\n",
        "class A:\n    x = 1\n" + "    # c\n" * 100_000 + "def f(): pass\n",
        "@" * 200_000,
        "@a\n" * 100_000,
        "def f(" * 50_000,
        "\n" * 300_000 + "def f(): pass",
        "def f():\n" + " \n" * 100_000,
        "x = f'{{{{" + "{" * 100_000,
    ):
        python_outline(text)


# ---------------------------------------------------------------------- the standard library


def _compare(paths: list[Path]) -> tuple[int, list[str]]:
    """How many are left to the tree, and which differ from what a tree of theirs says."""
    unsure, different = 0, []
    for path in paths:
        text = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        found = python_outline(text)
        expected, well_formed = from_tree(text)
        if found is None:
            unsure += 1
        elif found != expected and well_formed:
            different.append(str(path))
    return unsure, different


def _library() -> list[Path]:
    """Of this interpreter, with its tests, without what is installed beside it."""
    root = Path(sysconfig.get_path("stdlib"))
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)


@pytest.mark.slow
def test_a_sample_of_the_standard_library_agrees() -> None:
    sample = _library()[::12]
    unsure, different = _compare(sample)
    assert len(sample) > 30
    assert different == []
    assert unsure <= 0.04 * len(sample)
