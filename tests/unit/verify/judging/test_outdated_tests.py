"""Which failure reports are assertions of the test itself, and which ids are meant."""

from __future__ import annotations

import pytest

from agent.types import OutdatedTest
from agent.verify.judging.outdated import (
    asserted_in,
    declared_for,
    is_own_assertion,
    placed_test,
)
from agent.verify.runners import runner_of
from agent.verify.runners.base import Suite

TEST = "tests/test_a.py::test_x"

LONG = """
    def test_x():
>       assert total() == 2
E       assert 1 == 2

tests/test_a.py:4: AssertionError"""
SHORT = "tests/test_a.py:4: in test_x\n    assert total() == 2\nE   assert 1 == 2"
METHOD = "E       AssertionError: 1 != 2\n\ntests/test_a.py:4: AssertionError"
RAISES = "E       Failed: DID NOT RAISE <class 'ValueError'>\n\ntests/test_a.py:4: Failed"
HELPER = "E       assert 1 == 2\n\ntests/helpers.py:9: AssertionError"
PLAIN = (
    'Traceback (most recent call last):\n  File "/t/tests/test_a.py", line 4, in test_x\n'
    '    self.assertEqual(total(), 2)\n  File "/usr/lib/python3.11/unittest/case.py", line 873, in'
    " assertEqual\n    assertion_func(first, second)\nAssertionError: 1 != 2\n"
)

IN_SOURCE = "E       assert 1 == 2\n\nshop/price.py:9: AssertionError"
ERROR = "E       ValueError: 3\n\ntests/test_a.py:4: ValueError"
DEEP = "E       ValueError: assert\n\nshop/price.py:9: ValueError"
PLAIN_ERROR = PLAIN.replace("AssertionError", "ValueError")
PLAIN_SOURCE = PLAIN.replace("/usr/lib/python3.11/unittest/case.py", "/t/shop/price.py")


@pytest.mark.parametrize("text", [LONG, SHORT, METHOD, RAISES, HELPER, PLAIN])
def test_assertions_of_the_test(text: str) -> None:
    assert is_own_assertion(TEST, text)


@pytest.mark.parametrize("text", ["", IN_SOURCE, ERROR, DEEP, PLAIN_ERROR, PLAIN_SOURCE])
def test_errors_and_assertions_of_the_source(text: str) -> None:
    assert not is_own_assertion(TEST, text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (IN_SOURCE, "shop/price.py"),
        (PLAIN_SOURCE, "shop/price.py"),
        (DEEP, ""),
        (LONG, ""),
        ("", ""),
    ],
)
def test_the_place_of_an_assertion_in_source(text: str, place: str) -> None:
    assert asserted_in(text, ("shop/price.py", "a.py")) == place


def test_an_id_names_a_test_and_all_of_its_parameters() -> None:
    failing = ("t.py::C::test_a[1]", "t.py::C::test_a[2.5]", "t.py::test_b", "t.py::test_bb")
    dotted, one = OutdatedTest("./t.py::C.test_a", "why"), OutdatedTest("t.py::test_b", "why")
    exact = OutdatedTest("t.py::C::test_a[1]", "more")
    found = declared_for(failing, (dotted, one, exact))
    assert found == {failing[0]: exact, failing[1]: dotted, failing[2]: one}


CASE = "tests/test_a.py::Case::test_x"
SCRIPT = "src/a.test.js::cart > adds two (2) prices"


@pytest.mark.parametrize(
    ("test", "name"),
    [
        (CASE, "tests.test_a.Case.test_x"),
        (CASE, "test_a.Case.test_x"),
        (CASE, "Case.test_x"),
        (CASE, "test_x (tests.test_a.Case)"),
        (CASE, "test_x (tests.test_a.Case.test_x)"),
        (CASE, "test_x"),
        (SCRIPT, "src/a.test.js::cart adds two (2) prices"),
        (SCRIPT, "cart > adds two (2) prices"),
        (SCRIPT, "adds two (2) prices"),
        ("pkg/sum::TestSum/small", "pkg/sum/sum_test.go::TestSum"),
        ("pkg/sum::TestSum", "TestSum"),
        ("src/test/java/com/x/FooTest.java::adds", "com.x.FooTest#adds"),
        ("src/test/java/com/x/FooTest.java::adds", "FooTest.adds"),
    ],
)
def test_a_test_may_be_named_as_runners_print_it(test: str, name: str) -> None:
    one = OutdatedTest(name, "why")
    assert declared_for((test, "other/test_b.py::Else::test_z"), (one,)) == {test: one}


def test_a_name_that_fits_several_functions_means_none_of_them() -> None:
    failing = ("a/test_a.py::A::test_x", "a/test_a.py::B::test_x", "a/test_a.py::B::test_xx")
    assert declared_for(failing, (OutdatedTest("test_x", "why"),)) == {}
    one = OutdatedTest("B.test_x", "why")
    assert declared_for(failing, (one, OutdatedTest("x", "why"))) == {failing[1]: one}
    assert declared_for(failing, (OutdatedTest("", "why"), OutdatedTest("::", "why"))) == {}


def test_a_runner_says_what_its_own_names_mean() -> None:
    suite = Suite("go", "", settings={"module": "example.com/m"})
    one = OutdatedTest("example.com/m/sum.TestSum", "why")
    found = declared_for(("sum::TestSum",), (one,), lambda n: runner_of(suite).test_id(suite, n))
    assert found == {"sum::TestSum": one}


def test_the_file_of_a_dotted_name() -> None:
    files = ("tests/test_a.py", "lib/test_b.py", "other/test_b.py")
    assert placed_test("tests.test_a.Case.test_x", files) == CASE
    assert placed_test("test_x (test_a.Case)", files) == CASE
    assert placed_test("test_b.test_x", files) == "test_b.test_x"  # two files fit
    assert placed_test("a.py::test_x", files) == "a.py::test_x"
