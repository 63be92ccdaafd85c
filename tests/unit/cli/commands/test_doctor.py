"""What `agent doctor` says of the backends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.landlock import LandlockSandbox
from tests.support.agent_process import call_agent
from tests.support.sandboxes import require_bwrap


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATCHSHOT_CACHE_DIR", str(tmp_path / "cache"))


def findings(
    capfd: pytest.CaptureFixture[str], **flags: object
) -> tuple[int, dict[str, Any], list[str]]:
    """The exit code, what is said of the chosen backend, and of the others."""
    code = call_agent("doctor", "--json", **flags)
    rows = json.loads(capfd.readouterr().out)
    chosen = next(row for row in rows if row["name"] == "sandbox")
    return code, chosen, [row["detail"] for row in rows if row["name"].strip() == "or"]


def test_the_default_and_what_else_there_is(capfd: pytest.CaptureFixture[str]) -> None:
    require_bwrap()
    _, chosen, others = findings(capfd)
    assert chosen["state"] == "ok"
    assert chosen["detail"].startswith("bwrap: ")
    assert "no-network" in chosen["detail"]
    assert [other.partition(":")[0] for other in others] == ["container", "landlock"]
    assert "an image" in others[0] or "install podman" in others[0]


def test_a_reduced_backend_is_shown_with_what_it_lacks(capfd: pytest.CaptureFixture[str]) -> None:
    if not LandlockSandbox().probe().available:
        pytest.skip("no Landlock here")
    _, chosen, _ = findings(capfd, sandbox="landlock")
    assert chosen["state"] == "note"
    assert "pid-namespace" in chosen["detail"].partition("; not: ")[2]


def test_a_backend_that_cannot_be_used_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    code, chosen, _ = findings(capfd, image="localhost/none:1")
    assert (code, chosen["state"]) == (10, "missing")
    assert chosen["detail"].startswith("container: no ")


def test_contradictions_are_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert call_agent("doctor", "--json", image="x:1", sandbox="bwrap") == 2
    assert "leave one out" in capfd.readouterr().err
