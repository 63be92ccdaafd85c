"""The model servers: one endpoint is chosen, every call is budgeted, logged and tried again.

`choose_endpoint` finds the server, `resolve_model` the model, and `HttpChatModel` and
`HttpBatchEmbedder` send calls in one of the `protocols`. `BudgetedChatModel` and `LoggedChatModel`
wrap any chat model. `agent.llm.recording` is an optional part.
"""

from agent.llm.budget import Budget, BudgetedChatModel, RemoteBudget, ask_remote_budget, ceiling
from agent.llm.call_log import LogFile, LoggedChatModel, counting_tries
from agent.llm.chat import ChatModelWrapper, HttpChatModel
from agent.llm.choice import (
    ProviderSettings,
    choose_embedding_endpoint,
    choose_endpoint,
)
from agent.llm.embeddings import HttpBatchEmbedder
from agent.llm.endpoint import Endpoint, without_credentials
from agent.llm.environment_servers import ENVIRONMENT_NAMES
from agent.llm.http import create_client, usual_trust
from agent.llm.models import Demand, Resolved, resolve_model
from agent.llm.prices import Price, find_price, read_price
from agent.llm.redaction import Redactor
from agent.llm.server import ModelServer, Retrier

__all__ = [
    "ENVIRONMENT_NAMES",
    "Budget",
    "BudgetedChatModel",
    "ChatModelWrapper",
    "Demand",
    "Endpoint",
    "HttpBatchEmbedder",
    "HttpChatModel",
    "LogFile",
    "LoggedChatModel",
    "ModelServer",
    "Price",
    "ProviderSettings",
    "Redactor",
    "RemoteBudget",
    "Resolved",
    "Retrier",
    "ask_remote_budget",
    "ceiling",
    "choose_embedding_endpoint",
    "choose_endpoint",
    "counting_tries",
    "create_client",
    "find_price",
    "read_price",
    "resolve_model",
    "usual_trust",
    "without_credentials",
]
