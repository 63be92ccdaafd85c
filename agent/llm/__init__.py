"""The model servers: one endpoint is chosen, every call is budgeted, logged and tried again.

`agent.llm.recording` is an optional part.
"""

from agent.llm.budget import (
    Budget,
    BudgetedChatModel,
    ceiling,
)
from agent.llm.choice import ENVIRONMENT_NAMES, choose_embedding_endpoint, choose_endpoint
from agent.llm.clients import (
    ChatModelWrapper,
    HttpBatchEmbedder,
    HttpChatModel,
    LoggedChatModel,
)
from agent.llm.endpoint import Endpoint, without_credentials
from agent.llm.http import create_client, usual_trust
from agent.llm.prices import Price, find_price, read_price
from agent.llm.redaction import Redactor
from agent.llm.server import REQUEST_SECONDS, Demand, ModelServer, Resolved, Retrier, resolve_model

__all__ = [
    "ENVIRONMENT_NAMES",
    "REQUEST_SECONDS",
    "Budget",
    "BudgetedChatModel",
    "ChatModelWrapper",
    "Demand",
    "Endpoint",
    "HttpBatchEmbedder",
    "HttpChatModel",
    "LoggedChatModel",
    "ModelServer",
    "Price",
    "Redactor",
    "Resolved",
    "Retrier",
    "ceiling",
    "choose_embedding_endpoint",
    "choose_endpoint",
    "create_client",
    "find_price",
    "read_price",
    "resolve_model",
    "usual_trust",
    "without_credentials",
]
