"""The schema of a reply: pydantic models, the JSON Schema sent to servers, and the conversion. The
JSON Schema is that of OpenAI's strict mode: every property required, optional ones nullable.
Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    OutdatedTest,
    ParseFailure,
    ParseKind,
    PatchProposal,
    RenameFile,
    ReplaceLines,
    ReplaceSymbol,
    ReproductionTest,
    SearchReplace,
    WrongTest,
)

# A reply with more edits is not a patch for one issue.
MAX_EDITS = 500


_Model = TypeVar("_Model", bound="Strict")


class Strict(BaseModel):
    """A shape of a reply: no other keys, no conversions."""

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


def _first_and_last(lines: list[int]) -> list[int]:
    """Check a range by hand: servers refuse a JSON Schema that bounds the items of a list."""
    if len(lines) != 2 or not 1 <= lines[0] <= lines[1]:
        raise ValueError("must be [first line, last line]")
    return lines


class ReplaceLinesModel(Strict):
    """Replace whole lines, however many."""

    path: str = Field(description="file to change, relative to the repository root")
    lines: Annotated[list[int], AfterValidator(_first_and_last)] = Field(
        description="first and last line to replace, as the file was shown"
    )
    first: str = Field(description="exact text of the first of these lines")
    last: str = Field(description="exact text of the last of these lines")
    replace: str = Field(description='the new lines; "" deletes the old ones')


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


_Replacing = SearchReplaceModel | ReplaceSymbolModel | ReplaceLinesModel
_AnyEdit = _Replacing | CreateModel | DeleteModel | RenameModel


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
    edits: list[_Replacing] = Field(
        default=[], description="edits of the test's file, in the place of a replacement"
    )


class ReplyModel(Strict):
    """What the model returns."""

    thought: str = Field("", description="the cause, and why the change is right")
    edits: list[_AnyEdit]
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
    lines: list[int] | None = None
    first: str | None = None
    last: str | None = None


class RepairReplyModel(ReplyModel):
    """What the model returns to a repair."""

    edits: Literal["same"] | list[ChangedEditModel | _AnyEdit]  # type: ignore[assignment]


class TestReplyModel(Strict):
    """What the model returns when it is asked for a test alone."""

    __test__ = False  # not a test class

    reproduction_test: ReproductionTestModel | None


def schema_of_test() -> dict[str, Any]:
    """Return the JSON Schema of a reply that holds a reproduction test alone."""
    return _schema_of(TestReplyModel)


def reply_schema(*, partial: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a reply. `partial`: it may refer to earlier edits."""
    return _schema_of(RepairReplyModel if partial else ReplyModel)


def _schema_of(model: type[Strict]) -> dict[str, Any]:
    raw = model.model_json_schema()
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


_MAX_PROBLEMS = 10  # named in one reason
_MAX_MISSING = 40  # names of missing code in one reason
_MAX_LISTED = 200  # a reply that calls more tests outdated describes another program
_THOUGHT_SHOWN = 500  # characters of the thought in the reason of a reply without edits

_EDIT_MODELS: Mapping[str, type[Strict]] = {
    "symbol": ReplaceSymbolModel,
    "lines": ReplaceLinesModel,
    "search": SearchReplaceModel,
    "create": CreateModel,
    "delete": DeleteModel,
    "rename": RenameModel,
    "content": WholeFileModel,
}
"""The kind of an edit by the key that only this kind has."""

_OF_REPAIR = frozenset({"edit", "drop"})

SAME = "same"
"""The value of "edits" in a reply to a repair that keeps all edits of the reply before it."""


def to_proposal(
    reply: Mapping[str, Any], reader: str, earlier: PatchProposal | None = None
) -> PatchProposal | ParseFailure:
    """Check a parsed reply and convert it. Null fields and unknown keys count as absent."""
    problems: list[str] = []
    raw = reply.get("edits")
    numbered = isinstance(raw, list) and any(
        isinstance(one, dict) and one.get("edit") is not None for one in raw
    )
    partial = raw == SAME or numbered
    edits = _changed(raw, earlier, problems) if partial else _edits(raw, problems)
    given = {**_present(reply, ReplyModel), "edits": [], "wrong_tests": [], "outdated_tests": []}
    if isinstance(given.get("reproduction_test"), dict):
        given["reproduction_test"] = _present(given["reproduction_test"], ReproductionTestModel)
    if isinstance(given.get("missing"), str):
        given["missing"] = [given["missing"]]
    rest = _checked(ReplyModel, given, "", problems)
    if problems or not isinstance(rest, ReplyModel):
        return ParseFailure("schema", "; ".join(problems[:_MAX_PROBLEMS]))
    test = _test(rest.reproduction_test)
    if not edits:
        return _without_edits(rest, test)
    proposal = PatchProposal(
        edits=tuple(edits),
        thought=rest.thought,
        reproduction_test=test,
        missing=tuple(rest.missing),
        reader=reader,
        wrong_tests=wrong_tests(reply.get("wrong_tests")),
        outdated_tests=outdated_tests(reply.get("outdated_tests")),
    )
    return _with_rest(proposal, earlier) if partial and earlier is not None else proposal


