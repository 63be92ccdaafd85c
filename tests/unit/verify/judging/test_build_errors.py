from __future__ import annotations

import pytest

from agent.verify.judging.reproduction import names_of_build

RUST = """\
error[E0432]: unresolved import `adder::gone`
error[E0425]: cannot find function `other` in crate `adder`
error[E0599]: no method named `more` found for struct `adder::S` in the current scope
error[E0609]: no field `field` on type `adder::S`
error[E0560]: struct `adder::S` has no field named `b`
error: could not compile `adder` (test "x") due to 5 previous errors
"""
GO = """\
# example.com/adder [example.com/adder.test]
./x_test.go:6:6: undefined: adder.Fixed
./x_test.go:6:20: unknown field 'B' in struct literal of type T
./x_test.go:6:27: (T{...}).C undefined (type T has no field or method C)
./x_test.go:6:27: too many errors
"""
JAVA = """\
[ERROR] COMPILATION ERROR :
[ERROR] /w/src/test/java/a/XTest.java:[9,21] cannot find symbol
  symbol:   method fixed()
  location: class a.Adder
[ERROR] Failed to execute goal on project: Compilation failure
[ERROR] /w/src/test/java/a/XTest.java:[9,21] cannot find symbol
[ERROR]   symbol:   method fixed()
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (RUST, ("b", "field", "gone", "more", "other")),
        (GO, ("B", "C", "Fixed")),
        (JAVA, ("fixed",)),
    ],
)
def test_the_names_are_those_that_the_compiler_misses(text: str, names: tuple[str, ...]) -> None:
    assert names_of_build(text) == names


@pytest.mark.parametrize(
    "line",
    [
        "error[E0061]: this function takes 3 arguments but 2 arguments were supplied\n",
        "./x_test.go:6:6: not enough arguments in call to Add\n",
        "[ERROR] /w/src/test/java/a/XTest.java:[9,21] incompatible types: int\n",
    ],
)
def test_another_error_beside_them_is_another_reason(line: str) -> None:
    assert names_of_build(RUST + line) == ()


def test_the_output_of_a_test_is_no_error_of_a_compiler() -> None:
    assert names_of_build("    x_test.go:6: Add(1, 1) = 0\nassertion failed\n") is None
