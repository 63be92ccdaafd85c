"""The composition root: builds the real parts from settings and passes them in."""

from agent.wiring.composition import apply_reply, make_planner, open_services, solve_options
from agent.wiring.model import (
    Connections,
    endpoint,
    live_call,
    make_clock,
    make_counter,
    model_in_words,
    open_chat,
)
from agent.wiring.retrieval import (
    embedding_endpoint,
    embedding_in_words,
    fill_history,
    fill_index,
    index_path,
    live_embedding,
    missing_models,
    open_retriever,
    packing_options,
    retrieval_options,
)
from agent.wiring.validation import (
    Ahead,
    known_tests,
    make_sandbox,
    open_validator,
    probe_sandboxes,
    why_no_python,
)

__all__ = [
    "Ahead",
    "Connections",
    "apply_reply",
    "embedding_endpoint",
    "embedding_in_words",
    "endpoint",
    "fill_history",
    "fill_index",
    "index_path",
    "known_tests",
    "live_call",
    "live_embedding",
    "make_clock",
    "make_counter",
    "make_planner",
    "make_sandbox",
    "missing_models",
    "model_in_words",
    "open_chat",
    "open_retriever",
    "open_services",
    "open_validator",
    "packing_options",
    "probe_sandboxes",
    "retrieval_options",
    "solve_options",
    "why_no_python",
]
