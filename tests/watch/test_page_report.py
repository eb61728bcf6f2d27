"""The page inside report.html: one file that opens from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from page_sample import TASK, PageSample
from sample_report import report_page
from seen_page import OpenPage


@pytest.fixture
def report(tmp_path: Path) -> tuple[PageSample, str]:
    """A finished run, and the address of its report."""
    run = PageSample(24)
    run.finish()
    path = tmp_path / "report.html"
    path.write_text(report_page(run), encoding="utf-8")
    return run, path.as_uri()


def test_report_begins_with_its_static_part(
    report: tuple[PageSample, str], open_page: OpenPage
) -> None:
    """The report opens with the part that needs no script; other views take its place.

    No view is wider than its window.
    """
    run, address = report
    best = run.task["best"]
    seen = open_page(address)
    seen.wait(".views")
    assert "The static report." in seen.text("main.report")
    seen.page.get_by_role("link", name="Tree").click()
    seen.wait(".virtual-row")
    assert not seen.page.locator("main.report").is_visible()
    seen.page.get_by_role("link", name="Report").click()
    seen.wait("main.report")
    for width in (320, 1280):  # a phone and a desk
        seen.page.set_viewport_size({"width": width, "height": 800})
        for route in ("report", "tree", "best", "fleet", "compare", f"node/{TASK}/{best}/source"):
            seen.go(f"#/{route}")
            seen.page.wait_for_timeout(50)
            assert 0 >= seen.overflow(), (route, width)


def test_report_has_whole_nodes(report: tuple[PageSample, str], open_page: OpenPage) -> None:
    """Sources, differences, prompts and replies are in the file, and its figures are the run's."""
    run, address = report
    best = run.task["best"]
    seen = open_page(f"{address}#/node/{TASK}/{best}/diff?against=root")
    seen.wait_for_text(".diff .added", "class ModelNew(nn.Module)")
    assert "The winner is" in seen.text(".headline")
    seen.go(f"#/node/{TASK}/{best}/source")
    seen.wait(".text-view .lines")
    assert run.source(best).rstrip("\n") == seen.page.locator(
        ".text-view .lines"
    ).inner_text().rstrip("\n")
    seen.go(f"#/node/{TASK}/{best}/calls")
    seen.page.get_by_role("button", name="Prompt").click()
    seen.wait_for_text(".call .lines", "You write code.")
    seen.go("#/directives")
    seen.wait_for_text(".panel", "This file only shows the run")


def test_report_without_scripts(report: tuple[PageSample, str], browser: Any) -> None:
    """Where scripts are off, the static part is there and nothing is hidden."""
    _, address = report
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("main.report").is_visible()
    context.close()
