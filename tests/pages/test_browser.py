"""The pages of `agent report` in a real browser."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import opened
from tests.support.hostile_run import ID, OUTSIDE, SECRET, SHOWN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

VERIFIED = "owner__shop-0"
WIDTHS = (360, 768, 1440)


def visible_rows(page: Page) -> list[str]:
    return page.locator("table.rows tbody th a").all_inner_texts()


def wait_for_heading(page: Page, text: str) -> None:
    """Wait for the page of an instance: the browser shows it after the click has returned."""
    page.locator("h2:visible").get_by_text(text, exact=True).wait_for()


def overflow(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def test_filters_narrow_the_table_and_stand_in_the_address(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        assert len(visible_rows(page)) == 40
        page.locator("select[name=verdict]").select_option("regressed")
        regressed = visible_rows(page)
        assert 0 < len(regressed) < 40
        assert page.get_by_role("status").inner_text() == f"{len(regressed)} of 40 instances"
        page.locator("select[name=project]").select_option("owner/shop")
        assert set(visible_rows(page)) == {n for n in regressed if n.startswith("owner__shop")}
        assert "verdict=regressed" in page.url
        page.reload()
        assert set(visible_rows(page)) == {n for n in regressed if n.startswith("owner__shop")}
        page.get_by_role("button", name="Reset").click()
        page.locator("table.rows tbody tr").nth(39).wait_for()
        page.locator("[name=q]").fill("acme search TEXT")
        assert visible_rows(page)
        assert all(name.startswith("acme__ledger-") for name in visible_rows(page))
        assert all("search text" in t for t in page.locator("td.why").all_inner_texts())
        page.locator("[name=q]").fill("nothing is called so")
        assert visible_rows(page) == []
        assert page.get_by_text("No instance fits all of these.").is_visible()
        page.get_by_role("button", name="Reset").click()
        page.locator("select[name=resolved]").select_option("yes")
        cells = page.locator('td[data-label="Resolved"]').all_inner_texts()
        assert set(cells) == {"yes"}


def _natural(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return stem, int(number)


def test_columns_sort_both_ways_with_the_unknown_last(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        button = page.get_by_role("button", name="Cost")
        cells = page.locator('td[data-label="Cost"]')

        def costs() -> list[float | None]:
            values = [cell.get_attribute("data-v") for cell in cells.all()]
            return [float(value) if value else None for value in values]

        button.click()
        falling = costs()
        known = [cost for cost in falling if cost is not None]
        assert None in falling
        assert falling == [*sorted(known, reverse=True), *[None] * falling.count(None)]
        header = page.locator('th[data-column="cost"]')
        assert header.get_attribute("aria-sort") == "descending"
        button.press("Enter")
        assert costs() == [*sorted(known), *[None] * falling.count(None)]
        assert header.get_attribute("aria-sort") == "ascending"
        page.get_by_role("button", name="Instance").click()
        assert visible_rows(page) == sorted(visible_rows(page), key=_natural)


def test_a_deep_link_opens_its_instance_and_back_leads_to_the_table(
    browser: Browser, report: Path
) -> None:
    with opened(browser, report, f"#{VERIFIED}") as page:
        wait_for_heading(page, VERIFIED)
        assert page.title().startswith(VERIFIED)
        page.get_by_role("link", name="All instances").click()
        page.locator("table.rows").wait_for()
        page.locator("select[name=verdict]").select_option("verified")
        page.get_by_role("button", name="Time").click()
        order = visible_rows(page)
        page.evaluate("scrollTo(0, 1e6)")
        before = page.evaluate("scrollY")
        page.locator("table.rows tbody th a").nth(1).click()
        wait_for_heading(page, order[1])
        assert page.evaluate("scrollY") == 0
        page.get_by_role("link", name="Next").click()
        wait_for_heading(page, order[2])
        page.go_back()
        wait_for_heading(page, order[1])
        page.go_back()
        page.locator("table.rows").wait_for()
        assert visible_rows(page) == order
        assert page.evaluate("scrollY") == pytest.approx(before, abs=2)
        assert page.evaluate("document.activeElement.textContent") == order[1]
        page.go_forward()
        wait_for_heading(page, order[1])


def test_causes_lead_to_their_instances(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        page.locator(".causes a", has_text="not applied").click()
        page.locator("table.rows tbody tr").nth(39).wait_for(state="detached")
        assert visible_rows(page)
        kinds = page.locator("td.why b").all_inner_texts()
        assert set(kinds) == {"no-match"}
        page.go_back()
        page.locator("table.rows tbody tr").nth(39).wait_for()
        assert len(visible_rows(page)) == 40


def test_an_instance_shows_all_its_parts(browser: Browser, report: Path) -> None:
    with opened(browser, report, f"#{VERIFIED}") as page:
        headings = page.locator("h3:visible").all_inner_texts()
        assert headings == [
            "Outcome", "Evaluation", "Tests", "Patch", "The reply's own test", "Attempts", "Issue",
            "Context", "Calls", "Time", "Log",
        ]  # fmt: skip
        text = page.locator("main").inner_text()
        assert "lexical 3.27 (1 of 31 by words in common)" in text
        assert "base, selected tests" in text
        assert page.locator(".added .yc").inner_text() == "# The price of nothing is nothing."
        page.get_by_text("Prompt 1").click()
        assert page.get_by_text("You repair programs.").is_visible()


def test_without_scripts_everything_can_be_read(browser: Browser, report: Path) -> None:
    with opened(browser, report, scripts=False) as page:
        assert len(visible_rows(page)) == 40
        assert page.locator("#\\/filters").is_hidden()
        holder = page.locator("section.pages > details").first
        assert holder.locator("h2").is_hidden()
        holder.locator("> summary").click()
        assert holder.locator("h2").inner_text() == VERIFIED
        page.goto(f"{report.as_uri()}#acme__ledger-1")
        linked = page.locator("article[id='acme__ledger-1']")
        assert linked.locator("h2").is_visible()
        prompt = linked.locator("details:has(h4)")
        assert prompt.locator("pre").first.is_hidden()
        prompt.locator("summary").click()
        assert prompt.locator("pre").first.inner_text() == "You repair programs."


@pytest.mark.parametrize("anchor", ["", "#owner__shop-0", "#owner__shop-6"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(
    browser: Browser, report: Path, hostile: Path, width: int, anchor: str
) -> None:
    for path in (report, hostile):
        with opened(browser, path, anchor, width=width) as page:
            page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
            assert overflow(page) <= 0


def test_dark_and_light_have_their_own_colours(browser: Browser, report: Path) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        with opened(browser, report, scheme=scheme) as page:  # type: ignore[arg-type]
            style = "getComputedStyle(document.body)"
            seen[scheme] = [
                _brightness(page.evaluate(f"{style}.{name}"))
                for name in ("backgroundColor", "color")
            ]
    assert seen["light"][0] > 240 > 60 > seen["light"][1]
    assert seen["dark"][0] < 40 < 200 < seen["dark"][1]


def _brightness(colour: str) -> float:
    parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    return sum(parts) / 3


def test_hostile_texts_are_shown_and_do_nothing(browser: Browser, hostile: Path) -> None:
    for scripts in (True, False):
        with opened(browser, hostile, scripts=scripts) as page:
            for link in page.locator("table.rows tbody th a").all():
                page.goto(f"{hostile.as_uri()}{link.get_attribute('href')}")
            page.goto(f"{hostile.as_uri()}#{VERIFIED}")
            _open_all(page)
            text = page.locator("main").inner_text()
            assert SHOWN in text
            assert "<script>window.pwned=1</script>" in text
            if scripts:
                assert page.evaluate("window.pwned") is None
            assert page.locator("main iframe, main img, main script").count() == 0
            page.wait_for_timeout(100)
    written = hostile.read_bytes()
    assert SECRET.encode() not in written
    assert OUTSIDE.encode() not in written
    assert b"\x00" not in written
    assert ID.encode() not in written


def _open_all(page: Page) -> None:
    """By clicks, as scripts may be off."""
    article = page.locator(f"article[id={VERIFIED}]")
    if not article.is_visible():
        page.locator("section.pages > details > summary").first.click()
    for holder in article.locator("details").all():
        if holder.get_attribute("open") is None:
            holder.locator("summary").click()


def test_the_keyboard_reaches_what_the_mouse_does(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator("[name=q]").focus()
        page.keyboard.type("owner__shop-0")
        assert visible_rows(page) == [VERIFIED]
        page.locator("table.rows tbody th a").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.textContent") == VERIFIED


def test_images_and_controls_have_names(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        assert page.locator("html").get_attribute("lang") == "en"
        for image in page.locator("svg[role=img]").all():
            labelled = image.get_attribute("aria-labelledby") or ""
            named = [page.locator(f'[id="{one}"]').text_content() for one in labelled.split()]
            assert image.get_attribute("aria-label") or all(named)
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input, select')].filter(e => !e.labels.length).length"
        )
        assert unnamed == 0
        levels = [int(h[1]) for h in page.evaluate(
            "[...document.querySelectorAll('h1, h2, h3')].map(e => e.tagName)"
        )]  # fmt: skip
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))


def test_print_leaves_controls_out(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        page.emulate_media(media="print")
        assert page.locator("form.filters").is_hidden()
        assert page.locator("table.rows").is_visible()


def test_a_thousand_instances_are_no_burden(browser: Browser, large: Path) -> None:
    with opened(browser, large) as page:
        assert page.get_by_role("status").inner_text() == "1,000 instances"
        took = page.evaluate(
            """() => {
              const field = document.querySelector("[name=q]");
              const begin = performance.now();
              for (const text of ["acme", "acme s", "", "timeout", ""]) {
                field.value = text;
                field.dispatchEvent(new Event("input", {bubbles: true}));
                document.body.offsetHeight;
              }
              return (performance.now() - begin) / 5;
            }"""
        )
        assert took < 400  # milliseconds, on a busy machine; a tenth of it when idle
        assert len(visible_rows(page)) == 300
        page.get_by_role("button", name="Show more").click()
        assert len(visible_rows(page)) == 600
        begin = time.monotonic()
        page.goto(f"{large.as_uri()}#acme__ledger-991")
        wait_for_heading(page, "acme__ledger-991")
        assert time.monotonic() - begin < 10
