"""The command line: arguments and help. What the commands do is in `agent.commands`.

Nothing heavy is imported here: `agent --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.arguments import (
    CONTEXT,
    CORPORA,
    AcceptUnverifiedOption,
    AddressOption,
    AllowOption,
    ApplyOption,
    AtLeastOption,
    Backend,
    BaseUrlOption,
    CheckDatasetOption,
    CollectionOption,
    CommitOption,
    ContextTokensOption,
    CorpusOption,
    DatasetOption,
    Dirty,
    DirtyOption,
    DryRunOption,
    Embed,
    EmbedOption,
    EngineName,
    EngineOption,
    EnvironmentsOption,
    Expand,
    ExpandOption,
    ExplainOption,
    FailToPassOption,
    ForceOption,
    FormatOption,
    IdsOption,
    ImageOption,
    ImageTemplateOption,
    ImportOption,
    IncludeTestOption,
    Intents,
    IntentsOption,
    IterativeOption,
    JsonOption,
    JudgeTimeoutOption,
    LogBodiesOption,
    LogFileOption,
    MadeByOption,
    MatchOption,
    MaxCallsOption,
    MaxChunksOption,
    MaxCostOption,
    MaxOutputTokensOption,
    MaxRequestsOption,
    MaxStepsOption,
    MaxTokensOption,
    MaxTotalCostOption,
    MaxTriesOption,
    ModelOption,
    NameOption,
    NoRepairOption,
    Opened,
    OutputOption,
    OwnRunOption,
    PassToPassOption,
    PrecomputedOption,
    PredictedOption,
    PredictionsOption,
    PresetOption,
    ProblemOption,
    ProjectOption,
    PythonOption,
    QuietOption,
    RayVerboseOption,
    RecordOption,
    RememberOption,
    RepairsOption,
    ReplayOption,
    RepoOption,
    ReportOption,
    RepositoriesOption,
    RestartOption,
    RunCacheOption,
    RunFolderOption,
    SandboxOption,
    SliceOption,
    Split,
    StoreFallbackOption,
    StoreOption,
    TagOption,
    TemperatureOption,
    TestCmdOption,
    TestsFromOption,
    TestsOption,
    TestTimeoutOption,
    TimeoutOption,
    UnsafeNoSandboxOption,
    VectorOption,
    VerboseOption,
    WithoutOption,
    WithTestOption,
    WorkersOption,
)

app = typer.Typer(
    name="agent",
    help="From an issue to a validated patch in one model call.",
    epilog="Set PATCHSHOT_BASE_URL, PATCHSHOT_API_KEY and PATCHSHOT_MODEL, or OPENAI_API_KEY; "
    "`agent doctor` shows what works here.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Options of `solve` and `batch` that are settings under the same name, and of a plain type.
_SOLVING = (
    "base_url",
    "model",
    "temperature",
    "max_output_tokens",
    "timeout",
    "max_cost",
    "max_tokens",
    "max_calls",
    "repairs",
    "iterative",
    "max_steps",
    "tests",
    "test_cmd",
    "test_timeout",
    "python",
    "environments",
    "run_cache",
    "accept_unverified",
    "unsafe_no_sandbox",
)

evaluations = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(evaluations, name="eval")


@app.command(
    epilog="Example: `agent solve --problem issue.md --repo ./target > fix.diff`  ·  Exit codes: "
    "0 accepted, 2 usage, 3 no edit, 4 unparseable, 5 does not apply, 6 breaks syntax or tests "
    "or is suspect, 7 time limit, 8 budget, 9 provider, 10 sandbox, 11 unverified (no test could "
    "be run), 130 interrupted."
)
def solve(
    problem: ProblemOption,
    repo: RepoOption = Path(),
    commit: CommitOption = None,
    dirty: DirtyOption = Dirty.INCLUDE,
    output: OutputOption = None,
    apply: ApplyOption = False,
    remember: RememberOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    record: RecordOption = None,
    replay: ReplayOption = None,
    log_file: LogFileOption = None,
    log_bodies: LogBodiesOption = None,
    allow: AllowOption = None,
    no_repair: NoRepairOption = None,
    with_test: WithTestOption = None,
    include_test: IncludeTestOption = None,
    base_url: BaseUrlOption = None,
    model: ModelOption = None,
    temperature: TemperatureOption = None,
    max_output_tokens: MaxOutputTokensOption = None,
    preset: PresetOption = None,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    context_tokens: ContextTokensOption = None,
    max_chunks: MaxChunksOption = None,
    timeout: TimeoutOption = None,
    max_cost: MaxCostOption = None,
    max_tokens: MaxTokensOption = None,
    max_calls: MaxCallsOption = None,
    repairs: RepairsOption = None,
    iterative: IterativeOption = None,
    max_steps: MaxStepsOption = None,
    tests: TestsOption = None,
    test_cmd: TestCmdOption = None,
    test_timeout: TestTimeoutOption = None,
    python: PythonOption = None,
    environments: EnvironmentsOption = None,
    project: ProjectOption = None,
    fail_to_pass: FailToPassOption = None,
    pass_to_pass: PassToPassOption = None,
    tests_from: TestsFromOption = None,
    run_cache: RunCacheOption = None,
    accept_unverified: AcceptUnverifiedOption = None,
    sandbox: SandboxOption = None,
    image: ImageOption = None,
    unsafe_no_sandbox: UnsafeNoSandboxOption = None,
) -> None:
    """Solve an issue: retrieve, one model call, apply, validate; the diff goes to stdout."""
    given = dict(locals())
    from agent.commands import solve as command

    flags = _solving_flags(given) | {
        "project": project,
        "remember": remember,
        "log_file": log_file,
        "log_bodies": log_bodies,
        "fail_to_pass": tuple(fail_to_pass) if fail_to_pass else None,
        "pass_to_pass": tuple(pass_to_pass) if pass_to_pass else None,
        "tests_from": tests_from,
    }
    _leave(
        command.run(
            command.SolveRequest(
                problem=problem,
                repo=repo,
                commit=commit,
                dirty=dirty.value,
                output=output,
                apply=apply,
                json=json,
                quiet=quiet,
                verbose=verbose,
                record=record,
                replay=replay,
            ),
            flags,
        )
    )


@app.command(
    epilog='Example: `agent search "where are cookies parsed" --repo ./target --explain`  ·  '
    "What a part is worth: `agent search --problem issue.md --without history --without ranker`  "
    '·  All corpora: `agent search "expired cookies" --corpus code,docs,intent,history`  ·  '
    "Vectors of another program: `agent search --precomputed ./vectors --vector query.json`"
)
def search(
    query: Annotated[str | None, typer.Argument(help="Words, identifiers, a traceback.")] = None,
    problem: Annotated[
        str | None, typer.Option("--problem", help="Search for a whole issue instead.")
    ] = None,
    repo: RepoOption = Path(),
    commit: CommitOption = None,
    dirty: DirtyOption = Dirty.INCLUDE,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many chunks.")] = 20,
    preset: PresetOption = None,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    corpus: CorpusOption = None,
    store: StoreOption = None,
    store_fallback: StoreFallbackOption = None,
    at_least: AtLeastOption = None,
    expand: ExpandOption = Expand.OFF,
    intents: IntentsOption = Intents.TEMPLATES,
    max_cost: MaxCostOption = None,
    precomputed: PrecomputedOption = None,
    vector: VectorOption = None,
    tag: TagOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    explain: ExplainOption = False,
) -> None:
    """Show what ranks highest, and why: chunks of code, and of other corpora beside them."""
    if precomputed is not None or vector is not None or tag:
        given = dict(locals())
        from agent.commands import precomputed as vectors

        _leave(vectors.search_by_options(given))
    from agent.commands import inspect

    request = inspect.InspectRequest(problem, repo, commit, dirty.value, json, quiet, explain)
    flags = _retrieval_flags(preset, without, embed) | {
        "store": store,
        "store_fallback": store_fallback and store_fallback.value,
        "max_cost": max_cost,
    }
    asked = inspect.PoolRequest(
        corpora=tuple(corpus or ()),
        at_least=at_least,
        expand=expand.value,
        by_model=intents is Intents.LLM,
    )
    _leave(inspect.search(request, query, limit, flags, asked))


@app.command(epilog="Example: `agent context --problem issue.md --repo ./target`")
def context(
    problem: ProblemOption,
    repo: RepoOption = Path(),
    commit: CommitOption = None,
    dirty: DirtyOption = Dirty.INCLUDE,
    preset: PresetOption = None,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    context_tokens: ContextTokensOption = None,
    max_chunks: MaxChunksOption = None,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print the whole prompt instead, as it would be sent.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the packed context and its receipt, as the model would be shown it; no model call."""
    from agent.commands import inspect

    request = inspect.InspectRequest(problem, repo, commit, dirty.value, json, quiet)
    flags = _retrieval_flags(preset, without, embed, context_tokens, max_chunks)
    _leave(inspect.context(request, flags, prompt=prompt))


