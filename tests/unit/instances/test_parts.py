"""Which commits are small repairs with a test."""

from __future__ import annotations

import pytest

from benchmarks.instances.parts import MOST_LINES, Parts, Touched, sort_parts

SOURCE = Touched("shop/cart.py", 6)
TEST = Touched("tests/test_cart.py", 20)


def test_source_and_test_are_told_apart_and_prose_is_left_out() -> None:
    data = Touched("tests/data/cart.txt", 3)
    prose = (
        Touched("CHANGES.rst", 2), Touched("docs/cart.txt", 9), Touched("news/1.bugfix", 1),
        Touched("docs/conf.py", 1),
    )  # fmt: skip

    found = sort_parts([TEST, data, *prose, SOURCE])

    assert found == Parts(
        ("shop/cart.py",), ("tests/data/cart.txt", "tests/test_cart.py"), ("tests/test_cart.py",)
    )


def test_tests_may_lie_in_the_package() -> None:
    inside = Touched("shop/test/cart_test.py", 4)

    assert sort_parts([SOURCE, inside]) == Parts((SOURCE.path,), (inside.path,), (inside.path,))


@pytest.mark.parametrize(
    "touched",
    [
        [SOURCE],
        [TEST],
        [SOURCE, Touched("tests/conftest.py", 3)],  # no test is run
        [TEST, Touched("shop/cart.py", MOST_LINES + 1)],
        [TEST, *(Touched(f"shop/{n}.py", 1) for n in range(4))],
        [TEST, SOURCE, Touched("setup.py", 1)],
        [TEST, SOURCE, Touched("pyproject.toml", 1)],
        [TEST, SOURCE, Touched("shop/table.json", 1)],
        [SOURCE, TEST, Touched("tests/picture.png", None)],
    ],
)
def test_other_commits_are_none(touched: list[Touched]) -> None:
    assert sort_parts(touched) is None
