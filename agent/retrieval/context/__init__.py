"""Chooses and renders the code that the model is shown, within a token budget.

`pack` fills the budget with the best chunks of a ranking and returns a `ContextBundle`.
`likely_complete` estimates whether that is enough. `make_map` renders names instead of code, and
`put_first` puts the code of chosen names at the head of a ranking. `CodeRequests` finds and renders
the code that replies ask for. `make_receipt` and `render_receipt` say which chunks are in the
context, which were left out, and why.
"""

from agent.retrieval.context.asked import AskedCode, CodeRequests, asked_code, put_first
from agent.retrieval.context.builder import PackingOptions
from agent.retrieval.context.map import RepositoryMap, make_map
from agent.retrieval.context.packing import (
    Receipt,
    likely_complete,
    make_receipt,
    pack,
    render_receipt,
)

__all__ = [
    "AskedCode",
    "CodeRequests",
    "PackingOptions",
    "Receipt",
    "RepositoryMap",
    "asked_code",
    "likely_complete",
    "make_map",
    "make_receipt",
    "pack",
    "put_first",
    "render_receipt",
]
