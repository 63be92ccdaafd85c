"""Writes docs/reference/commands.md and docs/reference/settings.md from the program itself.

    python docs/generate.py           # write both pages
    python docs/generate.py --check   # exit 1 if a page is out of date

Options, defaults and help texts come from `agent.cli.application` and `agent.settings`. What a
command prints and its exit codes are the only texts that are written here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from agent.cli.application import app
from agent.cli.options import SOLVE_SETTINGS, AgentCommand, SettingOption
from agent.settings import Settings, option_of

FOLDER = Path(__file__).parent / "reference"

# Options that so many commands share are described once.
_COMMON = 3

# A command with more settings than these is compared with `solve`.
_MANY = 20

_NOTICE = "<!-- Written by docs/generate.py. Do not edit. -->\n"

_COMMANDS_HEAD = f"""\
# Commands

{_NOTICE}
Look up here which options a command takes, what it prints and how it ends.

Every command writes its result to stdout and everything else to stderr. `--quiet` silences the
progress, and `--json` prints the result as JSON. Options in the group "Settings" can also be set by
an environment variable or in a file; [Settings](settings.md) describes each of them.

## Exit codes

`agent solve`, `agent apply` and `agent demo` end with these codes. With `--json`, the field
`status` holds the same as a word.

| code | status | meaning |
|--:|---|---|
| 0 | `accepted` | The patch is verified, or tests ran and none fails newly. |
| 1 | `crashed` | An internal error. `PATCHSHOT_DEBUG=1` shows the traceback. |
| 2 | `usage` | An argument, the issue, the repository or a setting is wrong. |
| 3 | `no-edit` | The reply has no edit. |
| 3 | `already-fixed` | The files hold what the model would write: the issue seems to be fixed. |
| 4 | `unparseable` | The reply cannot be read. |
| 5 | `not-applied` | An edit does not fit, its path is refused, or `--apply` failed. |
| 6 | `broken` | The patch breaks the syntax or tests. |
| 6 | `suspect` | What the tests report cannot be believed. |
| 7 | `time-limit` | `--timeout` has passed. |
| 8 | `budget` | The next call could exceed a limit on cost, tokens or calls. |
| 9 | `provider` | The model server cannot be reached, or it refuses. |
| 10 | `sandbox` | Tests cannot be isolated on this machine, or the disk is full. |
| 11 | `unverified` | The patch applies, but no test could be run. |
| 130 | `interrupted` | Ctrl-C or SIGTERM. The best patch so far is still printed. |
| 141 | | The reader of stdout has gone away, as in `agent solve ... \\| head -1`. |

The other commands use the same numbers for the same reasons: 0 for success, 2 for wrong arguments,
settings or inputs, 130 for Ctrl-C. Where a command has more, its section says so.
"""

_SETTINGS_HEAD = f"""\
# Settings

{_NOTICE}
Look up here what each setting does, its default, and how to set it.

