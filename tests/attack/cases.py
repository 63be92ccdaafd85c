"""A case of the suite. The table of `docs/security.md` is made from all cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sandbox.types import RunResult
from tests.support.attack_traps import Setter, nothing
from tests.support.claims import CLAIMS

LEVELS = ("patch", "repository", "run", "verdict", "prompt")

# As root and ("-user") without privileges. `process` claims nothing, so nothing is tried on it.
BACKENDS = ("bwrap", "bwrap-user", "container", "landlock", "landlock-user")

MIB = 1024 * 1024

# Why an attack has no control.
HARMFUL = "would harm the machine"
CHANGES = "would change the machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One attack: what it does and what stops it, in the words of the table."""

    name: str
    level: str
    does: str
    stopped_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCase(Case):
    """An attack by code that a sandbox runs.

    `script` is Python and gets the arguments of its trap. It is contained when the trap has no
    evidence, the script printed no line that begins with "got", and `problem` finds nothing in the
    result. The script must print "tried" before it attacks, because one that fails earlier proves
    nothing. `control` says why the attack is not tried without a sandbox; where it is empty, the
    attack is tried and must leave evidence. `here` means: only backends that run in this process,
    where the trap is set. `needs` is the guarantee (see `tests.support.claims`) without which a
    backend does not claim to contain the attack.
    """

    level: str = "run"
    script: str
    trap: Setter = nothing
    limits: Mapping[str, float] = field(default_factory=dict)
    report: bool = False
    problem: Callable[[RunResult], str] = lambda _: ""
    control: str = ""
    here: bool = False
    needs: str = ""

    def is_claimed_by(self, backend: str) -> bool:
        """Whether a backend promises to contain this attack."""
        return not self.needs or self.needs in CLAIMS[backend]
