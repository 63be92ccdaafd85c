"""Chooses and renders the code that the model is shown within a token budget (`pack`), with a
receipt, the map of names (`make_map`), and the code that replies ask for (`CodeRequests`,
`put_first`).
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
