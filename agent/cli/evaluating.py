"""`agent eval`: parts of the program measured on issues whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.endings import Command
from agent.cli.flags import leave, retrieval_flags, sandbox_flags
from agent.cli.options.choices import Split
from agent.cli.options.common import JsonOption, QuietOption
from agent.cli.options.many import (
    CheckDatasetOption,
    DatasetOption,
    IdsOption,
    ImageTemplateOption,
    MatchOption,
    OwnRunOption,
    PredictedOption,
    ReportOption,
    RepositoriesOption,
    RestartOption,
    SliceOption,
    WorkersOption,
)
from agent.cli.options.retrieval import (
    CONTEXT,
    ContextTokensOption,
    EmbedOption,
    MaxChunksOption,
    WithoutOption,
)
from agent.cli.options.validation import (
    EnvironmentsOption,
    ImageOption,
    JudgeTimeoutOption,
    PythonOption,
    SandboxOption,
    TestCmdOption,
    UnsafeNoSandboxOption,
)

commands = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent eval retrieval --dataset issues.jsonl --repos ./repositories \\
          --output rows.jsonl --preset lexical --preset lexical-history \\
          --preset lexical-ranker
    """,
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
        bool,
        typer.Option(
            "--restart", help="Overwrite the rows that are there, and their .budgets.jsonl."
        ),
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
    flags = retrieval_flags(None, without, embed, context_tokens, max_chunks)
    leave(command.retrieval(request, flags))


@commands.command(
    cls=Command,
    epilog="""
    Example (the same command goes on where it was stopped):
      agent eval patches --predictions preds.json --dataset swe.jsonl \\
          --repos ./repositories --environments environments.toml \\
          --output evaluation.json --workers 4

    Exit codes: 0 all evaluated, resolved or not, 1 some could not be
    (environment), 2 usage, or entries that cannot be used, 10 sandbox or disk,
    130 interrupted.
    """,
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
        **sandbox_flags(sandbox, image),
    }
    leave(command.run(request, flags))


@commands.callback()
def _evaluations() -> None:
    """Measure parts of the program on data sets of issues whose answer is known."""
