"""Work in a thread that can be cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class Cancelled(Exception):
    """The work stopped because its `cancel` event was set."""


async def in_thread(work: Callable[[threading.Event], _T], *, wait: bool = False) -> _T:
    """Run `work` in a thread. If this is cancelled, the event given to `work` is set.

    `wait`: the cancellation ends only after `work` has ended, not soon before.
    """
    cancel = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, cancel))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancel.set()
        if wait:
            await asyncio.wait({task})
        # The cancellation is the result; what the work raises when it stops is not.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
