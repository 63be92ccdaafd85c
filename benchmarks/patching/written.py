"""Scenarios in our own words: what a reply may do, and what must be refused. No fetched data.

The apply_patch ones follow the public description of the format (Begin/End Patch, Add, Delete,
Update File, Move to, @@ with a line of context, End of File).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from benchmarks.patching.cases import Case, Result, Wanted
from benchmarks.patching.perturbing import Change
from benchmarks.patching.synthetic import cases_of

TILL = '''"""A till that counts coins."""

import math


class Till:
    """Holds coins by their value in cents."""

    def __init__(self, coins):
        self.coins = dict(coins)
        self.log = []

    def total(self):
        """All that is in the till, in cents."""
        return sum(value * count for value, count in self.coins.items())

    def take(self, value, count=1):
        """Put coins in."""
        if value not in self.coins:
            self.coins[value] = 0
        self.coins[value] += count
        self.log.append(("take", value, count))

    def give(self, amount):
        """Coins that make up an amount, largest first."""
        given = {}
        for value in sorted(self.coins):
            count = min(amount // value, self.coins[value])
            if count:
                given[value] = count
                amount -= value * count
        if amount:
            raise ValueError("not enough change")
        for value, count in given.items():
            self.coins[value] -= count
        return given


def rounded(amount):
    """To the next five cents."""
    return math.floor(amount / 5) * 5
'''

TILL_FIXED = TILL.replace("sorted(self.coins)", "sorted(self.coins, reverse=True)").replace(
    "math.floor(amount / 5)", "math.floor(amount / 5 + 0.5)"
)

QUEUE = """// A queue with a limit.
export class Queue<T> {
  private items: T[] = [];

  constructor(private readonly limit: number) {}

  push(item: T): boolean {
    if (this.items.length > this.limit) {
      return false;
    }
    this.items.push(item);
    return true;
  }

  pop(): T | undefined {
    return this.items.shift();
  }

