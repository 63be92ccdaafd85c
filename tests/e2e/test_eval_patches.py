"""`agent eval patches`, as a user runs it: real git, real sandbox, whole files in and out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.results import kept as files
from tests.support import scoring as shop
from tests.support.agent_process import AGENT
from tests.support.pythons import python_with
from tests.support.sandboxes import require_bwrap
from tests.support.wheels import pytest_wheels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


SLOW = shop.change("src/shop/cart.py", "import time\n\ntime.sleep(4)\n" + shop.FIXED)


class Place:
    """A folder with repositories, a data set, predictions, and what an evaluation leaves there."""

    def __init__(self, root: Path, python: Path) -> None:
        require_bwrap()
        self.root = root
        self.python = python
        self.base = shop.make_project(root / "repos")
        self.report = root / "report.json"

    def write(self, patches: Mapping[str, str | None], *more: str) -> None:
        names = list(patches)
        rows = [json.dumps(shop.make_row(self.base, name)) for name in names]
        (self.root / "set.jsonl").write_text("".join(f"{row}\n" for row in (*rows, *more)))
        entries = {
            name: {"instance_id": name, "model_name_or_path": "m", "model_patch": patch}
            for name, patch in patches.items()
        }
        (self.root / "preds.json").write_text(json.dumps(entries))

    def command(self, *options: str) -> list[str]:
        inputs = ["--dataset", "set.jsonl", "--repos", "repos", "--output", "report.json"]
        first = () if "--predictions" in options else ("--predictions", "preds.json")
        return [*AGENT, "eval", "patches", *first, *inputs, *options]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATCHSHOT_CACHE_DIR": str(self.root / "cache")}

    def run(self, *options: str, code: int = 0, python: bool = True) -> str:
        given = ["--python", str(self.python)] if python else []
        done = subprocess.run(
            self.command(*given, *options),
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command("--python", str(self.python), *options),
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def found(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.report.read_text())
        return data

    def instance(self, name: str) -> Path:
        return self.root / "report.eval" / "instances" / name

    def wait_for(self, name: str, file: str = "result.json") -> None:
        deadline = time.monotonic() + 120
        while not (self.instance(name) / file).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("lean") / "venv")


@pytest.fixture
def place(tmp_path: Path, python: Path) -> Place:
    return Place(tmp_path, python)


def verdict(place: Place, name: str, status: str, verdict: str | None, patch: str) -> None:
    folder = place.root / "preds.run" / "instances" / name
    folder.mkdir(parents=True)
    (folder / files.RESULT).write_text(json.dumps({"status": status, "verdict": verdict}))
    (folder / files.PATCH).write_text(patch)


def test_a_run_from_predictions_to_report(place: Place) -> None:
    place.write(
        {
            "good": shop.GOLD,
            "half": shop.HALF,
            "breaks": shop.BREAKS,
            "stale": shop.STALE,
            "cheats": shop.CHEATS,
            "empty": "",
            "null": None,
        },
        "{torn",
        json.dumps(shop.make_row(place.base, "other")),
    )
    verdict(place, "good", "accepted", "verified", shop.GOLD)
    verdict(place, "half", "accepted", "verified", shop.HALF)
    verdict(place, "breaks", "broken", "regressed", shop.BREAKS)

    said = place.run("--workers", "2", code=2)

    found = place.found()
    assert {key: value for key, value in found.items() if key.endswith("_instances")} == {
        "total_instances": 8,
        "submitted_instances": 7,
        "completed_instances": 4,
        "resolved_instances": 1,
        "unresolved_instances": 3,
        "empty_patch_instances": 2,
        "error_instances": 1,
    }
    assert {key: value for key, value in found.items() if key.endswith("_ids")} == {
        "completed_ids": ["good", "half", "breaks", "cheats"],
        "incomplete_ids": ["other"],
        "empty_patch_ids": ["empty", "null"],
        "submitted_ids": ["good", "half", "breaks", "stale", "cheats", "empty", "null"],
        "resolved_ids": ["good"],
        "unresolved_ids": ["half", "breaks", "cheats"],
        "error_ids": ["stale"],
        "not_applied_ids": ["stale"],
        "pending_ids": [],
    }
    assert found["schema_version"] == 2
    kept, (lost,) = list(shop.PASS_TO_PASS), [shop.FAIL_TO_PASS[0]]
    nothing: dict[str, list[str]] = {"success": [], "failure": []}
    assert json.loads((place.instance("half") / "report.json").read_text()) == {
        "half": {
            "patch_is_None": False,
            "patch_exists": True,
            "patch_successfully_applied": True,
            "resolved": False,
            "tests_status": {
                "FAIL_TO_PASS": {"success": [], "failure": [lost]},
                "PASS_TO_PASS": {"success": kept, "failure": []},
                "FAIL_TO_FAIL": nothing,
                "PASS_TO_FAIL": nothing,
            },
        }
    }
    assert found["confusion"]["counts"]["verified"]["resolved"] == 1
    assert found["confusion"]["counts"]["verified"]["unresolved"] == 1
    assert found["confusion"]["verified_right"]["count"] == 1
    assert found["confusion"]["verified_right"]["total"] == 2
    assert found["problems"][0]["place"] == "set.jsonl:8"
    assert "VERIFIED and resolved: 1 of 2 (50.0%, 95% interval 9.5–90.5%)" in said
    assert "set.jsonl:8: not valid JSON" in said


def test_the_environment_of_a_spec_is_built_from_wheels(place: Place, tmp_path: Path) -> None:
    pytest_wheels(tmp_path / "wheels")
    (tmp_path / "spec.toml").write_text(
        '[default]\nindex = "none"\nfind_links = ["wheels"]\n'
        'packages = ["pytest"]\ntest = "python -m pytest -q"\n'
        '[projects."owner/shop"]\nmetadata = true\npaths = ["src"]\n'
        'env = { SHOP = "open" }\n'
        'files = { "src/shop/_version.py" = "version = \'{version}\'\\n" }\n'
        '[projects."owner/other"]\npackages = ["nothere"]\n'
    )
    asks = (
        "import importlib.metadata\nimport os\n\nfrom shop._version import version\n\n\n"
        "def test_count():\n    assert importlib.metadata.version('shop') == version == '1.4'\n"
        "    assert os.environ['SHOP'] == 'open'\n"
    )
    place.write({"good": shop.GOLD})
    shutil.copytree(place.root / "repos/owner__shop", place.root / "repos/owner__other")
    own = {"test_patch": shop.change("tests/test_cart.py", asks), "PASS_TO_PASS": []}
    rows = (
        shop.make_row(place.base, "good", **own),
        shop.make_row(place.base, "other", repo="owner/other"),
    )
    (place.root / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    options = ("--predictions", "gold", "--environments", "spec.toml")

    refused = place.run(*options, code=2, python=False)

    table = '--environments: [projects."owner/other"] (or its ranges, or [default]): '
    assert f"agent: {table}pip install failed (1): No matching distribution" in refused
    assert not (place.root / "report.eval").exists()

    place.run(*options, "--id", "good", python=False)

    assert place.found()["resolved_ids"] == ["good"]


def test_a_killed_run_goes_on(place: Place) -> None:
    place.write({"first": shop.GOLD, "second": SLOW})
    process = place.start()
    place.wait_for("first")
    log = place.instance("first") / "test_output.txt"
    before = log.stat().st_mtime_ns
    process.kill()
    process.communicate(timeout=30)
    assert not place.report.exists()

    said = place.run()

    assert place.found()["resolved_ids"] == ["first", "second"]
    assert "2 of 2 judged (1 by an earlier run), 2 resolved" in said
    assert "first: resolved (1 of 1 FAIL_TO_PASS pass; 3 of 3 PASS_TO_PASS pass), by an" in said
    assert log.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--predictions", "none.json"), "--predictions none.json: No such file"),
        (("--environments", "none.toml"), "--environments none.toml: No such file"),
        (("--image-template", "x:{instance}"), "no field 'instance'"),
        (("--run", "none.run"), "--run none.run: no folder of a run"),
        (("--id", "none"), "--id none: no such instance in set.jsonl"),
        (("--match", "none"), "no row is selected"),
        (("--output", "set.jsonl"), "--output is the --dataset (set.jsonl)"),
        (("--output", "./preds.json"), "--output is the --predictions (preds.json)"),
        (("--output", "x.eval"), "--output x.eval: that is the name of the folder of results"),
        (
            ("--environments", "spec.toml", "--output", "spec.toml"),
            "--output is the --environments (spec.toml)",
        ),
    ],
)
def test_wrong_arguments(place: Place, options: tuple[str, ...], words: str) -> None:
    place.write({"good": shop.GOLD})
    (place.root / "spec.toml").write_text("")
    before = {path: path.read_bytes() for path in place.root.iterdir() if path.is_file()}

    assert words in place.run(*options, code=2, python=False)
    assert {path: path.read_bytes() for path in place.root.iterdir() if path.is_file()} == before
    assert not list(place.root.glob("*.eval"))
