"""The outline that needs no tree, against the one that is made from a tree."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
import tree_sitter_python
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tree_sitter import Language, Parser

from agent.retrieval.index.chunking import TreeSitterChunker
from agent.retrieval.index.grammars import GRAMMARS
from agent.retrieval.index.outline import MAX_DEPTH, Definition, Outliner, roles_of
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
    "nothing": "",
    "no definition": "import os\n\nx = 1\n",
    "two functions": "def f():\n    pass\n\n\ndef g():\n    return 1\n",
    "no final line end": "def f():\n    return 1",
    "a comment at the end without line end": "def f():\n    return 1\n    # last",
    "trailing blank lines": "def f():\n    return 1\n\n\n\n",
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
    "a decorator with all that brackets hold": """\
        @mark.parametrize(
            ("a", "b"),
            [
                ([{1: [(2, [3, [4]])]}], "#"),
                # )
                ('''
        def not_one():
        ''', \"\"\"class Not: pass\"\"\"),
            ],
        )
        def f(a, b):
            pass
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
    "nested": """\
        class A:
            class B(C, metaclass=D):
                def f(self):
                    def g():
                        class E:
                            def h(self): pass
                        return E
                    return g
                class F: pass
            def i(self): pass
        def j(): pass
        """,
    "in compound statements": """\
        if a:
            def f(): pass
        elif b:
            def g():
                pass
        else:
            class A:
                try:
                    def f(self):
                        pass
                except E as e:
                    def f(self, a):
                        pass
                except* F:
                    pass
                else:
                    def f(self, b):
                        pass
                finally:
                    class B:
                        x = 1
        with a as b, c:
            for d in e:
                while f:
                    def h():
                        pass
            else:
                def i():
                    pass
        match a:
            case [1, 2]:
                def j(): pass
            case {"a": b} if c:
                class C:
                    def k(self): ...
            case _:
                pass
        """,
    "headers of several lines": """\
        def f(
            a: dict[str, list[tuple[int, ...]]] = {"(": ")", ')': '('},  # ) : (
            b=lambda x, y=(1, 2): x[1:2],
            # a comment
            *args: Any,
            c: str = "):\\n    pass",
            **kwargs,
        ) -> Callable[
            [int], str
        ]:
            return 1


        class A(
            B[C],
            # a comment
            metaclass=D,
        ):
            x = 1

            def f(self,
          a,
        b):
                return a
        """,
    "annotations": """\
        def f() -> "a: b": pass
        def g(a: "b") -> 'c':
            pass
        def h() -> A | B["C"] | None:
            pass
        def i() -> (
            A
        ): pass
        """,
    "type parameters": """\
        def f[T: (int, str), *Ts, **P](x: T) -> T:
            return x
        class A[T](B):
            def g[U](self, x: U): ...
        type C[T] = list[T]
        """,
    "one line each": """\
        class A: pass
        class B(C): x = 1; y = 2
        def f(): return {"a": 1}["a"]  # def g():
        def g(): return [
            1,
        ]
        class D:
            def f(self): ...
            def g(self) -> int: ...  # behind
            x: int
        def h(): pass; return 1
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
    "only comments and blank lines between": """\
        def f():

            # first

            return 1

            # last


        # above
        def g():
            # only then

            \"\"\"Doc.\"\"\"
        class A:

            # first

            def f(self): pass
        """,
    "names": """\
        def größe(ä): return ä
        class Ünï:
            def 名前(self): pass
            def __init__(self): pass
            def print(self): pass
            def match(self, type): pass
        def type(): pass
        definition = classes = asynchronous = 1
        class_ = def_ = 2
        """,
    "not definitions": """\
        class_x = 1
        default(1)
        classes: int
        async_def = 2
        if defined: pass
        """,
    "other indentations": """\
        class A:
          def f(self):
           return 1
          if x:
                  def g(self):
                    return 2
          y = 1
        def h():
                z = 1
                if z:
                  return z
        """,
    "conditional expressions and operators": """\
        def f(a):
            x = (1 if a
                else 2)
            y = a != 1 if a != 2 else a @ a
            return x if y else (not a)
        def g(*, a=1 if b else 2): pass
        """,
    "no blank lines between": """\
        import a
        def f():
            pass
        x = 1
        class A:
            y = 1
            def g(self):
                pass
            z = 2
        print(x)
        """,
    "blank lines of spaces and tabs": "def f():\n    x = 1\n\t\n  \t \n    y = 2\n \t\nz = 1\n",
    "lambda in brackets of a header": """\
        def f(lambda_=lambda: 0) -> (lambda: 1):
            return lambda: 2
        def g(x) -> lambda_ if a else A[lambda: 2]: return lambda: 3
        """,
    "odd spaces in strings and comments": "x = '\u200b\u3000'  # \u2028\ndef f(): pass\n",
    "print statements": "def f():\n    print 'a'\n    print >>x, 'b'\ndef g(): print 'c'\n",
    "a long header": "@a(\n" + "    1,\n" * 20 + ")\ndef f(a):\n    pass\n",
    "a wide header": f"def f(a='{'x' * 2000}'):\n    pass\n",
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
    "tabs beside spaces": "def f():\n    if x:\n\ty = 1\n",
    "a tab before a definition": "class A:\n    if x:\n    \tdef f(self): pass\n",
    "a form feed": "def f():\n    pass\n\f\ndef g():\n    pass\n",
    "carriage returns": "def f():\r\n    pass\r\n",
    "a byte order mark": "\ufeffdef f(): pass\n",
    "a lone surrogate": "def f(a='\udc80'): pass\n",
    "an open bracket": "x = (1,\n\ndef f():\n    pass\n",
    "an open bracket in a function": "def f():\n    x = [(\n\n\ndef g():\n    pass\n",
    "a bracket too many": "def f():\n    x = 1)\n\n\ndef g():\n    pass\n",
    "an open string": "def f():\n    x = 'a\n    return 1\n",
    "an open long string": "def f():\n    '''\n    return 1\n",
    "no block": "def f():\ndef g():\n    pass\n",
    "no block at the end": "class A:\n    def f(self):\n",
    "only a comment for a block": "def f():\n    # nothing\n",
    "no colon": "def f()\n    pass\n",
    "no name": "class (:\n    pass\n",
    "a name that is none": "def 1a(): pass\n",
    "a continued header": "def f(a) \\\n        -> int:\n    pass\n",
    "no block, but spaces": "def f():  \ndef g(): pass\n",
    "async apart from def": "async \\\ndef f(): pass\n",
    "a lambda for an annotation": "def f() -> lambda x: 1: pass\n",
    "a lambda in an annotation": "def f() -> 1 if x else lambda: 2:\n    pass\n",
    "a lone backslash": "x=1\n\\\ndef f(): pass\n",
    "a lone backslash before a clause": (
        "class A:\n    try:\n        def f(self): pass\n    except E: pass\n\\\n    finally:\n"
        "        def g(self):\n            pass\n"
    ),
    "a lone backslash for a first line": "def f():\n\\\n    pass\nx = 1\n",
    "a comment on a continued line": "x=1\n\\\n        # c\ndef f(): pass\n",
    "a header on a continued line": "x = 1; \\\ndef f(): pass\n",
    "a body on a continued line": "def f():\\\n    pass\n",
    "a body on a line continued behind a tab": "class A:  \t\\\n    pass\n",
    "an identifier of more than words": "def a·b(): pass\ndef x℮(): pass\n",
    "a space of no width": "x = 1\u200b\ndef f(): pass\n",
    "a wide space": "x =\u30001\ndef f(): pass\n",
    "a line separator": "x = 1\u2028\ndef f(): pass\n",
    "quotes in a field": 'def f():\n    return f"{x["a"]}"\n',
    "long quotes in a field": 'def f():\n    return f"""{x["""a"""]}"""\n',
    "a magic": "!pip install x\ndef f(): pass\n",
    "a template": "def ${name}():\n    pass\n",
    "another template": "x = {{ name }}\n$if\ndef f(): pass\n",
    "a backtick": "x = `1`\ndef f(): pass\n",
    "a backslash": "x = \\ 1\ndef f(): pass\n",
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


@pytest.mark.slow
def test_the_standard_library_agrees() -> None:
    library = _library()
    unsure, different = _compare(library)
    assert different == []
    assert unsure <= 0.02 * len(library)


# ------------------------------------------------------------------------- modules of pieces

_SIMPLE = st.sampled_from(
    [
        *("pass", "x = 1", "return_ = (1,\n2)", "x = [\n    # c\n]", "x: int = {'#': ')'}"),
        *(
            '"""Doc."""',
            '"""\ndef no(): pass\n"""',
            "x = '''\n# no'''",
            "'a\\\nb'",
            "f'{x!r:{y}}{{'",
        ),
        *("x = (a\n@ b)", "x = 1 + \\\n2", "x = lambda: 0  # def no():", "x = [[[[[1,\n2]]]]]"),
        *("del x, y; x = 1", "x = a if b else c", "assert x != 1, 'a'", "x = r'\\'' \"'\""),
    ]
)
# A bar stands for the indentation of a line that begins one of its own.
_HEADERS = st.sampled_from(
    [
        *("def NAME():", "def NAME(self, a=(1, 2), *b) -> int:", "def NAME[T](x: T):"),
        *("async def NAME(\n    a,  # )\n  b='):'\n):", "@d\n|def NAME():"),
        "@d(\n1)  # c\n|# c\n\n|@e\n|async def NAME(a: 'b'):",
        *("class NAME:", "class NAME(A, b=[1]):", "@d\n|class NAME(\n  # c\n):", "class NAME[T]:"),
    ]
)
_COMPOUND = st.sampled_from(
    [
        *(("if x:", "elif (x):", "else:"), ("try:", "except E:", "finally:"), ("while x:",)),
        *(("for x in y:", "else:"), ("with x as y, (z):",), ("match x:\n|    case [1]:",)),
    ]
)
_SUITES = st.sampled_from(["pass", "x = [1,\n2]", "...; y = 1", "return '''\n'''  # c"])
_COMMENTS = st.lists(st.tuples(st.sampled_from(["# c", "# '", ""]), st.integers(0, 12)), max_size=3)
_NAMES = st.sampled_from(["f", "g", "A", "__init__", "größe"])
_KINDS = st.sampled_from(["simple", "definition", "line", "compound"])


def _lines(text: str, indent: int) -> str:
    return " " * indent + text.replace("\n|", "\n" + " " * indent)


@st.composite
def _blocks(draw: st.DrawFn, indent: int = 0, depth: int = 0) -> str:
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        parts.extend(" " * width + text for text, width in draw(_COMMENTS))
        kind = "simple" if depth == 3 else draw(_KINDS)
        header = _lines(draw(_HEADERS), indent).replace("NAME", draw(_NAMES))
        inner = indent + draw(st.sampled_from([1, 2, 4, 4]))
        if kind == "simple":
            parts.append(" " * indent + draw(_SIMPLE))
        elif kind == "line":
            parts.append(f"{header} {draw(_SUITES)}")
        elif kind == "definition":
            parts += [header, draw(_blocks(inner, depth + 1))]
        else:
            for clause in draw(_COMPOUND):
                deeper = inner + 4 * ("case" in clause)
                parts += [_lines(clause, indent), draw(_blocks(deeper, depth + 1))]
    parts.extend(" " * width + text for text, width in draw(_COMMENTS))
    return "\n".join(parts)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(_blocks(), st.sampled_from(["", "\n", "\n\n", "\n    # c"]))
def test_modules_of_pieces_agree(text: str, end: str) -> None:
    expected, well_formed = from_tree(text + end)
    assume(well_formed)
    assert python_outline(text + end) == expected


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(_blocks(), st.integers(0, 60), st.sampled_from(["\\", "    \\", "x = 1; \\", "# c \\"]))
def test_joined_lines_are_read_as_the_tree_does_or_left_to_it(
    text: str, row: int, joint: str
) -> None:
    lines = text.split("\n")
    lines.insert(row % (len(lines) + 1), joint)
    text = "\n".join([*lines, ""])
    expected, well_formed = from_tree(text)
    assume(well_formed)
    assert python_outline(text) in (None, expected)
