"""`python -m agent` is the command `agent`."""

from agent.cli import main

main()
