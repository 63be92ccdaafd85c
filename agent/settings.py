"""All settings, and the only reader of environment variables.

Order, the first wins: a flag of the command line; the environment (`PATCHSHOT_*`, then the usual
names such as OPENAI_API_KEY); the user's configuration file; the target repository's own
`patchshot.toml` or `[tool.patchshot]`. The last is untrusted: it may choose budgets, tests and
retrieval, but not where keys are sent, what is run unprotected, or which interpreter runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from agent.errors import ConfigurationError

MIN_CONTEXT_TOKENS = 200
"""The least budget of a context, here and wherever budgets are given: less holds no code."""

# What a configuration file inside the target repository may set.
_REPOSITORY_KEYS = frozenset(
    {
        "context_tokens",
        "context_reserve",
        "max_chunks",
        "prefilter",
        "filename_bonus",
        "preset",
        "without",
        "test_cmd",
        "max_test_files",
        "test_timeout",
        "max_output_tokens",
        "iterative",
        "max_steps",
        "widening",
        "wider_tokens",
        "allow",
        "no_repair",
    }
)


def _names(value: object) -> object:
    """`history, static` as names; anything else as it is."""
    if not isinstance(value, str):
        return value
    return tuple(name.strip() for name in value.split(",") if name.strip())


class Settings(BaseSettings):
    """Every knob with its default. The field `base_url` is PATCHSHOT_BASE_URL, and so on."""

    model_config = SettingsConfigDict(
        env_prefix="PATCHSHOT_", extra="forbid", frozen=True, env_ignore_empty=True
    )

    # --- the model
    base_url: str | None = Field(None, description="endpoint of the model, usually .../v1")
    api_key: SecretStr | None = Field(None, description="its key")
    model: str | None = Field(None, description="its model")
    protocol: Literal["auto", "openai", "openrouter", "anthropic", "miner"] = Field(
        "auto", description="what it speaks; auto: told from its address"
    )
    run_id: str | None = Field(None, description="of a miner's run; EVALUATION_RUN_ID wins over it")
    temperature: float = Field(0.0, ge=0, le=2)
    max_output_tokens: int = Field(8192, ge=64, description="cap on one reply")
    request_timeout: float = Field(300.0, gt=0, description="seconds for one model call")
    price_input: float | None = Field(None, ge=0, description="USD per million input tokens")
    price_output: float | None = Field(None, ge=0, description="USD per million output tokens")
    prompt_cache: bool = Field(True, description="mark what later calls repeat (Anthropic)")

    # --- a model on this machine, chosen by the model name `local:...`
    local_model: Path | None = Field(None, description="its GGUF file")
    local_context: int | None = Field(None, ge=512, description="its window, tokens (16384)")
    local_threads: int | None = Field(None, ge=1, le=256, description="default: one a core")

    # --- embeddings
    embed: Literal["auto", "off", "local", "remote"] = Field(
        "auto",
        description="auto: remote when PATCHSHOT_EMBED_MODEL is set or behind a miner's proxy",
    )
    embed_weights: Literal["auto", "tuned", "packaged"] = Field(
        "auto", description="of --embed local; auto: tuned where they are there, else packaged"
    )
    embed_base_url: str | None = None
    embed_api_key: SecretStr | None = None
    embed_model: str | None = None
    embed_protocol: Literal["auto", "openai", "openrouter", "miner"] = "auto"
    embed_concurrency: int | None = Field(None, ge=1, le=256, description="default 8")

    # --- retrieval and context (defaults of the original system are named in docs/retrieval.md)
    preset: str = Field("default", description="a name of agent.retrieval.presets")
    without: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)] = Field(
        (), description="groups of features that are left out, or `ranker`; with commas between"
    )
    prefilter: int | None = Field(None, ge=1, description="chunks that are embedded")
    filename_bonus: float | None = Field(None, ge=0)
    context_tokens: int = Field(6000, ge=MIN_CONTEXT_TOKENS, description="budget of the context")
    context_reserve: float = Field(0.15, ge=0, lt=1, description="share of it kept free")
    max_chunks: int | None = Field(None, ge=1, description="default 30 for each 6,000 tokens")

    # --- other corpora than code, and where vectors are kept
    store: str | None = Field(
        None,
        min_length=1,
        description="URL of the vector store: sqlite:///F, lancedb:///DIR, qdrant://, postgresql://",
    )
    store_fallback: Literal["embedded", "stop"] = Field(
        "embedded", description="where the store cannot be reached: the one in the cache folder"
    )
    corpora: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)] = Field(
        (), description="corpora that are searched beside the code; with commas between"
    )
    remember: bool = Field(False, description="keep accepted patches for the corpus `memory`")

    # --- limits of the whole run
    timeout: float = Field(1500.0, gt=0, description="seconds for the whole run")
    max_cost: float | None = Field(None, ge=0, description="USD for the whole run")
    max_tokens: int | None = Field(None, ge=1, description="input + output of all calls")
    max_calls: int | None = Field(None, ge=0)

    # --- after a failure
    repairs: int = Field(1, ge=0, le=5, description="repair calls before the iterative mode")
    iterative: bool = True
    max_steps: int = Field(12, ge=1, le=100, description="steps of the iterative mode")
    widening: Literal["off", "plain", "plan"] = Field(
        "plain", description="the context of the iterative mode: as before, or more by rank or plan"
    )
    wider_tokens: int = Field(12_000, ge=200, description="its budget, where it is widened")
    plan_calls: int = Field(0, ge=0, le=1, description="model calls that propose plans")
    find_action: bool = Field(False, description="offer the iterative mode a search by intents")

    # --- patching and validation
    allow: tuple[str, ...] = Field((), description="protected paths that edits may touch")
    no_repair: tuple[str, ...] = Field(
        (), description="repairs of a reply, and lenient match tiers, that are left out; or `all`"
    )
    include_test: bool = Field(False, description="keep the reproduction test in the diff")
    tests: bool = Field(True, description="run tests; off: syntax only")
    test_cmd: str | None = Field(None, description="the project's test command")
    test_timeout: float = Field(300.0, gt=0, description="seconds for one test run")
    max_test_files: int = Field(12, ge=1)
    python: Path | None = Field(None, description="interpreter of the target project")
    environments: Path | None = Field(None, description="what projects' tests run in, a TOML file")
    project: str | None = Field(None, description="the target's owner/name, for environments")
    accept_unverified: bool = False
    fail_to_pass: tuple[str, ...] = Field((), description="ids of tests that the fix must turn")
    pass_to_pass: tuple[str, ...] = Field((), description="ids of tests that must go on passing")
    tests_from: Path | None = Field(None, description="a SWE-bench row with both")
    run_cache: bool = Field(True, description="keep test runs of the base between solves")
    sandbox: Literal["auto", "bwrap", "container", "landlock"] = Field(
        "auto", description="auto: bwrap, or a container where an image is named"
    )
    image: str | None = Field(None, description="container image of the target, on this machine")
    unsafe_no_sandbox: bool = Field(False, description="run the target's code unprotected")

    # --- logs
    log_file: Path | None = Field(None, description="events and model calls, as JSON lines")
    log_bodies: bool = Field(False, description="prompts and replies in it too")

    # --- places
    cache_dir: Path = Field(default_factory=lambda: Path(platformdirs.user_cache_dir("patchshot")))
    data_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("patchshot")),
        description="what cannot be made again for nothing: intents by a model, remembered patches",
    )


def load(flags: Mapping[str, Any], *, repository: Path | None = None) -> Settings:
    """Merge flags (None = not given), environment and configuration files.

    Raises ConfigurationError, naming the setting and where its value came from.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    from_files = {
        name: value
        for name, value in _from_files(repository).items()
        if not os.environ.get(f"PATCHSHOT_{name.upper()}")
    }
    try:
        return Settings(**{**from_files, **given})
    except ValidationError as error:
        raise ConfigurationError(_explain(error, given, from_files)) from None


