"""`agent batch` and `agent report`: many instances."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.endings import Command
from agent.cli.flags import leave, solving_flags
from agent.cli.options.choices import EngineName, Opened
from agent.cli.options.common import JsonOption, QuietOption
from agent.cli.options.many import (
    AddressOption,
    DatasetOption,
    EngineOption,
    ForceOption,
    FormatOption,
    IdsOption,
    MatchOption,
    MaxRequestsOption,
    MaxTotalCostOption,
    MaxTriesOption,
    NameOption,
    PredictionsOption,
    RayVerboseOption,
    RepositoriesOption,
    RunFolderOption,
    SliceOption,
    WorkersOption,
)
from agent.cli.options.model import (
    BaseUrlOption,
    IterativeOption,
    MaxCallsOption,
    MaxCostOption,
    MaxOutputTokensOption,
    MaxStepsOption,
    MaxTokensOption,
    ModelOption,
    RepairsOption,
    TemperatureOption,
    TimeoutOption,
)
from agent.cli.options.patch import AllowOption, IncludeTestOption, NoRepairOption, WithTestOption
from agent.cli.options.retrieval import (
    ContextTokensOption,
    EmbedOption,
    MaxChunksOption,
    PresetOption,
    WithoutOption,
)
from agent.cli.options.validation import (
    AcceptUnverifiedOption,
    EnvironmentsOption,
    ImageOption,
    PythonOption,
    RunCacheOption,
    SandboxOption,
    TestCmdOption,
    TestsOption,
    TestTimeoutOption,
    UnsafeNoSandboxOption,
)

commands = typer.Typer()


@commands.command(
    cls=Command,
    epilog="""
    Example (the same command goes on where it was stopped):
      agent batch --dataset swe.jsonl --repos ./repositories \\
          --output preds.json --workers 4 --max-total-cost 20

    Exit codes: 0 all done, 1 some set aside, 2 usage or unusable rows, 8 budget,
    9 provider, 10 sandbox or disk, 130 interrupted.
    """,
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

    flags = solving_flags(given)
    leave(
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


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent report preds.run --evaluation evaluation.json --output report.html

    Of one issue:
      agent solve --problem issue.md --json > result.json
      agent report result.json
    """,
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

    leave(
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
