"""A page in a browser, and everything that a user must never see happen in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

REPORT_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


class SeenPage:
    """A playwright page that remembers errors, policy violations and requests to other hosts."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.is_server_killed = False  # the browser then complains about refused connections
        page.add_init_script(REPORT_VIOLATIONS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("request", self._request)
        page.on("dialog", self._dialog)

    def text(self, selector: str) -> str:
        """Return the text of an element, as a reader sees it, with single spaces."""
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def go(self, fragment: str) -> None:
        """Follow a link within the page."""
        self.page.evaluate("fragment => { location.hash = fragment }", fragment)

    def wait(self, selector: str) -> Any:
        """Wait until an element is seen."""
        found = self.page.locator(selector).first
        found.wait_for(state="visible", timeout=15_000)
        return found

    def wait_for_text(self, selector: str, text: str) -> None:
        """Wait until an element has a text."""
        self.page.locator(selector).filter(has_text=text).first.wait_for(timeout=15_000)

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def complaints(self) -> list[str]:
        """Return everything that must not happen."""
        violations = (
            self.page.evaluate("window.violations ?? []") if not self.page.is_closed() else []
        )
        return [*self.errors, *(f"policy: {one}" for one in violations), *self.elsewhere]

    def _console(self, message: Any) -> None:
        if message.type not in ("error", "warning"):
            return
        if self.is_server_killed and "net::ERR_" in message.text:
            return
        self.errors.append(f"console: {message.text} {message.location.get('url', '')}")

    def _request(self, request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("http", "https", "ws", "wss") and url.hostname != "127.0.0.1":
            self.elsewhere.append(f"request: {request.url}")

    def _dialog(self, dialog: Any) -> None:
        self.errors.append(f"a script ran: {dialog.message}")
        dialog.dismiss()


OpenPage = Callable[..., SeenPage]
