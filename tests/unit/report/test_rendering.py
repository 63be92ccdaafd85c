"""The page as bytes: its policy, its size, what it escapes."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agent.report import Cleaner, load, render, summarise
from agent.shared.files import REPORT_MARK
from tests.support.hostile_run import OUTSIDE, SECRET, SHOWN, make_hostile_run
from tests.support.run_folders import make_run


def page_of(folder: Path, *, bodies: bool = True) -> str:
    clean = Cleaner()
    run = load(folder, None, clean)
    return b"".join(render(run, summarise(run), clean, bodies=bodies)).decode()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("r") / "preds.run"
    make_run(folder)
    return page_of(folder)


def test_the_policy_allows_our_style_and_script_alone(page: str) -> None:
    assert page.startswith(REPORT_MARK.decode())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    text = policy[1].replace("&#39;", "'")
    assert text.startswith("default-src 'none'; ")
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in text
    assert "unsafe" not in text
    assert not re.search(r"<[^>]+\s(on\w+|style|src|srcset|action)=", page)


def test_ids_are_used_once_and_every_link_leads_somewhere(page: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for href in re.findall(r'href="([^"]+)"', page):
        assert href.startswith("#")
        assert href[1:] in ids


class Balance(HTMLParser):
    """Complains about a tag that is closed and was not open."""

    VOID = frozenset({"meta", "input", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_tags_are_balanced(page: str) -> None:
    parser = Balance()
    parser.feed(page)
    assert parser.open == []


def test_a_patch_has_the_colours_of_a_diff(page: str) -> None:
    assert '<span class="added">+        return sum(prices, start=0)' in page
    assert '<span class="removed">-        return sum(item.price' in page


def test_hostile_texts_are_escaped_and_nothing_outside_is_read(tmp_path: Path) -> None:
    make_hostile_run(tmp_path / "r")
    text = page_of(tmp_path / "r")
    assert "<script>window" not in text
    assert "<img" not in text
    assert "<iframe" not in text
    assert SECRET not in text
    assert OUTSIDE not in text
    assert SHOWN in text
    assert "linked__files-1" in text
    assert re.search(r"cut: [0-9,]+ characters more", text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_bodies_can_be_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "r", 2)
    assert "You repair programs." in page_of(tmp_path / "r")
    assert "You repair programs." not in page_of(tmp_path / "r", bodies=False)
