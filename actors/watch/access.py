"""Which requests are answered: checked before any route, for every request.

Loopback is not a boundary: any web page that the user visits can send requests to it, also under a
name of its own that it lets point there (DNS rebinding), and any user of the machine can connect.
So a request must name this server in `Host`, must come from this server's own page, and must carry
the token, which only the printed address has.  What it does not protect against: a process of the
same user, which can read the run folder anyway.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from protocol.values import Value

TOKEN_BYTES = 32
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
API = "/api/"
SESSION = "/api/session"
MAX_SESSION_BODY = 4 * 1024
MAX_BODY = 8 << 20  # a directive with a source
METHODS = ("GET", "HEAD", "POST")
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Refusal(Value, frozen=True, kw_only=True):
    """Why a request is not answered."""

    status: int
    error: str


class AccessPolicy:
    """The rules for one server."""

    def __init__(self, *, token: str, names: Iterable[str], port: int, is_tls: bool) -> None:
        """`names`: the hosts by which the page may be opened, without a port."""
        self._token = token.encode()
        self._names = frozenset(name.casefold() for name in names)
        self._scheme = "https" if is_tls else "http"
        self._cookie = f"stark-{port}"  # browsers share cookies between the ports of a host

    def refusal(self, method: str, path: str, headers: Headers) -> Refusal | None:
        """Return why a request is refused; None if it may be answered."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._names:
            return Refusal(status=421, error="this server has another name: open its own address")
        if method not in METHODS:
            return Refusal(status=405, error="only GET and POST are answered")
        if path.startswith(API) and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return Refusal(status=403, error="another site's page asks: open this server's own")
        if method == "POST":
            refused = self._post_refusal(path, hosts[0], headers)
            if refused is not None:
                return refused
        if path.startswith(API) and path != SESSION and not self._has_token(headers):
            return Refusal(status=401, error="no valid token: open the address that watch printed")
        return None

    def _post_refusal(self, path: str, host: str, headers: Headers) -> Refusal | None:
        if headers.getlist("origin") != [f"{self._scheme}://{host}"]:
            return Refusal(status=403, error="Origin is not this server's own page")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return Refusal(status=415, error="a POST holds JSON: Content-Type: application/json")
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers:
            length = ""  # a body in chunks may be longer than it says
        if not (length.isascii() and length.isdigit()):
            return Refusal(status=411, error="a POST names its Content-Length")
        most = MAX_SESSION_BODY if path == SESSION else MAX_BODY
        if len(length) > len(str(most)) or int(length) > most:
            return Refusal(status=413, error=f"the body has more than {most} bytes")
        return None

    def is_token(self, token: str) -> bool:
        """Whether `token` is the server's; the time it takes says nothing about it."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self._token)

    def set_cookie(self, response: Response) -> None:
        """Let the browser that has shown the token send it with each request from now on."""
        response.set_cookie(
            self._cookie,
            self._token.decode(),
            httponly=True,
            samesite="strict",
            secure=self._scheme == "https",
            path="/",
        )

    def _has_token(self, headers: Headers) -> bool:
        bearer = headers.get("authorization", "")
        if bearer.startswith("Bearer "):
            return self.is_token(bearer.removeprefix("Bearer "))
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and self.is_token(found.value)


class AccessControl:
    """Asks the policy about each request before the application sees it; adds security headers."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # the server speaks neither WebSocket nor the lifespan protocol

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = self._policy.refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refused is None:
            await self._app(scope, receive, send_with_headers)
        else:
            answer = JSONResponse({"error": refused.error}, refused.status)
            await answer(scope, receive, send_with_headers)


def new_token() -> str:
    """Return a fresh secret of 256 bits."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port; "" where it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
