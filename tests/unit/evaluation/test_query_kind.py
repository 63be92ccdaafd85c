from __future__ import annotations

import pytest

from agent.evaluation.gold import Gold
from agent.evaluation.query_kind import PATH, PROSE, SYMBOL, TRACEBACK, query_kinds
from agent.problem import problem_from_text

GOLD = Gold(files=("src/pkg/mod.py",), functions=("src/pkg/mod.py:Parser.parse_all",))


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("It is slow\n\nI wish it were faster when it parses all.", (PROSE,)),
        ("See pkg/mod.py line 3", (PATH,)),
        ("See https://host/blob/main/src/pkg/mod.py#L3", (PATH,)),
        ("See mod.py", (PROSE,)),  # any folder may have one
        ("See other/mod.py", (PROSE,)),
        ("It fails\n\nCalling `x.parse_all()` is enough", (SYMBOL,)),
        ("The `Parser` is slow", (PROSE,)),  # not what is called as the gold is
        (
            'Crash\n\n  File "/x/site-packages/pkg/mod.py", line 3, in parse_all\n    boom\n',
            (PATH, SYMBOL, TRACEBACK),
        ),
        ('Crash\n\n  File "/x/y/z.py", line 3, in run\n    boom\n', (TRACEBACK,)),
    ],
)
def test_kinds(text: str, kinds: tuple[str, ...]) -> None:
    assert query_kinds(problem_from_text(text, "i"), GOLD) == kinds


def test_a_file_at_the_top_is_named_by_its_name() -> None:
    gold = Gold(files=("setup.py",), functions=("setup.py:build",))
    assert query_kinds(problem_from_text("See setup.py", "i"), gold) == (PATH,)
