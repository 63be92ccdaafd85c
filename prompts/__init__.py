"""The prompt templates: Jinja files beside this module, a package so that wheels carry them.

Rendered by `agent.run.prompting` with StrictUndefined; every rendered whole is snapshot-tested.
"""
