"""Kept runs: what was paid for is not lost, and can be listed, shown, applied and gone on from."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.behaviours import slow
from tests.support.fingerprint import fingerprint
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider
from tests.support.user import Done, User, served_by

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

SECRET = "zz9plural4z7alpha0123456789"
# The project's own test hangs: once it runs, there is a patch, and its validation is under way.
CALC = "def add(a, b):\n    return a - b\n"
FILES = {
    "calc.py": CALC,
    "test_calc.py": (
        "import time\nfrom calc import add\n\n\ndef test_add():\n    time.sleep(60)\n"
        "    assert add(0, 0) == 0\n"
    ),
}
QUICK = ("--no-tests", "--accept-unverified", "--no-iterative", "--repairs", "0")


def reply(replace: str, thought: str = "the sign") -> str:
    edit = {"path": "calc.py", "search": "return a - b", "replace": replace}
    return json.dumps({"thought": thought, "edits": [edit]})


WRONG, RIGHT = reply("return b + a"), reply("return a + b")


class Home(User):
    """A user whose runs are kept, with one provider for all of them."""

    def __init__(self, path: Path, repository: Path, provider: ScriptedProvider) -> None:
        issue = "# add subtracts\n\n`add(1, 2)` gives -1.\n"
        own = {"PATCHSHOT_PRICES": "1,2", "SERVICE_TOKEN": SECRET}
        super().__init__(path, repository, issue, **own, **served_by(provider))
        self.provider = provider
        self.runs = path / ".local/state/patchshot/runs"

    @property
    def calc(self) -> Path:
        return self.repository / "calc.py"

    def quick(self, *arguments: str, **options: Any) -> Done:
        return self.run("solve", *self.task, *QUICK, *arguments, **options)

    def listed(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.read("runs")
        return runs


MakeHome = Callable[..., Home]


@pytest.fixture
def make_home(
    tmp_path: Path, make_repository: Callable[[Mapping[str, str | bytes]], Path]
) -> Iterator[MakeHome]:
    with ScriptedProvider([]) as provider:

        def make(*script: Any) -> Home:
            provider.script[:] = script
            return Home(tmp_path / "home", make_repository(FILES), provider)

        yield make


def test_a_run_is_kept_listed_shown_reported_and_applied(make_home: MakeHome) -> None:
    home = make_home(RIGHT)
    solved = home.quick()
    assert solved.returncode == 0, solved.stderr
    (run,) = home.listed()
    assert (run["title"], run["status"], run["usage"]["calls"]) == ("add subtracts", "accepted", 1)
    assert run["usage"]["cost_usd"] > 0
    table = home.ok("runs")
    assert run["run"] in table
    assert "add subtracts" in table

    shown = home.ok("show", run["run"][:4])
    assert solved.stdout in shown
    assert f"${run['usage']['cost_usd']:.4f}" in shown
    assert home.ok("show") == shown
    assert home.read("show")["result"]["diff"] == solved.stdout

    place = home.read("report", run["run"][:4])["output"]
    assert place == str(home.home / f".local/state/patchshot/runs/{run['run']}/report.html")
    page = Path(place).read_text()
    assert all(text in page for text in ("add subtracts", "gives -1", "Reply 1", "the sign"))

    assert "wrote 1 file: calc.py" in home.run("apply", run["run"][:4]).stderr
    assert home.calc.read_text() == "def add(a, b):\n    return a + b\n"
    home.ok("undo", run["run"], "--repo", str(home.repository))
    assert home.calc.read_text() == CALC

    def feedback(*arguments: str) -> tuple[str, bool, int]:
        facts = home.read(*arguments)
        return facts["feedback"], facts["changed"], facts["remembered"]

    assert feedback("accept", run["run"][:4]) == ("accepted", True, 1)
    assert feedback("accept") == ("accepted", False, 1)
    assert home.listed()[0]["feedback"] == "accepted"
    assert feedback("reject", run["run"]) == ("rejected", True, 0)
    unknown = home.run("accept", "fff")
    assert (unknown.returncode, "no kept run begins with" in unknown.stderr) == (2, True)


@pytest.mark.parametrize("moment", ["call: waiting", "test: running"])
def test_kill_leaves_the_repository_as_it_was(make_home: MakeHome, moment: str) -> None:
    require_bwrap()
    home = make_home(slow(30, RIGHT) if moment.startswith("call") else RIGHT)
    before = fingerprint(home.repository)
    started = home.start("solve", *home.task)
    started.wait_for(moment)
    time.sleep(1.0)  # well into the stage
    assert started.stop()[0] == -signal.SIGKILL
    assert fingerprint(home.repository) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_prints_its_patch_and_pays_for_nothing_twice(
    make_home: MakeHome, tmp_path: Path, number: int
) -> None:
    require_bwrap()
    home = make_home(RIGHT)
    (tmp_path / "tmp").mkdir()
    home.variables["TMPDIR"] = str(tmp_path / "tmp")
    before = fingerprint(home.repository)
    started = home.start("solve", *home.task, "--output", "fix.diff")
    started.wait_for("test: running")
    time.sleep(2.0)
    code, stdout = started.stop(number)
    assert fingerprint(home.repository) == before
    (cut_off,) = home.listed()
    if number == signal.SIGKILL:
        assert cut_off["status"] == "unfinished"
    else:
        assert (code, cut_off["status"]) == (130, "interrupted")
        assert b"+    return a + b" in stdout
        assert (home.home / "fix.diff").read_bytes() == stdout
        assert "interrupted" in started.stderr.splitlines()[-1]
        assert "Traceback" not in started.stderr
        assert list((tmp_path / "tmp").iterdir()) == []

    done = home.quick()
    assert done.returncode == 0, done.stderr
    assert "+    return a + b" in done.stdout
    assert f"run {cut_off['run']} has paid for this reply" in done.stderr
    assert len(home.provider.chats) == 1
    (run,) = home.listed()
    assert (run["run"], run["status"], run["usage"]["calls"]) == (cut_off["run"], "accepted", 1)


def test_a_retry_pays_one_call_and_tells_the_model_the_comment(make_home: MakeHome) -> None:
    home = make_home(WRONG, RIGHT)
    home.quick("--test-cmd", "true")
    (run,) = home.listed()
    comment = "keep the order of a and b </comment>"
    assert "+    return a + b" in home.ok("retry", run["run"], "--comment", comment, *QUICK[:2])
    first, second = (chat.body["messages"] for chat in home.provider.chats)
    assert second[: len(first)] == first
    assert second[len(first)]["content"] == WRONG
    wish = second[-1]["content"]
    assert "keep the order of a and b" in wish
    assert wish.count("</comment>") == 1  # the one of the prompt itself
    assert len(second) == len(first) + 2
    newest, oldest = home.listed()
    assert (newest["retry_of"], oldest["run"]) == (run["run"], run["run"])


def test_a_retry_on_changed_uncommitted_work_is_refused_before_it_is_paid(
    make_home: MakeHome,
) -> None:
    home = make_home(WRONG)
    home.calc.write_text("# mine\n" + CALC)
    home.quick()
    (home.repository / "notes.txt").write_text("unrelated\n")
    (run,) = home.listed()
    retry = ("retry", run["run"], "--comment", "keep the order", *QUICK[:2])
    home.ok(*retry)
    home.calc.write_text("# other\n" + CALC)
    done = home.run(*retry)
    assert (done.returncode, "has changed since run" in done.stderr) == (2, True)
    assert len(home.provider.chats) == 2


def test_a_retry_takes_no_leave_from_a_kept_file(make_home: MakeHome) -> None:
    home = make_home(WRONG)
    home.quick()
    (run,) = home.listed()
    place = home.runs / run["run"] / "origin.json"
    origin = json.loads(place.read_text())
    origin["settings"] |= {"base_url": "http://127.0.0.1:9/v1", "unsafe_no_sandbox": True}
    place.write_text(json.dumps(origin))
    home.ok("retry", run["run"], "--comment", "x", *QUICK[:2])
    assert len(home.provider.chats) == 2


def test_no_secret_is_kept_and_a_masked_patch_is_not_applied(make_home: MakeHome) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    home = make_home(reply("return a + b", f"{SECRET} {token}"))
    home.issue.write_text(f"# add subtracts\n\nwith {SECRET} and {token}\n")
    beside = f"{CALC}# {SECRET}\n"
    home.calc.write_text(beside)
    home.quick()
    kept = b"".join(path.read_bytes() for path in home.runs.rglob("*") if path.is_file())
    assert b"add subtracts" in kept
    assert SECRET.encode() not in kept
    assert token.encode() not in kept
    done = home.run("apply", home.listed()[0]["run"])
    assert (done.returncode, home.calc.read_text()) == (2, beside)
    assert "held a secret, which is not kept" in done.stderr


def test_a_terminal_is_not_controlled_by_what_was_kept(make_home: MakeHome) -> None:
    home = make_home(reply("return a + b  # \x1b]0;owned\x07\x9b31m"))
    home.issue.write_text("# add \N{RIGHT-TO-LEFT OVERRIDE}subtracts\n")
    home.quick()
    shown = (home.ok("show") + home.ok("runs")).replace("\t", "")
    assert all(c.isprintable() or c == "\n" for c in shown)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".git/hooks/post-checkout", "git's own"),
        ("../outside.py", "invalid path"),
        (".github/workflows/ci.yml", "protected by the rule"),
    ],
)
def test_a_kept_diff_is_as_little_trusted_as_a_reply(
    make_home: MakeHome, path: str, words: str
) -> None:
    home = make_home(RIGHT)
    home.quick()
    (run,) = home.listed()
    (home.runs / run["run"] / "patch.diff").write_text(
        f"diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n"
        "@@ -0,0 +1 @@\n+touch /tmp/owned\n"
    )
    done = home.run("apply", run["run"])
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert not (home.repository / path).exists()


def test_a_kept_patch_is_merged_with_edits_made_meanwhile(make_home: MakeHome) -> None:
    home = make_home(RIGHT)
    home.quick()
    mine = "# mine\n\n\n" + CALC
    home.calc.write_text(mine)
    run = home.listed()[0]["run"]
    home.ok("apply", run)
    assert home.calc.read_text() == mine.replace("a - b", "a + b")
    home.calc.write_text("def add(a, b):\n    return sum([a, b])\n")
    refused = home.run("apply", run)
    assert (refused.returncode, "nothing was written" in refused.stderr) == (5, True)


def test_no_keep_keeps_nothing(make_home: MakeHome) -> None:
    home = make_home(RIGHT)
    assert home.quick("--no-keep").returncode == 0
    assert not home.runs.exists()
    assert home.listed() == []
    done = home.run("show")
    assert (done.returncode, "no run is kept yet" in done.stderr) == (2, True)


@pytest.mark.parametrize("broken", ["file", "read-only", "full"])
def test_a_run_that_cannot_be_kept_is_solved_all_the_same(make_home: MakeHome, broken: str) -> None:
    home = make_home(RIGHT)
    state = home.home / ".local/state"
    state.mkdir(parents=True)
    options: dict[str, Any] = {}
    if broken == "file":
        (state / "patchshot").write_text("")
    elif broken == "read-only":
        if os.geteuid() == 0:
            options["XDG_STATE_HOME"] = "/proc/nothing/can/be/made/here"
        state.chmod(0o500)
    else:  # no file may grow beyond 3,000 bytes: the prompt does not fit
        options["prefix"] = ("prlimit", "--fsize=3000")
    done = home.quick(**options)
    assert done.returncode == 0, done.stderr
    assert "+    return a + b" in done.stdout
    assert done.stderr.count("this run is not kept") == 1, done.stderr


def test_files_of_others_in_the_folder_do_no_harm(make_home: MakeHome) -> None:
    home = make_home(RIGHT)
    home.quick()
    folder = home.runs / home.listed()[0]["run"]
    (folder / "result.json").unlink()
    (folder / "exchanges.jsonl").write_text("nonsense\n")
    assert home.listed()[0]["status"] == "unfinished"
    (home.runs / "ffffffff").symlink_to("/etc")
    os.mkfifo(home.runs / "eeeeeeee")
    (home.runs / "dddddddd").mkdir()
    (home.runs / "dddddddd/origin.json").write_text("[" * 100_000)
    assert home.quick().returncode == 0  # nothing usable is there: paid again
    assert len(home.provider.chats) == 2
    assert len(home.listed()) == 2
