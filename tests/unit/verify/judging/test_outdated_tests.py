"""Which failure reports are assertions of the test itself, and which ids are meant."""

from __future__ import annotations

import pytest

from agent.types import OutdatedTest
from agent.verify.judging.outdated import assertion_place, declared_for

LONG = """
    def test_x():
>       assert total() == 2
E       assert 1 == 2

tests/test_a.py:4: AssertionError"""
SHORT = "tests/test_a.py:4: in test_x\n    assert total() == 2\nE   assert 1 == 2"
METHOD = "E       AssertionError: 1 != 2\n\ntests/test_a.py:4: AssertionError"
RAISES = "E       Failed: DID NOT RAISE <class 'ValueError'>\n\ntests/test_a.py:4: Failed"
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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (LONG, "tests/test_a.py"),
        (SHORT, "tests/test_a.py"),
        (METHOD, "tests/test_a.py"),
        (RAISES, "tests/test_a.py"),
        (PLAIN, "/t/tests/test_a.py"),
        (IN_SOURCE, "shop/price.py"),
        (PLAIN_SOURCE, "/t/shop/price.py"),
        (ERROR, ""),
        (DEEP, ""),
        (PLAIN_ERROR, ""),
        ("", ""),
    ],
)
def test_the_place_of_a_failed_assertion(text: str, place: str) -> None:
    assert assertion_place(text) == place


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
        (CASE, "test_x (tests.test_a.Case)"),
        (CASE, "test_x (tests.test_a.Case.test_x)"),
        (CASE, "test_x"),
        (SCRIPT, "cart > adds two (2) prices"),
        (SCRIPT, "adds two (2) prices"),
        ("pkg/sum::TestSum/small", "pkg/sum/sum_test.go::TestSum"),
        ("pkg/sum::TestSum", "TestSum"),
        ("pkg/sum::TestSum", "example.com/m/pkg/sum.TestSum"),
        ("src/test/java/com/x/FooTest.java::adds", "com.x.FooTest#adds"),
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
