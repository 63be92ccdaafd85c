"""All settings: each one is a field of `Settings`, and no other module reads a setting's variable.

A field declares everything about its setting: type, default, help text, the command-line option
(`agent.cli.options` makes it), and what a repository's own file may do with it. The environment
variable of the field `max_cost` is PATCHSHOT_MAX_COST, and its key in a file is `max_cost`.

A value is taken from the first of these places that has one:

1. the command line;
2. the environment (empty variables count as unset);
3. the user's own file, `~/.config/patchshot/patchshot.toml`.

The repository that Patchshot works on is untrusted. Its `patchshot.toml`, or `[tool.patchshot]` in
its `pyproject.toml`, may only tighten limits: a lower number, or a capability switched off. A
flag of the command line wins over it. Nothing is read from the current folder.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from agent.errors import ConfigurationError
from agent.files import read_small_file

MIN_CONTEXT_TOKENS = 200
"""A smaller context budget holds no code."""

# Defaults that the options of the core share, so that each stands in one place.
CONTEXT_TOKENS = 6000
AUTO_CONTEXT = (3000, 24_000)
"""The least and the greatest budget that `--context-tokens auto` chooses."""
MAX_OUTPUT_TOKENS = 8192
TIMEOUT_SECONDS = 1500.0
WIDER_TOKENS = 12_000
HISTORY_TOKENS = 32_000
CODE_ROUNDS = 2
"""How often a reply may ask for code. More rounds than two would be the iterative mode."""
MAX_STEPS = 40
MAX_TOKENS = 400_000
"""Enough for twenty steps with a long conversation; a run of one call takes about 10,000."""

FILE_NAME = "patchshot.toml"

# Panels of `--help`.
MODEL = "Model"
EMBEDDINGS = "Embeddings"
CONTEXT = "Retrieval and context"
CORPORA = "Corpora"
LIMITS = "Limits"
PATCH = "Patch"
CHECK = "Validation"
OUTPUT = "Output"

PRESETS = ("default", "lexical", "original")
"""The retrieval presets. A setting that acts in a part of them says so by `presets`."""
RANKED = ("default", "lexical")
EMBEDDED = ("default", "original")

# Variables with our prefix that are no settings.
_OTHER_VARIABLES = (
    "PATCHSHOT_DEBUG", "PATCHSHOT_MINER_", "PATCHSHOT_REPO", "PATCHSHOT_REQUIRE_",
)  # fmt: skip


OutdatedMode = Literal["refuse", "show", "edit"]
Tightens = Literal["lower", "off", "refuse"]


@dataclass(frozen=True, slots=True)
class Option:
    """How a setting appears on the command line, and what a repository's file may do with it.

    `common`: listed by `--help`, not by `--help-all` alone. `solve_only`: not an option of `batch`.
    `tightens`: "lower" lets a repository's file lower a number, "off" lets it switch a flag off,
    "refuse" lets it choose this word. `presets`: those of PRESETS in which the setting changes
    something.
    """

    panel: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    common: bool = False
    solve_only: bool = False
    tightens: Tightens | None = None
    presets: tuple[str, ...] = PRESETS


def setting(
    default: Any,
    help: str,
    panel: str,
    *flags: str,
    metavar: str | None = None,
    common: bool = False,
    solve_only: bool = False,
    tightens: Tightens | None = None,
    presets: tuple[str, ...] = PRESETS,
    **constraints: Any,
) -> Any:
    """A field with a command-line option. `flags` are its names where `--field-name` is not it."""
    option = Option(panel, flags, metavar, common, solve_only, tightens, presets)
    return Field(
        default,
        description=help,
        json_schema_extra={"option": option},  # type: ignore[dict-item]
        **constraints,
    )


def _names(value: object) -> object:
    """Split `history, static` at its commas, and decode `["history", "static"]`."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("is no list of texts in JSON") from None
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Texts: a list, or (in the environment) with commas between them or as JSON."""


def _auto(value: object) -> object:
    """Check a number of tokens here, so that a wrong one is explained once."""
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    try:
        number = int(str(value))
    except ValueError:
        raise ValueError("is neither a number of tokens nor `auto`") from None
    if number < MIN_CONTEXT_TOKENS:
        raise ValueError(f"input should be greater than or equal to {MIN_CONTEXT_TOKENS}")
    return number


Tokens = Annotated[int | Literal["auto"], BeforeValidator(_auto)]
"""A number of tokens, or "auto"."""


class Settings(BaseModel):
    """Every setting with its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # The model.
    base_url: str | None = setting(None, "URL of the model server, usually .../v1.", MODEL)
    api_key: SecretStr | None = Field(None, description="Key of the model server.")
    model: str | None = setting(None, "Model that writes the patch.", MODEL, common=True)
    escalate_model: str | None = setting(
        None, "Model of repairs and steps, once a reply of --model has failed.", MODEL
    )
    protocol: str = setting(
        "auto", "Protocol of the model server; auto: told from its URL.", MODEL, metavar="NAME"
    )
    run_id: str | None = setting(
        None, "Id of a miner's run; EVALUATION_RUN_ID wins over it.", MODEL
    )
    temperature: float = setting(0.0, "Sampling temperature.", MODEL, ge=0, le=2)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = setting(
        None, "How much a reasoning model may think; its own default if unset.", MODEL
    )
    max_output_tokens: int = setting(
        MAX_OUTPUT_TOKENS, "Largest reply, in tokens.", MODEL, ge=64, tightens="lower"
    )
    request_timeout: float = setting(
        300.0, "Seconds for one model call.", MODEL, gt=0, tightens="lower"
    )
    price_input: float | None = setting(None, "USD per million input tokens.", MODEL, ge=0)
    price_output: float | None = setting(None, "USD per million output tokens.", MODEL, ge=0)
    prompt_cache: bool = setting(True, "Ask Anthropic to cache the start of the prompt.", MODEL)
    local_model: Path | None = setting(
        None, "GGUF file of a model on this machine, for --model local:NAME.", MODEL, metavar="FILE"
    )
    local_context: int | None = setting(
        None, "Context window of the local model, in tokens (16384).", MODEL, ge=512
    )
    local_threads: int | None = setting(
        None, "Threads of the local model (one a core).", MODEL, ge=1, le=256
    )

    # Embeddings.
    embed: Literal["auto", "off", "local", "remote"] = setting(
        "auto",
        "Where embeddings come from; `local` needs patchshot[local]. auto: remote where an "
        "embedding model is set, or behind a miner's proxy.",
        EMBEDDINGS,
        presets=EMBEDDED,
    )
    embed_base_url: str | None = setting(
        None, "URL of the embedding server.", EMBEDDINGS, presets=EMBEDDED
    )
    embed_api_key: SecretStr | None = Field(None, description="Key of the embedding server.")
    embed_model: str | None = setting(None, "Embedding model.", EMBEDDINGS, presets=EMBEDDED)
    embed_protocol: str = setting(
        "auto", "Protocol of the embedding server.", EMBEDDINGS, metavar="NAME", presets=EMBEDDED
    )
    embed_concurrency: int | None = setting(
        None, "Embedding calls at once (8).", EMBEDDINGS, ge=1, le=256, tightens="lower",
        presets=EMBEDDED,
    )  # fmt: skip

    # The reranker.
    rerank_base_url: str | None = setting(
        None, "URL of a server with /rerank (Jina, Cohere, vLLM, llama.cpp, TEI).", EMBEDDINGS,
        presets=RANKED,
    )  # fmt: skip
    rerank_api_key: SecretStr | None = Field(None, description="Key of the reranker.")
    rerank_model: str | None = setting(None, "Model of the reranker.", EMBEDDINGS, presets=RANKED)

    # Retrieval and context.
    preset: str = setting(
        "default", "Named settings: default, lexical or original.", CONTEXT, metavar="NAME"
    )
    without: Names = setting(
        (),
        "Leave out a group of features, or `ranker`: then the plain sum decides (repeatable).",
        CONTEXT,
        metavar="GROUP",
        presets=RANKED,
    )
    prefilter: int | None = setting(
        None, "Chunks that are embedded (100; original: 50).", CONTEXT, ge=1, presets=EMBEDDED
    )
    filename_bonus: float | None = setting(
        None,
        "Added to the score of files that the issue names (original: 0.2; else 0, because the "
        "ranker has a feature for it; its scores differ by some ten).",
        CONTEXT, ge=0, le=1000,
    )  # fmt: skip
    context_tokens: Tokens = setting(
        "auto",
        "Token budget of the context; auto: 3,000 where that is likely complete, else 9,000, and "
        "up to 24,000 for code that the locating call names.",
        CONTEXT, metavar="N|auto", tightens="lower",
    )  # fmt: skip
    context_reserve: float = setting(
        0.15, "Share of the budget that stays free.", CONTEXT, ge=0, lt=1
    )
    locate: Literal["auto", "always", "never"] = setting(
        "auto",
        "Ask the model first which code it has to see; auto: where the context is unlikely to "
        "be complete.",
        CONTEXT,
    )
    locate_model: str | None = setting(
        None, "Model of that first call, at the same server (--model).", CONTEXT
    )
    max_chunks: int | None = setting(
        None, "Most chunks in the context (30 for each 6,000 tokens).", CONTEXT, ge=1,
        tightens="lower",
    )  # fmt: skip

    max_file_mb: float = setting(
        1.0, "Largest file of the repository that is read, in MB (at most 5).", CONTEXT,
        gt=0, le=5, tightens="lower",
    )  # fmt: skip
    context_floor: float = setting(
        0.0,
        "Leave out chunks whose score is lower than this, where the best has 1 and the last 0.",
        CONTEXT, ge=0, le=1,
    )  # fmt: skip
    expand: Literal["off", "project", "llm"] = setting(
        "off",
        "Rank with further words: those that go with the title's in this project, or a model's.",
        CONTEXT, presets=RANKED,
    )  # fmt: skip

    # Corpora beside the code, and the store of their vectors.
    store: str | None = setting(
        None,
        "URL of the vector store: sqlite:///F, lancedb:///DIR, qdrant://HOST, postgresql://...",
        CORPORA, metavar="URL", min_length=1,
    )  # fmt: skip
    store_fallback: Literal["embedded", "stop"] = setting(
        "embedded",
        "When the store cannot be reached: use the one in the cache folder, or stop. --list, "
        "--drop and --fresh always stop.",
        CORPORA,
    )
    corpora: Names = setting(
        (), "Corpora that are searched beside the code (repeatable).", CORPORA, metavar="NAME",
        presets=RANKED,
    )  # fmt: skip
    corpus_weights: Names = setting(
        (), "Weight of a corpus in the order of all results, e.g. history=0.5 (repeatable).",
        CORPORA, metavar="NAME=NUMBER",
    )  # fmt: skip
    history_exclude: Names = setting(
        ("generated/",),
        "Past changes that are left out: a glob of paths, a folder's name with /, or ! and what "
        "to keep (repeatable).",
        CORPORA, metavar="GLOB",
    )  # fmt: skip
    history_max_hunks: int = setting(
        100, "Most hunks of one past commit, the largest first.", CORPORA, ge=1, tightens="lower"
    )
    history_min_lines: int = setting(
        3, "Least lines that a hunk of a past commit adds.", CORPORA, ge=1
    )
    intents_model: str | None = setting(
        None, "Cheaper model that writes intents (--model).", CORPORA, metavar="NAME"
    )
    intents_per_symbol: int = setting(
        5, "Intents that a model writes for one symbol.", CORPORA, ge=1, le=10
    )
    intents_workers: int = setting(
        8, "Calls at once that write intents.", CORPORA, ge=1, le=64, tightens="lower"
    )
    remember: bool = setting(
        False, "Keep the accepted patch on this machine, for `agent search --corpus memory`.",
        CORPORA, solve_only=True, tightens="off",
    )  # fmt: skip

    # Limits of the whole run.
    timeout: float = setting(
        TIMEOUT_SECONDS, "Seconds for the whole run.", LIMITS, gt=0, tightens="lower"
    )
    max_cost: float | None = setting(
        None, "USD for all calls; a call that could exceed it is not made.", LIMITS, common=True,
        ge=0, tightens="lower",
    )  # fmt: skip
    max_tokens: int = setting(
        MAX_TOKENS, "Input and output tokens of all calls.", LIMITS, common=True, ge=1,
        tightens="lower",
    )  # fmt: skip
    max_calls: int | None = setting(
        None, "Model calls (1 + --samples + 2 for code + --repairs + --max-steps: 45).", LIMITS,
        ge=0,
        tightens="lower",
    )  # fmt: skip
    samples: int = setting(
        1, "Replies to the first prompt; tests choose one.", LIMITS, ge=1, le=16, tightens="lower"
    )
    repairs: int = setting(
        1, "Repair calls before the iterative mode.", LIMITS, ge=0, le=5, tightens="lower"
    )
    iterative: bool = setting(
        True, "Fall back to a mode in which the model works step by step.", LIMITS, tightens="off"
    )
    max_steps: int = setting(
        MAX_STEPS, "Steps of the iterative mode.", LIMITS, ge=1, le=100, tightens="lower"
    )
    widening: Literal["off", "plain", "plan"] = setting(
        "plain", "How the context grows for the iterative mode: by rank, or by plan search.", LIMITS
    )
    wider_tokens: int = setting(
        WIDER_TOKENS,
        "Token budget of the code that a reply asks for, and of the widened context.", LIMITS,
        ge=MIN_CONTEXT_TOKENS, tightens="lower",
    )  # fmt: skip
    plan: bool = setting(
        False, "Show the model a plan: what to look for, and where that is.", LIMITS,
        tightens="off",
    )  # fmt: skip
    plan_beam: int | None = setting(
        None, "Plans that each round of a plan search keeps (best-first without).", LIMITS, ge=1
    )
    plan_calls: int = setting(
        0, "Model calls that propose plans.", LIMITS, ge=0, le=1, tightens="lower"
    )
    find_action: bool = setting(
        False, "Offer the iterative mode a search by intent.", LIMITS, tightens="off"
    )

    # The patch.
    allow: Names = setting(
        (), "Protected path that edits may touch (repeatable).", PATCH, metavar="PATH"
    )
    no_repair: Names = setting(
        (), "Leave a repair or lenient match tier out: its name, or `all` (repeatable).", PATCH,
        metavar="NAME",
    )  # fmt: skip
    include_test: bool = setting(
        False, "Keep the reply's reproduction test in the diff.", PATCH, "--with-test",
        "--include-test",
    )  # fmt: skip

    outdated_tests: OutdatedMode = setting(
        "show",
        "Existing tests that assert what the issue calls wrong: refuse the patch, show them for "
        "review, or edit them in the diff too.", PATCH, tightens="refuse",
    )  # fmt: skip

    # Validation.
    path: Path | None = setting(
        None,
        "Folder of a monorepo, from its root: code, environment and tests are looked for there.",
        CHECK, metavar="FOLDER", solve_only=True,
    )  # fmt: skip
    tests: bool = setting(True, "Run tests; without, only the syntax is checked.", CHECK)
    test_cmd: str | None = setting(
        None, "Test command, e.g. `pytest tests/unit`.", CHECK, common=True, metavar="COMMAND"
    )
    setup_cmd: str | None = setting(
        None, "Command that prepares the private copy before tests, e.g. `npm ci`.", CHECK,
        metavar="COMMAND",
    )  # fmt: skip
    setup_network: bool = setting(
        False, "Let --setup-cmd use the network of this machine.", CHECK, tightens="off"
    )
    test_timeout: float = setting(300.0, "Seconds for one test run.", CHECK, gt=0, tightens="lower")
    max_test_files: int = setting(
        12, "Most test files that are run for one patch.", CHECK, ge=1, tightens="lower"
    )
    python: Path | None = setting(None, "The target's interpreter.", CHECK, metavar="FILE")
    environments: Path | None = setting(
        None,
        "TOML file: Python, packages and test command of each project (docs/guide/tests.md).",
        CHECK, metavar="SPEC",
    )  # fmt: skip
    project: str | None = setting(
        None, "The target's name in the file of --environments (by its folder's name).", CHECK,
        metavar="OWNER/NAME", solve_only=True,
    )  # fmt: skip
    accept_unverified: bool = setting(
        False, "Exit 0 also when no test could be run.", CHECK, tightens="off"
    )
    fail_to_pass: Names = setting(
        (), "Test that fails now and must pass; such tests decide alone (repeatable).", CHECK,
        metavar="ID", solve_only=True,
    )  # fmt: skip
    pass_to_pass: Names = setting(
        (), "Test that must go on passing (repeatable).", CHECK, metavar="ID", solve_only=True
    )
    tests_from: Path | None = setting(
        None, "JSON row with FAIL_TO_PASS and PASS_TO_PASS.", CHECK, metavar="FILE",
        solve_only=True,
    )  # fmt: skip
    run_cache: bool = setting(True, "Keep test runs of the base between solves.", CHECK)
    sandbox: Literal["auto", "bwrap", "container", "landlock"] = setting(
        "auto", "What isolates the target's code; auto: bwrap, or a container with --image.", CHECK
    )
    image: str | None = setting(
        None, "Run tests in containers (podman, docker) of this image, which must be here.", CHECK,
        metavar="IMAGE",
    )  # fmt: skip
    unsafe_no_sandbox: bool = setting(
        False, "Run the target's code without isolation.", CHECK, tightens="off"
    )

    # Kept runs, logs and folders.
    keep: bool = setting(
        True, "Keep the run on this machine, for `agent runs`; secrets are masked.", OUTPUT,
        solve_only=True, tightens="off",
    )  # fmt: skip
    log_file: Path | None = setting(
        None, "Append events and model calls to this file, as JSON lines; keys are masked.", OUTPUT,
        metavar="FILE", solve_only=True,
    )  # fmt: skip
    log_bodies: bool = setting(
        False, "Write prompts and replies to the log file too.", OUTPUT, solve_only=True,
        tightens="off",
    )  # fmt: skip
    cache_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("patchshot")),
        description="Folder of caches.",
    )
    data_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("patchshot")),
        description="Folder of what cost money: intents by a model, remembered patches.",
    )

    @property
    def max_file_bytes(self) -> int:
        """`max_file_mb` in bytes."""
        return int(self.max_file_mb * 1_000_000)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings of one command.

    `origins`: where each value came from, by name ("--max-cost", "PATCHSHOT_MAX_COST", a file,
    "default"). `notes`: what was ignored, one line each.
    """

    settings: Settings
    origins: Mapping[str, str]
    notes: tuple[str, ...]


def option_of(name: str) -> Option | None:
    """The command-line option of a setting; None where it has none (keys and folders)."""
    extra = Settings.model_fields[name].json_schema_extra
    return extra["option"] if isinstance(extra, dict) else None  # type: ignore[return-value]


def user_file() -> Path:
    """The user's own configuration file, whether or not it exists."""
    return Path(platformdirs.user_config_dir("patchshot")) / FILE_NAME


