"""What happens to a result: it is kept, written into the work tree, undone or published."""

from pathlib import Path

from agent.settings import state_folder

__all__ = ["journal_folder"]


def journal_folder() -> Path:
    """Return the folder of the user's journal of writes into work trees."""
    return state_folder() / "applied"
