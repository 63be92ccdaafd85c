from __future__ import annotations

from agent.retrieval.ranking import in_scope
from agent.run.problem import problem_from_text
from tests.support.fakes import MemorySnapshot

FILES = {
    "libs/src/money.py": "",
    "libs/src/unused.py": "",
    "libs/ts/format.ts": "",
    "services/billing/app.py": "import json\nfrom money import cents\nfrom helpers import add\n",
    "services/billing/helpers.py": "",
    "services/billing/page.tsx": "import { format } from '../../libs/ts/format';\n",
    "services/orders/app.py": "import unused\n",
    "services/orders/helpers.py": "",
    "services/orders/src/json.js": "",
}
OWN = {path for path in FILES if path.startswith("services/billing/")}
NEEDED = {"libs/src/money.py", "libs/ts/format.ts"}


def shown(text: str, scope: str = "services/billing") -> set[str]:
    snapshot = MemorySnapshot(FILES, scope=scope)
    return {*in_scope(problem_from_text(text, "<text>"), snapshot).files}


def test_the_scope_and_what_it_imports_are_shown() -> None:
    assert shown("the total is wrong") == OWN | NEEDED


def test_without_a_scope_everything_is_shown() -> None:
    assert shown("the total is wrong", "") == FILES.keys()


def test_files_that_the_problem_names_by_path_are_shown() -> None:
    assert shown("see libs/src/unused.py") == {*OWN, *NEEDED, "libs/src/unused.py"}
    assert shown("see src/unused.py") == {*OWN, *NEEDED, "libs/src/unused.py"}
    trace = (
        'Traceback (most recent call last):\n  File "/home/me/repo/services/orders/app.py", line 1'
    )
    assert "services/orders/app.py" in shown(f"{trace}, in total\n    x\nValueError: x\n")


def test_a_name_of_one_of_its_own_files_shows_no_other() -> None:
    assert shown("helpers.py is wrong, billing/app.py too") == OWN | NEEDED
