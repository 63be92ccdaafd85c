"""Fetch one source distribution as pip would find it, without running anything of it.

Run as a program: `python pip_fetch.py NAME FILENAME DESTINATION`. `pip download` asks a source
distribution for its metadata, which executes the project's build; so only pip's finder and session
are used here. They honour all that configures pip: index addresses, find-links, certificates,
proxies, credentials. Exit code 1 and a line on stderr say that the file cannot be had.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pip._internal.commands import create_command


def main(name: str, filename: str, destination: str) -> int:
    """Write the distribution named `filename` of the project `name` to `destination`."""
    command = create_command("download")
    with command.main_context():
        content = _content(command, name, filename)
    if content is None:
        sys.stderr.write(f"{filename} is not on the configured package index\n")
        return 1
    Path(destination).write_bytes(content)
    return 0


def _content(command: Any, name: str, filename: str) -> bytes | None:
    # One retry: offline, a test should say so soon and be skipped.
    arguments = ["--no-binary=:all:", "--ignore-requires-python", "--retries=1", name]
    options, _ = command.parse_args(arguments)
    session = command.get_default_session(options)
    finder = command._build_package_finder(options, session)
    for candidate in finder.find_all_candidates(name):
        if candidate.link.filename == filename:
            response = session.get(candidate.link.url_without_fragment)
            response.raise_for_status()
            return bytes(response.content)
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
