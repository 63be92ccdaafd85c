import pytest
from num2words import num2words


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (90, "dziewięćdziesiąty"),
        (95, "dziewięćdziesiąty piąty"),
        (190, "sto dziewięćdziesiąty"),
        (80, "osiemdziesiąty"),
    ],
)
def test_polish_ordinals_of_the_nineties(number, expected):
    assert num2words(number, lang="pl", to="ordinal") == expected
