"""Chooses and renders the code that the model is shown, within a token budget.

`pack` fills the budget with the best chunks of a ranking and returns a `ContextBundle`.
`missing_context` packs code that a reply asked for. `make_receipt` and `render_receipt` say which
chunks are in the context, which were left out, and why.
"""

from agent.context.builder import PackingOptions
from agent.context.packing import missing_context, pack
from agent.context.receipt import Receipt, make_receipt, render_receipt

__all__ = [
    "PackingOptions",
    "Receipt",
    "make_receipt",
    "missing_context",
    "pack",
    "render_receipt",
]
