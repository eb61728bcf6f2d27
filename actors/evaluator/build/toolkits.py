"""The outfit of fast builds: toolkit and precompiled headers, prepared by trusted code in time.

The judge's side: a child that never sees a candidate does it, once for each machine, torch and
family of flags; where it fails, builds are torch's own.  It is asked at the first candidate that
builds with torch's headers, or earlier by who knows that there will be one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from actors.evaluator.ipc import logs
from actors.evaluator.fastbuild import FlagSet, flag_sets_of, needs_headers
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure, EvaluationCancelledError
from actors.evaluator.sandbox.zygote_client import ZygoteClient
from actors.evaluator.ipc.orders import Confinement, FromToolkitBuilder, PrepareToolkit, ToolkitPrepared

PREPARE_S = 300.0
GRACE_S = 10.0  # its own limit comes first: it says why
POLL_S = 0.2
MAX_TRIES = 2


class ToolkitProvider:
    """What one judge knows of the toolkit that its candidates are built with."""

    def __init__(self, log_line: Callable[[str], None]) -> None:
        self._say = log_line
        self._lock = threading.Lock()
        self._toolkit = ""
        self._prepared_flag_sets: set[FlagSet] = set()
        self._failures = 0

    def toolkit_for(
        self,
        source: str,
        zygote: ZygoteClient,
        confinement: Callable[[], Confinement],
        is_cancelled: Callable[[], bool],
        *,
        cuda: bool,
    ) -> str:
        """Return the key of the toolkit for `source`, prepared if need be; "" for torch's way."""
        if not needs_headers(source) or self._failures >= MAX_TRIES:
            return self._toolkit
        wanted = flag_sets_of(source, cuda=cuda)
        if self._toolkit and wanted <= self._prepared_flag_sets:
            return self._toolkit
        while not self._lock.acquire(timeout=POLL_S):
            if is_cancelled():
                raise EvaluationCancelledError
        try:
            missing = wanted - self._prepared_flag_sets
            if (missing or not self._toolkit) and self._failures < MAX_TRIES:
                self._prepare(missing, zygote, confinement(), is_cancelled)
                self._prepared_flag_sets |= missing  # once: what did not work will not
        finally:
            self._lock.release()
        return self._toolkit

    def _prepare(
        self,
        families: frozenset[FlagSet],
        zygote: ZygoteClient,
        confinement: Confinement,
        is_cancelled: Callable[[], bool],
    ) -> None:
        maker: ChildClient[ToolkitPrepared] = zygote.spawn(
            "builder", confinement, FromToolkitBuilder, trusted=False, is_cancelled=is_cancelled
        )
        try:
            answer = maker.ask(
                PrepareToolkit(families=tuple(families), limit_s=PREPARE_S), PREPARE_S + GRACE_S
            )
        finally:
            maker.kill()
        if isinstance(answer, ChildFailure):
            words = answer.readable()
        elif isinstance(answer[0], ToolkitPrepared) and answer[0].toolkit:
            self._toolkit = answer[0].toolkit
            return
        else:
            words = getattr(answer[0], "words", "")
        self._failures += 1
        if self._failures == 1:
            self._say(f"fast builds are off, torch builds: {logs.one_line(words)}")
