"""`agent bundle`: the program as one plain source file, as the miner contract takes it."""