@app.command(epilog="Example: `agent apply --reply reply.json --repo ./target | git apply`")
def apply(
    reply: Annotated[str, typer.Option("--reply", help="A saved model reply; `-` for stdin.")],
    repo: RepoOption = Path(),
    commit: CommitOption = None,
    dirty: DirtyOption = Dirty.INCLUDE,
    output: OutputOption = None,
    write: ApplyOption = False,
    allow: AllowOption = None,
    no_repair: NoRepairOption = None,
    with_test: WithTestOption = None,
    include_test: IncludeTestOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Read and apply a saved model reply, check its syntax, and print the diff; no model call."""
    from agent.commands import apply as command

    flags = {
        "allow": tuple(allow) if allow else None,
        "no_repair": tuple(no_repair) if no_repair else None,
        "include_test": with_test or include_test,
    }
    request = command.ApplyRequest(reply, repo, commit, dirty.value, output, write, json, quiet)
    _leave(command.run(request, flags))


@app.command(
    epilog="Example: `agent index --repo ./target`  ·  Other corpora too, in a store that a team "
    "shares: `agent index --corpus code,docs,intent,history --store postgresql://HOST/DATABASE`  "
    "·  Vectors of another program: `agent index --precomputed ./vectors --made-by MODEL`"
)
def index(
    repo: RepoOption = Path(),
    commit: CommitOption = None,
    dirty: DirtyOption = Dirty.INCLUDE,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    corpus: CorpusOption = None,
    store: StoreOption = None,
    store_fallback: StoreFallbackOption = None,
    intents: IntentsOption = Intents.TEMPLATES,
    max_cost: MaxCostOption = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Remove this project's entries of these corpora from the store first.",
            rich_help_panel=CORPORA,
        ),
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Forget the accepted patches instead; a store keeps theirs.",
            rich_help_panel=CORPORA,
        ),
    ] = False,
    show: Annotated[
        bool,
        typer.Option(
            "--list", help="List the store's collections instead.", rich_help_panel=CORPORA
        ),
    ] = False,
    drop: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Drop a collection of the store instead.",
            rich_help_panel=CORPORA,
        ),
    ] = None,
    precomputed: ImportOption = None,
    collection: CollectionOption = None,
    made_by: MadeByOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build or refresh the cache of chunks and commits, and the vectors of other corpora."""
    if precomputed is not None or collection is not None or made_by is not None or dry_run:
        given = dict(locals())
        from agent.commands import precomputed as vectors

        _leave(vectors.import_by_options(given))
    from agent.commands import inspect

    request = inspect.InspectRequest(None, repo, commit, dirty.value, json, quiet)
    flags = _retrieval_flags(None, without, embed) | {
        "store": store,
        "store_fallback": store_fallback and store_fallback.value,
        "max_cost": max_cost,
    }
    asked = inspect.PoolRequest(
        corpora=tuple(corpus or ()),
        by_model=intents is Intents.LLM,
        fresh=fresh,
        forget=forget,
        show=show,
        drop=drop,
    )
    _leave(inspect.index(request, flags, asked))


@app.command(epilog="Example: `agent doctor --json`")
def doctor(
    json: JsonOption = False,
    live: Annotated[
        bool, typer.Option("--live", help="Also make one real call to the model.")
    ] = False,
    sandbox: SandboxOption = None,
    image: ImageOption = None,
) -> None:
    """Say what works here: git, tokenizer, sandbox guarantees, model, embeddings."""
    from agent.commands import doctor as command

    _leave(command.run(json=json, live=live, flags=_sandbox_flags(sandbox, image)))


@app.command(epilog="Example: `agent bundle --output agent.py`, `agent bundle --check agent.py`")
def bundle(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the file here, then check it.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", help="Check this file against the contract instead.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write the program as one source file, for the miner contract (docs/miner.md)."""
    from agent.commands import bundle as command

    _leave(command.run(command.BundleRequest(output, check, json)))


@app.command(
    epilog="Example: `agent demo`; with your own model: `PATCHSHOT_BASE_URL=... agent demo`"
)
def demo(
    json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run the main job on a bundled project, offline, with a recorded model reply."""
    from agent.commands import demo as command

    _leave(command.run(json=json, quiet=quiet, verbose=verbose))


@app.command(
    epilog="Example: `agent batch --dataset swe.jsonl --repos ./repositories --output preds.json "
    "--workers 4 --max-total-cost 20`; the same command goes on where it was stopped  ·  Exit "
    "codes: 0 all done, 1 some set aside, 2 usage or unusable rows, 8 budget, 9 provider, 10 "
    "sandbox or disk, 130 interrupted."
)
def batch(
    dataset: DatasetOption,
    repos: RepositoriesOption,
    output: PredictionsOption,
    form: FormatOption = None,
    run: RunFolderOption = None,
    ids: IdsOption = None,
    window: SliceOption = None,
    match: MatchOption = None,
    workers: WorkersOption = 1,
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    name: NameOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: RayVerboseOption = False,
    allow: AllowOption = None,
    no_repair: NoRepairOption = None,
    with_test: WithTestOption = None,
    include_test: IncludeTestOption = None,
    base_url: BaseUrlOption = None,
    model: ModelOption = None,
    temperature: TemperatureOption = None,
    max_output_tokens: MaxOutputTokensOption = None,
    preset: PresetOption = None,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    context_tokens: ContextTokensOption = None,
    max_chunks: MaxChunksOption = None,
    max_total_cost: MaxTotalCostOption = None,
    max_requests_per_minute: MaxRequestsOption = None,
    max_tries: MaxTriesOption = 2,
    timeout: TimeoutOption = None,
    max_cost: MaxCostOption = None,
    max_tokens: MaxTokensOption = None,
    max_calls: MaxCallsOption = None,
    repairs: RepairsOption = None,
    iterative: IterativeOption = None,
    max_steps: MaxStepsOption = None,
    tests: TestsOption = None,
    test_cmd: TestCmdOption = None,
    test_timeout: TestTimeoutOption = None,
    python: PythonOption = None,
    environments: EnvironmentsOption = None,
    run_cache: RunCacheOption = None,
    accept_unverified: AcceptUnverifiedOption = None,
    sandbox: SandboxOption = None,
    image: ImageOption = None,
    unsafe_no_sandbox: UnsafeNoSandboxOption = None,
) -> None:
    """Solve many issues of a data set; limits without "total" are those of one instance."""
    given = dict(locals())
    from agent.commands import batch as command

    flags = _solving_flags(given)
    _leave(
        command.run(
            command.BatchRequest(
                dataset=dataset,
                repos=repos,
                output=output,
                form=form.value if form else None,
                run=run,
                ids=tuple(ids or ()),
                window=window,
                match=match,
                workers=workers,
                max_total_cost=max_total_cost,
                max_requests_per_minute=max_requests_per_minute,
                max_tries=max_tries,
                name=name,
                force=force,
                engine=engine.value,
                address=address,
                json=json,
                quiet=quiet,
                verbose=verbose,
            ),
            flags,
        )
    )


@app.command(
    epilog="Example: `agent report preds.run --evaluation evaluation.json --output report.html`; "
    "`agent solve --json ... > result.json && agent report result.json`"
)
def report(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run (preds.run), or what `agent solve --json` printed.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write (report.html)."),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option("--evaluation", help="Report of `agent eval patches`, shown beside."),
    ] = None,
    bodies: Annotated[
        bool, typer.Option("--bodies/--no-bodies", help="With prompts and replies, or without.")
    ] = True,
    opened: Annotated[
        Opened, typer.Option("--open", help="Show it in a browser; auto: at a desktop.")
    ] = Opened.AUTO,
    json: JsonOption = False,
) -> None:
    """Write a run as one HTML file that loads nothing: figures, table, a page an instance."""
    from agent.commands import report as command

    _leave(
        command.run(
            command.ReportRequest(
                run=run,
                output=output,
                evaluation=evaluation,
                bodies=bodies,
                open=opened.value,
                json=json,
            )
        )
    )


@evaluations.command(
    epilog="Example: `agent eval retrieval --dataset issues.jsonl --repos ./repositories "
    "--output rows.jsonl --preset lexical --preset lexical-history --preset lexical-ranker`"
)
def retrieval(
    dataset: Annotated[
        Path, typer.Option("--dataset", help="SWE-bench rows: JSON lines or a JSON array.")
    ],
    repos: Annotated[
        Path, typer.Option("--repos", help="Folder of repositories: owner__name, bare or not.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="One JSON row an instance; rows already there are kept."
        ),
    ],
    preset: Annotated[
        list[str] | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="Repeatable: side by side, each in a file of its own (rows.NAME.jsonl). "
            "`lexical-history` is `lexical` without the group `history`.",
            rich_help_panel=CONTEXT,
        ),
    ] = None,
    without: WithoutOption = None,
    embed: EmbedOption = None,
    context_tokens: ContextTokensOption = None,
    max_chunks: MaxChunksOption = None,
    budgets: Annotated[
        str,
        typer.Option(
            "--budgets",
            help="Token budgets to show context recall at, with commas; '' for none.",
            rich_help_panel=CONTEXT,
        ),
    ] = "3000,6000,12000,24000",
    split: Annotated[
        Split, typer.Option("--split", help="Whole projects, by hash: tune on 60%, report 40%.")
    ] = Split.ALL,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Only the first so many.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes (one a core).")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Overwrite the rows that are there.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure how well retrieval finds the code to change, on issues whose answer is known."""
    from agent.commands import evaluate as command

    request = command.EvaluateRequest(
        dataset=dataset,
        repos=repos,
        output=output,
        presets=preset or (),
        budgets=budgets,
        split=split.value,
        limit=limit,
        workers=workers,
        restart=restart,
        json=json,
        quiet=quiet,
    )
    flags = _retrieval_flags(None, without, embed, context_tokens, max_chunks)
    _leave(command.retrieval(request, flags))


@evaluations.command(
    epilog="Example: `agent eval patches --predictions preds.json --dataset swe.jsonl --repos "
    "./repositories --environments environments.toml --output evaluation.json --workers 4`; the "
    "same command goes on where it was stopped  ·  Exit codes: 0 all evaluated, resolved or not, 1 "
    "some could not be (environment), 2 usage, or entries that cannot be used, 10 sandbox or disk, "
    "130 interrupted."
)
def patches(
    predictions: PredictedOption,
    dataset: DatasetOption,
    repos: RepositoriesOption,
    output: ReportOption,
    environments: EnvironmentsOption = None,
    image_template: ImageTemplateOption = None,
    run: OwnRunOption = None,
    ids: IdsOption = None,
    window: SliceOption = None,
    match: MatchOption = None,
    workers: WorkersOption = 1,
    check_dataset: CheckDatasetOption = False,
    restart: RestartOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
    test_cmd: TestCmdOption = None,
    test_timeout: JudgeTimeoutOption = None,
    python: PythonOption = None,
    sandbox: SandboxOption = None,
    image: ImageOption = None,
    unsafe_no_sandbox: UnsafeNoSandboxOption = None,
) -> None:
    """Judge predictions by the tests of their rows, and our verdicts by the outcome."""
    from agent.commands import evaluate_patches as command

    request = command.PatchesRequest(
        predictions=predictions,
        dataset=dataset,
        repos=repos,
        output=output,
        environments=environments,
        image_template=image_template,
        run=run,
        ids=tuple(ids or ()),
        window=window,
        match=match,
        workers=workers,
        check_dataset=check_dataset,
        restart=restart,
        json=json,
        quiet=quiet,
    )
    flags = {
        "test_cmd": test_cmd,
        "test_timeout": test_timeout,
        "python": python,
        "unsafe_no_sandbox": unsafe_no_sandbox,
        **_sandbox_flags(sandbox, image),
    }
    _leave(command.run(request, flags))


@evaluations.callback()
def _evaluations() -> None:
    """Measure parts of the program on data sets of issues whose answer is known."""


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from agent import __version__

        typer.echo(__version__)
        raise typer.Exit


def _retrieval_flags(
    preset: str | None,
    without: list[str] | None,
    embed: Embed | None = None,
    context_tokens: int | None = None,
    max_chunks: int | None = None,
) -> dict[str, Any]:
    return {
        "preset": preset,
        "without": ",".join(without) if without else None,
        "embed": embed.value if embed else None,
        "context_tokens": context_tokens,
        "max_chunks": max_chunks,
    }


def _solving_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of one solve, from the options of a command by name."""
    retrieval = ("preset", "without", "embed", "context_tokens", "max_chunks")
    return {
        "allow": tuple(given["allow"]) if given["allow"] else None,
        "no_repair": tuple(given["no_repair"]) if given["no_repair"] else None,
        "include_test": given["with_test"] or given["include_test"],
        **{name: given[name] for name in _SOLVING},
        **_sandbox_flags(given["sandbox"], given["image"]),
        **_retrieval_flags(*(given[name] for name in retrieval)),
    }


def _sandbox_flags(sandbox: Backend | None, image: str | None) -> dict[str, Any]:
    return {"sandbox": sandbox.value if sandbox else None, "image": image}


def _leave(code: int) -> None:
    raise typer.Exit(code)


def main() -> None:
    """Entry point of the command `agent`."""
    app(prog_name="agent")
