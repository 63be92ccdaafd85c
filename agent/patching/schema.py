"""The schema of a reply: pydantic models, the JSON Schema sent to servers, and the conversion.

One set of strict models serves both directions. `reply_schema` turns them into the dialect of
OpenAI's strict `json_schema` mode: every property required, optional ones nullable, no additional
properties, no `$ref`, `anyOf` for alternatives.
Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    ParseFailure,
    ParseKind,
    PatchProposal,
    RenameFile,
    ReproductionTest,
    SearchReplace,
    WrongTest,
)

# A reply with more edits is not a patch for one issue.
MAX_EDITS = 500

# Number of problems that one reason names.
_MAX_PROBLEMS = 10

# Names of missing code in one reason.
_MAX_MISSING = 40

# Characters of the model's thought that a "no edit" reason repeats.
_THOUGHT_SHOWN = 500


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SearchReplaceModel(_Strict):
    """Change an existing file."""

    path: str = Field(description="file to change, relative to the repository root")
    search: str = Field(description="exact old text; must occur exactly once in the file")
    replace: str = Field(description="the text to put in its place")
    line: int | None = Field(
        None, description="line at which search starts; only if search cannot be unique"
    )


class CreateModel(_Strict):
    """Create a file."""

    path: str = Field(description="file to create, relative to the repository root")
    create: str = Field(description="the whole content of the new file")


class DeleteModel(_Strict):
    """Delete a file."""

    path: str = Field(description="file to delete, relative to the repository root")
    delete: Literal[True]


class RenameModel(_Strict):
    """Move a file. Accepted, but not in the JSON Schema."""

    path: str
    to: str


class WholeFileModel(_Strict):
    """A whole file, new or to be replaced. Accepted, but not in the JSON Schema."""

    path: str
    content: str


class ReproductionTestModel(_Strict):
    """A test that fails before the edits and passes after them."""

    path: str = Field(description="a new path where the project's tests live")
    content: str = Field(description="a complete test module")


class WrongTestModel(_Strict):
    """A reproduction test of an earlier reply that was wrong."""

    path: str = Field(description="path of a reproduction test that an earlier reply brought")
    reason: str = Field(description="what is wrong with that test")


class ReplyModel(_Strict):
    """What the model returns."""

    thought: str = Field("", description="the cause, and why the change is right")
    edits: list[SearchReplaceModel | CreateModel | DeleteModel]
    reproduction_test: ReproductionTestModel | None = None
    missing: list[str] = Field(
        default=[],
        description="code that is needed but was not shown: path, path:120-200, path:Class.method, "
        "or a bare symbol",
    )
    wrong_tests: list[WrongTestModel] = Field(
        default=[], description="reproduction tests of earlier replies that were wrong"
    )


def reply_schema() -> dict[str, Any]:
    """Return the JSON Schema of a reply for strict `json_schema` mode. Always the same bytes."""
    raw = ReplyModel.model_json_schema()
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


# --------------------------------------------------------------------------------------- conversion


_EDIT_MODELS: Sequence[tuple[type[_Strict], frozenset[str]]] = (
    (SearchReplaceModel, frozenset({"search", "replace"})),
    (CreateModel, frozenset({"create"})),
    (DeleteModel, frozenset({"delete"})),
    (RenameModel, frozenset({"to"})),
    (WholeFileModel, frozenset({"content"})),
)
_ASKED_FOR = _EDIT_MODELS[:3]


def unknown_keys(reply: Mapping[str, Any]) -> bool:
    """Whether a reply has keys, at any level, that the schema lacks."""
    edits = reply.get("edits")
    test = reply.get("reproduction_test")
    known = frozenset().union(*(_fields(model) for model, _ in _ASKED_FOR))
    return (
        not _fields(ReplyModel).issuperset(reply)
        or (isinstance(test, dict) and not _fields(ReproductionTestModel).issuperset(test))
        or (
            isinstance(edits, list)
            and any(isinstance(edit, dict) and not known.issuperset(edit) for edit in edits)
        )
    )


def to_proposal(reply: Mapping[str, Any], reader: str) -> PatchProposal | ParseFailure:
    """Check a parsed reply and convert it. Null fields and unknown keys count as absent.

    The failure is "schema", with the location of every problem, or for an empty list "no-edit", or
    "needs-code" where the reply names code that it lacks.
    """
    problems: list[str] = []
    edits = _edits(reply.get("edits"), problems)
    given = {**_present(reply, ReplyModel), "edits": [], "wrong_tests": []}
    test = given.get("reproduction_test")
    if isinstance(test, dict):
        given["reproduction_test"] = _present(test, ReproductionTestModel)
    if isinstance(given.get("missing"), str):
        given["missing"] = [given["missing"]]
    rest = _checked(ReplyModel, given, "", problems)
    if problems or not isinstance(rest, ReplyModel):
        return _schema_failure(problems)
    wanted = rest.reproduction_test
    test = ReproductionTest(wanted.path, wanted.content) if wanted else None
    missing = tuple(rest.missing)
    if not edits:
        kind: ParseKind = "needs-code" if any(map(str.strip, missing)) else "no-edit"
        reason = _no_edit_reason(rest, missing)
        return ParseFailure(kind, reason, missing, reproduction_test=test)
    return PatchProposal(
        edits=tuple(edits),
        thought=rest.thought,
        reproduction_test=test,
        missing=missing,
        reader=reader,
        wrong_tests=wrong_tests(reply.get("wrong_tests")),
    )


def wrong_tests(given: object) -> tuple[WrongTest, ...]:
    """Return the earlier tests that a reply takes back; entries without a reason do not count."""
    found = []
    for one in given if isinstance(given, list) else []:
        with suppress(ValidationError):
            model = WrongTestModel.model_validate(one)
            if model.path and model.reason.strip():
                found.append(WrongTest(model.path, model.reason.strip()))
    return tuple(found)


def _edits(raw: Any, problems: list[str]) -> list[Edit]:
    if raw is None:
        problems.append("edits: missing (give a list of edits; [] if nothing is to be changed)")
        return []
    if not isinstance(raw, list):
        problems.append(f"edits: must be a list, is {_kind(raw)}")
        return []
    if len(raw) > MAX_EDITS:
        problems.append(f"edits: {len(raw)} are too many, at most {MAX_EDITS} are taken")
        return []
    edits = (_edit(item, f"edits[{index}]", problems) for index, item in enumerate(raw))
    return [edit for edit in edits if edit is not None]


def _edit(raw: Any, place: str, problems: list[str]) -> Edit | None:
    if not isinstance(raw, dict):
        problems.append(f"{place}: must be an object, is {_kind(raw)}")
        return None
    # `"delete": false` asks for nothing.
    given = {k: v for k, v in raw.items() if v is not None and (k, v) != ("delete", False)}
    fitting = [(model, keys) for model, keys in _EDIT_MODELS if keys & given.keys()]
    if len(fitting) != 1:
        problems.append(f"{place}: {_kind_problem(given, len(fitting))}")
        return None
    model = fitting[0][0]
    return _as_edit(_checked(model, _present(given, model), place, problems))


def _as_edit(model: BaseModel | None) -> Edit | None:
    match model:
        case SearchReplaceModel(path=path, search=search, replace=replace, line=line):
            # A hint below 1 names no line and is ignored.
            return SearchReplace(path, search, replace, line if line and line > 0 else None)
        case CreateModel(path=path, create=content):
            return CreateFile(path, content)
        case DeleteModel(path=path):
            return DeleteFile(path)
        case RenameModel(path=path, to=to):
            return RenameFile(path, to)
        case WholeFileModel(path=path, content=content):
            return CreateFile(path, content, replace_existing=True)
        case _:
            return None


def _kind_problem(given: Mapping[str, Any], fitting: int) -> str:
    kinds = '"search" and "replace", or "create", or "delete": true'
    if fitting:
        return f"an edit is one of {kinds}; this one mixes them"
    has = ", ".join(repr(key[:40]) for key in list(given)[:_MAX_PROBLEMS]) or "nothing"
    return f"needs {kinds}; it has {has}"


def _present(given: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k in _fields(model) and v is not None}


@functools.cache
def _fields(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(model.model_fields)


def _checked(
    model: type[_Strict], given: dict[str, Any], place: str, problems: list[str]
) -> _Strict | None:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            problems.append(f"{_place(place, one['loc'])}: {_in_words(one)}")
        return None


def _place(prefix: str, parts: Sequence[int | str]) -> str:
    place = prefix
    for part in parts:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return place


_WANTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "an object",
    "literal_error": "true",
}


def _in_words(error: Any) -> str:
    kind = error["type"]
    if kind == "missing":
        return "missing"
    wanted = _WANTED.get(kind)
    return f"must be {wanted}, is {_kind(error['input'])}" if wanted else str(error["msg"])


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def _schema_failure(problems: Sequence[str]) -> ParseFailure:
    shown = "; ".join(problems[:_MAX_PROBLEMS])
    more = len(problems) - _MAX_PROBLEMS
    return ParseFailure("schema", shown + (f"; and {more} more" if more > 0 else ""))


def _no_edit_reason(reply: ReplyModel, missing: Sequence[str]) -> str:
    reason = 'the reply asks for no edit ("edits" is empty)'
    if missing:
        names = ", ".join(missing[:_MAX_MISSING])
        more = len(missing) - _MAX_MISSING
        reason = f"the reply asks for code: {names}" + (f", and {more} more" if more > 0 else "")
    if reply.thought.strip():
        thought = reply.thought.strip()
        cut = "..." if len(thought) > _THOUGHT_SHOWN else ""
        reason += f"; its thought: {thought[:_THOUGHT_SHOWN]}{cut}"
    return reason
