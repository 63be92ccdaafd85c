"""What a project's tests need around them, where somebody says so instead of it being found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.validation.frameworks.base import Suite


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`suite`: how the tests are run; None: as the project's files show.

    `environment` joins that of any suite and wins over it. `paths` are folders of the tree for the
    import path. `files` (path -> bytes) are written over the base before anything else of a run:
    what an installation or a build would have left.
    """

    suite: Suite | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)

    def around(self, suite: Suite) -> Suite:
        """The suite with the environment set."""
        if not self.environment:
            return suite
        return replace(suite, environment={**suite.environment, **self.environment})

    def roots(self, found: tuple[str, ...]) -> tuple[str, ...]:
        """Folders for the import path: the named ones stand right after the root."""
        return tuple(dict.fromkeys((*found[:1], *self.paths, *found[1:])))
