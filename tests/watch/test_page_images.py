"""The pictures of the page in docs/images: made by `STARK_DOC_IMAGES=docs/images pytest …`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from page_sample import TASK, PageSample
from page_server import Serve
from png_palette import with_palette
from sample_report import report_page
from seen_page import OpenPage

TOP = Path(__file__).parents[2]
LARGEST = 80 * 1024
SIZE = {"width": 1180, "height": 720}
IMAGES = ("page-tree", "page-node", "page-best", "page-fleet", "report")


def keep(seen: Any, name: str) -> None:
    """Check that the screenshot shows something; write it where pictures are asked for."""
    png = seen.page.screenshot()
    assert len(png) > 10_000
    folder = os.environ.get("STARK_DOC_IMAGES")
    if folder:
        (TOP / folder / f"{name}.png").write_bytes(with_palette(png))


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


@pytest.mark.parametrize("name", IMAGES)
def test_images_in_docs_are_small(name: str) -> None:
    """Each picture is there, has a screen's width and at most 80 KB."""
    png = (TOP / "docs" / "images" / f"{name}.png").read_bytes()
    assert len(png) <= LARGEST
