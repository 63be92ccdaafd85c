"""What takes time and asks nothing of the repository, begun before it is read.

The sandbox is tried in other processes, and the tokens' ranks are loaded in C, while git is waited
for and files are read. What fails is said by who needs it, at its place.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.errors import ConfigurationError
from agent.services.context import make_counter
from agent.services.validation import make_sandbox

if TYPE_CHECKING:
    from agent.settings import Settings
    from sandbox.types import Sandbox


class Ahead:
    """Begins at once. The interpreter waits for it at its end, so that nothing is left behind."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        threads = ThreadPoolExecutor(2, thread_name_prefix="ahead")
        self._sandbox = threads.submit(self._made_sure) if settings.tests else None
        threads.submit(self._load_ranks)
        threads.shutdown(wait=False)

    def sandbox(self) -> Sandbox:
        """The sandbox of the settings, found to hold what it promises; waits until that is known.

        Raises SandboxError, and ConfigurationError where the settings contradict.
        """
        return self._made_sure() if self._sandbox is None else self._sandbox.result()

    def _made_sure(self) -> Sandbox:
        from sandbox.choose import made_sure

        return made_sure(make_sandbox(self._settings))

    def _load_ranks(self) -> None:
        with suppress(ConfigurationError):
            make_counter(self._settings.model).count("ready")
