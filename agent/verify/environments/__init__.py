"""Environments for the tests of a project, as a spec file (`--environments`) describes them.

`read_spec` reads the file, `EnvironmentSpec.environment` finds what it says about a project at a
version, and `Environments.build` builds the virtual environment once and keeps it in
the cache folder. `prepare_target` does all of it for the target of a run.
"""

from agent.verify.environments.building import Environments as Environments
from agent.verify.environments.preparing import prepare_target as prepare_target
from agent.verify.environments.preparing import surroundings as surroundings
from agent.verify.environments.spec import Environment as Environment
from agent.verify.environments.spec import read_spec as read_spec
