"""Pictures of page, report and terminal: `STARK_DOC_IMAGES=docs/images pytest -m long FILE`."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from page_sample import TASK, PageSample
from page_server import Serve
from png_palette import with_palette
from rich.console import Console
from rich.terminal_theme import MONOKAI
from sample_report import report_page
from seen_page import OpenPage
from supervisor_sample import Sample

from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.worker_status import WorkerStatus
from actors.supervisor.reporting.screens.live_view import LiveScreen
from protocol.settings import Settings

TOP = Path(__file__).parents[2]
LARGEST = 80 * 1024
SIZE = {"width": 1180, "height": 720}
IMAGES = ("page-tree", "page-node", "page-best", "page-fleet", "report", "terminal")


def keep(seen: Any, name: str) -> None:
    """Check that the screenshot shows something; write it where pictures are asked for."""
    png = seen.page.screenshot()
    assert len(png) > 10_000
    folder = os.environ.get("STARK_DOC_IMAGES")
    if folder:
        (TOP / folder / f"{name}.png").write_bytes(with_palette(png))


@pytest.mark.long  # what they show has its own tests
@pytest.mark.timeout(600)  # a picture that is kept takes some seconds to be made small
def test_screenshots(serve: Serve, open_page: OpenPage, tmp_path: Path) -> None:
    """Tree, node, best so far and fleet of a live run, and the report of an ended one."""
    run = PageSample(24)
    run.under_way()
    best = run.task["best"]
    seen = open_page(serve(run).link, **SIZE)
    seen.wait(".virtual-row")
    seen.page.locator(".virtual-row", has_text="rejected").first.click()
    keep(seen, "page-tree")
    for name, route in (
        ("page-node", f"node/{TASK}/{best}"),
        ("page-best", "best"),
        ("page-fleet", "fleet"),
    ):
        seen.go(f"#/{route}")
        seen.wait({"page-node": ".timing", "page-best": "canvas"}.get(name, ".meters"))
        seen.page.wait_for_timeout(150)
        keep(seen, name)
    run.finish()
    path = tmp_path / "report.html"
    path.write_text(report_page(run), encoding="utf-8")
    seen = open_page(f"{path.as_uri()}#/node/{TASK}/{best}/diff", **SIZE)
    seen.wait(".diff")
    keep(seen, "report")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_screenshot_of_the_terminal(open_page: OpenPage, tmp_path: Path) -> None:
    """The live view, with its colours, as a terminal of 100 columns shows it."""
    sample = Sample(tmp_path / "run", names=("gelu",), budget=30, status="running")
    sample.add_call("gelu/1/plan", 0.5)
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    assert snapshot is not None
    workers = tuple(
        WorkerStatus(slot=slot, activity=doing, state="up", pid=pid, restarts=0, seconds=seconds)
        for slot, doing, pid, seconds in (
            ("coder-0", "writing gelu/7", 4711, 21.0),
            ("coordinator", "", 4702, 75.0),
            ("evaluator-0", "timing gelu/6", 4715, 2.0),
        )
    )
    console = Console(
        file=io.StringIO(), record=True, force_terminal=True, width=100, height=32,
        color_system="truecolor", legacy_windows=False, _environ={},
    )  # fmt: skip
    screen = LiveScreen(console, Settings(max_cost=5.0), "runs/gelu", clock=lambda: 12.0)
    screen.show(snapshot, workers, 75.0)
    html = console.export_html(theme=MONOKAI, inline_styles=True)
    screen.close()
    reader.close()
    sample.db.close()
    path = tmp_path / "terminal.html"
    path.write_text(html, encoding="utf-8")
    seen = open_page(path.as_uri(), width=990, height=410)
    seen.wait_for_text("pre", "best is node 3: 2.50×")
    keep(seen, "terminal")


@pytest.mark.parametrize("name", IMAGES)
def test_images_in_docs_are_small(name: str) -> None:
    """Each picture is there, has a screen's width and at most 80 KB."""
    png = (TOP / "docs" / "images" / f"{name}.png").read_bytes()
    assert len(png) <= LARGEST
