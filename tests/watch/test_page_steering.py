"""The forms of the page: what a person asks is submitted as it was meant, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from page_sample import TASK, PageSample
from page_server import PageServer, Serve
from seen_page import OpenPage, SeenPage


@pytest.fixture(scope="module")
def shared_server() -> Iterator[PageServer]:
    """A server of a small run that takes directives."""
    server = PageServer(PageSample(8), steer=True)
    yield server
    server.kill()


@pytest.fixture
def server(shared_server: PageServer) -> PageServer:
    """The same server; nothing was submitted to it."""
    shared_server.submitted.clear()
    return shared_server


@pytest.fixture(scope="module")
def shared_page(shared_server: PageServer, open_shared_page: OpenPage) -> SeenPage:
    return open_shared_page(shared_server.link)


@pytest.fixture
def seen(shared_page: SeenPage) -> SeenPage:
    """One page, on another view than the forms."""
    shared_page.go("#/tree")
    shared_page.wait(".virtual-row")
    return shared_page


def test_reading_page_has_no_forms(serve: Serve, open_page: OpenPage) -> None:
    """Without --steer there is no verb anywhere, and the page says how to get them."""
    run = PageSample(8)
    seen = open_page(serve(run).link)
    seen.wait(".virtual-row")
    seen.go("#/directives")
    seen.wait_for_text(".panel", "Start watch with --steer")
    assert 0 == seen.page.locator(".actions").count()
    seen.go(f"#/node/{TASK}/3")
    seen.wait(".tab-panel")
    assert 0 == seen.page.locator(".actions").count()


def test_pin_is_submitted_once(server: PageServer, seen: SeenPage) -> None:
    """A verb without danger takes two clicks and arrives with its node and a key."""
    seen.go(f"#/node/{TASK}/3")
    seen.page.get_by_role("button", name="Pin").click()
    seen.page.locator(".directive-form").get_by_role("button", name="Pin").click()
    seen.wait_for_text(".said", "Pin: wanted")
    (directive,) = server.submitted
    assert ("pin", TASK, 3, {}) == (
        directive["verb"],
        directive["task"],
        directive["node"],
        directive["arguments"],
    )
    assert 16 == len(directive["key"])


def test_destructive_verb_is_confirmed(server: PageServer, seen: SeenPage) -> None:
    """Finish is sent after a dialog only; to cancel it, also by Escape, sends nothing."""
    seen.go("#/directives")
    finish = seen.page.locator(".directive-form").get_by_role("button", name="Finish")
    seen.page.get_by_role("button", name="Finish").click()
    finish.click()
    seen.wait("dialog")
    seen.page.keyboard.press("Escape")
    seen.page.locator("dialog").wait_for(state="detached")
    finish.click()
    seen.page.locator("dialog").get_by_role("button", name="Cancel").click()
    assert [] == server.submitted
    finish.click()
    seen.page.locator("dialog").get_by_role("button", name="Finish").click()
    seen.wait_for_text(".said", "wanted")
    assert ["finish"] == [directive["verb"] for directive in server.submitted]
    assert ("", None) == (server.submitted[0]["task"], server.submitted[0]["node"])


def test_arguments_of_a_verb(server: PageServer, seen: SeenPage) -> None:
    """Numbers are sent as numbers, and a required argument that is missing is asked for."""
    seen.go("#/directives")
    seen.page.get_by_role("button", name="Cap").click()
    send = seen.page.locator(".directive-form").get_by_role("button", name="Cap")
    send.click()
    assert [] == server.submitted
    seen.page.get_by_label("USD").fill("7.5")
    send.click()
    seen.wait_for_text(".said", "wanted")
    assert {"usd": 7.5} == server.submitted[0]["arguments"]


def test_directives_are_listed_with_their_states(serve: Serve, open_page: OpenPage) -> None:
    """A refused directive shows its reason, an applied one how long it took."""
    run = PageSample(8)
    common = {"task": TASK, "arguments": "{}", "by": "ada", "wanted_at": 100.0, "node": None}
    common |= {"reason": "", "applied_at": None}
    applied = {"key": "a", "verb": "pin", "node": 3, "state": "applied", "applied_at": 100.4}
    refused = {"key": "b", "verb": "prune", "state": "refused", "reason": "there is no node 99"}
    wanted = {"key": "c", "verb": "pause", "task": "", "state": "wanted"}
    run.directives = [common | row for row in (applied, refused, wanted)]
    seen = open_page(serve(run).link)
    seen.wait(".virtual-row")
    seen.go("#/directives")
    text = seen.text(".directives-view")
    assert "applied after 0.4 s" in text
    assert "there is no node 99" in text
    assert "wanted" in text


def test_a_question_to_a_person_is_shown_before_it_is_answered(
    serve: Serve, open_page: OpenPage
) -> None:
    """The page says that a call waits, shows the agent's request as text, and takes the answer."""
    run = PageSample(8)
    run.questions = {"coder-7-abc": "# Write it\n<img src=x onerror=alert(1)>"}
    run.run["questions"] = list(run.questions)
    server = serve(run, steer=True)
    seen = open_page(f"{server.link}&/directives")
    seen.wait_for_text(".notice", "waits for a person's answer")
    seen.page.locator(".question summary").click()
    seen.wait_for_text(".question .lines", "<img src=x onerror=alert(1)>")
    seen.page.get_by_role("button", name="Answer").click()
    seen.page.get_by_label("reply").fill("## Candidate")
    seen.page.locator(".directive-form").get_by_role("button", name="Answer").click()
    seen.wait_for_text(".said", "wanted")
    assert {"question": "coder-7-abc", "text": "## Candidate"} == server.submitted[0]["arguments"]
