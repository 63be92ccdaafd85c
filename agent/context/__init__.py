"""Chooses and renders the code that the model is shown, within a token budget.

`pack` fills the budget with the best chunks of a ranking and returns a `ContextBundle`.
`CodeRequests` finds and renders the code that replies ask for. `make_receipt` and `render_receipt`
say which chunks are in the context, which were left out, and why.
"""

from agent.context.asked import AskedCode, CodeRequests, asked_code
from agent.context.builder import PackingOptions
from agent.context.packing import pack
from agent.context.receipt import Receipt, make_receipt, render_receipt

__all__ = [
    "AskedCode",
    "CodeRequests",
    "PackingOptions",
    "Receipt",
    "asked_code",
    "make_receipt",
    "pack",
    "render_receipt",
]
