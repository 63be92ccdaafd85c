"""Command line options, most of them generated from `agent.settings`.

A command gets `flags`: the names and values of the settings that were given, which
`agent.settings.load` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any, Literal, get_args, get_origin

import click

from agent.settings import CHECK, Option, Settings, option_of

OTHER_OPTIONS = "Options"
"""The help panel of options that are not settings."""

RETRIEVAL_SETTINGS = ("preset", "embed")
CONTEXT_SETTINGS = (*RETRIEVAL_SETTINGS, "context_tokens")
SANDBOX_SETTINGS = ("sandbox", "image")
PATCH_SETTINGS = ("allow", "include_test")
SOLVE_SETTINGS = tuple(
    name for name in Settings.model_fields if option_of(name).commands in ("all", "solve")
)
BATCH_SETTINGS = tuple(name for name in SOLVE_SETTINGS if option_of(name).commands == "all")
CHECK_SETTINGS = (
    "allow",
    "model",
    "base_url",
    "max_cost",
    "trust_repository",
    *(name for name in BATCH_SETTINGS if option_of(name).panel == CHECK),
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class AgentCommand(click.Command):
    """A command whose help groups options by panel and prints its examples unwrapped.

    If some settings are marked as common, `--help` lists of the settings only those, and leaves out
    the `rare` options; `--help-all` lists all.
    """

    def __init__(
        self, *args: Any, ending: str = "", rare: Sequence[str] = (), **others: Any
    ) -> None:
        super().__init__(*args, **others)
        self.ending = cleandoc(ending)
        self.rare = frozenset(rare)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Record `--help-all` and the value of `--json`, before click handles them."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["help_all"] = "--help-all" in args[:end]
        if "--json=full" in args[:end]:
            ctx.meta["json"] = "full"
            args = ["--json" if word == "--json=full" else word for word in args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by panel, settings last."""
        panels: dict[str, list[tuple[str, str]]] = {OTHER_OPTIONS: []}
        abridged = any(parameter.name == "help_all" for parameter in self.params)
        short, hidden = abridged and not ctx.meta.get("help_all"), 0
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or isinstance(parameter, click.Argument):
                continue  # an argument is explained below the options
            option = getattr(parameter, "setting", None)
            is_rare = parameter.name in self.rare if option is None else not option.common
            if short and is_rare:
                hidden += 1
                continue
            panel = OTHER_OPTIONS if option is None or short else option.panel
            panels.setdefault(panel, []).append(record)
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records, col_max=26)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more options: {ctx.command_path} --help-all")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help, then the examples without wrapping."""
        super().format_help(ctx, formatter)
        if self.ending:
            formatter.write(f"\n{indent(self.ending, ' ')}\n")


class SettingOption(click.Option):
    """The option of one setting."""

    def __init__(self, *args: Any, setting: Option, **others: Any) -> None:
        super().__init__(*args, **others)
        self.setting = setting