def _without_edits(reply: ReplyModel, test: ReproductionTest | None) -> ParseFailure:
    kind: ParseKind = "needs-code" if any(map(str.strip, reply.missing)) else "no-edit"
    reason = 'the reply asks for no edit ("edits" is empty)'
    if reply.missing:
        reason = f"the reply asks for code: {', '.join(reply.missing[:_MAX_MISSING])}"
    if reply.thought.strip():
        reason += f"; its thought: {reply.thought.strip()[:_THOUGHT_SHOWN]}"
    return ParseFailure(kind, reason, tuple(reply.missing), reproduction_test=test)


def _changed(raw: Any, earlier: PatchProposal | None, problems: list[str]) -> list[Edit]:
    """Return the edits of the earlier reply with those replaced, dropped and added that say so."""
    if earlier is None:
        problems.append("edits: there is no earlier reply with edits to refer to; give all edits")
        return []
    edits: dict[int, Edit] = dict(enumerate(earlier.edits, 1))
    added: list[Edit] = []
    for index, item in enumerate(raw if isinstance(raw, list) else ()):
        place, number = f"edits[{index}]", item.get("edit") if isinstance(item, dict) else None
        if number is None:
            edit = _edit(item, place, problems)
            added += [edit] if edit is not None else []
        elif type(number) is not int or number not in edits:
            most = len(earlier.edits)
            problems.append(f"{place}.edit: the earlier reply has no such edit (1 to {most})")
        elif item.get("drop") is True:
            del edits[number]
        else:
            edit = _edit(_over(edits[number], item), place, problems)
            edits |= {number: edit} if edit is not None else {}
    return [*edits.values(), *added]


