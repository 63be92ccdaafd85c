"""The step-by-step mode: the model reads, edits and runs tests on a private copy of the snapshot.

The policy reaches it when the one call and its repairs have failed. `run` asks for the next
actions, `WorkingCopy` carries them out, and `Conversation` decides what the next prompt repeats.
"""

from agent.iterative.actions import Find as Find
from agent.iterative.actions import offered as offered
from agent.iterative.actions import read_actions as read_actions
from agent.iterative.loop import fit_window as fit_window
from agent.iterative.loop import kept_patch as kept_patch
from agent.iterative.loop import room_for_context as room_for_context
from agent.iterative.loop import run as run
