from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.repository import language_of
from agent.retrieval.index import GRAMMARS, TreeSitterChunker, split_lines
from agent.types import Chunk, ChunkKind, SourceFile

PYTHON = '''\
"""Module."""
import os

LIMIT = 1

# Above the decorator.
@decorate(
    LIMIT,
)
# Between.
async def fetch(url,
                retries=3) -> str:
    """Doc."""
    def inner():
        return 1

    return inner()


class Outer(Base):
    """Doc."""

    attribute = 1

    @property
    def value(self): return 1

    class Inner:
        def method(self):
            pass

    def last(self):
        return 2

if LIMIT:
    def conditional():
        pass
print(fetch)
'''


def chunk(text: str, language: str = "python", path: str = "pkg/mod.py") -> tuple[Chunk, ...]:
    return TreeSitterChunker()(SourceFile(path, "b" * 40, len(text), language), text)


def outline(text: str, language: str) -> str:
    """Return kind, symbol and lines of each chunk in words."""
    names = (f"{c.kind.value} {c.symbol}".rstrip() for c in chunk(text, language))
    places = (f"{c.start}-{c.end}" for c in chunk(text, language))
    return ", ".join(f"{name} {place}" for name, place in zip(names, places, strict=True))


def own_lines(piece: Chunk) -> list[int]:
    hidden = {line for start, end in piece.holes for line in range(start, end + 1)}
    return [line for line in range(piece.start, piece.end + 1) if line not in hidden]


def assert_partition(text: str, language: str) -> None:
    """Each line in exactly one chunk, and each chunk's text made of exactly its lines."""
    chunks = chunk(text, language)
    lines = split_lines(text)
    owned = sorted(line for piece in chunks for line in own_lines(piece))
    assert owned == list(range(1, len(lines) + 1))
    for piece in chunks:
        assert piece.text == "\n".join(lines[line - 1] for line in own_lines(piece))
        assert piece.start == own_lines(piece)[0]
        assert piece.end == own_lines(piece)[-1]
    assert [c.start for c in chunks] == sorted(c.start for c in chunks)
    assert len({c.id for c in chunks}) == len(chunks)


def test_python_outline() -> None:
    assert outline(PYTHON, "python") == (
        "module 1-38, function fetch 6-19, class Outer 20-24, method Outer.value 25-27, class "
        "Outer.Inner 28-28, method Outer.Inner.method 29-31, method Outer.last 32-34, function "
        "conditional 36-37"
    )
    assert_partition(PYTHON, "python")


def test_a_long_signature_keeps_the_name() -> None:
    parameters = [f"    p{number}: int," for number in range(20)]
    cases = [f"    ({number}, 1)," for number in range(20)]
    long = "\n".join(["def long(", *parameters, ") -> None:", "    pass"])
    table = "\n".join(["@cases([", *cases, "])", "def short(x):", "    pass"])
    first, second = chunk(f"{long}\n\n\n{table}\n")
    assert first.signature.split("\n") == ["def long(", *parameters[:11]]
    assert second.signature.split("\n") == [*cases[-10:], "])", "def short(x):"]


