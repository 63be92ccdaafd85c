import sqlparse

TRIGGER = """CREATE TRIGGER track AFTER UPDATE ON account
BEGIN
  UPDATE history SET
    sign = CASE WHEN NEW.amount < 0 THEN 'minus' ELSE 'plus' END,
    size = CASE WHEN NEW.amount > 99 THEN 'big' ELSE 'small' END;
  DELETE FROM pending WHERE id = NEW.id;
END;"""


def test_block_with_two_case_expressions_is_one_statement():
    assert sqlparse.split(TRIGGER) == [TRIGGER]


def test_statement_after_the_block_is_its_own():
    assert sqlparse.split(TRIGGER + "\nSELECT 1;") == [TRIGGER, "SELECT 1;"]