  get size(): number {
    return this.items.length;
  }
}
"""

QUEUE_FIXED = QUEUE.replace("length > this.limit", "length >= this.limit")

MAKE = "all: build test\n\nbuild:\n\tcc -O2 -o tool tool.c\n\ntest: build\n\t./tool --check\n"
MAKE_FIXED = MAKE.replace("cc -O2", "cc -O2 -Wall")

_REPO: Mapping[str, bytes] = {
    "shop/till.py": TILL.encode(),
    "web/queue.ts": QUEUE.encode(),
    "Makefile": MAKE.encode(),
    "shop/__init__.py": b"",
    "web/__init__.py": b"",
    "notes.txt": b"one\ntwo\none\ntwo\nthree",
}


def written_cases(seed: int = 1) -> Iterator[Case]:
    """The scenarios, and three small changes of our own in every shape with every perturbation."""
    yield from _scenarios()
    beside = {path: content for path, content in _REPO.items() if content}
    for path, old, new in (
        ("shop/till.py", TILL, TILL_FIXED),
        ("web/queue.ts", QUEUE, QUEUE_FIXED),
        ("Makefile", MAKE, MAKE_FIXED),
    ):
        others = {name: content for name, content in beside.items() if name != path}
        yield from cases_of(Change(f"own:{path}", path, old, new, others), seed, corpus="own text")


def _case(
    name: str, shape: str, reply: str, after: Result | None, wanted: Wanted | None = None
) -> Case:
    chosen = wanted or (Wanted.REFUSE if after is None else Wanted.APPLY)
    return Case(f"scenario:{name}", "scenarios", shape, shape, reply, _REPO, chosen, after)


def _scenarios() -> Iterator[Case]:
    yield from _envelopes()
    yield from _json_replies()
    yield from _other_shapes()


def _envelope(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch")) + "\n"


def _envelopes() -> Iterator[Case]:
    limit = ("     if (this.items.length > this.limit) {", "       return false;")
    fix = (f"-{limit[0][1:]}", "+    if (this.items.length >= this.limit) {", f" {limit[1][1:]}")
    update = "*** Update File: web/queue.ts"
    fixed = {"web/queue.ts": QUEUE_FIXED.encode()}
    yield _case("update", "envelope", _envelope(update, "@@", *fix), fixed)
    yield _case("no @@", "envelope", _envelope(update, *fix), fixed)
    named = _envelope(update, "@@ push(item: T): boolean {", *fix)
    yield _case("@@ with a line of context", "envelope", named, fixed)
    heredoc = "apply_patch <<'EOF'\n" + _envelope(update, "@@", *fix) + "EOF\n"
    yield _case("in a here-document", "envelope", heredoc, fixed)
    fenced = "I fix the limit.\n\n```\n" + _envelope(update, "@@", *fix) + "```\n"
    yield _case("in a fence", "envelope", fenced, fixed)
    new = _envelope("*** Add File: shop/notes.md", "+# Notes", "+", "+Count twice.")
    yield _case("add", "envelope", new, {"shop/notes.md": b"# Notes\n\nCount twice.\n"})
    yield _case("add over a file", "envelope", _envelope("*** Add File: Makefile", "+all:"), None)
    gone = _envelope("*** Delete File: notes.txt")
    yield _case("delete", "envelope", gone, {"notes.txt": None})
    yield _case("delete nothing", "envelope", _envelope("*** Delete File: no.txt"), None)
    moved = _envelope(update, "*** Move to: web/bounded.ts", "@@", *fix)
    both = {"web/queue.ts": None, "web/bounded.ts": QUEUE_FIXED.encode()}
    yield _case("move and change", "envelope", moved, both)
    onto = _envelope(update, "*** Move to: Makefile", "@@", *fix)
    yield _case("move onto a file", "envelope", onto, None)
    absent = _envelope("*** Update File: web/stack.ts", "@@", *fix)
    yield _case("update nothing", "envelope", absent, fixed, Wanted.EITHER)
    stale = _envelope(update, "@@", "-    if (this.length > 3) {", "+    if (this.length > 4) {")
    yield _case("stale", "envelope", stale, None)
    partly = _envelope(update, "@@", *fix, "@@", "-never there at all", "+something")
    yield _case("second hunk stale", "envelope", partly, None)
    twice = _envelope("*** Update File: notes.txt", "@@", " one", "-two", "+2")
    yield _case("place occurs twice", "envelope", twice, None)
    end = _envelope("*** Update File: notes.txt", "@@", " two", "-three", "+3", "*** End of File")
    yield _case("end of file", "envelope", end, {"notes.txt": b"one\ntwo\none\ntwo\n3"})
    for bad in ("../out.txt", "/etc/passwd", ".git/config", "shop/../../x.py", ".GIT/hooks/post"):
        reply = _envelope(f"*** Add File: {bad}", "+x")
        yield _case(f"path {bad}", "envelope", reply, None)
    many = _envelope(
        update, "@@", *fix, "*** Add File: web/index.ts", '+export * from "./queue";',
        "*** Delete File: notes.txt",
    )  # fmt: skip
    done = {**fixed, "web/index.ts": b'export * from "./queue";\n', "notes.txt": None}
    yield _case("three files", "envelope", many, done)


def _json_replies() -> Iterator[Case]:
    def reply(*edits: Mapping[str, object]) -> str:
        return json.dumps({"thought": "", "edits": list(edits)})

    one = {"path": "notes.txt", "search": "one\ntwo\n", "replace": "1\n2\n"}
    yield _case("ambiguous", "json", reply(one), None)
    hinted = {**one, "line": 3}
    after = {"notes.txt": b"one\ntwo\n1\n2\nthree"}
    yield _case("ambiguous with a hint", "json", reply(hinted), after)
    between = {**one, "line": 2}
    yield _case("hint between two places", "json", reply(between), None)
    far = {**one, "line": 900}
    yield _case("hint far away", "json", reply(far), None)
    chain = (
        {"path": "notes.txt", "search": "three", "replace": "drei"},
        {"path": "notes.txt", "search": "two\ndrei", "replace": "zwei\ndrei"},
    )
    seen = {"notes.txt": b"one\ntwo\none\nzwei\ndrei"}
    yield _case("edits see each other", "json", reply(*chain), seen)
    wrong_order = reply(*reversed(chain))
    yield _case("edits in the wrong order", "json", wrong_order, seen, Wanted.EITHER)
    create = {"path": "shop/new.py", "create": "X = 1\n"}
    yield _case("create", "json", reply(create), {"shop/new.py": b"X = 1\n"})
    again = {"path": "shop/till.py", "create": "X = 1\n"}
    yield _case("create over a file", "json", reply(again), None)
    undone = (
        {"path": "notes.txt", "search": "three", "replace": "3"},
        {"path": "notes.txt", "search": "3", "replace": "three"},
    )
    yield _case("nothing in the end", "json", reply(*undone), None)
    yield _case("no edit", "json", reply(), None)
    for path in (".git/hooks/pre-commit", "shop/../../x", "a\\b.py", "x\u202e.py", "git~1/config"):
        yield _case(f"path {path!a}", "json", reply({"path": path, "create": "x"}), None)
    empty = {"path": "notes.txt", "search": "", "replace": "x"}
    yield _case("empty search text", "json", reply(empty), None)
    short = {"path": "shop/till.py", "search": "amont", "replace": "sum"}
    yield _case("short text near nothing", "json", reply(short), None)


def _other_shapes() -> Iterator[Case]:
    block = "<<<<<<< SEARCH\n{}=======\n{}>>>>>>> REPLACE\n"
    good = block.format("def rounded(amount):\n", "def rounded(amount: float) -> int:\n")
    after = {
        "shop/till.py": TILL.replace(
            "def rounded(amount)", "def rounded(amount: float) -> int"
        ).encode()
    }
    yield _case("block", "blocks", "shop/till.py\n" + good, after)
    yield _case("block without a path", "blocks", good, after, Wanted.EITHER)
    ambiguous = block.format("        for value", "        for coin")
    yield _case("half a line twice", "blocks", "shop/till.py\n" + ambiguous, None)
    two = "shop/till.py\n" + good + "\n" + block.format("nowhere\n", "else\n")
    yield _case("second block stale", "blocks", two, None)
    headless = "shop/till.py\n" + good.replace(">>>>>>> REPLACE\n", "")
    yield _case("block without an end", "blocks", headless, None)
    rename = (
        "diff --git a/notes.txt b/notes.md\nsimilarity index 100%\n"
        "rename from notes.txt\nrename to notes.md\n"
    )
    moved = {"notes.txt": None, "notes.md": _REPO["notes.txt"]}
    yield _case("rename", "diff", rename, moved)
    gone = "--- a/notes.txt\n+++ /dev/null\n@@ -1,5 +0,0 @@\n-one\n-two\n-one\n-two\n-three\n"
    yield _case("deleted by a diff", "diff", gone, {"notes.txt": None}, Wanted.EITHER)
    new = "--- /dev/null\n+++ b/shop/fee.py\n@@ -0,0 +1,2 @@\n+FEE = 3\n+TAX = 7\n"
    yield _case("created by a diff", "diff", new, {"shop/fee.py": b"FEE = 3\nTAX = 7\n"})
    over = "--- /dev/null\n+++ b/Makefile\n@@ -0,0 +1,1 @@\n+all:\n"
    yield _case("created over a file", "diff", over, None)
    prose = "I would change `sorted` so that it gives the largest coin first.\n"
    yield _case("prose alone", "prose", prose, None)
    yield _case("empty", "prose", "", None)
    fence = "```python\nprint('how to use it')\n```\n"
    yield _case("code without a path", "prose", "Use it like this:\n\n" + fence, None)
