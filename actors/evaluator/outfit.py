"""The outfit of fast builds: toolkit and precompiled headers, prepared by trusted code in time.

The judge's side: a child that never sees a candidate does it, once for each machine, torch and
family of flags; where it fails, builds are torch's own.  It is asked at the first candidate that
builds with torch's headers, or earlier by who knows that there will be one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from actors.evaluator import evidence
from actors.evaluator.fastbuild import asked
from actors.evaluator.fastbuild.family import Family
from actors.evaluator.isolation.child import Child, Gone, Unwanted
from actors.evaluator.isolation.nursery import Nursery
from actors.evaluator.wire.orders import Confinement, FromFurnisher, Furnish, Furnished

PREPARE_S = 300.0
GRACE_S = 10.0  # its own limit comes first: it says why
LOOK_S = 0.2
TRIES = 2


class Outfit:
    """What one judge knows of the toolkit that its candidates are built with."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._making = threading.Lock()
        self._toolkit = ""
        self._families: set[Family] = set()
        self._failures = 0

    def ready(
        self,
        source: str,
        nursery: Nursery,
        confinement: Callable[[], Confinement],
        unwanted: Callable[[], bool],
        *,
        cuda: bool,
    ) -> str:
        """Return the key of the toolkit for `source`, prepared if need be; "" for torch's way."""
        if not asked.needs_headers(source) or self._failures >= TRIES:
            return self._toolkit
        wanted = asked.families(source, cuda=cuda)
        if self._toolkit and wanted <= self._families:
            return self._toolkit
        while not self._making.acquire(timeout=LOOK_S):
            if unwanted():
                raise Unwanted
        try:
            missing = wanted - self._families
            if (missing or not self._toolkit) and self._failures < TRIES:
                self._prepare(missing, nursery, confinement(), unwanted)
                self._families |= missing  # once: what did not work will not
        finally:
            self._making.release()
        return self._toolkit

    def _prepare(
        self,
        families: frozenset[Family],
        nursery: Nursery,
        confinement: Confinement,
        unwanted: Callable[[], bool],
    ) -> None:
        maker: Child[Furnished] = nursery.spawn(
            "builder", confinement, FromFurnisher, trusted=False, unwanted=unwanted
        )
        try:
            answer = maker.ask(
                Furnish(families=tuple(families), limit_s=PREPARE_S), PREPARE_S + GRACE_S
            )
        finally:
            maker.kill()
        if isinstance(answer, Gone):
            words = answer.said()
        elif isinstance(answer[0], Furnished) and answer[0].toolkit:
            self._toolkit = answer[0].toolkit
            return
        else:
            words = getattr(answer[0], "words", "")
        self._failures += 1
        if self._failures == 1:
            self._say(f"fast builds are off, torch builds: {evidence.one_line(words)}")
