"""A chat model on this machine: an optional part, imported only for models named `local:...`.

`local_options` reads the name and finds the GGUF file; `LocalChatModel` runs it with llama.cpp in a
child process (`local_worker`). It needs the extra `local-model`.
"""

from agent.llm.local.local_model import LocalChatModel, local_options

__all__ = [
    "LocalChatModel",
    "local_options",
]
