"""Chooses and renders the code that the model is shown within a token budget (`pack`), with a
receipt, the map of names (`make_map`), and the code that replies ask for (`CodeRequests`,
`put_first`).
"""

from agent.retrieval.context.asked import AskedCode as AskedCode
from agent.retrieval.context.asked import CodeRequests as CodeRequests
from agent.retrieval.context.asked import LocatedCode as LocatedCode
from agent.retrieval.context.asked import put_first as put_first
from agent.retrieval.context.builder import PackingOptions as PackingOptions
from agent.retrieval.context.map import RepositoryMap as RepositoryMap
from agent.retrieval.context.map import make_map as make_map
from agent.retrieval.context.packing import Receipt as Receipt
from agent.retrieval.context.packing import make_receipt as make_receipt
from agent.retrieval.context.packing import pack as pack
from agent.retrieval.context.packing import render_receipt as render_receipt
from agent.retrieval.context.packing import sized as sized
