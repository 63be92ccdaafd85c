"""Vectors of another program as a user meets them: searched alone, and as a corpus."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import run_agent
from tests.support.behaviours import Good
from tests.support.scripted_provider import ScriptedProvider, embed_text
from tests.support.vectors import write_vector

pytestmark = pytest.mark.e2e

TEXTS = {
    "cookies": "expired cookies are dropped from the jar",
    "prices": "the total of a cart is the sum of its prices",
    "colours": "paint a wall in another colour",
}


@pytest.mark.slow
def test_another_programs_vectors_by_command(tmp_path: Path) -> None:
    def agent(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        data = str(tmp_path / "data")
        return run_agent(*arguments, home=tmp_path, XDG_DATA_HOME=data, **variables)

    def ok(*arguments: str, **variables: str) -> Any:
        done = agent(*arguments, "--json", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (tmp_path / "a.py").write_text("x = 1\n")
    for arguments in (("init", "-q"), ("add", "a.py"), ("commit", "-qm", "a")):
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(("git", *author, *arguments), cwd=tmp_path, check=True)
    for name, text in TEXTS.items():
        write_vector(tmp_path / "v", name, embed_text(text), tags=[name[0]], text=text)
    with ScriptedProvider([Good("")]) as provider:
        theirs = {
            "PATCHSHOT_EMBED_BASE_URL": provider.base_url,
            "PATCHSHOT_EMBED_API_KEY": "k",
            "PATCHSHOT_EMBED_MODEL": "scripted",
        }
        found = ok("search", "which cookies are expired", "--precomputed", "v", **theirs)
        assert found["results"][0]["id"] == "cookies"
        assert found["results"][0]["text"] == TEXTS["cookies"]
        assert "scripted" in found["query_by"]
        beside = ok(
            "search", "which cookies are expired", "--corpus", "code,vectors", "--precomputed", "v",
            "--tag", "c", **theirs,
        )["results"]  # fmt: skip
        vectors = [one for one in beside if one["corpus"] == "vectors"]
        assert [one["origin"] for one in vectors] == ["cookies", "colours"]
        assert vectors[0]["similarity"] > vectors[1]["similarity"]
        tagged = agent(
            "search", "which cookies are expired", "--precomputed", "v", "--tag", "p", **theirs
        )
    assert tagged.stdout.split()[2:4] == ["[precomputed]", "prices"]
    assert ok("search", "--precomputed", "v", "--vector", "v/prices.json")["results"]
    gone = agent("search", "--precomputed", "gone", "--vector", "v/prices.json")
    assert gone.returncode == 2
