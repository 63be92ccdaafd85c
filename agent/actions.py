"""The actions of the iterative mode, as the model writes them: one JSON object a reply.

`prompts/iterative_system.md.j2` explains them to the model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from agent.patching.parsing import load_json
from agent.types import Completion, ParseFailure


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ListFiles(_Action):
    """List the files below a folder."""

    action: Literal["list"]
    path: str = ""


class Search(_Action):
    """Rank functions for a query, or list the lines that hold it exactly."""

    action: Literal["search"]
    query: str = Field(min_length=1, max_length=4000)
    exact: bool = False


class Find(_Action):
    """Rank functions for each of several intents, each function once.

    With `keywords` the model is asked first, in one call, for the words that such code would hold.
    """

    action: Literal["find"]
    intents: list[str] = Field(min_length=1, max_length=6)
    keywords: bool = False


class Region(_Action):
    """Lines of one file; without an end, to its end."""

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
    """Apply edits, all or none. Their form is checked by the reader of replies."""

    action: Literal["edit"]
    edits: list[Any] = Field(min_length=1)


class RunTests(_Action):
    """Run test files on the edited copy."""

    action: Literal["run_tests"]
    paths: list[str] = []


class ReproductionModel(_Action):
    """The reproduction test of `finish`."""

    path: str
    content: str | None = None  # None: that of a file which the model has created


class Finish(_Action):
    """End the work."""

    action: Literal["finish"]
    thought: str = ""
    reproduction_test: ReproductionModel | None = None


Action = ListFiles | Search | Find | Read | EditFiles | RunTests | Finish
_ACTIONS: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="action")])


def read_action(completion: Completion) -> Action | ParseFailure:
    """Read one action. A whole patch in the format of the one call counts as an edit."""
    value = load_json(completion.text, finish_reason=completion.finish_reason)
    if isinstance(value, ParseFailure):
        return value
    if "action" not in value and "edits" in value:
        value = {**value, "action": "edit"}
    try:
        return _ACTIONS.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "action"
        return ParseFailure("schema", f"not an action: {place}: {first['msg']}")
