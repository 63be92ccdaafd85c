from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.settings import load, secret_values


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder outside the target, and no configuration of the user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


def test_a_flag_wins_over_the_environment_and_that_over_a_file(elsewhere, target, monkeypatch):
    (target / "patchshot.toml").write_text("context_tokens = 1000\nmax_chunks = 3\nprefilter = 9\n")
    monkeypatch.setenv("PATCHSHOT_CONTEXT_TOKENS", "2000")
    monkeypatch.setenv("PATCHSHOT_MAX_CHUNKS", "4")
    settings = load({"max_chunks": 5, "prefilter": None}, repository=target)
    assert (settings.context_tokens, settings.max_chunks, settings.prefilter) == (2000, 5, 9)


def test_the_section_of_pyproject_is_read(elsewhere, target):
    (target / "pyproject.toml").write_text("[tool.patchshot]\ntest_cmd = 'make check'\n")
    assert load({}, repository=target).test_cmd == "make check"


@pytest.mark.parametrize(
    "line",
    [
        'base_url = "http://attacker.example/v1"',
        'embed_base_url = "http://attacker.example/v1"',
        "unsafe_no_sandbox = true",
        'python = "/repo/evil"',
        'cache_dir = "/repo"',
        "accept_unverified = true",
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_the_target_cannot_choose_where_keys_go_or_what_runs(
    line, inside, elsewhere, target, monkeypatch
):
    (target / "patchshot.toml").write_text(line + "\n")
    if inside:
        (target / "sub").mkdir()
        monkeypatch.chdir(target / "sub")
    assert load({}, repository=target) == load({})


def test_the_users_own_file_may_set_all(elsewhere, target):
    (elsewhere / "patchshot.toml").write_text('base_url = "http://127.0.0.1:1/v1"\n')
    assert load({}, repository=target).base_url == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("flags", "environment", "file", "expected"),
    [
        ({"max_cost": -1.0}, {}, "", "--max-cost: "),
        ({}, {"PATCHSHOT_TIMEOUT": "soon"}, "", "PATCHSHOT_TIMEOUT: "),
        ({}, {}, "max_chunks = 0\n", "max_chunks in patchshot.toml"),
        ({}, {}, "max_chunks = \n", "not valid TOML"),
    ],
)
def test_a_bad_value_says_where_it_came_from(
    flags, environment, file, expected, elsewhere, target, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if file:
        (target / "patchshot.toml").write_text(file)
    with pytest.raises(ConfigurationError, match=expected) as caught:
        load(flags, repository=target)
    assert "\n" not in str(caught.value)


def test_a_broken_pyproject_of_the_target_is_not_our_users_mistake(elsewhere, target):
    (target / "pyproject.toml").write_text("[tool.patchshot\n")
    load({}, repository=target)


def test_keys_do_not_print(monkeypatch, elsewhere):
    monkeypatch.setenv("PATCHSHOT_API_KEY", "sk-very-secret")
    settings = load({})
    assert "sk-very-secret" not in repr(settings)
    assert settings.api_key.get_secret_value() == "sk-very-secret"


@pytest.mark.parametrize(
    "line", ['log_file = "/tmp/everything"', "log_bodies = true", 'local_model = "/tmp/any.gguf"']
)
def test_a_repository_chooses_neither_logs_nor_a_local_model(elsewhere, target, line):
    (target / "patchshot.toml").write_text(line)
    settings = load({}, repository=target)
    assert (settings.log_file, settings.log_bodies, settings.local_model) == (None, False, None)


def test_keys_of_the_environment_and_of_files_are_known_for_masking(elsewhere, monkeypatch):
    given = {
        "PATCHSHOT_API_KEY": "one",
        "OPENAI_API_KEY": "two",
        "GITHUB_TOKEN": "three",
        "RIDGES_INFERENCE_API_KEY": "four",
        "HTTPS_PROXY": "http://user:five@proxy:3128",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MONKEY", "no key at all")
    monkeypatch.setenv("SSH_KEY", str(elsewhere))
    (elsewhere / "patchshot.toml").write_text('embed_api_key = "six"\n')
    found = secret_values()
    assert found >= {"one", "two", "three", "four", "five", "six"}
    assert not found & {"no key at all", str(elsewhere)}


def test_a_broken_file_hides_no_key(elsewhere, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "two")
    (elsewhere / "patchshot.toml").write_text("api_key = ")
    assert "two" in secret_values()
