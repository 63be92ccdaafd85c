"""The model servers: one endpoint is chosen, every call is budgeted, logged and tried again.

`agent.llm.recording` is an optional part.
"""

from agent.llm.budget import Budget as Budget
from agent.llm.budget import BudgetedChatModel as BudgetedChatModel
from agent.llm.budget import ceiling as ceiling
from agent.llm.choice import ENVIRONMENT_NAMES as ENVIRONMENT_NAMES
from agent.llm.choice import choose_embedding_endpoint as choose_embedding_endpoint
from agent.llm.choice import choose_endpoint as choose_endpoint
from agent.llm.clients import ChatModelWrapper as ChatModelWrapper
from agent.llm.clients import HttpBatchEmbedder as HttpBatchEmbedder
from agent.llm.clients import HttpChatModel as HttpChatModel
from agent.llm.clients import LoggedChatModel as LoggedChatModel
from agent.llm.clients import RedactedChatModel as RedactedChatModel
from agent.llm.endpoint import Endpoint as Endpoint
from agent.llm.endpoint import without_credentials as without_credentials
from agent.llm.http import create_client as create_client
from agent.llm.http import usual_trust as usual_trust
from agent.llm.prices import Price as Price
from agent.llm.prices import find_price as find_price
from agent.llm.prices import read_price as read_price
from agent.llm.redaction import Redactor as Redactor
from agent.llm.redaction import own_redactor as own_redactor
from agent.llm.server import REQUEST_SECONDS as REQUEST_SECONDS
from agent.llm.server import Demand as Demand
from agent.llm.server import ModelServer as ModelServer
from agent.llm.server import Resolved as Resolved
from agent.llm.server import Retrier as Retrier
from agent.llm.server import resolve_model as resolve_model
