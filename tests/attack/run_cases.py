"""All attacks by code that runs as a test, and the text before each of their scripts."""

from __future__ import annotations

from tests.attack.run_exhausting import EXHAUSTING
from tests.attack.run_host import FILES, PROCESSES
from tests.attack.run_outside import KERNEL, NETWORK

RUN_CASES = (*EXHAUSTING, *FILES, *PROCESSES, *NETWORK, *KERNEL)

# Put before every script. `attempt` goes on after a refusal, as an attacker would. What even a
# control must not do is done `inside` only.
PRELUDE = """
import ctypes, fcntl, glob, json, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
arguments, inside = sys.argv[1:], "INSIDE" in os.environ
temporary = os.environ.get("TMPDIR", "/tmp")
def attempt(what, *given):
    try:
        return what(*given)
    except (OSError, ValueError, AttributeError) as error:
        print("refused", type(error).__name__, error, flush=True)
def call(name, number, *given):
    done = libc.syscall(number, *given)
    print("got" if done >= 0 else "refused", name, done, ctypes.get_errno(), flush=True)
    return done
print("tried", flush=True)
"""
