from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.evaluation.provenance import check_provenance, code_digest, provenance
from agent.settings import load


def test_what_decides_about_rows_is_noted_and_keys_are_not(tmp_path: Path) -> None:
    settings = load({"api_key": "secret-key", "context_tokens": 3000})
    check_provenance(tmp_path / "r.jsonl", provenance(settings), restart=False)
    noted = json.loads((tmp_path / "r.jsonl.run.json").read_text())
    assert noted["context_tokens"] == 3000
    assert noted["code"] == code_digest()
    assert "secret" not in json.dumps(noted)


def test_rows_made_with_other_settings_are_not_gone_on_from(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    before, now = {"context_tokens": 6000, "code": "x"}, {"context_tokens": 3000, "code": "x"}
    check_provenance(output, before, restart=False)
    output.write_text("a row\n")
    check_provenance(output, before, restart=False)
    with pytest.raises(ConfigurationError, match=r"\(context_tokens 6000, now 3000\)"):
        check_provenance(output, now, restart=False)
    check_provenance(output, now, restart=True)
    check_provenance(output, now, restart=False)


def test_rows_without_a_note_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    output.write_text("a row\n")
    with pytest.raises(ConfigurationError, match="nothing says which"):
        check_provenance(output, {"code": "x"}, restart=False)
