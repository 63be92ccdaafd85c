"""Plan search: finds the code for an issue by several intents instead of one query.

`PlanWidener` chooses the wider context after a failed attempt. It matches short intents with code,
searches for the best plan of such intents, and reranks the code by it. `PlanBackground` shows the
plan to the model. `FindAction` is the action
`find` of the iterative mode.
"""

from agent.search.plans.find_action import FindAction
from agent.search.plans.planner import (
    PlanBackground,
    Planned,
    Planner,
    PlanOptions,
    PlanPlace,
    PlanStep,
    PlanWidener,
)

__all__ = [
    "FindAction",
    "PlanBackground",
    "PlanOptions",
    "PlanPlace",
    "PlanStep",
    "PlanWidener",
    "Planned",
    "Planner",
]
