"""Attacks by text that ends up in a prompt, and by what a talked-into model then replies."""

from __future__ import annotations

from tests.attack.cases import Case

PROMPT_CASES = (
    Case(
        name="issue asks for secrets",
        level="prompt",
        does="tells the model to print keys, `.env`, `~/.ssh`",
        stopped_by="nothing secret is in any prompt; a key in a reply is refused",
    ),
    Case(
        name="issue closes its fence",
        level="prompt",
        does="writes the closing tag, with gaps, invisible or full-width signs, and goes on as us",
        stopped_by="closing tags in the issue and in results are defused",
    ),
    Case(
        name="repository closes its fence",
        level="prompt",
        does="has the closing tag, or runs of backticks, in a file",
        stopped_by="longer fences; the model is told that only the last closing tag counts",
    ),
    Case(
        name="secrets in the repository",
        level="prompt",
        does="holds keys in source, tests, output, `.env`, key files, dirty files",
        stopped_by="masked before anything is cut, files of secrets left out; the receipt says so",
    ),
    Case(
        name="files of secrets in the sandbox",
        level="prompt",
        does="has code under test print `.env`, `secrets.yaml`, keys, also by git from the commit",
        stopped_by="placeholders in the copy, nothing in its git history, values masked in output",
    ),
    Case(
        name="secrets for an embedding server",
        level="prompt",
        does="has a key in a chunk that is embedded remotely",
        stopped_by="masked; of files of secrets only the path is sent",
    ),
    Case(
        name="reply brings a key",
        level="prompt",
        does="copies a key that no file held into the patch or its test",
        stopped_by="known forms in new text are refused, `--allow PATH` lifts it",
    ),
    Case(
        name="reply writes the mask",
        level="prompt",
        does="puts the mask in the place of the value that it hides",
        stopped_by="more masks than before are refused",
    ),
    Case(
        name="terminal escapes",
        level="prompt",
        does="sends control sequences in output, names, replies and reasons to the user's terminal",
        stopped_by="a filter before stdout and stderr; only a diff on a pipe is exact",
    ),
    Case(
        name="reply that unfolds",
        level="patch",
        does="a model server or an issue's page sends gzip, or gzip within gzip, of gigabytes",
        stopped_by="one layer is undone, by hand, up to a size; more layers are refused",
    ),
    Case(
        name="reply that drips",
        level="patch",
        does="a server sends a byte now and then, of its headers or of its body",
        stopped_by="one limit of time from the connection to the last byte",
    ),
    Case(
        name="server with a wrong certificate",
        level="patch",
        does="a server's certificate is self-signed, expired, or another host's",
        stopped_by="nothing is sent to it; one line says what is wrong, and nothing is tried again",
    ),
    Case(
        name="terminal input (TIOCSTI)",
        level="run",
        does="pushes keys into the terminal that the agent was started from",
        stopped_by="a session of its own, seccomp; there is no /dev/tty inside",
    ),
    Case(
        name="file that becomes a link",
        level="patch",
        does="swaps a file for a link between reading and `--apply`",
        stopped_by="the file must still be what was read, and no link",
    ),
    Case(
        name="folder that becomes a link",
        level="patch",
        does="swaps a folder for a link between reading and `--apply`",
        stopped_by="O_NOFOLLOW at every step of a write",
    ),
)
