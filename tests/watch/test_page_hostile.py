"""Words of models, candidates and task names: they are shown, and never anything else."""

from __future__ import annotations

from typing import Any

import page_sample
import pytest
from page_sample import PageSample
from page_server import Serve
from sample_report import report_page
from seen_page import OpenPage

ATTACK = "<img src=x onerror=alert(1)></script><script>alert(2)</script>${alert(3)}&lt;b&gt;\u202e"
WORDS = "<img src=x onerror=alert(1)>"


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> PageSample:
    """A run whose every text is an attack."""
    monkeypatch.setattr(page_sample, "TASK", ATTACK)
    run = PageSample(8, name=ATTACK)
    run.under_way()
    run.task |= {"name": ATTACK, "device": ATTACK}
    run.run |= {"reason": ATTACK, "model": ATTACK}
    for node in run.nodes.values():
        node |= {"task": ATTACK, "idea": ATTACK, "reason": ATTACK, "kind": ATTACK}
    for attempt in run.attempts:
        attempt |= {"slot": ATTACK, "stage": ATTACK}
    run.directives = [
        {
            "key": ATTACK,
            "verb": ATTACK,
            "task": ATTACK,
            "node": 1,
            "arguments": ATTACK,
            "by": ATTACK,
            "wanted_at": 1.0,
            "state": "refused",
            "reason": ATTACK,
            "applied_at": None,
        }
    ]
    plain = run.node
    run.node = lambda number: attacked(plain(number))  # type: ignore[method-assign]
    return run


def attacked(value: Any) -> Any:
    """Return a value with an attack in each of its texts."""
    if isinstance(value, dict):
        return {name: attacked(part) for name, part in value.items()}
    if isinstance(value, list):
        return [attacked(part) for part in value]
    return f"{ATTACK}\n{value}" if isinstance(value, str) else value


def routes() -> list[str]:
    from urllib.parse import quote

    task = quote(ATTACK, safe="")
    tabs = ("verdict", "source", "diff", "plan", "calls", "log", "profile", "cost")
    nodes = [f"node/{task}/1/{tab}" for tab in tabs]
    return ["tree", "best", "fleet", "compare", "directives", *nodes]


def test_hostile_text_stays_text(hostile: PageSample, serve: Serve, open_page: OpenPage) -> None:
    """In every view and tab an attack is read as text: no element and no script comes of it."""
    seen = open_page(serve(hostile, steer=True).link)
    seen.wait(".virtual-row")
    assert WORDS in seen.text(".headline")
    for route in routes():
        seen.go(f"#/{route}")
        seen.page.wait_for_timeout(60)
        assert 0 == seen.page.locator("img").count(), route
        assert 0 == seen.page.locator("#app script").count(), route
    assert WORDS in seen.text(".tab-panel")


def test_hostile_text_in_a_report(hostile: PageSample, open_page: OpenPage, tmp_path: Any) -> None:
    """A report that opens from disk holds the same texts as harmlessly."""
    path = tmp_path / "report.html"
    path.write_text(report_page(hostile), encoding="utf-8")
    seen = open_page(path.as_uri())
    for route in routes():
        seen.go(f"#/{route}")
        seen.page.wait_for_timeout(60)
        assert 0 == seen.page.locator("img").count(), route
    assert WORDS in seen.text("#app")