LANGUAGES = {
    "javascript": (
        """\
        import x from 'y';

        /** Doc. */
        export default class A extends B {
          static x = 1;

          /** Doc. */
          foo(a) {
            return 1;
          }
          bar = () => {
            return 2;
          };
        }
        export const f = async (a) => {
          return 1;
        };
        Foo.prototype.b = function () {
          return 3;
        };
        module.exports = {
          c() {
            return 1;
          },
        };
        (function () {
          function inner() {
            return 1;
          }
        })();
        """,
        (
            "module 1-30, class A 3-14, method A.foo 7-10, method A.bar 11-13, function f 15-17, "
            "method Foo.b 18-20, function c 22-24, function inner 27-29"
        ),
    ),
    "typescript": (
        """\
        @Component({
          a: 1,
        })
        export class A {
          @Input()
          foo(a: string): void {
            x();
          }
          abstract bar(): void;
        }
        export interface I {
          a: string;
        }
        namespace N {
          export function q(): number {
            return 1;
          }
        }
        """,
        "class A 1-10, method A.foo 5-8, class I 11-13, module 14-18, method N.q 15-17",
    ),
    "tsx": (
        "const El = (p: P) => <div>{p.x}</div>;\nexport default El;\n",
        "function El 1-1, module 2-2",
    ),
    "go": (
        """\
        package a

        // S is.
        type S struct {
            a int
        }

        // M does.
        func (s *S) M(x int) error {
            return nil
        }

        func F[T any](a T) T {
            return a
        }
        """,
        "module 1-2, class S 3-7, method S.M 8-12, function F 13-15",
    ),
    "rust": (
        """\
        use a::b;

        /// Doc.
        #[derive(Debug)]
        pub struct S {
            a: i32,
        }

        impl<T> Tr for S<T> {
            /// Doc.
            #[inline]
            pub fn f(&self) -> i32 {
                1
            }
        }
        """,
        "module 1-2, class S 3-8, class S 9-15, method S.f 10-14",
    ),
    "java": (
        """\
        package a;

        /** Doc. */
        @X
        public class A<T> extends B {
            int a;

            @Override
            public void f()
                    throws E {
            }

            interface I {
                void x();
            }
        }
        """,
        "module 1-2, class A 3-16, method A.f 8-12, class A.I 13-15",
    ),
    "c": (
        """\
        #include <a.h>
        #ifdef X
        /* Doc. */
        static int *foo(int a)
        {
            return 0;
        }
        #endif
        typedef struct {
            int b;
        } T;
        int g(void);
        """,
        "module 1-12, function foo 3-7, class T 9-11",
    ),
    "cpp": (
        """\
        namespace n {
        template <typename T>
        class A : public B {
         public:
          A();
          void f() const {
            x();
          }
        };

        template <class T>
        void A<T>::g(int x) {
        }
        A& operator+(A& x) {
          return x;
        }
        }
        """,
        ("module 1-17, class A 2-10, method A.f 6-8, method A.g 11-13, function operator+ 14-16"),
    ),
    "csharp": (
        """\
        using X;
        namespace N {
            /// Doc.
            [Attr]
            public class A : B {
                public int P { get; set; }
                public void F() {
                }
            }
        }
        """,
        "module 1-10, class A 3-9, method A.F 7-8",
    ),
    "ruby": (
        """\
        module M
          class A < B
            attr_reader :x

            # Doc.
            def f(a)
              1
            end

            def self.g
            end
          end
        end
        """,
        "class M 1-13, class M.A 2-12, method M.A.f 5-9, method M.A.g 10-11",
    ),
    "php": (
        """\
        <?php
        namespace X;

        /** Doc. */
        abstract class A extends B {
            const X = 1;
            /** Doc. */
            public function f(int $a): int {
                return 1;
            }
            abstract function g();
        }
        function top() {
            return 1;
        }
        """,
        "module 1-3, class A 4-12, method A.f 7-10, function top 13-15",
    ),
}


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_outline_of_each_language(language: str) -> None:
    text, expected = LANGUAGES[language]
    text = textwrap.dedent(text)
    assert outline(text, language) == expected
    assert_partition(text, language)


@pytest.mark.parametrize(
    ("path", "text", "chunks", "inner"),
    [
        ("b.jsx", "const B = memo(forwardRef(function C(p) {\n  return p;\n}));", "B 1-3", ""),
        ("b.js", "const n = list.map((x) => {\n  return x;\n});", " 1-3", ""),
        ("src/cart.ts", "export default async () => {\n  go();\n};", "cart 1-3", ""),
        ("src/cart/index.js", "export default class {\n  f() {\n  }\n}",
         "cart 1-4, cart.f 2-3", ""),
        ("cart.js", "module.exports = function () {\n  go();\n};", "cart 1-3", ""),
        ("c.js", "export default memo(function Cart() {\n  go();\n});", "Cart 1-3", ""),
        ("n.ts", "namespace A.B {\n  namespace C {\n    function f() {\n    }\n  }\n}",
         " 1-6, C.f 3-4", ""),
        ("a.vue", "<template>\n</template>\n<script>\nfunction f() {\n}\n</script>\n",
         " 1-6, f 4-5", ""),
        ("s.js", "function make() {\n  const go = () => {\n    function deep() {\n    }\n  };\n"
         "  return {\n    run() {\n    },\n    'x:exit': function () {\n    },\n  };\n}",
         "make 1-12",
         "make > go 2-5, make > go > deep 3-4, make > run 7-8, make > x:exit 9-10"),
        ("a.test.js", "describe('x', () => {\n  it.only(`y`, async () => {\n    t();\n  });\n});\n"
         "it('z');",
         " 1-6", "describe x 1-5, describe x > it y 2-4"),
        ("a.py", "class A:\n  def f(self):\n    if 1:\n      def g():\n        pass\n",
         "A 1-1, A.f 2-5", "A.f > g 4-5"),
    ],
)  # fmt: skip
def test_functions_that_are_values_inner_functions_and_tests(
    path: str, text: str, chunks: str, inner: str
) -> None:
    file, chunker = SourceFile(path, "b" * 40, len(text), language_of(path)), TreeSitterChunker()

    def named(pieces: tuple[Chunk, ...]) -> str:
        return ", ".join(f"{piece.symbol} {piece.start}-{piece.end}" for piece in pieces)

    assert (named(chunker(file, text)), named(chunker.inner(file, text))) == (chunks, inner)
    assert_partition(text, language_of(path))


