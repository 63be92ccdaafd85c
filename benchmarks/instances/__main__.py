"""The command: `python -m benchmarks.instances mine|serve --help`."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from agent.errors import PatchshotError

_SPEC = Path(__file__).with_name("environments.toml")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    given = _parser().parse_args(argv)
    try:
        return int(given.run(given))
    except PatchshotError as error:
        print(f"benchmarks.instances: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instances", description=__doc__)
    commands = parser.add_subparsers(required=True)
    mine = commands.add_parser("mine", help="make a data set from the histories of projects")
    mine.add_argument("--repos", type=Path, required=True, help="folder of git repositories")
    mine.add_argument("--spec", type=Path, default=_SPEC, help="environments of the projects")
    mine.add_argument("--output", type=Path, required=True, help="rows are added to this file")
    mine.add_argument("--cache", type=Path, required=True, help="folder for environments")
    mine.add_argument("--projects", nargs="*", help="owner/name; default: all of the spec")
    mine.add_argument("--limit", type=int, default=4, help="instances of a project (4)")
    mine.add_argument("--commits", type=int, default=1500, help="of a history (1500)")
    mine.add_argument("--tries", type=int, default=20, help="candidates run for a project (20)")
    mine.set_defaults(run=_mine)
    serve = commands.add_parser("serve", help="answer for a model, on the loopback interface")
    serve.add_argument("--dataset", type=Path, required=True, help="the rows that are asked about")
    mode = serve.add_mutually_exclusive_group(required=True)
    mode.add_argument("--replies", type=Path, metavar="DIR", help="ID.txt, ID.2.txt, ID.step1.txt")
    mode.add_argument("--record", action="store_true", help="no reply at all; with --prompts")
    serve.add_argument("--prompts", type=Path, metavar="DIR", help="first prompts as ID.md")
    serve.set_defaults(run=_serve)
    return parser


def _mine(given: argparse.Namespace) -> int:
    from agent.verify.environments import Environments, read_spec
    from benchmarks.instances.mining import Mine, Wanted
    from sandbox.choose import check_isolation, make_sandbox

    spec = read_spec(given.spec)
    named = tuple(tomllib.loads(given.spec.read_text("utf-8")).get("projects", {}))
    environments = Environments(spec, given.cache, note=lambda line: print(line, file=sys.stderr))
    wanted = Wanted(given.limit, given.commits, given.tries)
    sandbox = check_isolation(make_sandbox(unsafe=False))
    mine = Mine(given.repos, given.output, environments, sandbox, wanted)
    failed = 0
    for repo in given.projects or named:
        try:
            print(f"{repo}: {mine.project(repo)} instances", flush=True)
        except PatchshotError as error:
            failed += 1
            print(f"{repo}: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def _serve(given: argparse.Namespace) -> int:
    from benchmarks.instances.serving import Book, Desk, FromFiles, PromptFolder, read_rows, serve

    desk = Desk(
        Book(read_rows(given.dataset)),
        FromFiles(given.replies or given.prompts or Path()),
        PromptFolder(given.prompts) if given.prompts else None,
        recording=given.record,
    )
    serve(desk, lambda address: print(address, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
