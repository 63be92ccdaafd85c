"""The name under which programs import the Python interface. `agent.api` documents it."""

from agent.api import *  # noqa: F403
from agent.api import __all__ as __all__
