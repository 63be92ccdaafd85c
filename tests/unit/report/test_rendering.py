"""The page as bytes: its policy, its colours, its size, what it escapes."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest
from agent.report.instance import Pages, limits_for
from agent.report.run_reader import load
from agent.report.summary import summarise

from agent.report.rendering import MARK, render
from agent.report.text import Cleaner
from tests.support import run_folders
from tests.support.hostile_run import OUTSIDE, SECRET, make_hostile_run
from tests.support.run_folders import RunFolder, make_run

AA = 4.5  # WCAG 2.2, 1.4.3: contrast of text


def page_of(folder: Path, *, bodies: bool = True) -> str:
    clean = Cleaner()
    run = load(folder, None, clean)
    return b"".join(render(run, summarise(run), clean, bodies=bodies)).decode()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("r") / "preds.run"
    make_run(folder, 16)
    return page_of(folder)


def test_the_policy_allows_our_style_and_script_alone(page: str) -> None:
    assert page.startswith(MARK.decode())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    text = policy[1].replace("&#39;", "'")
    assert text.startswith("default-src 'none'; ")
    for tag, directive, number in (("style", "style-src", 1), ("script", "script-src", 2)):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(bodies) == number
        digests = [base64.b64encode(hashlib.sha256(b.encode()).digest()).decode() for b in bodies]
        named = " ".join(f"'sha256-{digest}'" for digest in digests)
        assert f"{directive} {named};" in text
    assert "unsafe" not in text
    assert not re.search(r"<[^>]+\s(on\w+|style|src|srcset|action)=", page)


def test_ids_are_used_once_and_every_link_leads_somewhere(page: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for href in re.findall(r'href="([^"]+)"', page):
        assert href.startswith("#")
        assert href.startswith("#?") or href[1:] in ids


class Balance(HTMLParser):
    """Complains about a tag that is closed and was not open."""

    VOID = frozenset({"meta", "input", "rect", "line", "polyline"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID or (tag == "li" and self.open[-1] != "li"):
            return
        while self.open[-1] in ("option", "p") and self.open[-1] != tag:
            self.open.pop()
        assert self.open.pop() == tag


def test_tags_are_balanced(page: str) -> None:
    parser = Balance()
    parser.feed(page)
    assert parser.open == []


def test_cells_of_an_instances_tables_say_what_they_are_without_their_head(page: str) -> None:
    """On a phone the tables are stacked, and their heads are hidden."""
    tables = re.findall(r'<table class="plain stacked">.*?</table>', page, re.DOTALL)
    cells = [cell for table in tables for cell in re.findall(r"<td[^>]*>", table)]
    assert cells
    assert all("data-label=" in cell or 'class="why"' in cell for cell in cells)


def test_a_status_is_written_as_its_group_is(page: str) -> None:
    assert ">not applied</span>" in page
    assert ">not-applied<" not in page
    assert '<option value="not-applied">not applied</option>' in page


def test_a_count_of_one_has_no_plural(tmp_path: Path) -> None:
    make_run(tmp_path / "r", 1)
    assert '<p id="/count" class="hint" role="status">1 instance</p>' in page_of(tmp_path / "r")


def test_hostile_texts_are_escaped_and_nothing_outside_is_read(tmp_path: Path) -> None:
    make_hostile_run(tmp_path / "r", tmp_path / "e.json")
    text = page_of(tmp_path / "r")
    assert "<script>window" not in text
    assert "<img" not in text
    assert "<iframe" not in text
    assert text.count("</noscript>") == text.count("<noscript>")
    assert SECRET not in text
    assert OUTSIDE not in text
    assert "a link, not followed" in text
    assert re.search("cut: [0-9,]+ bytes more", text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_bodies_can_be_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "r", 2)
    assert "You repair programs." in page_of(tmp_path / "r")
    without = page_of(tmp_path / "r", bodies=False)
    assert "You repair programs." not in without
    assert "--no-bodies" in without


def test_five_hundred_full_instances_stay_below_thirty_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One instance that fills every share, written with the limits of one of five hundred."""
    longer = "".join(f"+    value_{i} = call(<{i}>, 'text & more')  # note\n" for i in range(2000))
    head = "diff --git a/b.py b/b.py\n--- a/b.py\n+++ b/b.py\n@@ -0,0 +1,2000 @@\n"
    monkeypatch.setattr(run_folders, "DIFF", head + longer)
    receipt = run_folders.receipt()
    receipt["pieces"] *= 100
    receipt["dropped"] *= 300
    monkeypatch.setattr(run_folders, "receipt", lambda: receipt)
    made = RunFolder(tmp_path / "r")
    task = made.task(1, problem_statement="an <issue> & more\n" * 5000)
    made.end(task, "accepted", "verified", "m" * 5000)
    (tmp_path / "r/instances" / task.folder_name / "log.txt").write_text("<a> log\n" * 50_000)
    folder = made.write()
    monkeypatch.setattr("agent.report.rendering.limits_for", lambda _n: limits_for(500))
    small = page_of(folder)
    fixed = len(small) - len(small[small.index("<noscript>") : small.index("</noscript>")])
    assert fixed + 500 * (len(small) - fixed) < 30_000_000


def test_pages_are_made_one_at_a_time(tmp_path: Path) -> None:
    make_run(tmp_path / "r", 3)
    clean = Cleaner()
    run = load(tmp_path / "r", None, clean)
    pages = iter(Pages(run, clean, limits_for(3)))
    assert next(pages).row.id == "owner__shop-0"
    (tmp_path / "r/instances/acme__ledger-1/patch.diff").write_text("changed since")
    assert next(pages).diff[0].lines[0].html == "changed since"


# ------------------------------------------------------------------------------------ the colours


def schemes() -> dict[str, dict[str, str]]:
    """The variables of the style sheet: light, dark, print."""
    text = (resources.files("agent.report") / "templates" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    names = ("light", "dark", "print")
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", block))
        for name, block in zip(names, blocks, strict=True)
    }


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_text_has_the_contrast_of_wcag_aa(scheme: str) -> None:
    colours = schemes()[scheme]
    plain = ("ink", "muted", "accent", "good", "fair", "bad", "idle")
    code = ("ink", "syntax-k", "syntax-s", "syntax-c", "syntax-n")
    pairs = [(t, g) for t in plain for g in ("page", "surface", "sunken")]
    pairs += [(t, g) for t in (*code, "muted") for g in ("surface", "added", "removed")]
    pairs += [("good", "added"), ("bad", "removed")]
    weak = {
        pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2)
        for pair in pairs
        if contrast(colours[pair[0]], colours[pair[1]]) < AA
    }
    assert weak == {}
