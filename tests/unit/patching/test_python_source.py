"""Files of Python are parsed by several threads at once."""

from __future__ import annotations

import ast
import gc
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.patching.python_source import parse_python

_SOURCE = "x = " + "[" * 60 + "f(a)" + "]" * 60 + "\n" + "y = [f(a)[b] for a in c]\n" * 30


def test_threads_do_not_disturb_each_other() -> None:
    def hand_over(*_: object) -> None:
        """In the middle of a parse, where only a collection of garbage lets other threads run."""
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


def test_errors_are_those_of_the_parser() -> None:
    with pytest.raises(SyntaxError):
        parse_python("def (:\n")