@pytest.mark.parametrize(
    ("language", "symbol", "signature"),
    [
        ("typescript", "A", "@Component({\n  a: 1,\n})\nexport class A"),
        ("typescript", "A.foo", "  @Input()\n  foo(a: string): void"),
        ("go", "S.M", "func (s *S) M(x int) error"),
        ("go", "S", "type S struct"),
        ("rust", "S.f", "    #[inline]\n    pub fn f(&self) -> i32"),
        ("java", "A.f", "    @Override\n    public void f()\n            throws E"),
        ("cpp", "A.g", "template <class T>\nvoid A<T>::g(int x)"),
        ("ruby", "M.A.f", "    def f(a)"),
    ],
)
def test_signature_of_other_languages(language: str, symbol: str, signature: str) -> None:
    chunks = chunk(textwrap.dedent(LANGUAGES[language][0]), language)
    assert next(c.signature for c in chunks if c.symbol == symbol) == signature


def test_broken_python_keeps_what_can_be_parsed() -> None:
    text = "def good():\n    return 1\n\nclass (:\n  ???\n\ndef also_good():\n    return 2\n"
    assert {"good", "also_good"} <= {c.symbol for c in chunk(text)}
    assert_partition(text, "python")


def test_empty_and_blank_files() -> None:
    assert chunk("") == ()
    assert outline("\n\n", "python") == "module 1-2"
    assert outline("\n\ndef f(): pass\n", "python") == "function f 1-3"


def test_minified_code_is_not_parsed() -> None:
    text = "function a(){return 1};" * 3_000
    assert [(c.kind, c.start, c.end) for c in chunk(text, "javascript")] == [
        (ChunkKind.WINDOW, 1, 1)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "class Old:\n\tdef f(self):\n\t\tpass\n" + "# old = 1\n" * 4_000 + "x = 1\n",
        "\\\n" * 20_000 + "$\n",
    ],
    ids=["comments", "continued lines"],
)
def test_what_a_parser_goes_back_in_too_often_gives_windows(text: str) -> None:
    chunks = chunk(text)
    assert {c.kind for c in chunks} == {ChunkKind.WINDOW}
    assert_partition(text, "python")
    assert chunk(text) == chunks


def test_markdown_is_cut_at_headings_outside_of_fences() -> None:
    section = "text\n" * 40
    text = f"# One\n{section}```\n# no heading\n{section}```\n## Two\n{section}"
    assert [(c.start, c.end) for c in chunk(text, "markdown")] == [(1, 60), (61, 84), (85, 125)]


def test_deep_nesting_does_not_exhaust_the_stack() -> None:
    depth = 3_000
    blocks = "\n".join(" " * level + "if x:" for level in range(depth))
    assert_partition(blocks + "\n" + " " * depth + "pass\n", "python")
    classes = "\n".join(f"class A{level} {{" for level in range(500)) + "\n" + "}\n" * 500
    assert_partition(classes, "java")


_FRAGMENTS = [
    *("\n", "\n\n", " ", "    ", "\t", "\f", "\r", "\x00", "\u2028", "é", "\U0001f600", "\udc80"),
    *("def f(", "class A:", "):", "{", "}", '"""', "'", "#", "//", "/*", "*/", "@", ";", "x = 1"),
    *("function g() {", "func (a", "impl ", "=> ", "<?php ", "end", "module ", "type ", "\\"),
]
_ALPHABET = st.sampled_from(_FRAGMENTS)


@settings(max_examples=200, deadline=None)
@given(st.lists(_ALPHABET, max_size=60).map("".join), st.sampled_from(sorted(GRAMMARS)))
def test_any_text_is_partitioned(text: str, language: str) -> None:
    assert_partition(text, language)
