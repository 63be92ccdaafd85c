"""`agent solve`, `apply` and `demo`: from an issue, or a reply, to a patch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.endings import Command
from agent.cli.flags import leave, solving_flags
from agent.cli.options.choices import Dirty
from agent.cli.options.common import (
    CommitOption,
    DirtyOption,
    JsonOption,
    ProblemOption,
    QuietOption,
    RepoOption,
    VerboseOption,
)
from agent.cli.options.many import ProjectOption
from agent.cli.options.model import (
    BaseUrlOption,
    IterativeOption,
    LogBodiesOption,
    LogFileOption,
    MaxCallsOption,
    MaxCostOption,
    MaxOutputTokensOption,
    MaxStepsOption,
    MaxTokensOption,
    ModelOption,
    RecordOption,
    RepairsOption,
    ReplayOption,
    TemperatureOption,
    TimeoutOption,
)
from agent.cli.options.patch import (
    AllowOption,
    ApplyOption,
    IncludeTestOption,
    NoRepairOption,
    OutputOption,
    RememberOption,
    WithTestOption,
)
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
    FailToPassOption,
    ImageOption,
    PassToPassOption,
    PythonOption,
    RunCacheOption,
    SandboxOption,
    TestCmdOption,
    TestsFromOption,
    TestsOption,
    TestTimeoutOption,
    UnsafeNoSandboxOption,
)

commands = typer.Typer()


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent solve --problem issue.md --repo ./target > fix.diff

    Exit codes: 0 accepted, 2 usage, 3 no edit, 4 unparseable, 5 does not apply,
    6 breaks syntax or tests or is suspect, 7 time limit, 8 budget, 9 provider,
    10 sandbox, 11 unverified (no test could be run), 130 interrupted.
    """,
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

    flags = solving_flags(given) | {
        "project": project,
        "remember": remember,
        "log_file": log_file,
        "log_bodies": log_bodies,
        "fail_to_pass": tuple(fail_to_pass) if fail_to_pass else None,
        "pass_to_pass": tuple(pass_to_pass) if pass_to_pass else None,
        "tests_from": tests_from,
    }
    leave(
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


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent apply --reply reply.json --repo ./target | git apply
    """,
)
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
    leave(command.run(request, flags))


@commands.command(
    cls=Command,
    epilog="""
    Example:
      agent demo

    With your own model:
      PATCHSHOT_BASE_URL=http://127.0.0.1:8000/v1 PATCHSHOT_MODEL=NAME agent demo
    """,
)
def demo(
    json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run the main job on a bundled project, offline, with a recorded model reply."""
    from agent.commands import demo as command

    leave(command.run(json=json, quiet=quiet, verbose=verbose))
