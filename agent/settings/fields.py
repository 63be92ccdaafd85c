"""Every setting with its default, and how it is set: its option, its panel of `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, SecretStr

from agent.settings.sources import user_folder

MIN_CONTEXT_TOKENS = 200
"""A smaller context budget holds no code."""

# Panels of `--help`.
MODEL = "Model"
EMBEDDINGS = "Embeddings"
CONTEXT = "Retrieval and context"
CORPORA = "Corpora"
LIMITS = "Limits"
PATCH = "Patch"
CHECK = "Validation"
OUTPUT = "Output"

OutdatedMode = Literal["refuse", "show", "edit"]
Tightens = Literal["lower", "off", "refuse", "consent"]
Commands = Literal["all", "solve", "search", "none"]


@dataclass(frozen=True, slots=True)
class Option:
    """How a setting appears on the command line, and what a repository's file may do with it.

    `search` as `commands` means: not `solve`. `tightens`: a repository's file may lower a number,
    switch a flag off, choose "refuse", or, with the user's consent, set what runs in the sandbox.
    """

    panel: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    commands: Commands = "all"
    common: bool = False
    tightens: Tightens | None = None


def setting(
    default: Any,
    help: str,
    panel: str,
    *flags: str,
    metavar: str | None = None,
    commands: Commands = "all",
    common: bool = False,
    tightens: Tightens | None = None,
    **constraints: Any,
) -> Any:
    """A field of `Settings`. `flags` are the names of its option where `--field-name` is not it."""
    option = Option(panel, flags, metavar, commands, common, tightens)
    return Field(
        default,
        description=help,
        json_schema_extra={"option": option},  # type: ignore[dict-item]
        **constraints,
    )


def _names(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Texts: a list, or (in the environment) with commas between them."""


def _command(value: object) -> object:
    return (value,) if isinstance(value, str) else value


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


# Defaults that the options of the core share, so that each stands in one place.
CONTEXT_TOKENS = 6000
AUTO_CONTEXT = (3000, 24_000)
"""The least budget that `--context-tokens auto` chooses, and the greatest for code that a locating
call names. Without a learned ranking it chooses CONTEXT_TOKENS."""
MAX_OUTPUT_TOKENS = 8192
TIMEOUT_SECONDS = 1500.0
WIDER_TOKENS = 12_000
HISTORY_TOKENS = 32_000
CODE_ROUNDS = 2
"""How often a reply may ask for code. More rounds than two would be the iterative mode."""
MAX_STEPS = 40
MAX_TOKENS = 400_000
"""Enough for twenty steps with a long conversation; a run of one call takes about 10,000."""


