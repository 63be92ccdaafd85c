"""Work in a thread that ends soon after nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(work: Callable[[threading.Event], _T]) -> _T:
    """Run `work`; the event that it is given is set when this is cancelled: Ctrl-C waits for it."""
    cancel = threading.Event()
    try:
        return await asyncio.to_thread(work, cancel)
    except asyncio.CancelledError:
        cancel.set()
        raise