def state_folder() -> Path:
    """The user's folder of what was done: `$XDG_STATE_HOME/patchshot`, or below ~/.local/state."""
    return Path(platformdirs.user_state_dir("patchshot"))


def load(
    flags: Mapping[str, Any],
    *,
    repository: Path | None = None,
    note: Callable[[str], None] | None = None,
) -> Settings:
    """Merge flags (None: not given), the environment and files; `note` receives each note.

    Raises ConfigurationError that names the setting and where its value came from.
    """
    loaded = load_with_origins(flags, repository=repository)
    for line in loaded.notes if note else ():
        note(line)  # type: ignore[misc]
    return loaded.settings


def load_with_origins(flags: Mapping[str, Any], *, repository: Path | None = None) -> Loaded:
    """As `load`, with the origin of each value. Raises ConfigurationError."""
    given = {name: value for name, value in flags.items() if value is not None}
    _, strange = _known(given, "settings")
    if strange:  # from a program: the command line has no other options
        raise ConfigurationError(strange[0])
    own, unknown = _known(_read_user_file(), str(user_file()))
    notes = [*unknown, *_unknown_variables()]
    variables = {
        name: os.environ[_variable(name)]
        for name in Settings.model_fields
        if os.environ.get(_variable(name))
    }
    own = {name: value for name, value in own.items() if name not in variables}
    values = {**own, **variables, **given}
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise ConfigurationError(_explain(error, given, own, str(user_file()))) from None
    origins = dict.fromkeys(Settings.model_fields, "default")
    origins |= dict.fromkeys(own, str(user_file()))
    origins |= {name: _variable(name) for name in variables}
    origins |= {name: _flag(name) for name in given}
    notes += _idle(settings, given)
    if repository is None:
        return Loaded(settings, origins, tuple(notes))
    place, theirs = _repository_file(repository)
    tighter, ignored = _tightened(settings, theirs, place, given)
    try:
        settings = Settings(**{**values, **tighter})
    except ValidationError as error:
        raise ConfigurationError(_explain(error, {}, tighter, place)) from None
    return Loaded(settings, origins | dict.fromkeys(tighter, place), (*notes, *ignored))


