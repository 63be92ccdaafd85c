"""From the JSON object of a reply to a proposal, with every fault named."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ValidationError

from agent.patching.schema import (
    MAX_EDITS,
    CreateModel,
    DeleteModel,
    OutdatedTestModel,
    RenameModel,
    ReplaceSymbolModel,
    ReplyModel,
    ReproductionTestModel,
    SearchReplaceModel,
    Strict,
    WholeFileModel,
    WrongTestModel,
)
from agent.types import (
    CreateFile,
    DeleteFile,
    Edit,
    OutdatedTest,
    ParseFailure,
    ParseKind,
    PatchProposal,
    RenameFile,
    ReplaceSymbol,
    ReproductionTest,
    SearchReplace,
    WrongTest,
)

# Number of problems that one reason names.
_MAX_PROBLEMS = 10

# Names of missing code in one reason.
_MAX_MISSING = 40

# A reply that calls more tests outdated describes another program.
_MAX_OUTDATED = 200

# Characters of the model's thought that a "no edit" reason repeats.
_THOUGHT_SHOWN = 500

# --------------------------------------------------------------------------------------- conversion


_EDIT_MODELS: Sequence[tuple[type[Strict], frozenset[str]]] = (
    (ReplaceSymbolModel, frozenset({"symbol"})),
    (SearchReplaceModel, frozenset({"search", "replace"})),
    (CreateModel, frozenset({"create"})),
    (DeleteModel, frozenset({"delete"})),
    (RenameModel, frozenset({"rename"})),
    (WholeFileModel, frozenset({"content"})),
)
_ASKED_FOR = _EDIT_MODELS[:5]


_OF_REPAIR = frozenset({"edit", "drop"})


def unknown_keys(reply: Mapping[str, Any]) -> bool:
    """Whether a reply has keys, at any level, that the schema lacks."""
    edits = reply.get("edits")
    test = reply.get("reproduction_test")
    known = _OF_REPAIR.union(*(_fields(model) for model, _ in _ASKED_FOR))
    return (
        not _fields(ReplyModel).issuperset(reply)
        or (isinstance(test, dict) and not _fields(ReproductionTestModel).issuperset(test))
        or (
            isinstance(edits, list)
            and any(isinstance(edit, dict) and not known.issuperset(edit) for edit in edits)
        )
    )


def to_proposal(
    reply: Mapping[str, Any], reader: str, earlier: PatchProposal | None = None
) -> PatchProposal | ParseFailure:
    """Check a parsed reply and convert it. Null fields and unknown keys count as absent.

    `earlier` is the proposal that a reply to a repair may refer to (`_changed`). A list without any
    number stands for all edits.

    The failure is "schema", with the location of every problem, or for an empty list "no-edit", or
    "needs-code" where the reply names code that it lacks.
    """
    problems: list[str] = []
    raw = reply.get("edits")
    partial = _is_numbered(raw)
    edits = _changed(raw, earlier, problems) if partial else _edits(raw, problems)
    given = {**_present(reply, ReplyModel), "edits": [], "wrong_tests": [], "outdated_tests": []}
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
    proposal = PatchProposal(
        edits=tuple(edits),
        thought=rest.thought,
        reproduction_test=test,
        missing=missing,
        reader=reader,
        wrong_tests=wrong_tests(reply.get("wrong_tests")),
        outdated_tests=outdated_tests(reply.get("outdated_tests")),
    )
    return _with_rest(proposal, earlier) if partial and earlier is not None else proposal


SAME = "same"
"""The value of "edits" in a reply to a repair that keeps all edits of the reply before it."""


def _is_numbered(edits: object) -> bool:
    """Whether the edits of a reply refer by number, or as a whole, to those of the one before."""
    if isinstance(edits, list):
        return any(isinstance(one, dict) and one.get("edit") is not None for one in edits)
    return edits == SAME


def _changed(raw: Any, earlier: PatchProposal | None, problems: list[str]) -> list[Edit]:
    """Return the edits of the earlier reply, with those replaced, dropped and added that say so.

    `{"edit": 2, ...}` replaces edit 2, counted from 1; it may leave out what stays.
    `{"edit": 2, "drop": true}` drops it. Edits without a number come after all others.
    """
    if earlier is None:
        problems.append("edits: there is no earlier reply with edits to refer to; give all edits")
        return []
    kept: dict[int, Edit] = dict(enumerate(earlier.edits, 1))
    added: list[Edit] = []
    for index, item in enumerate(raw if isinstance(raw, list) else ()):
        place, number = f"edits[{index}]", item.get("edit") if isinstance(item, dict) else None
        if number is None:
            edit = _edit(item, place, problems)
            added += [edit] if edit is not None else []
        elif type(number) is not int or number not in kept:
            most = len(earlier.edits)
            problems.append(f"{place}.edit: the earlier reply has no such edit (1 to {most})")
        elif item.get("drop") is True:
            del kept[number]
        else:
            edit = _edit(_over(kept[number], item), place, problems)
            kept |= {number: edit} if edit is not None else {}
    return [*kept.values(), *added]


def _over(edit: Edit, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return an edit as JSON with what is given for it; another kind of edit keeps the path."""
    own = {k: v for k, v in given.items() if k not in _OF_REPAIR and v is not None}
    known = edit_as_json(edit)
    return {**known, **own} if own.keys() <= known.keys() | {"line"} else {"path": edit.path, **own}


