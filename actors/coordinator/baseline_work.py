"""The measuring of torch.compile's times: background work, one piece for each task.

The search does not wait for these times and does not know of them.  A run is over only when they
are there, or when it is known why one is missing.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from actors.coordinator.gateway.work_messages import ROLE_OF, work_id
from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.scheduling.work_queue import Placement
from actors.coordinator.search.attempt_stages import Stage
from actors.coordinator.search.tree import ROOT
from actors.coordinator.storage.directive_store import DirectiveStore
from actors.coordinator.storage.store import Store
from protocol.messages import BaselinesMeasured


class BaselineWork:
    """The tasks whose baselines are still to be measured."""

    def __init__(
        self,
        store: Store,
        directives: DirectiveStore,
        scheduler: Scheduler,
        record_event: Callable[[str, str, str], None],
    ) -> None:
        """`record_event` takes (what, subject, detail)."""
        self._store = store
        self._directives = directives
        self._scheduler = scheduler
        self._event = record_event
        self._pending: set[str] = set()

    @property
    def is_done(self) -> bool:
        """Whether no task waits for its baselines."""
        return not self._pending

    def offer(self, task: str) -> None:
        """Queue the work of a measured task whose baselines are pending."""
        reference = self._store.reference(task)
        if reference is None or not reference.baselines_pending:
            return
        self._pending.add(task)
        self._scheduler.enqueue(
            work_id(task, ROOT, Stage.BASELINES),
            ROLE_OF[Stage.BASELINES],
            Placement(kind=reference.device.fingerprint, is_background=True, is_last=True),
        )

    def forget(self, task: str) -> None:
        """Do not wait for the baselines of a task that a person gave up."""
        self._pending.discard(task)

    def record(self, task: str, measured: BaselinesMeasured) -> None:
        """Store a task's baselines, and the place of this moment among the decisions."""
        figures = (measured.compile_us, measured.max_autotune_us)
        self._settle(task, figures, measured.note)

    def fail(self, task: str, reason: str) -> None:
        """Store why a task has no baselines."""
        self._settle(task, (None, None), f"torch.compile was not measured: {reason}")

    def _settle(self, task: str, figures: tuple[float | None, float | None], note: str) -> None:
        reference = self._store.reference(task)
        if reference is None or task not in self._pending:
            return
        self._pending.discard(task)
        self._store.set_baselines(
            task,
            replace(
                reference,
                compile_us=figures[0],
                max_autotune_us=figures[1],
                baselines_pending=False,
                baselines_note=note,
                baselines_decided=self._directives.last_decision(),
            ),
        )
        self._event("baselines", task, note)