def _idle(settings: Settings, flags: Mapping[str, Any]) -> list[str]:
    """A note for each option that changes nothing in the chosen preset."""
    chosen = settings.preset.partition("-")[0]
    options = {name: option_of(name) for name in flags}
    return [
        f"{_flag(name)} changes nothing with --preset {chosen}"
        for name, option in options.items()
        if option is not None and chosen in PRESETS and chosen not in option.presets
    ]


def environment(names: tuple[str, ...]) -> Mapping[str, str]:
    """The variables of other tools (OPENAI_API_KEY, ...) that are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


# Variables that hold keys, ours and anybody's: a log may quote what a server echoes.
_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)
_ADDRESS_NAME = re.compile(r"^((https?|all)_proxy|patchshot_store)$", re.IGNORECASE)
_KEYS = ("api_key", "embed_api_key", "rerank_api_key")
_PASSWORD = re.compile(r"^[^/]*//[^/@:]*:([^/@]+)@")


def secret_values() -> frozenset[str]:
    """All keys and passwords that this process was given, for masking; never raises."""
    values = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    values |= {
        found.group(1)
        for name, value in os.environ.items()
        if _ADDRESS_NAME.search(name) and (found := _PASSWORD.search(value))
    }
    with contextlib.suppress(ConfigurationError, OSError):
        own = _read_user_file()
        values |= {str(own.get(name, "")) for name in _KEYS}
    return frozenset(value.strip() for value in values if value.strip() and not _is_file(value))


def _is_file(value: str) -> bool:
    """Whether a variable names a key file: masking its path would mask every path beside it."""
    try:
        return value.startswith(("/", "~")) and Path(value).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _read_user_file() -> Mapping[str, Any]:
    path = user_file()
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not valid TOML ({error})") from None


def _repository_file(repository: Path) -> tuple[str, Mapping[str, Any]]:
    """The repository's own settings, and the name of the file that holds them."""
    root = work_tree_of(repository)
    if (data := read_small_file(root / FILE_NAME)) is not None:
        return f"{FILE_NAME} of the repository", _parsed(data, FILE_NAME)
    place = "pyproject.toml of the repository"
    data = read_small_file(root / "pyproject.toml")
    try:
        tool = _parsed(data or b"", "pyproject.toml").get("tool", {})
    except ConfigurationError:
        return place, {}  # a broken pyproject.toml is not a mistake in our configuration
    section = tool.get("patchshot", {}) if isinstance(tool, dict) else {}
    return place, section if isinstance(section, dict) else {}


