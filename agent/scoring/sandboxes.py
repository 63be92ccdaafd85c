"""The sandbox of each instance: one for all, or a container of the instance's own image."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from agent.errors import ConfigurationError
from sandbox.choose import made_sure
from sandbox.types import Sandbox

_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = ("instance_id", "id_1776", "repo", "version")


class Sandboxes:
    """Gives sandboxes that were found to isolate. Safe to use from several threads."""

    def __init__(self, make: Callable[[str | None], Sandbox], template: str | None = None) -> None:
        """`make` takes an image or None. Raises ConfigurationError for an unknown field."""
        for name in _FIELD.findall(template or ""):
            if name not in _FIELDS:
                raise ConfigurationError(
                    f"--image-template {template}: no field {{{name}}}; there are "
                    + ", ".join(f"{{{field}}}" for field in _FIELDS)
                )
        self._make = make
        self._template = template
        self._lock = threading.Lock()
        self._one_for_all = not _FIELD.search(template or "")
        self._known: dict[str, Sandbox] = {}

    def image(self, instance_id: str, repo: str = "", version: str = "") -> str:
        """The image of an instance, "" for none. Names of images are in lower case."""
        name = instance_id.lower()
        values = {
            "instance_id": name,
            "id_1776": name.replace("__", "_1776_"),  # SWE-bench's own names on registries
            "repo": repo.lower().replace("/", "__"),
            "version": version,
        }
        return _FIELD.sub(lambda match: values[match[1]], self._template or "")

    def get(self, image: str) -> Sandbox:
        """The sandbox of an image, "" for the one without.

        Raises ConfigurationError and SandboxError: it cannot be used here, or is not there.
        """
        if not self._one_for_all:
            return made_sure(self._make(image))
        with self._lock:
            if image not in self._known:
                self._known[image] = made_sure(self._make(image or None))
            return self._known[image]
