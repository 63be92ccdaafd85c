"""Intents without a model: what a symbol's name, signature and docstring say in the first person.

Up to five a symbol, as MutaGReP has a model write them; a sentence that nothing is known for is
left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.corpora.docstrings import first_sentence
from agent.corpora.symbols import Symbol
from agent.types import ChunkKind

INTENTS = 5
"""Of one symbol."""

MAX_INTENT = 200
"""Characters of one intent."""

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
_PARAMETERS = re.compile(r"\(([^()]{0,600})")
_RETURNS = re.compile(r"->\s*+([\w.\[\], |*:&<>]{2,60}?)\s*+:?\s*+$")
_RAISES = re.compile(r"\b(?:raises?|throws?|@throws)\b:?\s*+`*+(\w{3,60})", re.IGNORECASE)
_NOT_PARAMETERS = frozenset({"self", "cls", "this", "args", "kwargs", "const", "mut", "ref"})
_SPECIAL = {
    "__init__": "create",
    "__call__": "call",
    "__getitem__": "get an item of",
    "__setitem__": "set an item of",
    "__len__": "count",
    "__iter__": "iterate over",
    "__eq__": "compare",
    "__repr__": "show",
    "__str__": "show as text",
    "__enter__": "enter",
    "__exit__": "leave",
}
_MAX_PARAMETERS = 4


def template_intents(symbol: Symbol) -> tuple[str, ...]:
    """One to five distinct sentences that begin with "I". Deterministic."""
    said = dict.fromkeys(_shortened(sentence) for write in _WRITERS if (sentence := write(symbol)))
    return tuple(said)[:INTENTS]


def words_of(name: str) -> str:
    """`parse_cookie_header` and `parseCookieHeader` as words."""
    return " ".join(part.lower() for part in _PART.findall(name))


def _action(symbol: Symbol) -> str:
    """What it does, as its name says."""
    if symbol.kind is ChunkKind.CLASS:
        return f"use a {words_of(symbol.leaf) or symbol.leaf}"
    owner = words_of(symbol.parent.rpartition(".")[2])
    special = _SPECIAL.get(symbol.leaf)
    if special and owner:
        return f"{special} a {owner}"
    return words_of(symbol.leaf) or symbol.leaf


def _from_docstring(symbol: Symbol) -> str:
    sentence = first_sentence(symbol.docstring)
    return f"I want to: {sentence}" if sentence else ""


def _from_name(symbol: Symbol) -> str:
    owner = words_of(symbol.parent.rpartition(".")[2])
    where = owner or words_of(symbol.path.rpartition("/")[2].rpartition(".")[0])
    action = _action(symbol)
    return f"I want to {action}" + (f" of {where}" if where and where not in action else "")


def _from_parameters(symbol: Symbol) -> str:
    found = _PARAMETERS.search(symbol.signature)
    names = _parameter_names(found.group(1)) if found else ()
    return f"I have {', '.join(names)} and want to {_action(symbol)}" if names else ""


def _parameter_names(text: str) -> tuple[str, ...]:
    """`a: int = 1, *, b` as words; of `int a` too the last word before a default."""
    names: list[str] = []
    for part in text.split(","):
        head = part.split("=", 1)[0].split(":", 1)[0].replace("*", " ").replace("&", " ").split()
        name = head[-1].strip("$@") if head else ""
        if name.isidentifier() and name not in _NOT_PARAMETERS:
            names.append(words_of(name) or name)
    return tuple(dict.fromkeys(names))[:_MAX_PARAMETERS]


def _from_result(symbol: Symbol) -> str:
    found = _RETURNS.search(symbol.signature)
    result = found.group(1).strip() if found else ""
    if result in ("", "None", "void"):
        return ""
    return f"I need the {result} that {words_of(symbol.leaf) or symbol.leaf} gives"


def _from_errors(symbol: Symbol) -> str:
    found = _RAISES.search(symbol.docstring)
    return f"I get {found.group(1)} when I {_action(symbol)}" if found else ""


_WRITERS: tuple[Callable[[Symbol], str], ...] = (
    _from_docstring,
    _from_name,
    _from_parameters,
    _from_result,
    _from_errors,
)


def _shortened(sentence: str) -> str:
    return " ".join(sentence.split())[:MAX_INTENT]