def work_tree_of(folder: Path) -> Path:
    """The work tree that `folder` is in, or `folder` itself; no git is run."""
    folder = folder.resolve()
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def _parsed(data: bytes, name: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name} of the repository: not valid TOML ({error})") from None


def _tightened(
    settings: Settings, theirs: Mapping[str, Any], place: str, flags: Mapping[str, Any]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """What of a repository's file counts, and a note for each key that does not."""
    known, notes = _known(theirs, place)
    counts: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in known.items():
        option = option_of(name)
        tightens = option.tightens if option else None
        current = getattr(settings, name)
        if tightens is not None and _is_tighter(tightens, value, current):
            if name not in flags:
                counts[name] = value
        elif value != current:
            ignored.append(
                f"{place}: {name} is ignored: a repository may only tighten limits; set it in "
                f"{user_file()}, as {_variable(name)}, or on the command line"
            )
    return counts, (*notes, *ignored)


def _is_tighter(tightens: Tightens, value: Any, current: Any) -> bool:
    """Whether `value` is tighter than `current`; a value of a wrong type is left to validation."""
    if tightens == "off":
        return value is not True
    if tightens == "refuse":
        return bool(value == "refuse")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if current == "auto":  # a larger number than the least may be more than it would have chosen
        current = AUTO_CONTEXT[0] + 1
    return current is None or not number or value < current


def _known(values: Mapping[str, Any], place: str) -> tuple[dict[str, Any], list[str]]:
    """The keys that are settings, and a note for each that is not."""
    known = {name: value for name, value in values.items() if name in Settings.model_fields}
    unknown = [name for name in values if name not in known]
    return known, [f"{place}: {name} is no setting{_nearest(name)}" for name in unknown]


def _unknown_variables() -> list[str]:
    known = {_variable(name) for name in Settings.model_fields}
    return [
        f"{name} is no setting{_nearest(name.removeprefix('PATCHSHOT_').lower(), _variable)}"
        for name in sorted(os.environ)
        if name.startswith("PATCHSHOT_")
        and name not in known
        and not name.startswith(_OTHER_VARIABLES)
    ]


def _nearest(name: str, written: Callable[[str], str] = str) -> str:
    """`; did you mean max_cost?`, or nothing where no setting is spelt alike."""
    close = difflib.get_close_matches(name.lower(), list(Settings.model_fields), n=1)
    return f"; did you mean {written(close[0])}?" if close else ""


def _variable(name: str) -> str:
    return f"PATCHSHOT_{name.upper()}"


def _flag(name: str) -> str:
    option = option_of(name)
    return option.flags[0] if option and option.flags else f"--{name.replace('_', '-')}"


def names_as_given(message: str, flags: Mapping[str, Any]) -> str:
    """Return the message with each setting's option or variable replaced by what the user gave.

    A setting in `flags` is named by its option, one that is in the environment by its variable.
    Other settings keep the name that the message has.
    """
    for name in Settings.model_fields:
        flag, variable = _flag(name), _variable(name)
        given, other = (flag, variable) if name in flags else (variable, flag)
        if name in flags or os.environ.get(variable):
            message = re.sub(rf"(?<![\w-]){other}(?![\w-])", given, message)
    return message


def _explain(
    error: ValidationError, flags: Mapping[str, Any], values: Mapping[str, Any], place: str
) -> str:
    """The first error, with the name of the setting as the user gave it."""
    first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    if name in flags:
        given = _flag(name)
    elif name in values:
        given = f"{name} in {place}"
    else:
        given = _variable(name)
    return f"{given}: {first['msg'].lower().removeprefix('value error, ')}"