class Settings(BaseModel, frozen=True, extra="forbid"):
    """Every setting with its default."""

    # The model.
    base_url: str | None = setting(None, "URL of the model server, usually .../v1.", MODEL)
    api_key: SecretStr | None = setting(None, "Key of the model server.", MODEL, commands="none")
    model: str | None = setting(None, "Model that writes the patch.", MODEL, common=True)
    escalate_model: str | None = setting(
        None, "Model of repairs and steps, once a reply of --model has failed.", MODEL
    )
    side_model: str | None = setting(
        None, "Cheaper model at the same server, for the locating call and intents (--model).",
        MODEL, commands="none",
    )  # fmt: skip
    protocol: str = setting(
        "auto", "Protocol of the model server; auto: told from its URL.", MODEL, commands="none"
    )
    request_timeout: float = setting(
        300.0, "Seconds for one request to a model server.", MODEL, commands="none", gt=0,
        tightens="lower",
    )  # fmt: skip
    temperature: float = setting(0.0, "Sampling temperature.", MODEL, commands="none", ge=0, le=2)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = setting(
        None,
        "How much a reasoning model may think; its own default if unset.",
        MODEL,
        commands="none",
    )
    max_output_tokens: int = setting(
        MAX_OUTPUT_TOKENS, "Largest reply, in tokens.", MODEL, commands="none", ge=64,
        tightens="lower",
    )  # fmt: skip
    prices: str | None = setting(
        None, "USD per million input and output tokens, e.g. 3,15.", MODEL, commands="none",
        pattern=r"^\d+(\.\d+)?, ?\d+(\.\d+)?$",
    )  # fmt: skip

    # Embeddings.
    embed: Literal["auto", "off", "remote"] = setting(
        "auto",
        "Where embeddings come from. auto: remote where an embedding model is set, or behind a "
        "miner's proxy.",
        EMBEDDINGS,
    )
    embed_base_url: str | None = setting(
        None, "URL of the embedding server.", EMBEDDINGS, commands="none"
    )
    embed_api_key: SecretStr | None = setting(
        None, "Key of the embedding server.", EMBEDDINGS, commands="none"
    )
    embed_model: str | None = setting(None, "Embedding model.", EMBEDDINGS, commands="none")

    # Retrieval and context.
    preset: str = setting(
        "default", "Named settings: default, lexical or original.", CONTEXT, metavar="NAME"
    )
    prefilter: int | None = setting(
        None, "Chunks that are embedded (100; original: 50).", CONTEXT, commands="none", ge=1
    )
    filename_bonus: float | None = setting(
        None,
        "Added to the score of files that the issue names (original: 0.2; else 0, because the "
        "ranker has a feature for it; its scores range from about -5 to 5).",
        CONTEXT, commands="none", ge=0, le=1000,
    )  # fmt: skip
    context_tokens: Tokens = setting(
        "auto",
        "Token budget of the context; auto: 3,000 where that is likely complete, else 9,000, and "
        "up to 24,000 for code that the locating call names.",
        CONTEXT, metavar="N|auto", tightens="lower",
    )  # fmt: skip
    context_reserve: float = setting(
        0.15, "Share of the budget that stays free.", CONTEXT, commands="none", ge=0, lt=1
    )
    locate: Literal["auto", "always", "never"] = setting(
        "auto",
        "Ask the model first which code it has to see; auto: where the context is unlikely to "
        "be complete.",
        CONTEXT,
    )
    max_chunks: int | None = setting(
        None, "Most chunks in the context (30 for each 6,000 tokens).", CONTEXT, commands="none",
        ge=1, tightens="lower",
    )  # fmt: skip

    allow_empty_context: bool = setting(
        False,
        "Call the model although no code fits into the context.",
        CONTEXT,
        commands="none",
        tightens="off",
    )

    # Corpora beside the code, and the store of their vectors.
    max_file_mb: float = setting(
        1.0, "Megabytes of the largest file that is read.", CONTEXT, commands="none", gt=0, le=5
    )

    store: str | None = setting(
        None,
        "URL of the vector store: sqlite:///F, lancedb:///DIR, qdrant://HOST",
        CORPORA, metavar="URL", commands="search", min_length=1,
    )  # fmt: skip
    corpora: Names = setting(
        (), "Corpora that are searched beside the code (repeatable).", CORPORA, metavar="NAME",
    )  # fmt: skip
    precomputed: Path | None = setting(
        None, "Folder of vectors of another program: the corpus `vectors`.", CORPORA,
        metavar="FOLDER",
    )  # fmt: skip
    history_exclude: Names = setting(
        ("generated/",),
        "Past changes that are left out: a glob of paths, a folder's name with /, or ! and what "
        "to keep (repeatable).",
        CORPORA, commands="none",
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
        None, "Model calls (5 + --repairs + --max-steps: 46).", LIMITS,
        ge=0,
        tightens="lower",
    )  # fmt: skip
    repairs: int = setting(
        1, "Repair calls before the iterative mode.", LIMITS, ge=0, le=5, tightens="lower"
    )
    max_steps: int = setting(
        MAX_STEPS,
        "Steps of the iterative mode; 0: no such mode.",
        LIMITS,
        ge=0,
        le=100,
        tightens="lower",
    )
    plan: bool = setting(
        False, "Show the model a plan: what to look for, and where (no gain was measured).", LIMITS,
        commands="none", tightens="off",
    )  # fmt: skip

    # The patch.
    allow: Names = setting(
        (), "Protected path that edits may touch (repeatable).", PATCH, metavar="PATH"
    )
    include_test: bool = setting(
        False, "Whether the reply's test joins the diff (by default that of a branch only).", PATCH,
        "--with-test/--without-test", "--include-test",
    )  # fmt: skip

    check: Annotated[tuple[str, ...], BeforeValidator(_command)] = setting(
        (), "Formatter or linter, run in the sandbox on the patch's files before tests, such as "
        "`ruff format {files}` (repeatable).", PATCH, metavar="COMMAND",
    )  # fmt: skip

    outdated_tests: OutdatedMode = setting(
        "show",
        "Existing tests that assert what the issue calls wrong: refuse the patch, show them for "
        "review, or edit them in the diff too.", PATCH, tightens="refuse",
    )  # fmt: skip

    # Validation.
    tests: bool = setting(True, "Run tests; without, only the syntax is checked.", CHECK)
    test_cmd: str | None = setting(
        None, "Test command, e.g. `pytest tests/unit`.", CHECK, common=True, metavar="COMMAND",
        tightens="consent",
    )  # fmt: skip
    setup_cmd: str | None = setting(
        None, "Command that prepares the private copy before tests, e.g. `npm ci`.", CHECK,
        metavar="COMMAND", tightens="consent",
    )  # fmt: skip
    setup_network: bool = setting(
        False,
        "Let --setup-cmd use the network of this machine.",
        CHECK,
        commands="none",
        tightens="off",
    )
    test_timeout: float = setting(300.0, "Seconds for one test run.", CHECK, gt=0, tightens="lower")
    python: Path | None = setting(
        None, "The target's interpreter.", CHECK, metavar="FILE", tightens="consent"
    )
    environments: Path | None = setting(
        None,
        "TOML file: Python, packages and test command of each project (docs/guide/tests.md).",
        CHECK, metavar="SPEC",
    )  # fmt: skip
    evidence: Literal["own", "independent"] = setting(
        "own", "independent: a test from the issue alone grades an accepted patch.", CHECK
    )
    trust_repository: bool = setting(
        False, "Let the repository's own file set what runs in the sandbox, as `agent trust` does.",
        CHECK, commands="solve",
    )  # fmt: skip
    accept_unverified: bool = setting(
        False, "Exit 0 also when no test could be run.", CHECK, tightens="off"
    )
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

    # Kept runs and folders.
    keep: bool = setting(
        True, "Keep the run on this machine, for `agent runs`; secrets are masked.", OUTPUT,
        commands="solve", tightens="off",
    )  # fmt: skip
    cache_dir: Path = Field(
        default_factory=lambda: user_folder("cache"),
        description="Folder of caches.",
        json_schema_extra={"option": Option(OUTPUT, commands="none")},  # type: ignore[dict-item]
    )


def option_of(name: str) -> Option:
    """How a setting is set beside its variable and its key in a file."""
    extra = Settings.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    return extra["option"]  # type: ignore[return-value]


TEAM = tuple(name for name in Settings.model_fields if option_of(name).tightens == "consent")
"""What a repository's file may set with the user's consent: it runs in the sandbox only."""
