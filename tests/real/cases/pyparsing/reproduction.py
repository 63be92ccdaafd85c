import pyparsing as pp
import pytest

ONE_SET = pp.Word(pp.nums, min=3)
TWO_SETS = pp.Word(pp.alphas, pp.alphanums, min=3)


@pytest.mark.parametrize(("word", "text"), [(ONE_SET, "12"), (TWO_SETS, "x1")])
def test_too_short(word, text):
    with pytest.raises(pp.ParseException):
        word.parse_string(text)


@pytest.mark.parametrize(
    ("word", "text"),
    [(ONE_SET, "123"), (ONE_SET, "12345678"), (TWO_SETS, "x12"), (TWO_SETS, "x1234567")],
)
def test_long_enough(word, text):
    assert word.parse_string(text).as_list() == [text]


@pytest.mark.parametrize(
    ("word", "text", "expected"),
    [
        (pp.Word(pp.nums), "7", "7"),
        (pp.Word(pp.alphas, pp.alphanums), "x", "x"),
        (pp.Word(pp.alphas, pp.alphanums, min=2, max=4), "x12345", "x123"),
    ],
)
def test_other_limits_are_as_before(word, text, expected):
    assert word.parse_string(text).as_list() == [expected]
