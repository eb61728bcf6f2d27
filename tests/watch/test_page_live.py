"""The page while its run goes on, and while its server does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from page_sample import TASK, PageSample
from page_server import Serve
from seen_page import OpenPage


def test_growth_is_seen(serve: Serve, open_page: OpenPage) -> None:
    """An attempt that ends appears in headline, rows and open node without a reload."""
    run = PageSample(10)
    seen = open_page(serve(run).link)
    seen.wait_for_text(".headline", "10 of 30 attempts are done")
    seen.page.get_by_label("Search the attempts").fill("#11")
    seen.wait(".rows .empty")
    run.grow(verdict="wrong", reason="grown under an open page", speedup=None, low=None, high=None)
    seen.wait_for_text(".headline", "11 of 30 attempts are done")
    seen.wait_for_text(".virtual-row", "grown under an open page")


def test_pause_and_end_are_said(serve: Serve, open_page: OpenPage) -> None:
    """A paused, an unserved and a finished run are told apart from one that runs."""
    run = PageSample(10)
    run.under_way()
    seen = open_page(serve(run).link)
    seen.wait_for_text(".status", "running")
    for change, where, text in (
        ({"paused": True}, ".notice", "paused"),
        ({"paused": False, "is_served": False}, ".notice", "No coordinator runs"),
    ):
        run.run |= change
        run.seq += 1
        seen.wait_for_text(where, text)
    run.run |= {"is_served": True, "person": {"pin": 2, "finish": 1}}
    run.finish()
    seen.wait_for_text(".headline", "A person steered it: pin 2 times, finish.")
    seen.wait_for_text(".headline", "The run is over: the attempt budget has ended.")
    seen.wait_for_text(".headline", "The winner is")


def test_server_killed_in_the_middle_of_a_stream(serve: Serve, open_page: OpenPage) -> None:
    """A page whose server dies says so, keeps what it has, and goes on where it stopped."""
    run = PageSample(10)
    server = serve(run)
    seen = open_page(server.link)
    seen.wait_for_text(".link-state", "live")
    seen.is_server_killed = True
    server.kill()
    seen.wait_for_text(".notice", "Connection lost")
    assert "10 of 30" in seen.text(".headline")
    before = run.seq
    run.grow()
    server.paths.clear()
    server.start()
    seen.wait_for_text(".headline", "11 of 30 attempts are done")
    seen.wait_for_text(".link-state", "live")
    asked = [path for path in server.paths if "since" in path or "stream" in path]
    assert asked
    assert not [path for path in asked if path.endswith("seq=0")], (
        f"all was read again, not from {before}"
    )


def test_other_run_in_the_same_folder_replaces_the_old(serve: Serve, open_page: OpenPage) -> None:
    """A run.db that was replaced under an open page leaves nothing of the old run on it."""
    run = PageSample(10)
    server = serve(run)
    seen = open_page(server.link)
    seen.wait_for_text(".headline", "10 of 30")
    other = PageSample(3, seed=99)
    other.run["id"] = run.run["id"]
    other.seq = run.seq + 5
    other.changed = dict.fromkeys(other.changed, other.seq)
    server.samples[run.run["id"]] = other
    run.seq += 1
    seen.is_server_killed = True
    server.kill()
    server.start()
    seen.wait_for_text(".headline", "3 of 30 attempts are done")
    seen.wait_for_text(".count", "4")


def test_hidden_page_holds_no_stream(serve: Serve, open_page: OpenPage) -> None:
    """A hidden tab closes its stream, and reads what it missed when it is seen again."""
    run = PageSample(10)
    server = serve(run)
    seen = open_page(server.link)
    seen.wait_for_text(".link-state", "live")
    hide(seen, is_hidden=True)
    until(seen, lambda: server.streams == 0)
    run.grow()
    hide(seen, is_hidden=False)
    seen.wait_for_text(".headline", "11 of 30 attempts are done")
    until(seen, lambda: server.streams == 1)


@pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.long)])
def test_tabs_of_one_browser_share_a_stream(count: int, serve: Serve, open_page: OpenPage) -> None:
    """All tabs see growth over one stream, also after the tab that reads it has closed."""
    run = PageSample(10)
    server = serve(run)
    first = open_page(server.link)
    first.wait_for_text(".link-state", "live")
    tabs = [first.page, *(first.page.context.new_page() for _ in range(count - 1))]
    for tab in tabs[1:]:
        tab.goto(server.address)
        tab.locator(".virtual-row").first.wait_for()
    assert 1 == server.most_streams
    run.grow()
    for tab in tabs:
        tab.locator(".headline").filter(has_text="11 of 30").wait_for()
    tabs.pop(1).close()
    reader = tabs.pop(0)
    reader.goto("about:blank")
    run.grow()
    for tab in tabs:
        tab.locator(".headline").filter(has_text="12 of 30").wait_for()
        tab.evaluate(f"location.hash = '#/node/{TASK}/3'")
        tab.locator(".tab-panel").first.wait_for()
    assert server.streams <= 1


@pytest.mark.long
def test_page_that_is_open_for_long_does_not_grow(serve: Serve, open_page: OpenPage) -> None:
    """Thousands of changes leave the document and the memory of the page as they were."""
    run = PageSample(60, budget=100)
    run.under_way()
    seen = open_page(serve(run).link)
    seen.wait(".virtual-row")
    session = seen.page.context.new_cdp_session(seen.page)
    session.send("HeapProfiler.enable")

    def used() -> tuple[int, int]:
        for _ in range(300):
            run.seq += 1
            seen.page.wait_for_timeout(10)
        session.send("HeapProfiler.collectGarbage")
        heap = session.send("Runtime.getHeapUsage")["usedSize"]
        return heap, seen.page.evaluate("document.querySelectorAll('*').length")

    for view in ("fleet", "best", "tree"):
        seen.go(f"#/{view}")
        used()
    before = used()
    for view in ("fleet", "best", "compare", "tree") * 2:
        seen.go(f"#/{view}")
        after = used()
    assert after[0] < before[0] * 1.3
    assert after[1] <= before[1] + 20


@pytest.mark.long
def test_large_run_stays_small_in_the_document(serve: Serve, open_page: OpenPage) -> None:
    """10,000 nodes: the document holds what is in sight; keys, search and growth answer."""
    run = PageSample(10_000, budget=12_000)
    seen = open_page(serve(run).link)
    seen.wait_for_text(".headline", "10,000 of 12,000 attempts are done")
    elements = "document.querySelectorAll('*').length"
    assert 900 > seen.page.evaluate(elements)
    seen.wait_for_text(".folded-note", "folded; the list has all")
    rows = seen.page.locator(".virtual-rows")
    rows.focus()
    seen.page.keyboard.press("End")
    seen.wait_for_text(".virtual-row.is-active", "")
    assert "10001" == seen.page.locator(".virtual-row.is-active").get_attribute("aria-rowindex")
    for _ in range(40):
        seen.page.keyboard.press("PageUp")
    rows.evaluate("rows => { rows.scrollTop = rows.scrollHeight / 2 }")
    seen.page.get_by_label("Search the attempts").fill("#7777")
    seen.wait_for_text(".virtual-row .row-number", "7777")
    seen.page.get_by_label("Search the attempts").fill("")
    seen.page.get_by_label("Order").select_option("fastest")
    for _ in range(5):
        run.grow()
    seen.wait_for_text(".headline", "10,005 of 12,000 attempts are done")
    seen.go("#/best")
    seen.wait(".curve-chart canvas")
    assert 1500 > seen.page.evaluate(elements)


def hide(seen: Any, *, is_hidden: bool) -> None:
    """Let the page believe that its tab is hidden, as a browser tells it."""
    seen.page.evaluate(
        """hidden => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
      }""",
        is_hidden,
    )


def until(seen: Any, is_so: Callable[[], bool]) -> None:
    """Wait for something on the server."""
    for _ in range(200):
        if is_so():
            return
        seen.page.wait_for_timeout(50)
    raise AssertionError("it did not happen within 10 s")
