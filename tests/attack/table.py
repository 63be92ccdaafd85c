"""The table of `docs/security.md`: every case, what stops it, and the result of the suite.

python -m tests.attack.table            # the table from the recorded results
python -m tests.attack.table --record   # runs the suite first, and records what it sees
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.attack.cases import BACKENDS, LEVELS, Case, RunCase
from tests.attack.host_cases import HOST_CASES
from tests.attack.patch_cases import PATCH_CASES
from tests.attack.prompt_cases import PROMPT_CASES
from tests.attack.repository_cases import REPOSITORY_CASES
from tests.attack.run_cases import RUN_CASES
from tests.attack.verdict_cases import VERDICT_CASES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "security.md"

CASES: tuple[Case, ...] = (
    *(*PATCH_CASES, *REPOSITORY_CASES, *HOST_CASES, *RUN_CASES, *VERDICT_CASES, *PROMPT_CASES),
)
_BEGIN, _END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
_WORDS = {"passed": "yes", "skipped": "not tried", "failed": "**NO**"}
_HEADINGS = {
    "patch": "Replies of the model",
    "repository": "The repository",
    "run": "Code that runs",
    "verdict": "The verdict",
    "prompt": "Prompts and the terminal",
}

Seen = Mapping[str, Mapping[str, str]]


def recorded() -> tuple[Seen, str]:
    """Read the results by case and backend ("agent" where none takes part), and the machine."""
    stored = json.loads(RESULTS.read_text())
    return stored["seen"], stored["machine"]


def render() -> str:
    """Render the tables, one for each level."""
    seen, machine = recorded()
    words = '"yes": contained or refused; "not claimed": see the backends above.'
    lines = [f"Seen on {machine}. {words}"]
    for level in LEVELS:
        cases = [case for case in CASES if case.level == level]
        lines += ["", f"### {_HEADINGS[level]}", "", *_table(cases, seen, level)]
    return "\n".join(lines) + "\n"


def _table(cases: Sequence[Case], seen: Seen, level: str) -> Iterator[str]:
    columns = BACKENDS if level == "run" else ("agent",)
    headings = [name.replace("-user", ", user") for name in columns] if level == "run" else ["held"]
    yield _row("attack", "what it does", "what stops it", *headings)
    yield _row(*["---"] * (3 + len(columns)))
    for case in cases:
        results = [_result(case, column, seen.get(case.name, {})) for column in columns]
        yield _row(case.name, case.does, case.stopped_by, *results)


def _result(case: Case, column: str, seen: Mapping[str, str]) -> str:
    if isinstance(case, RunCase) and not case.is_claimed_by(column):
        return "not claimed"
    return _WORDS[seen.get(column, "skipped")]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page_with(table: str) -> str:
    """Replace the table of the page."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{table}{_END}{after}"


def record() -> int:
    """Run the suite, store its results and return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "seen.json")
        argv = [sys.executable, "-m", "pytest", "-q", "tests/attack", f"--attack-record={target}"]
        argv.append("--ignore=tests/attack/test_table.py")  # it judges what is recorded here
        code = subprocess.run(argv, cwd=ROOT, check=False, timeout=3600).returncode
        stored = {"machine": _machine(), "seen": json.loads(target.read_text())}
    RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    return code


def _machine() -> str:
    kernel = ".".join(platform.release().split(".")[:2])
    tools = [_version(name) for name in ("bwrap", "podman", "git")]
    who = "root" if os.geteuid() == 0 else "a user"
    return f"Linux {kernel} ({platform.machine()}) as {who}, with {', '.join(filter(None, tools))}"


def _version(name: str) -> str:
    try:
        done = subprocess.run([name, "--version"], capture_output=True, text=True, timeout=20)
    except OSError:
        return ""
    found = re.search(r"\d+\.\d+", done.stdout)
    return f"{name} {found[0]}" if found else ""


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    ended = record() if "--record" in sys.argv[1:] else 0
    PAGE.write_text(page_with(render()))
    sys.exit(ended)