def _over(edit: Edit, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return an edit as JSON with what is given for it; another kind of edit keeps the path."""
    own = {k: v for k, v in given.items() if k not in _OF_REPAIR and v is not None}
    before = edit_as_json(edit)
    same_kind = own.keys() <= before.keys() | {"line"}
    return {**before, **own} if same_kind else {"path": edit.path, **own}


def edit_as_json(edit: Edit) -> dict[str, Any]:
    """Return an edit in the form that the model is asked for, without what only readers know."""
    match edit:
        case SearchReplace(path=path, search=search, replace=new, line=line):
            hint = {} if line is None else {"line": line}
            return {"path": path, "search": search, "replace": new, **hint}
        case ReplaceSymbol(path=path, symbol=symbol, replace=new):
            return {"path": path, "symbol": symbol, "replace": new}
        case ReplaceLines(path, first, last, begins, ends, new):
            guards = {"first": begins, "last": ends}
            return {"path": path, "lines": [first, last], **guards, "replace": new}
        case CreateFile(path=path, content=content, replace_existing=whole):
            return {"path": path, "content" if whole else "create": content}
        case DeleteFile(path=path):
            return {"path": path, "delete": True}
        case RenameFile(path=path, to=to):
            return {"path": path, "rename": to}


def _with_rest(proposal: PatchProposal, earlier: PatchProposal) -> PatchProposal:
    """Return a partial reply with what it does not repeat: the test, and outdated tests."""
    taken_back = {wrong.path for wrong in proposal.wrong_tests}
    test = proposal.reproduction_test
    if test is None and earlier.reproduction_test is not None:
        test = None if earlier.reproduction_test.path in taken_back else earlier.reproduction_test
    outdated = proposal.outdated_tests or earlier.outdated_tests
    return dataclasses.replace(proposal, reproduction_test=test, outdated_tests=outdated)


def reproduction_test(given: object) -> ReproductionTest | None:
    """Return the reproduction test of a reply; None for null and for what is none."""
    return next(map(_test, _valid([given], ReproductionTestModel)), None)


def _test(model: ReproductionTestModel | None) -> ReproductionTest | None:
    return ReproductionTest(model.path, model.content) if model else None


def wrong_tests(given: object) -> tuple[WrongTest, ...]:
    """Return the earlier tests that a reply takes back; entries without a reason do not count."""
    models = _valid(given, WrongTestModel)
    return tuple(WrongTest(m.path, m.reason.strip()) for m in models if m.path and m.reason.strip())


def outdated_tests(given: object) -> tuple[OutdatedTest, ...]:
    """Return the existing tests that a reply calls outdated, with a reason."""
    tests: dict[str, OutdatedTest] = {}
    for one in (given if isinstance(given, list) else [])[:_MAX_LISTED]:
        raw = {**one, "edits": None} if isinstance(one, dict) else one
        for model in _valid([raw], OutdatedTestModel):
            name, why = model.id.strip(), model.why.strip()
            edits = tuple(_edits_of_test(one.get("edits"), name.partition("::")[0]))
            if name and why:
                tests[name] = OutdatedTest(name, why, model.replacement or "", edits)
    return tuple(tests.values())


def _edits_of_test(given: object, path: str) -> Iterator[Edit]:
    """Yield the readable edits of the test's own file that neither delete nor move it."""
    for edit in _edits(given or [], []):
        if isinstance(edit, SearchReplace | ReplaceSymbol | ReplaceLines) and edit.path == path:
            yield edit


def outdated_as_json(test: OutdatedTest) -> dict[str, Any]:
    """Return an outdated test in the form that the model is asked for."""
    edits = {"edits": [*map(edit_as_json, test.edits)]} if test.edits else {}
    replacement = {"replacement": test.replacement} if test.replacement else {}
    return {"id": test.id, "why": test.why, **replacement, **edits}


def _valid(given: object, model: type[_Model]) -> list[_Model]:
    """Return the entries of a list that fit a model; a slip in another costs nothing."""
    result = []
    for one in (given if isinstance(given, list) else [])[:_MAX_LISTED]:
        with suppress(ValidationError):
            result.append(
                model.model_validate(_present(one, model) if isinstance(one, dict) else one)
            )
    return result


def _edits(raw: Any, problems: list[str]) -> list[Edit]:
    if not isinstance(raw, list):
        missing = "missing (give a list of edits; [] if nothing is to be changed)"
        problems.append(f"edits: {missing if raw is None else 'must be a list'}")
        return []
    if len(raw) > MAX_EDITS:
        problems.append(f"edits: {len(raw)} are too many, at most {MAX_EDITS} are taken")
        return []
    edits = (_edit(item, f"edits[{index}]", problems) for index, item in enumerate(raw))
    return [edit for edit in edits if edit is not None]


def _edit(raw: Any, place: str, problems: list[str]) -> Edit | None:
    if not isinstance(raw, dict):
        problems.append(f"{place}: must be an object")
        return None
    # `"delete": false` asks for nothing.
    given = {k: v for k, v in raw.items() if v is not None and (k, v) != ("delete", False)}
    fitting = [model for key, model in _EDIT_MODELS.items() if key in given]
    if not fitting and "replace" in given:
        fitting = [SearchReplaceModel]
    if len(fitting) != 1:
        kinds = (
            '"search", "symbol" or "lines", each with "replace", or "create", "rename", or '
            '"delete": true'
        )
        has = ", ".join(repr(key[:40]) for key in list(given)[:_MAX_PROBLEMS]) or "nothing"
        problems.append(f"{place}: needs one of {kinds}; it has {has}")
        return None
    return _as_edit(_checked(fitting[0], _present(given, fitting[0]), place, problems))


def _as_edit(model: BaseModel | None) -> Edit | None:
    match model:
        case SearchReplaceModel(path=path, search=search, replace=replace, line=line):
            # A hint below 1 names no line and is ignored.
            return SearchReplace(path, search, replace, line if line and line > 0 else None)
        case ReplaceSymbolModel(path=path, symbol=symbol, replace=replace):
            return ReplaceSymbol(path, symbol, replace)
        case ReplaceLinesModel(path=path, lines=[a, b], first=begins, last=ends, replace=replace):
            return ReplaceLines(path, a, b, begins, ends, replace)
        case CreateModel(path=path, create=content):
            return CreateFile(path, content)
        case DeleteModel(path=path):
            return DeleteFile(path)
        case RenameModel(path=path, rename=to):
            return RenameFile(path, to)
        case WholeFileModel(path=path, content=content):
            return CreateFile(path, content, replace_existing=True)
        case _:
            return None


def _present(given: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k in model.model_fields and v is not None}


def _checked(
    model: type[Strict], given: dict[str, Any], place: str, problems: list[str]
) -> Strict | None:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            where = [*filter(None, [place]), *one["loc"]]
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
            problems.append(f"{path.removeprefix('.')}: {one['msg']}")
        return None
