"""A run, a server that shows it, and a browser: Debian's chromium, which playwright drives."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_server import PageServer, Serve
from seen_page import OpenPage, SeenPage
from synthetic_run import write_run
from watch_client import WatchClient, watching

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "whole"), str(TESTS / "supervisor")]  # supervisor_command, _sample
CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One chromium for all tests; skipped where it or playwright is missing."""
    reason = "playwright is not installed: pip install -e '.[dev]'"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@contextmanager
def opened_pages(browser: Any) -> Iterator[OpenPage]:
    """Yield a function that opens a page; at the end none of them has complained."""
    opened: list[SeenPage] = []

    def open_at(
        address: str, *, width: int = 1280, height: int = 800, scheme: str = "light"
    ) -> SeenPage:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        opened.append(SeenPage(context.new_page()))
        opened[-1].page.goto(address)
        return opened[-1]

    yield open_at
    complaints = [complaint for seen in opened for complaint in seen.complaints()]
    for seen in opened:
        seen.page.context.close()
    assert [] == complaints


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Return a function that opens a page."""
    with opened_pages(browser) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def open_shared_page(browser: Any) -> Iterator[OpenPage]:
    """Return a function that opens a page for several tests: to load one takes a second."""
    with opened_pages(browser) as open_page:
        yield open_page


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server over sample runs."""
    started: list[PageServer] = []

    def start(*samples: Any, **options: Any) -> PageServer:
        started.append(PageServer(*samples, **options))
        return started[-1]

    yield start
    for server in started:
        if server.is_up:
            server.kill()


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with eight nodes."""
    return write_run(tmp_path_factory.mktemp("runs") / "one", 8)


@pytest.fixture(scope="module")
def client(run_dir: Path) -> Iterator[WatchClient]:
    """A client of a server that shows this run."""
    with watching(run_dir) as found:
        yield found
