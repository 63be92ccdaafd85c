"""`agent bundle`: the program as one plain source file, as the miner contract takes it."""

from agent.miner.bundle.checking import BundleCheck, check_bundle
from agent.miner.bundle.writing import make_bundle

__all__ = [
    "BundleCheck",
    "check_bundle",
    "make_bundle",
]
