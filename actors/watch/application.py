"""The routes of the server: page files, the runs' data, and directives.

Every answer is made of the printed address's runs, found by opaque identifiers; no part of a
request ever becomes a path.  `AccessControl` stands before all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from actors.supervisor.page.page_files import PageFile
from actors.supervisor.reporting.feed.run_feed import RunUnreadableError
from actors.watch.access import AccessPolicy
from actors.watch.served_run import ServedRun
from protocol.directives import (
    DirectiveArguments,
    DirectiveError,
    Verb,
    new_directive,
    submit_directive,
)
from protocol.questions import question_text
from protocol.values import Value

MAX_NUMBER = 2**53  # beyond it a page can't tell two numbers apart
MAX_STREAMS = 64
BODY_S = 10.0
BY_PAGE = "page"
Body = TypeVar("Body", bound=Value)


class SessionRequest(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /api/session."""

    token: str


class DirectiveRequest(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /api/run/RUN/directives."""

    key: str
    verb: Verb
    task: str | None = None
    node: int | None = None
    arguments: DirectiveArguments = DirectiveArguments()


class WatchApplication:
    """The server's state: its runs by identifier, the page's files, and whether it may steer."""

    def __init__(
        self,
        *,
        runs: Mapping[str, ServedRun],
        files: Mapping[str, PageFile],
        policy: AccessPolicy,
        may_steer: bool,
    ) -> None:
        self._runs = runs
        self._files = files
        self._policy = policy
        self._may_steer = may_steer
        self._streams = 0
        self._is_ending = False

    def end_streams(self) -> None:
        """Let all streams end; safe to call from a signal handler."""
        self._is_ending = True

    def starlette(self) -> Starlette:
        """Return the application."""
        run = "/api/run/{run}"
        return Starlette(
            routes=[
                Route("/api/session", self.session, methods=["POST"]),
                Route("/api/runs", self.runs),
                Route(f"{run}/since", self.since),
                Route(f"{run}/stream", self.stream),
                Route(f"{run}/node/{{task}}/{{number:int}}", self.node),
                Route(f"{run}/question/{{name}}", self.question),
                Route(f"{run}/directives", self.directives, methods=["POST"]),
                Route("/{name:path}", self.page_file),
            ],
            exception_handlers={
                HTTPException: _error_answer,
                RunUnreadableError: _unreadable_answer,
            },
        )

    # --- the page ----------------------------------------------------------------------------

    async def page_file(self, request: Request) -> Response:
        """Answer with a file of the page: it holds no data of a run and needs no token."""
        file = self._files.get(request.path_params["name"] or "index.html")
        if file is None:
            raise HTTPException(404, "there is no such page")
        return Response(file.content, media_type=file.media_type)

    async def session(self, request: Request) -> Response:
        """Give a browser that knows the token a cookie."""
        body = await _body(request, SessionRequest)
        if not self._policy.is_token(body.token):
            raise HTTPException(401, "the token is not this server's: open the printed address")
        response = Response(status_code=204)
        self._policy.set_cookie(response)
        return response

    # --- the data ----------------------------------------------------------------------------

    async def runs(self, _request: Request) -> Response:
        """Answer with all runs."""
        found = []
        for identifier, run in self._runs.items():
            await run.refresh()
            summary, tasks = run.feed.summary, run.feed.task_names
            found.append(
                {
                    "id": identifier,
                    "name": summary.name,
                    "status": summary.status,
                    "tasks": tasks,
                }
            )
        return JSONResponse({"runs": found, "steer": self._may_steer})

    async def since(self, request: Request) -> Response:
        """Answer with what has changed after a number."""
        content = await self._run(request).since(_number(request.query_params.get("seq", "0")))
        return Response(content, media_type="application/json")

    async def stream(self, request: Request) -> Response:
        """Stream what changes; a page that connects again says where it was."""
        run = self._run(request)
        last = request.headers.get("last-event-id") or request.query_params.get("seq", "0")
        if self._streams >= MAX_STREAMS:
            raise HTTPException(503, f"{MAX_STREAMS} pages are open already: close some")
        return StreamingResponse(
            self._counted_stream(run, _number(last)), media_type="text/event-stream"
        )

    async def _counted_stream(self, run: ServedRun, seq: int) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async for event in run.stream(seq, lambda: self._is_ending):
                yield event
        finally:
            self._streams -= 1

    async def node(self, request: Request) -> Response:
        """Answer with all that is known of a node."""
        number = request.path_params["number"]
        content = None
        if number < MAX_NUMBER:
            content = await self._run(request).node(request.path_params["task"], number)
        if content is None:
            raise HTTPException(404, "there is no such attempt")
        return Response(content, media_type="application/json")

    async def question(self, request: Request) -> Response:
        """Answer with the text of a model call that waits for a person."""
        run_dir, name = self._run(request).run_dir, request.path_params["name"]
        text = await asyncio.to_thread(question_text, run_dir, name)
        if text is None:
            raise HTTPException(404, "there is no such question")
        return JSONResponse({"name": name, "text": text})

    # --- steering ----------------------------------------------------------------------------

    async def directives(self, request: Request) -> Response:
        """Take a directive for the coordinator, which alone applies or refuses it."""
        if not self._may_steer:
            raise HTTPException(405, "this page only shows: start watch with --steer")
        run = self._run(request)
        body = await _body(request, DirectiveRequest)
        if not body.key:  # a page that repeats its request must not act twice
            raise HTTPException(400, "key: a directive needs one, chosen by the page")
        try:
            directive = new_directive(
                body.verb,
                key=body.key,
                task=body.task or "",
                node=body.node,
                arguments=body.arguments,
                by=BY_PAGE,
            )
            key = await asyncio.to_thread(submit_directive, run.run_dir, directive)
        except DirectiveError as error:
            raise HTTPException(400, str(error)) from error
        except OSError as error:
            reason = f"the run folder can't be written: {error.strerror}"
            raise HTTPException(503, reason) from error
        return JSONResponse({"key": key}, 202)

    def _run(self, request: Request) -> ServedRun:
        run = self._runs.get(request.path_params["run"])
        if run is None:
            raise HTTPException(404, "there is no such run here")
        return run


async def _body(request: Request, kind: type[Body]) -> Body:
    """Return the body of a POST; its length was checked before."""
    try:
        content = await asyncio.wait_for(request.body(), BODY_S)
        return msgspec.json.decode(content, type=kind)
    except TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive within {BODY_S:g} s") from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"not as expected: {error}") from error


def _number(text: str) -> int:
    """Return the number of a change; 0, which asks for everything, where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


async def _error_answer(_request: Request, error: Exception) -> Response:
    status, detail = 500, "a fault"
    if isinstance(error, HTTPException):
        status, detail = error.status_code, error.detail
    return JSONResponse({"error": detail}, status)


async def _unreadable_answer(_request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 503, {"retry-after": "1"})
