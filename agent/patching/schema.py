"""The schema of a reply: pydantic models, and the JSON Schema sent to servers.

One set of strict models serves both directions. `reply_schema` turns them into the dialect of
OpenAI's strict `json_schema` mode: every property required, optional ones nullable, no additional
properties, no `$ref`, `anyOf` for alternatives.
Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# A reply with more edits is not a patch for one issue.
MAX_EDITS = 500


class Strict(BaseModel):
    """What every shape of a reply has in common: no other keys, no conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class SearchReplaceModel(Strict):
    """Change an existing file."""

    path: str = Field(description="file to change, relative to the repository root")
    search: str = Field(description="exact old text; must occur exactly once in the file")
    replace: str = Field(description="the text to put in its place")
    line: int | None = Field(
        None, description="line at which search starts; only if search cannot be unique"
    )


class ReplaceSymbolModel(Strict):
    """Replace a whole function or method."""

    path: str = Field(description="file to change, relative to the repository root")
    symbol: str = Field(description="qualified name of the function: Class.method or function")
    replace: str = Field(description="the whole new function, with decorators and signature")


class CreateModel(Strict):
    """Create a file."""

    path: str = Field(description="file to create, relative to the repository root")
    create: str = Field(description="the whole content of the new file")


class DeleteModel(Strict):
    """Delete a file."""

    path: str = Field(description="file to delete, relative to the repository root")
    delete: Literal[True]


class RenameModel(Strict):
    """Move a file."""

    path: str = Field(description="file to move, relative to the repository root")
    rename: str = Field(description="its new path")


class WholeFileModel(Strict):
    """A whole file, new or to be replaced. Accepted, but not in the JSON Schema."""

    path: str
    content: str


class ReproductionTestModel(Strict):
    """A test that fails before the edits and passes after them."""

    path: str = Field(description="a new path where the project's tests live")
    content: str = Field(description="a complete test module")


class WrongTestModel(Strict):
    """A reproduction test of an earlier reply that was wrong."""

    path: str = Field(description="path of a reproduction test that an earlier reply brought")
    reason: str = Field(description="what is wrong with that test")


class OutdatedTestModel(Strict):
    """An existing test that asserts what the issue calls wrong."""

    id: str = Field(description="the test's id, such as tests/test_x.py::test_y")
    why: str = Field(description="what the test asserts, and where the issue calls that wrong")
    replacement: str | None = Field(
        None, description="the edited source of the test's function, decorators included"
    )


class ReplyModel(Strict):
    """What the model returns."""

    thought: str = Field("", description="the cause, and why the change is right")
    edits: list[SearchReplaceModel | ReplaceSymbolModel | CreateModel | DeleteModel | RenameModel]
    reproduction_test: ReproductionTestModel | None = None
    missing: list[str] = Field(
        default=[],
        description="code that is needed but was not shown: path, path:120-200, path:Class.method, "
        "or a bare symbol",
    )
    wrong_tests: list[WrongTestModel] = Field(
        default=[], description="reproduction tests of earlier replies that were wrong"
    )
    outdated_tests: list[OutdatedTestModel] = Field(
        default=[], description="existing tests that assert what the issue calls wrong"
    )


class ChangedEditModel(Strict):
    """In a reply to a repair: replace or drop an edit of the reply before it."""

    edit: int = Field(description="number of the earlier edit")
    drop: bool | None = Field(None, description="true drops the edit")
    path: str | None = None
    search: str | None = None
    symbol: str | None = None
    replace: str | None = None
    create: str | None = None
    line: int | None = None


class RepairReplyModel(ReplyModel):
    """What the model returns to a repair."""

    edits: (  # type: ignore[assignment]
        Literal["same"]
        | list[
            ChangedEditModel | SearchReplaceModel | ReplaceSymbolModel | CreateModel | DeleteModel
        ]
    )


class TestReplyModel(Strict):
    """What the model returns when it is asked for a test alone."""

    __test__ = False  # not a test class

    reproduction_test: ReproductionTestModel | None


def schema_of_test() -> dict[str, Any]:
    """Return the JSON Schema of a reply that holds a reproduction test alone."""
    raw = TestReplyModel.model_json_schema()
    schema: dict[str, Any] = _strict_schema(raw, raw["$defs"])
    return schema


def reply_schema(*, partial: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a reply for strict `json_schema` mode. Always the same bytes.

    `partial`: the reply may refer to the edits of the reply before it.
    """
    raw = (RepairReplyModel if partial else ReplyModel).model_json_schema()
    schema: dict[str, Any] = _strict_schema(raw, raw["$defs"])
    return schema


def _strict_schema(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_strict_schema(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _strict_schema(definitions[node["$ref"].rsplit("/", 1)[1]], definitions)
    dropped = ("title", "default", "$defs")
    result = {k: _strict_schema(v, definitions) for k, v in node.items() if k not in dropped}
    if "properties" in node:  # a property may itself be called "title": keep them all
        result["properties"] = {
            name: _strict_schema(value, definitions) for name, value in node["properties"].items()
        }
        result["required"] = list(node["properties"])
        result["additionalProperties"] = False
    return result
