"""Tiers: ways to match a search text with a file, from exact to lenient.

`basic`, `elision` and `loose` hold the tiers, `variants` the forms of a search text that are tried,
`hints` what decides between several occurrences. `transplant` writes the new lines and
`indentation` their indentation. `agent.patching.matching` says in which order the tiers are tried.
"""
