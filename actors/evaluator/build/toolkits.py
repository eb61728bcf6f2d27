"""The toolkit of fast builds, precompiled headers included, prepared by trusted code in time.

The judge's side.  A child that never sees a candidate prepares it, once for each machine, torch and
flag set; if that fails, torch's own build is used.  It is prepared before the first candidate that
builds with torch's headers, or earlier if such a candidate is known to come.  Headers for further
flag sets are prepared while builds go on, where the machine has cores for both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from actors.evaluator.fastbuild import FlagSet, flag_sets_of, needs_headers
from actors.evaluator.ipc import logs
from actors.evaluator.ipc.orders import (
    Confinement,
    FromToolkitBuilder,
    PrepareToolkit,
    ToolkitPrepared,
)
from actors.evaluator.sandbox.child_client import (
    ChildClient,
    ChildFailure,
    EvaluationCancelledError,
)
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError, ZygoteClient

PREPARE_S = 300.0
GRACE_S = 10.0  # the child's own limit comes first, because its answer gives the reason
POLL_S = 0.2
TOLD_AFTER_S = 3.0  # headers that are there already are found in less
MAX_TRIES = 2


@contextmanager
def told_if_long(log_line: Callable[[str], None], after_s: float = TOLD_AFTER_S) -> Iterator[None]:
    """Tell what a build waits for, if the body takes longer than `after_s`."""
    text = "preparing torch's headers for fast builds: once for this machine, torch and flags"
    waiting = threading.Timer(after_s, log_line, [text])
    waiting.daemon = True
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()


class ToolkitProvider:
    """The toolkit that one judge's candidates are built with."""

    def __init__(self, log_line: Callable[[str], None]) -> None:
        self._log_line = log_line
        self._lock = threading.Lock()
        self._toolkit = ""
        self._prepared_flag_sets: set[FlagSet] = set()
        self._ordered: set[FlagSet] = set()  # flag sets that are prepared while builds go on
        self._failures = 0

    def toolkit_for(
        self,
        source: str,
        zygote: ZygoteClient,
        confinement: Callable[[], Confinement],
        is_cancelled: Callable[[], bool],
        *,
        cuda: bool,
        is_background_over: Callable[[], bool] | None = None,
    ) -> str:
        """Return the key of the toolkit for `source`, prepared if need be; "" for torch's build.

        `confinement` makes that of the child that prepares it.  `is_background_over`:
        flag sets that a toolkit lacks are prepared while `source` is built without them, until this
        returns True; None: the build waits for them.
        """
        if not needs_headers(source) or self._failures >= MAX_TRIES:
            return self._toolkit
        wanted = flag_sets_of(source, cuda=cuda)
        if self._toolkit and wanted <= self._prepared_flag_sets:
            return self._toolkit
        if self._toolkit and is_background_over is not None:
            self._order(wanted, zygote, confinement, is_background_over)
            return self._toolkit
        self._prepare_missing(wanted, zygote, confinement, is_cancelled)
        return self._toolkit

    def _order(
        self,
        wanted: frozenset[FlagSet],
        zygote: ZygoteClient,
        confinement: Callable[[], Confinement],
        is_over: Callable[[], bool],
    ) -> None:
        """Prepare flag sets on a thread of their own, each of them once."""
        missing = wanted - self._ordered
        self._ordered |= missing
        if not missing:
            return

        def prepare() -> None:
            # The builds do without; a judge that ends needs no headers.
            with suppress(EvaluationCancelledError, JudgeUnavailableError):
                self._prepare_missing(missing, zygote, confinement, is_over)

        threading.Thread(target=prepare, daemon=True).start()

    def _prepare_missing(
        self,
        wanted: frozenset[FlagSet],
        zygote: ZygoteClient,
        confinement: Callable[[], Confinement],
        is_cancelled: Callable[[], bool],
    ) -> None:
        """Prepare what is not there yet, one after the other; raise when it is cancelled."""
        while not self._lock.acquire(timeout=POLL_S):
            if is_cancelled():
                raise EvaluationCancelledError
        try:
            missing = wanted - self._prepared_flag_sets
            if (missing or not self._toolkit) and self._failures < MAX_TRIES:
                self._prepare(missing, zygote, confinement(), is_cancelled)
                self._prepared_flag_sets |= missing  # tried once, also if that failed
        finally:
            self._lock.release()

    def _prepare(
        self,
        flag_sets: frozenset[FlagSet],
        zygote: ZygoteClient,
        confinement: Confinement,
        is_cancelled: Callable[[], bool],
    ) -> None:
        builder: ChildClient[ToolkitPrepared] = zygote.spawn(
            "builder", confinement, FromToolkitBuilder, trusted=False, is_cancelled=is_cancelled
        )
        began = time.monotonic()
        try:
            with told_if_long(self._log_line):
                answer = builder.ask(
                    PrepareToolkit(families=tuple(flag_sets), limit_s=PREPARE_S),
                    PREPARE_S + GRACE_S,
                )
        finally:
            builder.kill()
        if isinstance(answer, ChildFailure):
            reason = answer.readable()
        elif isinstance(answer[0], ToolkitPrepared) and answer[0].toolkit:
            self._toolkit = answer[0].toolkit
            seconds = time.monotonic() - began
            if seconds >= TOLD_AFTER_S:
                self._log_line(f"torch's headers are prepared ({seconds:.0f} s)")
            return
        else:
            reason = getattr(answer[0], "words", "")
        self._failures += 1
        if self._failures == 1:
            self._log_line(f"fast builds are off, torch builds: {logs.one_line(reason)}")
