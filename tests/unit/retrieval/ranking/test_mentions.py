from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.ranking.mentions import (
    Frame,
    MentionPlace,
    NameMention,
    PathMention,
    read_mentions,
)
from agent.types import Problem

PYTHON_TRACE = """\
```pytb
Traceback (most recent call last):
  File "/home/me/run.py", line 3, in <module>
    client.get("x")
  File "/usr/lib/python3/site-packages/pkg/client.py", line 120, in get
    return self.parse()
ValueError: bad
```
"""


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        (
            PYTHON_TRACE,
            [
                Frame("usr/lib/python3/site-packages/pkg/client.py", 120, "get", 1),
                Frame("home/me/run.py", 3, "", 2),
            ],
        ),
        (
            "pkg/a.py:12: in parse\n    x()\npkg/b.py:7: ValueError\n",
            [Frame("pkg/b.py", 7, "", 1), Frame("pkg/a.py", 12, "parse", 2)],
        ),
        (
            "Error: x\n    at Parser.parse (/app/lib/parser.js:10:5)\n"
            "    at file:///app/main.mjs:1:2\n",
            [Frame("app/lib/parser.js", 10, "parse", 1), Frame("app/main.mjs", 1, "", 2)],
        ),
        (
            "\tat org.pkg.Parser.parse(Parser.java:12)\n\tat org.pkg.Main.main(Main.java:3)\n",
            [Frame("Parser.java", 12, "parse", 1), Frame("Main.java", 3, "main", 2)],
        ),
        (
            "goroutine 1 [running]:\npkg.(*Parser).Parse(0x1, 0x2)\n\t/x/pkg/parse.go:12 +0x1d\n",
            [Frame("x/pkg/parse.go", 12, "Parse", 1)],
        ),
        ("thread 'main' panicked at src/lib.rs:12:5:\n", [Frame("src/lib.rs", 12, "", 1)]),
        (
            "thread 'main' panicked at 'oh', src/lib.rs:12:5\n",
            [Frame("src/lib.rs", 12, "", 1)],
        ),
        ("from /x/lib/a.rb:12:in `parse'\n", [Frame("x/lib/a.rb", 12, "parse", 1)]),
        (
            "#0 /x/src/Mod.php(12): App\\Mod->parse()\n",
            [Frame("x/src/Mod.php", 12, "parse", 1)],
        ),
    ],
)
def test_stack_frames_innermost_first(text: str, frames: list[Frame]) -> None:
    assert list(read_mentions(Problem("It fails", text)).frames) == frames


def test_paths_with_their_lines_and_places() -> None:
    problem = Problem(
        "Bug in pkg/mod.py",
        "See `lib/a.js:12`, https://github.com/o/r/blob/main/src/x.go#L7 and C:\\app\\b.py.\n"
        "```\nopen('data/c.yml')\n```\n",
    )
    assert read_mentions(problem).paths == (
        PathMention("pkg/mod.py", 0, MentionPlace.TITLE),
        PathMention("lib/a.js", 12, MentionPlace.QUOTED),
        PathMention("github.com/o/r/blob/main/src/x.go", 7, MentionPlace.PROSE),
        PathMention("app/b.py", 0, MentionPlace.PROSE),
        PathMention("data/c.yml", 0, MentionPlace.CODE),
    )


@pytest.mark.parametrize("text", ["e.g. this", "version 1.2.3", "www.example.com", "and/or", "..."])
def test_what_is_no_path(text: str) -> None:
    assert read_mentions(Problem("x", text)).paths == ()


def test_names_at_their_best_place() -> None:
    problem = Problem(
        "read_timeout is ignored",
        "`Client.get` calls parse() and HTTPServer, e.g. with pkg.mod.Parser and Foo::bar#baz.\n"
        "Plain words are no names. `read_timeout` again.\n\n    indented_code(argument)\n",
    )
    assert read_mentions(problem).names == (
        NameMention("read_timeout", MentionPlace.TITLE),
        NameMention("Client.get", MentionPlace.QUOTED),
        NameMention("parse", MentionPlace.PROSE),
        NameMention("HTTPServer", MentionPlace.PROSE),
        NameMention("pkg.mod.Parser", MentionPlace.PROSE),
        NameMention("Foo.bar.baz", MentionPlace.PROSE),
        NameMention("indented_code", MentionPlace.CODE),
        NameMention("argument", MentionPlace.CODE),
    )


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_can_be_read(title: str, body: str) -> None:
    read_mentions(Problem(title, body))


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a.",
        "/",
        "a/",
        "\n",
        " at ",
        "at (",
        "(",
        "a:",
        "`",
        "```\n",
        '"',
        "::",
        "a.rb",
        "\t/",
        'File "',
        "x.go:",
        ".*/()-",
        "#0 ",
        "\\",
        "    \n",
        "'at '",
    ],
)
def test_hostile_texts_take_no_time(piece: str) -> None:
    start = time.perf_counter()
    read_mentions(Problem(piece * 1000, piece * (200_000 // len(piece))))
    assert time.perf_counter() - start < 5
