"""The help of every command: its examples fit, can be copied, and name options that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner

from agent.cli.application import app
from agent.cli.options import AgentCommand

WIDTH = 78  # of a terminal of 80 columns
_SHELL = frozenset({"|", ">", "&&"})


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and sub-command by its words, found as `agent --help` finds them."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in sorted(command.list_commands(context)):
        yield from leaves(command.get_command(context, name), (*path, name))


COMMANDS = dict(leaves(app))


def examples(ending: str) -> list[str]:
    """The indented lines, those that a backslash continues put together."""
    whole = ending.replace("\\\n", " ")
    return [line.strip() for line in whole.splitlines() if line.startswith("  ")]


def arguments(example: str) -> list[str]:
    """What the shell would give the program: without variables, and up to a pipe."""
    words = shlex.split(example)
    end = next((i for i, word in enumerate(words) if word in _SHELL), len(words))
    return [word for word in words[:end] if not re.match(r"[A-Z_]+=", word)]


def test_the_walk_finds_sub_commands() -> None:
    assert {("solve",), ("eval", "patches"), ("index",)} <= COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_examples_fit_into_a_terminal_as_they_are_written(path: Sequence[str]) -> None:
    command = COMMANDS[tuple(path)]
    assert isinstance(command, AgentCommand)
    said = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).stdout.splitlines()
    ending = command.ending.splitlines()

    assert [line for line in ending if len(line) > WIDTH] == []
    assert said[-len(ending) :] == [f" {line}".rstrip() for line in ending]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_examples_are_commands_that_are_understood(path: Sequence[str]) -> None:
    shown = [arguments(line) for line in examples(COMMANDS[tuple(path)].ending)]
    assert ["agent", *path] in [words[: len(path) + 1] for words in shown]
    for words in shown:
        assert words[0] == "agent"
        of = next(one for one in COMMANDS if tuple(words[1 : len(one) + 1]) == one)
        COMMANDS[of].make_context("agent", words[len(of) + 1 :])  # refuses what it does not know


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_second_line_is_indented_and_nothing_follows_a_backslash(path: Sequence[str]) -> None:
    lines = COMMANDS[tuple(path)].ending.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        assert ("\\" in line) == line.endswith("\\")
        assert line.endswith("\\") == following.startswith("      --")
