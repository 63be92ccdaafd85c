"""The actions of the step-by-step mode, and how they are read from a reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from agent.patching import load_json
from agent.types import Completion, ParseFailure

MAX_ACTIONS = 8
"""Actions of one reply that are carried out. With their results they are 16 blocks of a request,
and Anthropic looks for a cached prefix at most 20 blocks back."""


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class ListFiles(_Action):
    """List the files below a folder."""

    action: Literal["list"]
    path: str = ""


class Search(_Action):
    """Rank functions for a query; with `exact`, list the lines that hold the query."""

    action: Literal["search"]
    query: str = Field(min_length=1, max_length=4000)
    exact: bool = False


class Find(_Action):
    """Rank functions for each of several intents, each function once.

    With `keywords`, one model call first asks for words that such code would hold.
    """

    action: Literal["find"]
    intents: list[str] = Field(min_length=1, max_length=6)
    keywords: bool = False


class Region(_Action):
    """Lines of one file, 1-based and inclusive; without `end`, up to the end of the file."""

    path: str
    start: int = Field(1, ge=1)
    end: int | None = Field(None, ge=1)


class Read(_Action):
    """Show lines of files. One file may also be named directly."""

    action: Literal["read"]
    files: list[Region] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _one_file(cls, value: Any) -> Any:
        if isinstance(value, dict) and "files" not in value and "path" in value:
            return {**value, "files": [value]}
        return value


class EditFiles(_Action):
    """Apply edits, all or none. `agent.patching.parse_reply` checks their form."""

    action: Literal["edit"]
    edits: list[Any] = Field(min_length=1)


class RunTests(_Action):
    """Run test files on the edited copy."""

    action: Literal["run_tests"]
    paths: list[str] = []


class RunCommand(_Action):
    """Run a shell command in the sandbox, on a copy of the edited tree."""

    action: Literal["run"]
    command: str = Field(min_length=1, max_length=20_000)


class ReproductionModel(_Action):
    """The reproduction test of `finish`."""

    path: str
    content: str | None = None  # None: the content of a file that the model has created


class Finish(_Action):
    """End the step-by-step mode, after some last edits."""

    action: Literal["finish"]
    edits: list[Any] = []
    thought: str = ""
    reproduction_test: ReproductionModel | None = None
    wrong_tests: Any = None  # read by `agent.patching.wrong_tests`
    outdated_tests: Any = None  # read by `agent.patching.outdated_tests`


Action = ListFiles | Search | Find | Read | EditFiles | RunTests | RunCommand | Finish
_ACTIONS: TypeAdapter[Action] = TypeAdapter(
    Annotated[Action, Field(discriminator="action")], config=ConfigDict(defer_build=True)
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One action of a reply: as it was written, and as it was read."""

    written: Mapping[str, Any]
    read: Action | ParseFailure


@dataclass(frozen=True, slots=True)
class ReadActions:
    """What a reply says, and its actions; `failure` where it holds none."""

    said: str = ""
    asked: tuple[Asked, ...] = ()
    failure: ParseFailure | None = None


def read_actions(completion: Completion) -> ReadActions:
    """Read one action, or `{"thought": ..., "actions": [...]}`. Never raises."""
    value = load_json(completion.text, finish_reason=completion.finish_reason)
    if isinstance(value, ParseFailure):
        return ReadActions(failure=value)
    listed = value.get("actions")
    if not isinstance(listed, list) or "action" in value:
        return ReadActions(asked=(_asked(value),))
    thought = value.get("thought")
    asked = tuple(_asked(one) for one in listed if isinstance(one, dict))
    if not asked:
        return ReadActions(failure=ParseFailure("schema", '"actions" holds no action'))
    return ReadActions(thought if isinstance(thought, str) else "", asked)


def _asked(value: dict[str, Any]) -> Asked:
    if "action" not in value and "edits" in value:
        value = {**value, "action": "edit"}
    if isinstance(value.get("arguments"), str):  # of a tool call, where they were no JSON object
        what = f"the arguments of {value.get('action')!r} are no JSON object"
        return Asked(value, ParseFailure("malformed", what, advice="call it again"))
    try:
        return Asked(value, _ACTIONS.validate_python(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "action"
        return Asked(value, ParseFailure("schema", f"not an action: {place}: {first['msg']}"))
