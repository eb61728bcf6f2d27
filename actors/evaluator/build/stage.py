"""The build stage, the judge's side: have the candidate imported where there is no device.

What that compiles stays in the candidate's own folder, where its runner finds it ready.
`python -m actors.evaluator.build FILE` builds one file by hand and prints what took how long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from actors.evaluator.fastbuild import (
    BuildSlots,
    BuildStore,
    BuildTimeoutError,
    ResultCache,
    slots_here,
)
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure, EvaluationCancelledError
from actors.evaluator.sandbox.zygote_client import ZygoteClient, JudgeUnavailableError
from actors.evaluator.sandbox.child_failures import CandidateFault, fault_from_child
from actors.evaluator.ipc.orders import Confinement, ImportSource, CandidateRaised
from actors.evaluator.ipc.runner_orders import FromRunner
from protocol.values import DeviceKind, Stage, Value

EXTENSIONS = "extensions"  # in the candidate's folder, as its environment says
SLOT_S = 600.0
NO_MODULES: Mapping[str, str] = MappingProxyType({})


class BuildResult(Value, frozen=True, kw_only=True):
    """A candidate that has been through the build stage, in its own folder."""

    confinement: Confinement
    fault: CandidateFault | None = None
    seconds: float = 0.0
    ran_out_of_memory: bool = False  # it was killed for want of memory

    @property
    def has_folder(self) -> bool:
        """Whether its folder is: that goes with the zygote that built in it."""
        return Path(self.confinement.folder).is_dir()


class BuildStage:
    """How one candidate is built: where, from when on it is kept, and who still wants it."""

    def __init__(
        self,
        zygote: ZygoteClient,
        confinement: Confinement,
        source: str,
        *,
        device: DeviceKind,
        store: BuildStore | None,
        toolkit: str,
        is_cancelled: Callable[[], bool],
        modules: Mapping[str, str] = NO_MODULES,
    ) -> None:
        """`modules`: what lies beside the candidate as it lay beside the task."""
        self.confinement = confinement
        self._zygote = zygote
        self._source = source
        self._modules = dict(modules)
        self._device = device
        self._store = store
        self._is_cancelled = is_cancelled
        self._extensions = Path(confinement.folder) / EXTENSIONS
        self._result_cache = ResultCache(store.results) if store and toolkit else None
        self._key = (
            self._result_cache.key(_whole(source, modules), toolkit, confinement.environment)
            if self._result_cache
            else ""
        )

    def run(self, build_s: float) -> BuildResult:
        """Build what importing the source builds, or take it from the store of results.

        It is imported in any case: what it does besides `load` and `load_inline` is done then.
        """
        with self._slot():
            began = time.monotonic()
            if self._result_cache:
                self._result_cache.copy_to(self._key, self._extensions)
            fault, starved = self._import(build_s)
            # The builder's whole tree is gone: nothing changes any more under the copy.
            if self._result_cache and fault is None:
                self._result_cache.store(self._key, self._extensions)
            return BuildResult(
                confinement=self.confinement,
                fault=fault,
                seconds=time.monotonic() - began,
                ran_out_of_memory=starved,
            )

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold one of the places that this machine's memory has for builds."""
        if self._store is None:
            yield
            return
        try:
            with BuildSlots(self._store.slots, slots_here()).acquired(SLOT_S, self._wait):
                yield
        except BuildTimeoutError as error:
            raise JudgeUnavailableError(str(error)) from None

    def _wait(self) -> None:
        if self._is_cancelled():
            raise EvaluationCancelledError

    def _import(self, build_s: float) -> tuple[CandidateFault | None, bool]:
        builder: ChildClient[FromRunner] = self._zygote.spawn(
            "builder", self.confinement, FromRunner, trusted=False, is_cancelled=self._is_cancelled
        )
        zygote = self._zygote.pid
        order = ImportSource(source=self._source, class_name="ModelNew", modules=self._modules)
        try:
            answer = builder.ask(order, build_s)
        finally:
            builder.kill()
        output = builder.output.text()
        if isinstance(answer, ChildFailure):
            if answer.how == "lost" and self._zygote.pid != zygote:
                raise JudgeUnavailableError("the builds' zygote was replaced")
            stage: Stage = "build" if answer.how == "timed_out" else "import"
            return fault_from_child(answer, stage, output), answer.how == "memory"
        said = answer[0]
        # With a card, an import that fails for want of one is the runner's to try again.
        if isinstance(said, CandidateRaised) and (said.compiling or self._device == "cpu"):
            return fault_from_child(said, "import", output), False
        return None, False


def _whole(source: str, modules: Mapping[str, str]) -> str:
    """Return all the text that a build depends on."""
    return "\0".join([source, *(text for pair in sorted(modules.items()) for text in pair)])
