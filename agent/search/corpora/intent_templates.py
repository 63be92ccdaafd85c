"""Builds intents without a model: first-person sentences from a symbol's name, signature and
docstring.

A symbol gets up to five, as in MutaGReP, where a model writes them. Sentences without specific
words are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.search.corpora.symbols import Symbol, first_sentence
from agent.types import ChunkKind

INTENTS = 5
"""Maximum number of intents for one symbol."""

MAX_INTENT = 200
"""Maximum characters of one intent."""

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
    "__contains__": "look for something in",
    "__next__": "take the next of",
    "__hash__": "hash",
    "__bool__": "check",
    "__add__": "add to",
    "__eq__": "compare",
    "__ne__": "compare",
    "__lt__": "compare",
    "__le__": "compare",
    "__gt__": "compare",
    "__ge__": "compare",
    "__repr__": "show",
    "__str__": "show as text",
    "__enter__": "enter",
    "__exit__": "leave",
}
_MAX_PARAMETERS = 4

_VERBS = frozenset(
    """
    accept add allow append apply assert assign attach authenticate batch bind block build bump
    calculate call cancel capture cast change check choose clean clear clone close collapse collect
    combine commit compare compile complete compress compute configure confirm connect consume
    convert copy count create cut decode decrypt define delete deny describe destroy detach detect
    disable discard discover dispatch divide download draw drop dump emit enable encode encrypt
    ensure enter escape evaluate exclude execute exit expand expire export extend extract fail fetch
    fill filter find finish fit fix flatten flush forget fork format free freeze generate get give
    go group guess handle hash hide highlight identify ignore import include increase indent infer
    init initialize inject insert inspect install interpret invalidate invoke iterate join keep kill
    launch leave limit list listen load locate lock log login look lower make map mark match measure
    merge migrate modify mount move multiply normalize notify observe open order override pack pad
    parse pass paste patch pause perform pick plot poll pop populate post predict prepare prepend
    print process produce prompt provide publish pull push put query quote raise read rebuild
    receive record redirect reduce refresh refuse register reject release reload remove rename
    render repeat replace report request require reset resolve restart restore resume retrieve retry
    return reverse revert revoke rotate round run sample save scan schedule score search select send
    serialize serve set setup shift show shuffle shut skip sleep slice solve sort split start stop
    store stream strip submit subscribe subtract swap switch sync take tell test toggle tokenize
    trace track train transform translate trim truncate try unlock unpack unregister unwrap update
    upgrade upload use validate verify visit wait walk warn watch wrap write yield
    """.split()  # noqa: SIM905 - a list of two hundred literals reads worse
)
"""A name that begins with one of these verbs gives "I want to VERB ..."; other names give "use"."""


def template_intents(symbol: Symbol) -> tuple[str, ...]:
    """Return one to five distinct sentences that begin with "I". Deterministic."""
    said = dict.fromkeys(_shortened(sentence) for write in _WRITERS if (sentence := write(symbol)))
    return tuple(said)[:INTENTS]


def words_of(name: str) -> str:
    """Return `parse_cookie_header` or `parseCookieHeader` as separate words."""
    return " ".join(part.lower() for part in _PART.findall(name))


def _action(symbol: Symbol) -> str:
    """Return the action that the name of the symbol describes."""
    if symbol.kind is ChunkKind.CLASS:
        return f"use {_one(words_of(symbol.leaf) or symbol.leaf)}"
    owner = words_of(symbol.parent.rpartition(".")[2])
    special = _SPECIAL.get(symbol.leaf)
    if special and owner:
        return f"{special} {_one(owner)}"
    words = words_of(symbol.leaf) or symbol.leaf
    return words if words.partition(" ")[0] in _VERBS else f"use {words}"


def _one(noun: str) -> str:
    """Put "a" or "an" before a noun, depending on its first letter."""
    return f"{'an' if noun[:1] in tuple('aeiou') else 'a'} {noun}"


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
    """Return the names in `a: int = 1, *, b` as words. For `int a` the last word is the name."""
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