def edit_as_json(edit: Edit) -> dict[str, Any]:
    """Return an edit in the form that the model is asked for, without what only readers know."""
    match edit:
        case SearchReplace(path=path, search=search, replace=new, line=line):
            hint = {} if line is None else {"line": line}
            return {"path": path, "search": search, "replace": new, **hint}
        case ReplaceSymbol(path=path, symbol=symbol, replace=new):
            return {"path": path, "symbol": symbol, "replace": new}
        case CreateFile(path=path, content=content, replace_existing=whole):
            return {"path": path, "content" if whole else "create": content}
        case DeleteFile(path=path):
            return {"path": path, "delete": True}
        case RenameFile(path=path, to=to):
            return {"path": path, "rename": to}


def _with_rest(proposal: PatchProposal, earlier: PatchProposal) -> PatchProposal:
    """Return a partial reply with what it does not repeat: the test, and outdated tests."""
    taken_back = {wrong.path for wrong in proposal.wrong_tests}
    before = earlier.reproduction_test
    if proposal.reproduction_test is None and before and before.path not in taken_back:
        proposal = dataclasses.replace(proposal, reproduction_test=before)
    outdated = proposal.outdated_tests or earlier.outdated_tests
    return dataclasses.replace(proposal, outdated_tests=outdated)


def reproduction_test(given: object) -> ReproductionTest | None:
    """Return the reproduction test of a reply; None for null and for what is none."""
    with suppress(ValidationError):
        model = ReproductionTestModel.model_validate(given)
        return ReproductionTest(model.path, model.content)
    return None


def wrong_tests(given: object) -> tuple[WrongTest, ...]:
    """Return the earlier tests that a reply takes back; entries without a reason do not count."""
    found = []
    for one in given if isinstance(given, list) else []:
        with suppress(ValidationError):
            if isinstance(one, dict) and "why" in one:  # as in `outdated_tests`
                one = {"reason": one["why"], **{k: v for k, v in one.items() if k != "why"}}
            model = WrongTestModel.model_validate(one)
            if model.path and model.reason.strip():
                found.append(WrongTest(model.path, model.reason.strip()))
    return tuple(found)


def outdated_tests(given: object) -> tuple[OutdatedTest, ...]:
    """Return the existing tests that a reply calls outdated; one without a reason does not count.

    Of several entries for one id the last counts.
    """
    found: dict[str, OutdatedTest] = {}
    for one in (given if isinstance(given, list) else [])[:_MAX_OUTDATED]:
        if not isinstance(one, dict):
            continue
        with suppress(ValidationError):
            model = OutdatedTestModel.model_validate(_present(one, OutdatedTestModel))
            if model.id.strip() and model.why.strip():
                name = model.id.strip()
                found[name] = OutdatedTest(name, model.why.strip(), model.replacement or "")
    return tuple(found.values())


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
    if "symbol" in given and "search" not in given:
        fitting = [pair for pair in fitting if pair[0] is not SearchReplaceModel]
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
        case ReplaceSymbolModel(path=path, symbol=symbol, replace=replace):
            return ReplaceSymbol(path, symbol, replace)
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


def _kind_problem(given: Mapping[str, Any], fitting: int) -> str:
    kinds = '"search" and "replace", "symbol" and "replace", "create", "rename", or "delete": true'
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
    model: type[Strict], given: dict[str, Any], place: str, problems: list[str]
) -> Strict | None:
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
