"""Environments for the tests of a project, as a spec file (`--environments`) describes them.

`read_spec` reads the file, `EnvironmentSpec.environment` finds what it says about a project at a
version or commit, and `Environments.prepare` builds the virtual environment once and keeps it in
the cache folder. `prepare_target` does all of it for the target of a run.
"""

from agent.verify.environments.preparing import (
    Environments,
    Prepared,
    digest_environment,
    make_ancestor_check,
    prepare_target,
)
from agent.verify.environments.spec import Environment, read_spec

__all__ = [
    "Environment",
    "Environments",
    "Prepared",
    "digest_environment",
    "make_ancestor_check",
    "prepare_target",
    "read_spec",
]
