"""The environment and options under which git may touch an untrusted repository.

Sources: measured against git 2.39 (see docs/security.md): hooks, fsmonitor, filters, aliases,
`ext::` remotes and lazy fetches of promisor remotes run nothing under these settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_KEEP = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE")

# Passed as `-c key=value`: these win over the repository's own configuration.
OPTIONS: tuple[str, ...] = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "core.quotePath=false",
    "core.alternateRefsCommand=",
    "protocol.ext.allow=never",
    "safe.bareRepository=explicit",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "diff.external=",
    "credential.helper=",
)


def git_environment(*, protocols: str = "none") -> Mapping[str, str]:
    """Return a minimal environment for git.

    `protocols` is GIT_ALLOW_PROTOCOL: "none" (no transport at all) or "file" (a local clone).
    Optional locks are off, so git never refreshes the user's index.
    """
    kept = {name: os.environ[name] for name in _KEEP if name in os.environ}
    return kept | {
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "/bin/false",
    }


def git_options() -> tuple[str, ...]:
    """Return the `-c` options as arguments that follow `git`."""
    return tuple(part for option in OPTIONS for part in ("-c", option))
