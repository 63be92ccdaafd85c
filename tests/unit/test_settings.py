from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.settings import load, load_with_origins, secret_values, trust


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


@pytest.fixture
def own(tmp_path: Path, elsewhere: Path) -> Path:
    """The user's own configuration file, which does not exist yet."""
    folder = tmp_path / "config" / "patchshot"
    folder.mkdir(parents=True)
    return folder / "patchshot.toml"


def test_a_flag_wins_over_the_environment_and_that_over_the_users_file(own, target, monkeypatch):
    own.write_text("context_tokens = 1000\nmax_chunks = 3\nprefilter = 9\n")
    monkeypatch.setenv("PATCHSHOT_CONTEXT_TOKENS", "2000")
    monkeypatch.setenv("PATCHSHOT_MAX_CHUNKS", "4")
    settings = load({"max_chunks": 5, "prefilter": None}, repository=target)
    assert (settings.context_tokens, settings.max_chunks, settings.prefilter) == (2000, 5, 9)


def test_the_origin_of_each_value_is_known(own, target, monkeypatch):
    own.write_text("context_tokens = 1000\n")
    (target / "patchshot.toml").write_text("max_steps = 3\n")
    monkeypatch.setenv("PATCHSHOT_MAX_CHUNKS", "4")
    origins = load_with_origins({"include_test": True}, repository=target).origins
    wanted = ("context_tokens", "max_chunks", "include_test", "max_steps", "timeout")
    assert [origins[name] for name in wanted] == [
        str(own),
        "PATCHSHOT_MAX_CHUNKS",
        "--with-test",
        "patchshot.toml of the repository",
        "default",
    ]


HOSTILE = [
    'base_url = "http://attacker.example/v1"',
    'embed_base_url = "http://attacker.example/v1"',
    "unsafe_no_sandbox = true",
    'python = "/repo/evil"',
    'cache_dir = "/repo"',
    "accept_unverified = true",
    'allow = ["Makefile"]',
    'test_cmd = "true"',
    'store = "qdrant://attacker.example"',
    "timeout = 100000.0",
    "context_tokens = 200000",
    "plan = true",
    'preset = "original"',
]


@pytest.mark.parametrize("line", HOSTILE)
@pytest.mark.parametrize("place", ["target", "above", "beside", "subfolder"])
def test_a_folder_cannot_choose_where_keys_go_or_what_runs(
    line, place, elsewhere, target, monkeypatch
):
    """Neither the repository's file nor one in the current folder, whichever that is."""
    (target / ".git").mkdir()
    (target / "sub").mkdir()
    expected = load({})
    folder = {"target": target, "above": target.parent, "beside": elsewhere}.get(place, target)
    (folder / "patchshot.toml").write_text(line + "\n")
    monkeypatch.chdir(folder)
    repository = target / "sub" if place == "subfolder" else target
    assert load({}, repository=repository) == load({}) == expected


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("max_cost = 0.000001", "max_cost", 0.000001),
        ("max_steps = 3", "max_steps", 3),
        ("timeout = 60.0", "timeout", 60.0),
        ("context_tokens = 2000", "context_tokens", 2000),
        ("allow_empty_context = false", "allow_empty_context", False),
        ('outdated_tests = "refuse"', "outdated_tests", "refuse"),
        ('outdated_tests = "edit"', "outdated_tests", "show"),
    ],
)
@pytest.mark.parametrize("file", ["patchshot.toml", "pyproject.toml"])
def test_a_repository_may_tighten_limits(line, name, value, file, elsewhere, target):
    section = "[tool.patchshot]\n" if file == "pyproject.toml" else ""
    (target / file).write_text(f"{section}{line}\n")
    (target / ".git").mkdir()
    (target / "sub").mkdir()
    assert getattr(load({}, repository=target), name) == value
    assert getattr(load({}, repository=target / "sub"), name) == value


def test_a_flag_wins_over_a_limit_of_the_repository(elsewhere, target):
    (target / "patchshot.toml").write_text("max_steps = 3\n")
    assert load({"max_steps": 5}, repository=target).max_steps == 5


