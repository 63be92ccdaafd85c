from __future__ import annotations

import ast
import gc
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.patching import check_syntax, parse_python
from tests.support.validation import edit

_SOURCE = "x = " + "[" * 60 + "f(a)" + "]" * 60 + "\n" + "y = [f(a)[b] for a in c]\n" * 30


def test_threads_do_not_disturb_each_other() -> None:
    def hand_over(*_: object) -> None:
        """Switch threads in the middle of a parse, where only garbage collection lets them run."""
        time.sleep(0)

    thresholds = gc.get_threshold()
    gc.set_threshold(40)
    gc.callbacks.append(hand_over)
    try:
        with ThreadPoolExecutor(8) as pool:
            trees = list(pool.map(parse_python, [_SOURCE] * 150))
    finally:
        gc.callbacks.remove(hand_over)
        gc.set_threshold(*thresholds)
    assert all(len(tree.body) == 31 for tree in trees)


def test_warnings_are_left_out_and_their_filters_stay() -> None:
    filters = list(warnings.filters)
    assert isinstance(parse_python(b'"\\d"\n1 is 1\n'), ast.Module)
    assert warnings.filters == filters


GOOD = "def f(x):\n    return x\n"
BAD = "def f(x:\n    return x\n"
PYTHON_2 = 'def f(x):\n    print "x", x\n'
NEW_SYNTAX = "type Pair[T] = tuple[T, T]\n"  # Python 3.12


@pytest.mark.parametrize(
    ("path", "good", "bad", "line"),
    [
        ("a.py", GOOD, "x = 1\n" + BAD, 2),
        ("a.pyi", GOOD, "def f(: ...\n", 1),
        ("a.json", '{"a": 1}', '{\n"a": 1,\n]', 3),
        ("a.toml", "a = 1\n", "a = 1\nb = \n", 2),
        ("a.js", "const a = (b) => b;\n", "const a = (b => ;\n", 1),
        ("a.ts", "let a: number = 1;\n", "let a: = 1;\n", 1),
        ("a.tsx", "const a = <b>c</b>;\n", "const a = <b>c;\n", 1),
        ("a.go", "package a\n\nfunc f() int { return 1 }\n", "package a\n\nfunc f( int { }\n", 3),
        ("a.rs", "fn f() -> u8 { 1 }\n", "fn f( -> u8 { 1 }\n", 1),
        ("a.java", "class A { int f() { return 1; } }\n", "class A { int f( { return 1; } }\n", 1),
        ("a.rb", "def f\n  1\nend\n", "def f(\n  1\n", 1),
        ("a.php", "<?php function f() { return 1; }\n", "<?php function f( { return 1; }\n", 1),
    ],
)
def test_what_breaks_is_found_and_only_that(path: str, good: str, bad: str, line: int) -> None:
    assert check_syntax([edit(path, good, good + "\n")]) == ()
    assert check_syntax([edit(path, None, good)]) == ()
    assert check_syntax([edit(path, bad, bad + "\n")]) == (), "it was broken before"
    (problem,) = check_syntax([edit(path, good, bad)])
    assert (problem.path, problem.line) == (path, line)
    assert problem.message
    assert len(check_syntax([edit(path, None, bad)])) == 1


def test_python_2_stays_python_2() -> None:
    assert check_syntax([edit("a.py", PYTHON_2, PYTHON_2.replace("x,", "y,"))]) == ()
    assert check_syntax([edit("a.py", None, PYTHON_2)]) == ()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this interpreter reads it")
@pytest.mark.parametrize("code", [NEW_SYNTAX, "f(x for x in [], 1)\n"])
def test_this_python_alone_decides_only_for_a_target_of_its_version(code: str) -> None:
    changes = [edit("a.py", GOOD, GOOD + code), edit("b.py", GOOD, GOOD + GOOD)]
    assert check_syntax(changes) == ()
    assert [problem.path for problem in check_syntax(changes, exact=True)] == ["a.py"]


def test_depth_is_no_error() -> None:
    deep = "x = " + "(" * 5000 + ")" * 5000 + "\n"
    assert check_syntax([edit("a.json", "[]", "[" * 100_000)]) == ()
    check_syntax([edit("a.py", GOOD, deep)])


@pytest.mark.parametrize("path", ["a.h", "a.c", "a.cpp", "tsconfig.json", "a.yaml", "README.md"])
def test_what_cannot_be_told_is_not_checked(path: str) -> None:
    assert check_syntax([edit(path, "{}", "{ // macro(\n")]) == ()