def environment(names: tuple[str, ...]) -> Mapping[str, str]:
    """The usual variables of other tools (OPENAI_API_KEY, ...) that are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


# Variables that hold keys, ours and anybody's: a log may quote what a server echoes.
_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)
_ADDRESS_NAME = re.compile(r"^((https?|all)_proxy|patchshot_store)$", re.IGNORECASE)
_PASSWORD = re.compile(r"^[^/]*//[^/@:]*:([^/@]+)@")


def secret_values() -> frozenset[str]:
    """All keys and passwords that this process was given, for masking; never raises."""
    values = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    values |= {
        found.group(1)
        for name, value in os.environ.items()
        if _ADDRESS_NAME.search(name) and (found := _PASSWORD.search(value))
    }
    for place in (Path(platformdirs.user_config_dir("patchshot")), Path.cwd()):
        with contextlib.suppress(ConfigurationError, OSError):
            given = _read_folder(place)
            values |= {str(given.get(name, "")) for name in ("api_key", "embed_api_key")}
    return frozenset(value.strip() for value in values if value.strip() and not _is_file(value))


def _is_file(value: str) -> bool:
    """Whether a variable names a key file: masking its path would mask every path beside it."""
    try:
        return value.startswith(("/", "~")) and Path(value).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _from_files(repository: Path | None) -> Mapping[str, Any]:
    trusted = _read(Path(platformdirs.user_config_dir("patchshot")) / "patchshot.toml")
    here = Path.cwd().resolve()
    if repository is None:
        return {**trusted, **_read_folder(here)}
    root = repository.resolve()
    untrusted = {k: v for k, v in _read_folder(root).items() if k in _REPOSITORY_KEYS}
    if here == root or root in here.parents:
        return {**untrusted, **trusted}
    return {**untrusted, **_read_folder(here), **trusted}


def _read_folder(folder: Path) -> Mapping[str, Any]:
    own = _read(folder / "patchshot.toml")
    shared = _read(folder / "pyproject.toml").get("tool", {})
    section = shared.get("patchshot", {}) if isinstance(shared, dict) else {}
    return own or (section if isinstance(section, dict) else {})


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if path.name == "pyproject.toml":
            return {}  # the target's own file may be broken: that is not our user's mistake
        raise ConfigurationError(f"{path}: not valid TOML ({error})") from None


def _explain(error: ValidationError, flags: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    if name in flags:
        place = f"--{name.replace('_', '-')}"
    elif name in files:
        place = f"{name} in patchshot.toml or [tool.patchshot]"
    else:
        place = f"PATCHSHOT_{name.upper()}"
    return f"{place}: {first['msg'].lower()}"
