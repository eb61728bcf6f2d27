"""The page's views in a browser, over a sample run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_sample import TASK, PageSample
from page_server import PageServer, Serve
from seen_page import OpenPage, SeenPage

HERE = Path(__file__).parent
VIEWS = ("tree", "best", "fleet", "compare", "directives")
TABS = ("verdict", "source", "diff", "plan", "calls", "log", "profile", "cost")


@pytest.fixture(scope="module")
def sample() -> PageSample:
    """A run of 24 attempts of which three more are under way."""
    run = PageSample(24)
    run.under_way()
    return run


@pytest.fixture(scope="module")
def server(sample: PageSample) -> Iterator[PageServer]:
    """A server that shows the run, and takes directives."""
    server = PageServer(sample, steer=True)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def shared_page(server: PageServer, open_shared_page: OpenPage) -> SeenPage:
    return open_shared_page(server.link)


@pytest.fixture
def seen(shared_page: SeenPage) -> SeenPage:
    """The page of all tests that load nothing: on the view of the tree, at a desk."""
    shared_page.page.set_viewport_size({"width": 1280, "height": 800})
    shared_page.go("#/tree")
    shared_page.wait(".drawing canvas")
    shared_page.page.get_by_label("Search the attempts").fill("")
    shared_page.wait(".virtual-row")
    return shared_page


def failed(sample: PageSample) -> dict[str, Any]:
    return next(node for node in sample.nodes.values() if node["verdict"] != "correct")


def test_headline_answers_the_first_questions(sample: PageSample, seen: SeenPage) -> None:
    """The page alone says which idea is best, what the run cost, and what runs now."""
    text = seen.text(".headline")
    best = sample.nodes[sample.task["best"]]
    assert f"attempt {best['number']}: {best['speedup']:.2f}×" in text
    assert best["idea"].rstrip(".") in text
    assert "24 of 30 attempts are done" in text
    assert f"{sample.run['usd']:.2f} USD of 5.00 USD" in text
    assert "write on coder-0" in text


def test_token_leaves_the_address(server: PageServer, seen: SeenPage) -> None:
    """The token is exchanged for a cookie: it is in no path, and not left in the address."""
    assert "token" not in seen.page.url
    assert [] == [path for path in server.paths if "token" in path]


def test_page_without_a_token_says_what_to_do(
    sample: PageSample, serve: Serve, open_page: OpenPage
) -> None:
    """A page that may not read says so, and what to open instead."""
    seen = open_page(serve(sample).address)
    assert "Open the address that watch printed" in seen.wait(".notice").inner_text()
    seen.errors.clear()  # the browser itself reports a status of 401


def test_reason_of_a_failed_attempt(sample: PageSample, seen: SeenPage) -> None:
    """The rows and the node say why an attempt failed."""
    node = failed(sample)
    seen.page.get_by_label("Search the attempts").fill(str(node["number"]))
    seen.wait_for_text(".virtual-row", node["reason"][:20])
    seen.go(f"#/node/{TASK}/{node['number']}")
    seen.wait_for_text(".node-reason", node["reason"])


def test_deep_link_opens_a_tab(sample: PageSample, serve: Serve, open_page: OpenPage) -> None:
    """The address of a tab leads to it, also in a new window."""
    best = sample.task["best"]
    seen = open_page(f"{serve(sample).link}&/node/{TASK}/{best}/diff?against=root")
    seen.wait_for_text(".diff .removed", "class Model(nn.Module)")
    assert "#/node" in seen.page.url


def test_every_tab_of_a_node(sample: PageSample, seen: SeenPage) -> None:
    """Each tab shows its part of the node."""
    best = sample.task["best"]
    expected = {
        "verdict": "3 fresh inputs", "source": "load_inline", "diff": "added", "plan": "anchors",
        "calls": "planner", "profile": "floor", "cost": "evaluator-0",
    }  # fmt: skip
    for tab, text in expected.items():
        seen.go(f"#/node/{TASK}/{best}/{tab}")
        seen.wait_for_text(".tab-panel", text)
    seen.go(f"#/node/{TASK}/{failed(sample)['number']}/log")
    seen.wait_for_text(".tab-panel", "nvcc -O3")


@pytest.mark.parametrize("width", [320, pytest.param(768, marks=pytest.mark.long), 1280])
def test_no_view_scrolls_sideways(width: int, sample: PageSample, seen: SeenPage) -> None:
    """On a phone, a tablet and a desk no view is wider than its window."""
    seen.page.set_viewport_size({"width": width, "height": 800})
    for view in VIEWS:
        seen.go(f"#/{view}")
        seen.page.wait_for_timeout(50)
        assert 0 >= seen.overflow(), view
    for tab in TABS:
        seen.go(f"#/node/{TASK}/{sample.task['best']}/{tab}")
        seen.wait(".tab-panel")
        assert 0 >= seen.overflow(), tab


def test_keyboard_alone(seen: SeenPage) -> None:
    """The rows, a node, its tabs and the way back need no pointer, and the focus is always seen."""
    keyboard = seen.page.keyboard
    seen.page.locator(".virtual-rows").focus()
    for _ in range(3):
        keyboard.press("ArrowDown")
    number = int(seen.text(".virtual-row.is-active .row-number"))
    keyboard.press("Enter")
    seen.wait_for_text(".node-header h2", f"Attempt {number}:")
    for _ in range(60):
        keyboard.press("Tab")
        if seen.page.evaluate("document.activeElement.role === 'tab'"):
            break
        outline = seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert "none" != outline
    keyboard.press("ArrowRight")
    assert "Source" == seen.page.evaluate("document.activeElement.textContent")
    seen.page.go_back()
    seen.wait(".virtual-row")


def test_keyboard_in_the_drawing(
    sample: PageSample, server: PageServer, open_page: OpenPage
) -> None:
    """Arrow keys walk the drawn tree; what is selected there is said in words."""
    seen = open_page(server.link)
    seen.wait(".virtual-row")
    seen.page.locator(".drawing canvas").focus()
    seen.page.keyboard.press("ArrowRight")
    seen.wait_for_text(".selected", "Node 0")
    seen.page.keyboard.press("ArrowRight")
    child = min(node["number"] for node in sample.nodes.values() if node["parent"] == 0)
    seen.wait_for_text(".selected", f"Node {child}")
    seen.page.keyboard.press("Enter")
    seen.wait_for_text(".node-header h2", f"Attempt {child}:")


def test_filters(sample: PageSample, seen: SeenPage) -> None:
    """A filter leaves exactly the attempts that match."""
    verdict = seen.page.get_by_label("Verdict", exact=True)
    verdict.select_option("failed")
    expected = sum(node["verdict"] != "correct" for node in sample.nodes.values())
    seen.wait_for_text(".count", f"{expected} of 25")
    verdict.select_option("")
    seen.page.get_by_label("Search the attempts").fill("no such words anywhere")
    seen.wait_for_text(".rows .empty", "No attempt matches")


def test_figures_that_were_not_measured(serve: Serve, open_page: OpenPage) -> None:
    """null is a dash or nothing: no view shows NaN, undefined, null or a broken page."""
    run = PageSample(6)
    for name in (
        "speedup",
        "low",
        "high",
        "us",
        "usd",
        "tokens",
        "build_s",
        "check_s",
        "timing_s",
        "idea",
        "at",
    ):
        for node in run.nodes.values():
            node[name] = None
    run.run |= {"usd": None, "cap_usd": None, "seconds": None, "minutes": None}
    run.task |= {"best": None, "eager_us": None, "floor_us": None, "device": None}
    run.node = lambda number: {"summary": run.nodes[number], "calls": [], "stages": []}  # type: ignore[method-assign]
    seen = open_page(serve(run).link)
    seen.wait(".virtual-row")
    routes = [
        *VIEWS,
        *(f"node/{TASK}/{number}/{tab}" for number in (0, 1, 2) for tab in ("verdict", "cost")),
    ]
    for route in routes:
        seen.go(f"#/{route}")
        seen.page.wait_for_timeout(80)
        text = seen.text("body")
        assert [] == [word for word in ("NaN", "undefined", "null", "Infinity") if word in text], (
            route
        )


def test_run_without_a_node(serve: Serve, open_page: OpenPage) -> None:
    """While the reference is measured the page says so in every view."""
    run = PageSample(0)
    run.nodes.clear()
    run.changed.clear()
    run.seq = 1
    measure = {"task": TASK, "number": 0, "parent": 0, "kind": "measure", "stage": "measure"}
    run.attempts = [measure | {"slot": "evaluator-0", "role": "evaluator", "since": run.started}]
    seen = open_page(serve(run).link)
    seen.wait_for_text(".empty", "The reference is measured first")
    seen.wait_for_text(".headline", "Running now: the reference (measure on evaluator-0")
    seen.go(f"#/node/{TASK}/0")
    seen.wait_for_text(".empty", "The reference is being measured")
    for view in VIEWS[1:]:
        seen.go(f"#/{view}")
        seen.page.wait_for_timeout(50)
        assert "STARK" in seen.text("body")


def test_several_runs_over_one_another(
    sample: PageSample, serve: Serve, open_page: OpenPage
) -> None:
    """Several runs are drawn over one another and compared at the budget of the shortest."""
    other = PageSample(12, seed=11, name="other-run")
    seen = open_page(serve(sample, other).link)
    seen.wait(".virtual-row")
    seen.go("#/best")
    seen.wait_for_text(".legend", "other-run")
    seen.go("#/compare")
    seen.wait_for_text(".compare-view thead", "after 12 attempts")
    seen.page.get_by_label("Run", exact=True).select_option(label="other-run")
    seen.wait_for_text(".headline", "12 of 30 attempts are done")


def test_diff_of_two_nodes_is_a_diff(seen: SeenPage) -> None:
    """Equal and removed lines are the old text, equal and added ones the new; it is minimal."""
    wrong = seen.page.evaluate((HERE / "diff_check.js").read_text(encoding="utf-8"))
    assert [] == wrong
