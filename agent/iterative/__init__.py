"""The step-by-step mode: the model reads, edits and runs tests on a private copy of the snapshot.

The policy reaches it when the one call and its repairs have failed. `run` asks for the next
actions, `WorkingCopy` carries them out, and `Conversation` decides what the next prompt repeats.
"""

from agent.iterative.actions import Find, ReadActions, offered, read_actions
from agent.iterative.loop import IterativeOptions, fit_window, kept_patch, room_for_context, run

__all__ = [
    "Find",
    "IterativeOptions",
    "ReadActions",
    "fit_window",
    "kept_patch",
    "offered",
    "read_actions",
    "room_for_context",
    "run",
]
