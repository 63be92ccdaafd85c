from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.evaluation.provenance import RunNote, code_digest, embedder_name, provenance
from agent.settings import load


def note(output: Path, current: Mapping[str, object], *, check: bool = True) -> None:
    """What a run does with the note before its first row."""
    with RunNote(output) as held:
        if check:
            held.check(current)
        held.write(current)


def test_what_decides_about_rows_is_noted_and_keys_are_not(tmp_path: Path) -> None:
    settings = load({"api_key": "secret-key", "context_tokens": 3000})
    note(tmp_path / "r.jsonl", provenance(settings))
    noted = json.loads((tmp_path / "r.jsonl.run.json").read_text())
    assert noted["context_tokens"] == 3000
    assert noted["code"] == code_digest()
    assert "secret" not in json.dumps(noted)


def test_rows_made_with_other_settings_are_not_gone_on_from(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    before, now = {"context_tokens": 6000, "code": "x"}, {"context_tokens": 3000, "code": "x"}
    note(output, before)
    output.write_text("a row\n")
    note(output, before)
    with pytest.raises(ConfigurationError, match=r"\(context_tokens 6000, now 3000\)"):
        note(output, now)
    note(output, now, check=False)
    note(output, now)


def test_rows_without_a_note_are_refused_and_get_none(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    output.write_text("a row\n")
    with pytest.raises(ConfigurationError, match="nothing says which"):
        note(output, {"code": "x"})
    assert [file.name for file in tmp_path.iterdir()] == ["r.jsonl"]


def test_one_run_at_a_time_writes_rows(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    with RunNote(output), pytest.raises(ConfigurationError, match="another run writes to it"):
        RunNote(output)
    with RunNote(output):
        pass


def remote(url: str, **flags: object) -> str | None:
    given = {"embed": "remote", "embed_model": "m", "embed_base_url": url, **flags}
    return embedder_name(load(given))


def test_what_embeds_has_a_name_without_credentials() -> None:
    assert remote("http://me:pass@127.0.0.1:9/v1") == "m at http://127.0.0.1:9/v1 (openai)"
    assert remote("http://127.0.0.1:9/v1", preset="lexical") is None
    assert embedder_name(load({"embed": "off"})) is None
    local = provenance(load({"embed": "local"}))["embedder"]
    assert local.startswith("local/")
    assert provenance(load({"embed": "local", "preset": "lexical"}))["embedder"] is None
