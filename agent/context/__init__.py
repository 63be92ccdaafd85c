"""Chooses and renders the code that the model is shown, within a token budget.

`pack` fills the budget with the best chunks of a ranking and returns a `ContextBundle`.
`asked_code` finds and renders the code that a reply asked for. `make_receipt` and `render_receipt`
say which chunks are in the context, which were left out, and why.
"""

from agent.context.asked import AskedCode, asked_code
from agent.context.builder import PackingOptions
from agent.context.packing import pack
from agent.context.receipt import Receipt, make_receipt, render_receipt

__all__ = [
    "AskedCode",
    "PackingOptions",
    "Receipt",
    "asked_code",
    "make_receipt",
    "pack",
    "render_receipt",
]
