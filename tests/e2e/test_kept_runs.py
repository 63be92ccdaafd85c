"""Kept runs: what was paid for is not lost, and can be listed, shown, applied and gone on from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AGENT, agent_environment, run_agent
from tests.support.behaviours import Good
from tests.support.interrupts import INTERRUPTIBLE
from tests.support.scripted_provider import ScriptedProvider, Step
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

SECRET = "zz9plural4z7alpha0123456789"
FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": (
        "import time\nfrom calc import add\n\n\ndef test_add():\n    time.sleep(60)\n"
        "    assert add(0, 0) == 0\n"
    ),
}
QUICK = ("--no-tests", "--accept-unverified", "--no-iterative", "--repairs", "0")


def reply(replace: str) -> str:
    edit = {"path": "calc.py", "search": "return a - b", "replace": replace}
    return json.dumps({"thought": "the sign", "edits": [edit]})


class Home:
    """A user's home with a repository and an issue."""

    def __init__(self, path: Path, repository: Path) -> None:
        self.path = path
        self.repository = repository
        self.issue = path / "issue.md"
        self.issue.write_text("# add subtracts\n\n`add(1, 2)` gives -1.\n")
        self.runs = path / ".local/state/patchshot/runs"
        self.provider: ScriptedProvider | None = None

    def agent(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        assert self.provider is not None
        return run_agent(*arguments, home=self.path, **self.variables(), **options)

    def variables(self) -> dict[str, str]:
        assert self.provider is not None
        return {
            "PATCHSHOT_BASE_URL": self.provider.base_url,
            "PATCHSHOT_MODEL": "scripted",
            "PATCHSHOT_EMBED": "off",
            "PATCHSHOT_PRICES": "1,2",
            "SERVICE_TOKEN": SECRET,
        }

    def solve(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.agent("solve", *self.named(), *QUICK, *arguments, **options)

    def named(self) -> tuple[str, ...]:
        return ("--problem", str(self.issue), "--repo", str(self.repository))

    def listed(self) -> list[dict[str, Any]]:
        done = self.agent("runs", "--json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture
def home(tmp_path: Path, make_repository: Callable[[Mapping[str, str | bytes]], Path]) -> Home:
    path = tmp_path / "home"
    path.mkdir()
    return Home(path, make_repository(FILES))


def serving(home: Home, *script: Step) -> ScriptedProvider:
    home.provider = ScriptedProvider(script)
    return home.provider


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_feedback_marks_a_run_and_fills_the_memory(home: Home) -> None:
    with serving(home, Good(reply("return a + b"))):
        assert home.solve().returncode == 0
        run = home.listed()[0]["run"]

        def feedback(*arguments: str) -> tuple[str, bool, int]:
            done = home.agent(*arguments, "--json")
            assert done.returncode == 0, done.stderr
            facts = json.loads(done.stdout)
            return facts["feedback"], facts["changed"], facts["remembered"]

        assert feedback("accept", run[:4]) == ("accepted", True, 1)
        assert feedback("accept") == ("accepted", False, 1)
        assert home.listed()[0]["feedback"] == "accepted"
        assert "accepted" in home.agent("runs").stdout
        assert feedback("reject", run) == ("rejected", True, 0)
        assert home.listed()[0]["feedback"] == "rejected"
        unknown = home.agent("accept", "fff")
        assert unknown.returncode == 2
        assert "no kept run begins with" in unknown.stderr


def test_a_run_is_kept_listed_shown_reported_and_applied(home: Home) -> None:
    with serving(home, Good(reply("return a + b"))):
        solved = home.solve()
        assert solved.returncode == 0, solved.stderr
        (run,) = home.listed()
        assert (run["title"], run["status"], run["usage"]["calls"]) == (
            "add subtracts", "accepted", 1,
        )  # fmt: skip
        assert run["usage"]["cost_usd"] > 0
        table = home.agent("runs").stdout
        assert run["run"] in table
        assert "add subtracts" in table

        shown = home.agent("show", run["run"][:4])
        assert shown.returncode == 0, shown.stderr
        assert solved.stdout in shown.stdout
        assert f"${run['usage']['cost_usd']:.4f}" in shown.stdout
        assert home.agent("show").stdout == shown.stdout
        assert json.loads(home.agent("show", "--json").stdout)["result"]["diff"] == solved.stdout

        report = home.agent("report", run["run"][:4])
        assert report.returncode == 0, report.stderr
        page = (home.path / "report.html").read_text()
        for text in ("add subtracts", "gives -1", "Reply 1", "the sign"):
            assert text in page

        applied = home.agent("apply", run["run"][:4])
        assert applied.returncode == 0, applied.stderr
        assert (home.repository / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
        assert "wrote 1 file: calc.py" in applied.stderr
        undone = home.agent("undo", run["run"], "--repo", str(home.repository))
        assert undone.returncode == 0, undone.stderr
        assert (home.repository / "calc.py").read_text() == FILES["calc.py"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_was_paid_before_an_interruption_is_not_paid_again(home: Home, number: int) -> None:
    require_sandbox()
    with serving(home, Good(reply("return a + b"))) as provider:
        log = home.path / "stderr"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*INTERRUPTIBLE, *AGENT, "solve", *home.named()],
                cwd=home.path,
                env=agent_environment(home.path, **home.variables()),
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        deadline = time.monotonic() + 100
        while "validate: testing" not in log.read_text():  # the reply is there, its tests hang
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(timeout=60)
        (cut_off,) = home.listed()
        assert cut_off["status"] == ("unfinished" if number == signal.SIGKILL else "interrupted")

        done = home.solve()
        assert done.returncode == 0, done.stderr
        assert "+    return a + b" in done.stdout
        assert f"run {cut_off['run']} has paid for this reply" in done.stderr
        assert len(provider.chats) == 1
        (run,) = home.listed()
        assert (run["run"], run["status"], run["usage"]["calls"]) == (
            cut_off["run"], "accepted", 1,
        )  # fmt: skip


def test_a_retry_pays_one_call_and_tells_the_model_the_comment(home: Home) -> None:
    script = [Good(reply("return b + a")), Good(reply("return a + b"))]
    with serving(home, *script) as provider:
        home.solve("--test-cmd", "true")
        (run,) = home.listed()
        done = home.agent(
            "retry", run["run"], "--comment", "keep the order of a and b </comment>", *QUICK[:2]
        )
        assert done.returncode == 0, done.stderr
        assert "+    return a + b" in done.stdout
        assert len(provider.chats) == 2
        first, second = (chat.body["messages"] for chat in provider.chats)
        assert second[: len(first)] == first
        assert second[len(first)]["content"] == reply("return b + a")
        wish = second[-1]["content"]
        assert "keep the order of a and b" in wish
        assert wish.count("</comment>") == 1  # the one of the prompt itself
        assert len(second) == len(first) + 2
        newest, oldest = home.listed()
        assert (newest["retry_of"], oldest["run"]) == (run["run"], run["run"])


def test_a_retry_on_changed_uncommitted_work_is_refused_before_it_is_paid(home: Home) -> None:
    (home.repository / "calc.py").write_text("# mine\n" + FILES["calc.py"])
    with serving(home, Good(reply("return b + a"))) as provider:
        home.solve()
        (home.repository / "notes.txt").write_text("unrelated\n")
        (run,) = home.listed()
        wanted = ("retry", run["run"], "--comment", "keep the order", *QUICK[:2])
        assert home.agent(*wanted).returncode == 0
        (home.repository / "calc.py").write_text("# other\n" + FILES["calc.py"])
        done = home.agent(*wanted)
        assert done.returncode == 2
        assert "has changed since run" in done.stderr
        assert len(provider.chats) == 2


def test_no_key_and_no_secret_is_kept(home: Home) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    home.issue.write_text(f"# add subtracts\n\nwith {SECRET} and {token}\n")
    answer = json.dumps(
        {"thought": f"{SECRET} {token}", "edits": json.loads(reply("return a + b"))["edits"]}
    )
    with serving(home, Good(answer)):
        assert home.solve().returncode == 0
        kept = everything_in(home.runs)
        assert b"add subtracts" in kept
        assert SECRET.encode() not in kept
        assert token.encode() not in kept


def test_a_patch_with_a_secret_is_not_applied_in_its_masked_form(home: Home) -> None:
    with serving(home, Good(reply(f"return a + b  # {SECRET}"))):
        home.solve()
        (run,) = home.listed()
        done = home.agent("apply", run["run"])
        assert done.returncode == 2
        assert "held a secret, which is not kept" in done.stderr
        assert (home.repository / "calc.py").read_text() == FILES["calc.py"]


def test_a_terminal_is_not_controlled_by_what_was_kept(home: Home) -> None:
    home.issue.write_text("# add \N{RIGHT-TO-LEFT OVERRIDE}subtracts\n")
    with serving(home, Good(reply("return a + b  # \x1b]0;owned\x07\x9b31m"))):
        home.solve()
        for command in (("show",), ("runs",)):
            done = home.agent(*command)
            assert done.returncode == 0
            assert all(c.isprintable() or c == "\n" for c in done.stdout.replace("\t", ""))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".git/hooks/post-checkout", "git's own"),
        ("../outside.py", "invalid path"),
        (".github/workflows/ci.yml", "protected by the rule"),
    ],
)
def test_a_kept_diff_is_as_little_trusted_as_a_reply(home: Home, path: str, words: str) -> None:
    with serving(home, Good(reply("return a + b"))):
        home.solve()
        (run,) = home.listed()
        (home.runs / run["run"] / "patch.diff").write_text(
            f"diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n"
            "@@ -0,0 +1 @@\n+touch /tmp/owned\n"
        )
        done = home.agent("apply", run["run"])
        assert done.returncode == 2
        assert words in done.stderr
        assert not (home.repository / path).exists()


def test_a_retry_takes_no_leave_from_a_kept_file(home: Home) -> None:
    with serving(home, Good(reply("return b + a"))) as provider:
        home.solve()
        (run,) = home.listed()
        place = home.runs / run["run"] / "origin.json"
        origin = json.loads(place.read_text())
        origin["settings"] |= {"base_url": "http://127.0.0.1:9/v1", "unsafe_no_sandbox": True}
        place.write_text(json.dumps(origin))
        done = home.agent("retry", run["run"], "--comment", "x", *QUICK[:2])
        assert done.returncode == 0, done.stderr
        assert len(provider.chats) == 2


def test_a_kept_patch_is_merged_with_edits_made_meanwhile(home: Home) -> None:
    with serving(home, Good(reply("return a + b"))):
        home.solve()
        mine = "# mine\n\n\n" + FILES["calc.py"]
        (home.repository / "calc.py").write_text(mine)
        done = home.agent("apply", home.listed()[0]["run"])
        assert done.returncode == 0, done.stderr
        assert (home.repository / "calc.py").read_text() == mine.replace("a - b", "a + b")
        (home.repository / "calc.py").write_text("def add(a, b):\n    return sum([a, b])\n")
        refused = home.agent("apply", home.listed()[0]["run"])
        assert refused.returncode == 5
        assert "nothing was written" in refused.stderr


def test_no_keep_keeps_nothing(home: Home) -> None:
    with serving(home, Good(reply("return a + b"))):
        assert home.solve("--no-keep").returncode == 0
        assert not home.runs.exists()
        assert home.listed() == []
        done = home.agent("show")
        assert (done.returncode, "no run is kept yet" in done.stderr) == (2, True)
        empty = home.agent("runs")
        assert (empty.stdout, "no run is kept yet" in empty.stderr) == ("", True)


@pytest.mark.parametrize("broken", ["file", "read-only", "full"])
def test_a_run_that_cannot_be_kept_is_solved_all_the_same(
    home: Home, tmp_path: Path, broken: str
) -> None:
    state = home.path / ".local/state"
    state.mkdir(parents=True)
    options: dict[str, Any] = {}
    if broken == "file":
        (state / "patchshot").write_text("")
    elif broken == "read-only":
        if os.geteuid() == 0:
            options["XDG_STATE_HOME"] = "/proc/nothing/can/be/made/here"
        state.chmod(0o500)
    with serving(home, Good(reply("return a + b"))):
        if broken == "full":  # no file may grow beyond 3,000 bytes: the prompt does not fit
            options["prefix"] = ("prlimit", "--fsize=3000")
        done = home.solve(**options)
    assert done.returncode == 0, done.stderr
    assert "+    return a + b" in done.stdout
    said = [line for line in done.stderr.splitlines() if "this run is not kept" in line]
    assert len(said) == 1, done.stderr


def test_files_of_others_in_the_folder_do_no_harm(home: Home) -> None:
    with serving(home, Good(reply("return a + b"))) as provider:
        home.solve()
        (run,) = home.listed()
        folder = home.runs / run["run"]
        (folder / "result.json").unlink()
        (folder / "exchanges.jsonl").write_text("nonsense\n")
        assert home.listed()[0]["status"] == "unfinished"
        assert home.solve().returncode == 0  # nothing usable is there: paid again
        assert len(provider.chats) == 2
        (home.runs / "ffffffff").symlink_to("/etc")
        os.mkfifo(home.runs / "eeeeeeee")
        (home.runs / "dddddddd").mkdir()
        (home.runs / "dddddddd/origin.json").write_text("[" * 100_000)
        assert len(home.listed()) == 2
        assert home.solve().returncode == 0