A setting `max_cost` is the option `--max-cost`, the environment variable `PATCHSHOT_MAX_COST`, and
the key `max_cost` in `patchshot.toml`. Rare settings have no option.
[Configuration](../guide/configuration.md) explains which of them wins. The last column says what a
repository's own file may do: set a *lower* number, switch the setting *off*, or set it with your
*consent* (`agent trust`). All other keys of such a file are ignored with a note.
"""


class Note(NamedTuple):
    """What a command prints on stdout, and exit codes that the common table does not explain."""

    stdout: str
    exits: str = ""


# Commands that are not listed here get no such lines.
NOTES: Mapping[str, Note] = {
    "solve": Note(
        "The diff of the best patch, which is the accepted one if the exit code is 0; nothing else."
    ),
    "apply": Note(
        "The diff; nothing with a kept run. With `--json`, the same fields as `agent solve --json`."
    ),
    "undo": Note(
        "The files that were restored, or why none was.",
        "5 if a file has changed since it was written; 2 if there is nothing to undo.",
    ),
    "demo": Note("As `agent solve`."),
    "retry": Note("As `agent solve`."),
    "runs": Note("One line for each run, the newest first."),
    "accept": Note("What the run is now, and how many patches of its project are remembered."),
    "reject": Note("As `agent accept`."),
    "show": Note("Facts about the run, its last line, and its diff, safe for a terminal."),
    "search": Note(
        "One line for each result: rank, score with its name, place, symbol. With `--corpus`, a "
        "label too.",
        "8 if a model call (`--expand llm`) could exceed the budget.",
    ),
    "context": Note("The packed context as Markdown. With `--prompt`, the whole prompt."),
    "index": Note(
        "A summary of what was indexed.",
        "8 if a model call (`--intents llm`) could exceed the budget; 10 if the disk is full.",
    ),
    "batch": Note(
        "A summary of the run.",
        "0 all instances attempted and written; 1 some set aside after repeated crashes; 2 usage, "
        "or rows that cannot be used; 8 total budget; 9 provider, or instances left for the next "
        "run; 10 sandbox or disk; 130 interrupted.",
    ),
    "report": Note("A few figures and the name of the file that was written."),
    "eval retrieval": Note("A table of the measures."),
    "eval patches": Note(
        "Tables of outcomes, and of verdicts against outcomes.",
        "0 all evaluated, resolved or not; 1 some could not be evaluated (environment); 2 usage, "
        "or rows and entries that cannot be used; 10 sandbox or disk; 130 interrupted.",
    ),
    "config": Note(
        "One line for each setting: name, value, and its origin if it is not the default."
    ),
    "doctor": Note(
        "A checklist. ✓ works, · works without it, ✗ is missing.",
        "2 if something that `agent solve` needs is missing; 10 if that is the sandbox.",
    ),
    "bundle": Note("The checks and what they found.", "2 if a check fails."),
}


def commands_page() -> str:
    """Return the text of commands.md."""
    commands = dict(_commands(app))
    counts = Counter(record for each in commands.values() for record in _records(each))
    common = {record for record, count in counts.items() if count >= _COMMON}
    parts = [_COMMANDS_HEAD, _table_head("## Common options", "option", "")]
    parts += [_row(f"`{names}`", text) for names, text in counts if (names, text) in common]
    parts += [_section(name, each, common) for name, each in commands.items()]
    return "".join(parts)


def settings_page() -> str:
    """Return the text of settings.md."""
    parts = [_SETTINGS_HEAD]
    group = None
    for name, field in Settings.model_fields.items():
        option = option_of(name)
        if option.panel != group:
            group = option.panel
            parts.append(_table_head(f"## {group}", "key", "default", "", "repository"))
        cells = (f"`{name}`{_flag_note(name)}", _default(name), field.description or "")
        parts.append(_row(*cells, option.tightens or "–"))
    return "".join(parts)


def _commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from _commands(found, f"{prefix}{name} ")
        elif found is not None:
            yield f"{prefix}{name}", found


def _section(name: str, command: click.Command, common: Collection[tuple[str, str]]) -> str:
    context = click.Context(command, info_name=f"agent {name}")
    arguments = command.collect_usage_pieces(context)[1:]
    parts = [f"\n## agent {name}\n\n{_one_paragraph(command.help)}\n"]
    parts += [f"\n`{' '.join(('agent', name, *arguments))} [OPTIONS]`\n"] if arguments else []
    records = _records(command)
    own = [record for record in records if record not in common]
    if own:
        parts.append(_table_head("", "option", ""))
        parts += [_row(f"`{names}`", text) for names, text in own]
    shared = [f"`{_long_name(names)}`" for names, text in records if (names, text) in common]
    if shared:
        parts.append(f"\n[Common options](#common-options): {', '.join(shared)}\n")
    parts.append(_settings_of(command))
    note = NOTES.get(name)
    if note is not None:
        parts.append(f"\n**Prints:** {note.stdout}\n")
        parts.append(f"\n**Exit codes:** {note.exits}\n" if note.exits else "")
    if isinstance(command, AgentCommand) and command.ending:
        parts.append(f"\n```text\n{command.ending.partition('Exit codes:')[0].rstrip()}\n```\n")
    return "".join(parts)


def _settings_of(command: click.Command) -> str:
    """List the options that are settings, a line for each group; or what `solve` has and it not."""
    names = [p.name for p in command.params if isinstance(p, SettingOption) and p.name]
    if command.name != "solve" and len(names) > _MANY:
        others = [f"`{name}`" for name in SOLVE_SETTINGS if name not in names]
        return f"\nSettings: those of [agent solve](#agent-solve) except {', '.join(others)}.\n"
    groups: dict[str, list[str]] = {}
    for parameter in command.params:
        if isinstance(parameter, SettingOption):
            both = (*parameter.opts[:1], *parameter.secondary_opts[:1])
            groups.setdefault(parameter.setting.panel, []).append(f"`{'`/`'.join(both)}`")
    if not groups:
        return ""
    lines = (f"- [{g}](settings.md#{_anchor(g)}): {', '.join(n)}\n" for g, n in groups.items())
    return "\nSettings:\n\n" + "".join(lines)


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _records(command: click.Command) -> list[tuple[str, str]]:
    """Return names and help of the options that are no settings, without `--help` itself."""
    context = click.Context(command)
    own = [p for p in command.params if not isinstance(p, SettingOption) and p.name != "help_all"]
    records = [parameter.get_help_record(context) for parameter in own]
    return [record for record in records if record and record[1]]


def _long_name(names: str) -> str:
    """Return `--output` of `-o, --output PATH`."""
    return next(word for word in names.replace(",", " ").split() if word.startswith("--"))


def _flag_note(name: str) -> str:
    """Return the option where its name does not follow from the key, or a note that it has none."""
    option = option_of(name)
    if option.commands == "none":
        return " (no option)"
    usual = f"--{name.replace('_', '-')}"
    return f" (`{option.flags[0]}`)" if option.flags and option.flags[0] != usual else ""


def _default(name: str) -> str:
    field = Settings.model_fields[name]
    if field.default_factory is not None:
        return "see `agent config`"
    return _written(field.default)


def _written(value: Any) -> str:
    if value is None or value == ():
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value:g}`" if isinstance(value, int | float) else f"`{value}`"


def _one_paragraph(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


def _table_head(heading: str, *columns: str) -> str:
    title = f"\n{heading}\n\n" if heading else "\n"
    return title + _row(*columns) + _row(*("---" for _ in columns))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


PAGES = {"commands.md": commands_page, "settings.md": settings_page}


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` compare them. Returns the exit code."""
    texts = {FOLDER / name: make() for name, make in PAGES.items()}
    if arguments == ["--check"]:
        stale = [p for p, text in texts.items() if not p.exists() or p.read_text("utf-8") != text]
        for path in stale:
            sys.stderr.write(f"{path} is out of date: run python docs/generate.py\n")
        return 1 if stale else 0
    for path, text in texts.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