def test_what_is_ignored_is_named_once(own, target, monkeypatch):
    (target / "patchshot.toml").write_text('base_url = "x"\nmax_cots = 1\nmax_steps = 2\n')
    own.write_text("max_chunsk = 3\n")
    monkeypatch.setenv("PATCHSHOT_MAX_COTS", "1")
    notes: list[str] = []
    load({}, repository=target, note=notes.append)
    assert notes == [
        f"{own}: max_chunsk is no setting; did you mean max_chunks?",
        "PATCHSHOT_MAX_COTS is no setting; did you mean PATCHSHOT_MAX_COST?",
        "patchshot.toml of the repository: max_cots is no setting; did you mean max_cost?",
        "patchshot.toml of the repository: base_url is ignored: a repository may only tighten "
        f"limits; set it in {own} or as PATCHSHOT_BASE_URL",
    ]


TEAM_FILE = 'test_cmd = "pytest -q"\nsetup_cmd = "make"\npython = ".venv/bin/python"\n'


def test_what_a_team_sets_counts_after_one_consent_for_each_repository_and_content(
    elsewhere, target, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    copy = tmp_path / "copy"
    copy.mkdir()
    for folder in (target, copy):
        (folder / "patchshot.toml").write_text(TEAM_FILE)
    loaded = load_with_origins({}, repository=target)
    assert loaded.settings.test_cmd is None
    assert "agree with `agent trust`" in loaded.notes[0]
    trust(target)
    settings = load({"setup_cmd": "true"}, repository=target)
    assert (settings.test_cmd, settings.setup_cmd) == ("pytest -q", "true")
    assert settings.python == target / ".venv/bin/python"
    assert load({}, repository=copy).test_cmd is None
    assert load({"trust_repository": True}, repository=copy).test_cmd == "pytest -q"
    (target / "patchshot.toml").write_text(TEAM_FILE.replace("-q", "-qq"))
    assert load({}, repository=target).test_cmd is None


@pytest.mark.parametrize(
    ("text", "flags", "why"),
    [
        ('python = "/usr/bin/poweroff"', {}, "inside the repository"),
        ('python = "../evil"', {}, "inside the repository"),
        ("python = 3", {}, "inside the repository"),
        ('test_cmd = "true"', {"unsafe_no_sandbox": True}, "in a sandbox only"),
        ('test_cmd = "true"', {"setup_network": True}, "agree with"),
    ],
)
def test_no_consent_lets_a_repository_run_something_outside_of_the_sandbox(
    text, flags, why, elsewhere, target
):
    (target / "patchshot.toml").write_text(f"{text}\n")
    loaded = load_with_origins({"trust_repository": True, **flags}, repository=target)
    assert why in loaded.notes[0]
    assert (loaded.settings.test_cmd, loaded.settings.python) == (None, None)


def test_the_users_own_file_may_set_all(own, target):
    own.write_text('base_url = "http://127.0.0.1:1/v1"\n')
    assert load({}, repository=target).base_url == "http://127.0.0.1:1/v1"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", ["patchshot.toml", "pyproject.toml"])
@pytest.mark.parametrize("kind", ["link", "fifo", "device", "folder"])
def test_a_configuration_that_is_no_regular_file_counts_as_missing(
    name, kind, elsewhere, target, tmp_path
):
    expected = load({})
    path = target / name
    if kind == "link":
        (tmp_path / "real.toml").write_text("max_steps = 1\n[tool.patchshot]\nmax_steps = 1\n")
        path.symlink_to(tmp_path / "real.toml")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert load({}, repository=target) == expected


@pytest.mark.timeout(10)
def test_a_sparse_configuration_of_a_terabyte_is_refused(elsewhere, target):
    with (target / "patchshot.toml").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigurationError, match="larger than 1,048,576 bytes"):
        load({}, repository=target)


@pytest.mark.parametrize(
    ("flags", "environment", "file", "expected"),
    [
        ({"max_cost": -1.0}, {}, "", "--max-cost: "),
        ({}, {"PATCHSHOT_TIMEOUT": "soon"}, "", "PATCHSHOT_TIMEOUT: "),
        ({}, {}, "max_chunks = 0\n", "max_chunks in patchshot.toml of the repository"),
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


def test_keys_of_the_environment_and_of_files_are_known_for_masking(own, elsewhere, monkeypatch):
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
    own.write_text('embed_api_key = "six"\n')
    found = secret_values()
    assert found >= {"one", "two", "three", "four", "five", "six"}
    assert not found & {"no key at all", str(elsewhere)}


def test_a_broken_file_hides_no_key(own, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "two")
    own.write_text("api_key = ")
    assert "two" in secret_values()


def test_lists_in_the_environment_have_commas(elsewhere, monkeypatch):
    monkeypatch.setenv("PATCHSHOT_ALLOW", " a.py , b.py ")
    assert load({}).allow == ("a.py", "b.py")
