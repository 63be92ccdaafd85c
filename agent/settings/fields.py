"""Every setting, with its default and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from agent.settings.options import (
    CHECK,
    CONTEXT,
    CORPORA,
    EMBEDDED,
    EMBEDDINGS,
    LIMITS,
    MIN_CONTEXT_TOKENS,
    MODEL,
    OUTPUT,
    PATCH,
    RANKED,
    Names,
    Option,
    OutdatedMode,
    Tokens,
    setting,
)

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
    side_model: str | None = setting(
        None, "Cheaper model, at the same server, of the locating call and of intents.", MODEL
    )
    protocol: str = setting(
        "auto", "Protocol of the model server; auto: told from its URL.", MODEL, metavar="NAME"
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
    prices: str | None = setting(
        None, "USD per million input and output tokens, e.g. 3,15.", MODEL, metavar="IN,OUT",
        pattern=r"^\d+(\.\d+)?, ?\d+(\.\d+)?$",
    )  # fmt: skip

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
    embed_concurrency: int | None = setting(
        None, "Embedding calls at once (8).", EMBEDDINGS, ge=1, le=256, tightens="lower",
        presets=EMBEDDED,
    )  # fmt: skip

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
    max_chunks: int | None = setting(
        None, "Most chunks in the context (30 for each 6,000 tokens).", CONTEXT, ge=1,
        tightens="lower",
    )  # fmt: skip

    max_file_mb: float = setting(
        1.0, "Largest file of the repository that is read, in MB (at most 5).", CONTEXT,
        gt=0, le=5, tightens="lower",
    )  # fmt: skip
    allow_empty_context: bool = setting(
        False, "Call the model although no code fits into the context.", CONTEXT, tightens="off"
    )
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
    precomputed: Path | None = setting(
        None, "Folder of vectors of another program: the corpus `vectors`.", CORPORA,
        metavar="FOLDER",
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
        None, "Model calls (2 + --samples + 2 for code + --repairs + --max-steps: 46).", LIMITS,
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
    another_test: bool = setting(
        True, "Ask once for another test of a patch that no test shows to be right.", LIMITS,
        tightens="off",
    )  # fmt: skip
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
        False, "Show the model a plan: what to look for, and where (no gain was measured).", LIMITS,
        tightens="off",
    )  # fmt: skip
    plan_beam: int | None = setting(
        None, "Plans that each round of a plan search keeps (best-first without).", LIMITS, ge=1
    )
    plan_calls: int = setting(
        0, "Most model calls that propose plans.", LIMITS, ge=0, tightens="lower"
    )
    find_action: bool = setting(
        True, "Offer the iterative mode a search by intent.", LIMITS, tightens="off"
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


def option_of(name: str) -> Option | None:
    """The command-line option of a setting; None where it has none (keys and folders)."""
    extra = Settings.model_fields[name].json_schema_extra
    return extra["option"] if isinstance(extra, dict) else None  # type: ignore[return-value]