def command(
    name: str,
    *,
    ending: str,
    settings: Sequence[str] = (),
    rare: Sequence[str] = (),
    prints_record: bool = False,
) -> Callable[[Callable[..., int]], AgentCommand]:
    """Return a decorator that makes a command of a function, which must return the exit code.

    An exception ends it with one line and an exit code; with `prints_record`, `--json` then prints
    a record of the run too. `settings` names the settings that become options, and `rare` options
    that `--help` leaves out.
    """

    def decorate(function: Callable[..., int]) -> AgentCommand:
        def call(**given: Any) -> None:
            from agent.cli.commands.common import guarded

            given.pop("help_all", None)
            flags = {name: given.pop(name) for name in settings}
            if given.pop("no_iterative", False):
                flags["max_steps"] = 0
            flags = {k: v for k, v in flags.items() if v not in (None, ())}
            arguments = {**given, "flags": flags} if settings else given
            json = prints_record and bool(given.get("json"))
            raise SystemExit(guarded(lambda: function(**arguments), json=json))

        made = AgentCommand(
            name,
            callback=call,
            params=list(reversed(getattr(function, "__click_params__", []))),
            help=function.__doc__,
            ending=ending,
            rare=rare,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        made.params += [_setting(one) for one in settings]
        if "max_steps" in settings:
            text = "No further calls after the repair call (--max-steps 0)."
            made.params.append(click.Option(["--no-iterative"], is_flag=True, help=text))
        if any(option_of(one).common for one in settings):
            show: dict[str, Any] = {"is_flag": True, "is_eager": True, "callback": _show_all}
            made.params.append(
                click.Option(["--help-all"], help="Show all options and exit.", **show)
            )
        return made

    return decorate


def _setting(name: str) -> SettingOption:
    field, option = Settings.model_fields[name], option_of(name)
    flags = option.flags or (f"--{name.replace('_', '-')}",)
    kind, text = _kind(field.annotation), field.description or ""
    others: dict[str, Any] = {"setting": option, "default": None}
    if kind is bool:
        others["is_flag"] = True
        if field.default:
            flags = tuple(f"{flag}/--no-{flag.removeprefix('--')}" for flag in flags)
    elif kind is tuple:
        others = {"setting": option, "multiple": True, "metavar": option.metavar}
    else:
        others |= {"type": kind, "metavar": option.metavar}
        if field.default is not None and kind in (int, float):
            text = f"{text.rstrip('.')} ({field.default:g})."
    return SettingOption([*flags, name], help=text, **others)


def _kind(annotation: Any) -> Any:
    """Return the click type for a field's annotation."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    if int in parts and len(parts) > 1:  # a number or a word, which the settings check
        return str
    if get_origin(annotation) is Literal:
        return click.Choice([str(part) for part in parts])
    if get_origin(annotation) is tuple:
        return tuple
    if parts and type(None) in get_args(annotation):
        return _kind(parts[0])
    if annotation is Path:
        return click.Path(path_type=Path)
    return annotation


def _show_all(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


# `names` of an option are separated by spaces: "--output -o".


def path(names: str, help: str, *, required: bool = False) -> Decorator:
    """Return an option whose value is a path, None if it is not given."""
    kind = click.Path(path_type=Path)
    return click.option(*names.split(), type=kind, required=required, help=help)


def choice(names: str, choices: Sequence[str], default: str | None, help: str) -> Decorator:
    """Return an option with a fixed set of values."""
    kind = click.Choice(choices)
    return click.option(*names.split(), type=kind, default=default, show_default=True, help=help)


def flag(names: str, help: str) -> Decorator:
    """Return an option without a value."""
    return click.option(*names.split(), is_flag=True, help=help)


def text(names: str, metavar: str, help: str, **others: Any) -> Decorator:
    """Return an option whose value is a text, None (with `multiple` a tuple) if not given."""
    return click.option(*names.split(), metavar=metavar, help=help, **others)


def number(names: str, least: float, help: str, default: int | None = None) -> Decorator:
    """Return an option whose value is a number of the type of `least`, and not below it."""
    kind = click.IntRange(least) if isinstance(least, int) else click.FloatRange(least)
    shown = default is not None
    return click.option(*names.split(), type=kind, default=default, show_default=shown, help=help)


def all_of(*decorators: Decorator) -> Decorator:
    """Combine options into one decorator, in the order of the help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for one in reversed(decorators):
            function = one(function)
        return function

    return decorate


as_json = flag("--json", "Print the result as JSON.")
as_record = flag("--json", "Print the result as JSON; --json=full with its receipt.")
quiet = flag("--quiet -q", "Show no progress on stderr.")
verbose = flag("--verbose -v", "Show each model call, and why each chunk is in the context.")
problem = all_of(
    click.argument("issue", required=False),
    text("--problem", "TEXT", "The issue, as ISSUE: a file, `-` for stdin, or a URL."),
)
repo = click.option(
    "--repo", type=click.Path(path_type=Path), default=Path(), help="The target git repository."
)
base = all_of(
    repo,
    text("--commit", "TEXT", "Work on this commit instead of the work tree."),
    choice(
        "--dirty",
        ("include", "ignore", "refuse"),
        "include",
        "Uncommitted changes: part of the base, ignored, refused.",
    ),
)
corpora = text(
    "--corpus", "NAME", "code, history, docs, intent, memory (repeatable).", multiple=True
)
scope = path("--path", "Folder of a monorepo, from its root; only what is in it is looked at.")
tests = all_of(
    text("--fail-to-pass", "ID", "Test that fails and must pass; decides.", multiple=True),
    text("--pass-to-pass", "ID", "Test that must go on passing (repeatable).", multiple=True),
    path("--tests-from", "JSON row with FAIL_TO_PASS and PASS_TO_PASS."),
    text("--project", "OWNER/NAME", "The target's name in the file of --environments."),
)
delivery = all_of(
    path("--output -o", "Also write the diff here, as soon as there is one."),
    flag("--apply", "Write the accepted patch into the work tree."),
    text("--branch", "NAME", "Commit the accepted patch on this new branch; no hook runs."),
    text("--commit-message", "TEXT", "The message of that commit (made from the issue)."),
    flag("--pr", "Push the branch to origin on GitHub, and open a pull request."),
)
dataset = all_of(
    path("--dataset", "SWE-bench rows: JSON lines or a JSON array.", required=True),
    path("--repos", "Folder of repositories: owner__name, bare or not.", required=True),
)
selection = all_of(
    text("--id ids", "ID", "Only this one (repeatable).", multiple=True),
    text("--slice window", "A:B", "Only these rows, e.g. 0:50."),
    text("--match", "REGEX", "Only ids in which this is found."),
)
