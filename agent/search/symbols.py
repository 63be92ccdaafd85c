"""The functions and classes of a project, their docstrings, and intents made from both.

The cached index of chunks provides all but docstrings. Templates give up to five intents for each
symbol, as in MutaGReP, where a model writes them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from agent.retrieval.index import split_lines, target_files
from agent.shared.secrets import is_secret_path
from agent.shared.workers import Cancelled
from agent.types import DEFINITIONS, Chunk, ChunkKind

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus, Index
    from agent.types import SourceFile
    from agent.types.protocols import Snapshot

MAX_CHARS = 4_000
"""Maximum characters of a docstring. The rest is usually an example or a table."""

_OPENING = re.compile(r"(?>(?:\s|#[^\n]*+\n)*)[rRuU]?(\"\"\"|'''|\"|')")
_MARK = re.compile(r"^\s*+(?:/{2,}+!?|/\*++!?|\*++/?|#++|-{2,}+|;++)[ \t]?")
_CLOSING_MARK = re.compile(r"\s*+\*++/\s*+$")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,80}/?>")
_TAGGED = frozenset({"csharp", "java", "javascript", "typescript", "tsx", "php"})


def docstring_of(symbol: Chunk) -> str:
    """Return the docstring or comment of a definition without its marks; "" if there is none."""
    code, signature = symbol.text, symbol.signature
    at = code.find(signature) if signature else -1
    if at < 0:
        return ""
    if symbol.language == "python":
        return _quoted(code[at + len(signature) :])
    text = _uncommented(code[:at])
    return _TAG.sub("", text).strip()[:MAX_CHARS] if symbol.language in _TAGGED else text


def first_sentence(docstring: str) -> str:
    """Return the first sentence of the first paragraph in one line, without the full stop."""
    paragraph = " ".join(docstring.strip().split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0].rstrip(".!? ")


def _quoted(body: str) -> str:
    found = _OPENING.match(body)
    if found is None:
        return ""
    quote = found.group(1)
    end = body.find(quote, found.end())
    text = body[found.end() : end if end >= 0 else None]
    if len(quote) == 1 and "\n" in text:
        return ""
    return _dedented(text)


def _dedented(text: str) -> str:
    first, *rest = text.strip()[:MAX_CHARS].split("\n")
    depth = min((len(s) - len(s.lstrip()) for s in rest if s.strip()), default=0)
    return "\n".join([first.strip(), *(line[depth:].rstrip() for line in rest)]).strip()


def _uncommented(lead: str) -> str:
    lines = [_CLOSING_MARK.sub("", _MARK.sub("", line)).rstrip() for line in lead.split("\n")]
    return "\n".join(lines).strip()[:MAX_CHARS]


def content_of(symbol: Chunk) -> str:
    """Return the SHA-256 (hex) of everything except the location: a moved symbol keeps it."""
    docstring = docstring_of(symbol)
    parts = (symbol.kind.value, symbol.symbol, symbol.signature, docstring, symbol.text)
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def read_symbols(
    snapshot: Snapshot, index: Index, cancel: threading.Event | None = None
) -> tuple[Chunk, ...]:
    """Return all definitions outside tests, vendored and generated code, by path and line."""
    stop = cancel or threading.Event()
    corpus = load_outline(snapshot, index, stop)
    found: list[Chunk] = []
    for number, file in enumerate(corpus.files):
        if stop.is_set():
            raise Cancelled
        found.extend(_symbols_of(corpus, number, file, snapshot))
    return tuple(found)


def load_outline(snapshot: Snapshot, index: Index, cancel: threading.Event) -> Corpus:
    """Load the pieces of the project's own files without their terms. Raises Cancelled."""
    import numpy as np

    return index.load(snapshot, target_files(snapshot), np.empty(0, dtype=np.uint64), cancel)


def _symbols_of(
    corpus: Corpus, number: int, file: SourceFile, snapshot: Snapshot
) -> Iterator[Chunk]:
    first, end = corpus.first_piece[number], corpus.first_piece[number + 1]
    if is_secret_path(file.path) or not any(corpus.symbols[first:end]):
        return
    lines = split_lines(snapshot.text(file.path))
    for _, piece in corpus.pieces_of(number):
        if piece.symbol and piece.kind in DEFINITIONS:
            yield piece.chunk(file, lines)


# -------------------------------------------------------------------------------- template intents

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
    "__init__": "create", "__call__": "call", "__getitem__": "get an item of",
    "__setitem__": "set an item of", "__len__": "count", "__iter__": "iterate over",
    "__contains__": "look for something in", "__next__": "take the next of", "__hash__": "hash",
    "__bool__": "check", "__add__": "add to", "__repr__": "show", "__str__": "show as text",
    "__enter__": "enter", "__exit__": "leave",
    **dict.fromkeys(("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"), "compare"),
}  # fmt: skip
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


def template_intents(symbol: Chunk) -> tuple[str, ...]:
    """Return one to five distinct sentences that begin with "I". Deterministic."""
    sentences = (" ".join(sentence.split())[:MAX_INTENT] for sentence in _sentences(symbol))
    return tuple(dict.fromkeys(sentences))[:INTENTS]


def _sentences(symbol: Chunk) -> Iterator[str]:
    """Yield what the docstring, name, parameters, result and errors of a symbol say."""
    docstring = docstring_of(symbol)
    if sentence := first_sentence(docstring):
        yield f"I want to: {sentence}"
    action, words = _action(symbol), words_of(symbol.name) or symbol.name
    owner = _owner(symbol)
    where = owner or words_of(symbol.path.rpartition("/")[2].rpartition(".")[0])
    yield f"I want to {action}" + (f" of {where}" if where and where not in action else "")
    if (parameters := _PARAMETERS.search(symbol.signature)) and (
        names := _parameter_names(parameters[1])
    ):
        yield f"I have {', '.join(names)} and want to {action}"
    result = _RETURNS.search(symbol.signature)
    if result and result[1].strip() not in ("", "None", "void"):
        yield f"I need the {result[1].strip()} that {words} gives"
    if error := _RAISES.search(docstring):
        yield f"I get {error[1]} when I {action}"


def words_of(name: str) -> str:
    """Return `parse_cookie_header` or `parseCookieHeader` as separate words."""
    return " ".join(part.lower() for part in _PART.findall(name))


def _action(symbol: Chunk) -> str:
    if symbol.kind is ChunkKind.CLASS:
        return f"use {_one(words_of(symbol.name) or symbol.name)}"
    owner, special = _owner(symbol), _SPECIAL.get(symbol.name)
    if special and owner:
        return f"{special} {_one(owner)}"
    words = words_of(symbol.name) or symbol.name
    return words if words.partition(" ")[0] in _VERBS else f"use {words}"


def _owner(symbol: Chunk) -> str:
    return words_of(symbol.symbol.rpartition(".")[0].rpartition(".")[2])


def _one(noun: str) -> str:
    return f"{'an' if noun[:1] in tuple('aeiou') else 'a'} {noun}"


def _parameter_names(text: str) -> tuple[str, ...]:
    """Return the names in `a: int = 1, *, b` as words. For `int a` the last word is the name."""
    names: list[str] = []
    for part in text.split(","):
        head = part.split("=", 1)[0].split(":", 1)[0].replace("*", " ").replace("&", " ").split()
        name = head[-1].strip("$@") if head else ""
        if name.isidentifier() and name not in _NOT_PARAMETERS:
            names.append(words_of(name) or name)
    return tuple(dict.fromkeys(names))[:_MAX_PARAMETERS]
