"""Which failure reports are assertions of the test itself, and which ids are meant."""

from __future__ import annotations

import pytest

from agent.types import OutdatedTest
from agent.validation.judging.outdated import declared_for, is_own_assertion

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


def test_an_id_names_a_test_and_all_of_its_parameters() -> None:
    failing = ("t.py::C::test_a[1]", "t.py::C::test_a[2.5]", "t.py::test_b", "t.py::test_bb")
    dotted, one = OutdatedTest("./t.py::C.test_a", "why"), OutdatedTest("t.py::test_b", "why")
    exact = OutdatedTest("t.py::C::test_a[1]", "more")
    found = declared_for(failing, (dotted, one, exact))
    assert found == {failing[0]: exact, failing[1]: dotted, failing[2]: one}
