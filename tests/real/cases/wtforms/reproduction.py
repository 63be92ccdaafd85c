import pytest
from wtforms import Form, SelectMultipleField


class Submitted(dict):
    def getlist(self, name):
        return self[name]


class Tags(Form):
    tags = SelectMultipleField(coerce=int, choices=[("1", "News"), ("2", "Sport"), ("3", "Arts")])


def test_choices_are_coerced_before_they_are_compared():
    form = Tags(Submitted(tags=["1", "3"]))
    assert form.validate(), form.errors
    assert form.tags.data == [1, 3]


@pytest.mark.parametrize("sent", [["9"], ["1", "9"]])
def test_unknown_choice_is_still_refused(sent):
    assert not Tags(Submitted(tags=sent)).validate()
