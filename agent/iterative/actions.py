"""The actions of the step-by-step mode: how they are read from a reply and shown to the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from agent.patching import load_json
from agent.types import Completion, ParseFailure, Tool

# Actions of one reply that are carried out. With their results they are 16 blocks of a request, and
# Anthropic looks for a cached prefix at most 20 blocks back.
MAX_ACTIONS = 8


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)


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
    """Rank functions for each of several intents, each function once."""

    action: Literal["find"]
    intents: list[str] = Field(min_length=1, max_length=6)


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
    """What a reply says, and its actions. A reply without any counts as one that cannot be read."""

    asked: tuple[Asked, ...]
    said: str = ""


def read_actions(completion: Completion) -> ReadActions:
    """Read one action, or `{"thought": ..., "actions": [...]}`. Never raises."""
    value = load_json(completion.text, finish_reason=completion.finish_reason)
    if isinstance(value, ParseFailure):
        return ReadActions((Asked({}, value),))
    listed = value.get("actions")
    if not isinstance(listed, list) or "action" in value:
        return ReadActions((_asked(value),))
    thought = value.get("thought")
    asked = tuple(_asked(one) for one in listed if isinstance(one, dict))
    if not asked:
        return ReadActions((Asked({}, ParseFailure("schema", '"actions" holds no action')),))
    return ReadActions(asked, thought if isinstance(thought, str) else "")


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


# -------------------------------------------------- what the model is told of the actions

_TEXT = {"type": "string"}
_PATHS = {"type": "array", "items": _TEXT}
_NUMBER = {"type": "integer"}


def _object(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


_EDITS = _list_of(
    _object(
        ["path"],
        path=_TEXT,
        search={**_TEXT, "description": "old text, byte for byte, which occurs once"},
        replace={**_TEXT, "description": "the new text"},
        create={**_TEXT, "description": "whole content of a new file"},
        delete={"type": "boolean"},
    )
)
_REGIONS = _list_of(_object(["path"], path=_TEXT, start=_NUMBER, end=_NUMBER))
_TEST = _object(["path"], path=_TEXT, content=_TEXT)
_WRONG = _list_of(_object(["path", "reason"], path=_TEXT, reason=_TEXT))
_OUTDATED = _list_of(_object(["id", "why"], id=_TEXT, why=_TEXT, replacement=_TEXT, edits=_EDITS))


@dataclass(frozen=True, slots=True)
class _Described:
    name: str
    arguments: Mapping[str, Any]
    example: Mapping[str, Any]
    does: str

    def as_tool(self) -> Tool:
        properties = {name.rstrip("?"): schema for name, schema in self.arguments.items()}
        required = [name for name in self.arguments if not name.endswith("?")]
        return Tool(self.name, self.does, _object(required, **properties))

    def as_line(self) -> str:
        example = json.dumps({"action": self.name, **self.example})
        return f"{example}\n    {self.does}"


_DESCRIBED = (
    _Described("list", {"path": _TEXT}, {"path": "pkg"}, 'the files below a folder ("": all)'),
    _Described(
        "search",
        {"query": _TEXT, "exact?": {"type": "boolean"}},
        {"query": "visit_Assign(", "exact": True},
        "every line that holds this very text, in any file; without exact: the functions that fit "
        "words or identifiers best, with their places",
    ),
    _Described(
        "find",
        {"intents": _PATHS},
        {"intents": ["Find what parses the config file", "Find who calls it"]},
        "ranked functions for each of up to 6 short sentences, no function twice",
    ),
    _Described(
        "read",
        {"files": _REGIONS},
        {"files": [{"path": "pkg/module.py", "start": 1, "end": 120}]},
        "numbered lines of one or more files, at most {lines} in all",
    ),
    _Described(
        "edit",
        {"edits": _EDITS},
        {"edits": [{"path": "pkg/module.py", "search": "exact old text", "replace": "new text"}]},
        "all edits or none. Further forms of an edit: path, create (a new file's content); path, "
        "delete: true",
    ),
    _Described(
        "run_tests",
        {"paths": _PATHS},
        {"paths": ["tests/test_module.py"]},
        "runs test files on your edited copy; [] for the few that fit your edits best",
    ),
    _Described(
        "run",
        {"command": _TEXT},
        {"command": "python -m pytest -x tests/test_module.py -k name"},
        "a shell command in the root of a fresh copy with your edits; no network, at most 2 "
        "minutes. Text files that it changes become edits, unless git ignores them; the rest of "
        "what it leaves is gone afterwards",
    ),
    _Described(
        "finish",
        {
            "thought": _TEXT,
            "edits?": _EDITS,
            "reproduction_test?": _TEST,
            "wrong_tests?": _WRONG,
            "outdated_tests?": _OUTDATED,
        },
        {
            "thought": "what was wrong and what you changed",
            "edits": [],
            "reproduction_test": {"path": "tests/test_issue_example.py", "content": "..."},
        },
        "ends the work, after last edits if there are any; the test must fail on the original code "
        "and pass on yours; it may be a file that you created (then content may be left out). A "
        "test of an earlier reply still counts unless an entry "
        "of wrong_tests has its path and the reason why it is wrong. outdated_tests, nearly always "
        "left out, names existing tests that assert what the issue calls wrong: id, why, and as "
        "replacement the edited source of the test, or edits of its file",
    ),
)


def offered(*, find: bool, run: bool, lines: int) -> tuple[tuple[Tool, ...], str]:
    """Return the actions of a run as tools, and as text for servers without tools."""
    names = {"find": find, "run": run}
    actions = [
        replace(one, does=one.does.replace("{lines}", str(lines)))
        for one in _DESCRIBED
        if names.get(one.name, True)
    ]
    return tuple(one.as_tool() for one in actions), "\n".join(one.as_line() for one in actions)
