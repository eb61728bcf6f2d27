"""The judge: measures tasks and judges candidates, one at a time, and survives all of them.

It never imports torch or candidate code.  It holds one warm zygote and the standard of the task at
hand; whichever dies is replaced.  What a candidate does wrong is a `Verdict`, what is wrong with a
task is a `Problem`; `Unjudgeable` means that the world failed twice, `Unwanted` that nobody waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.evaluator import baselines, sandbox, surroundings
from actors.evaluator import device as devices
from actors.evaluator.child import Child, Gone, Unwanted
from actors.evaluator.layout import describe
from actors.evaluator.nursery import Nursery, Unjudgeable
from actors.evaluator.orders import Confinement, Describe, Described, FromReferee, Unfit
from actors.evaluator.scratch import Scratch
from actors.evaluator.standard import Problem, Standard
from actors.evaluator.trial import Trial
from protocol.settings import Limits
from protocol.values import Device, DeviceKind, Reference, Task, Verdict, Word

T = TypeVar("T")

PROCESSES = 1024  # of one candidate, threads counted; a compiler needs a few dozen
FILE_GIB = 4
CUDA_DATA_GIB = 64.0  # CUDA maps much more than it uses
BUILD_JOBS = 4
CLOSE_S = 3.0


def never() -> bool:
    """The answer to "is it unwanted?" by hand."""
    return False


def silent(_words: str = "") -> None:
    """Say nothing."""


class Judge:
    """One device's judge."""

    def __init__(
        self,
        device: DeviceKind,
        limits: Limits,
        scratch_root: Path,
        *,
        hide: tuple[Path, ...] = (),
        compile_baselines: bool = False,
        least: int = 0,
    ) -> None:
        self.kind = device
        self.limits = limits
        self.scratch = Scratch(scratch_root)
        self.compile_baselines = compile_baselines
        private = map(Path, surroundings.SHARED)
        self._hide = surroundings.hidden([*hide, Path.home(), *private])
        self._keep = surroundings.needed()
        self._nursery = Nursery(
            device, self.scratch.root, limits.output_kib * 1024, least=least, hide=self._hide
        )
        self._standard: Standard | None = None
        self._device: Device | None = None
        self._busy = threading.Lock()
        self._closing = False

    @property
    def zygote_pid(self) -> int | None:
        return self._nursery.pid

    @property
    def level(self) -> int:
        """The level of the sandbox that candidates are judged in."""
        return self._nursery.ready.level

    @property
    def device(self) -> Device:
        """What results are measured on; raises `Unjudgeable` where there is no such device."""
        if self._device is None:
            self._device = devices.of_cpu() if self.kind == "cpu" else self._ask_device()
        return self._device

    def _ask_device(self) -> Device:
        with ExitStack() as stack:
            confinement = self._confinement("device", stack, trusted=True)
            referee: Child[FromReferee] = self._nursery.spawn(
                "referee", confinement, FromReferee, trusted=True
            )
            try:
                answer = referee.ask(Describe(), self.limits.import_s)
            finally:
                referee.kill()
        if isinstance(answer, Gone):
            raise Unjudgeable(f"the device can't be asked: {answer.said()}")
        if isinstance(answer[0], Described):
            return answer[0].device
        raise Unjudgeable(answer[0].words if isinstance(answer[0], Unfit) else "no device")

    # --- work --------------------------------------------------------------------------------

    def measure(self, task: Task, unwanted: Callable[[], bool] = never) -> Reference | Problem:
        """Measure a task's own module; raise `Unjudgeable` or `Unwanted`."""
        return self._twice(lambda: self._measure(task), unwanted)

    def judge(
        self,
        task: Task,
        source: str,
        reference: Reference | None = None,
        on_running: Callable[[], None] = silent,
        doing: Callable[[str], None] = silent,
        unwanted: Callable[[], bool] = never,
    ) -> Verdict | Problem:
        """Judge one candidate; `on_running` is called right before its code first runs.

        `reference` is not used for the ratio: the reference is timed again, in turn with the
        candidate.  Raises `Unjudgeable` or `Unwanted`.
        """
        return self._twice(lambda: self._judge(task, source, on_running, doing), unwanted)

    def _twice(self, work: Callable[[], T], unwanted: Callable[[], bool]) -> T:
        """Do `work`; if the world fails, do it once more with everything fresh."""
        with self._busy:
            self._nursery.unwanted = lambda: self._closing or unwanted()
            try:
                return work()
            except Unjudgeable:
                self._reset()
                return work()

    def _measure(self, task: Task) -> Reference | Problem:
        standard = self._standard_of(task)
        if isinstance(standard, Problem):
            return standard
        facts = standard.facts
        return Reference(
            eager_us=baselines.eager_us(standard),
            compile_us=self._compiled_us(standard, "default"),
            max_autotune_us=self._compiled_us(standard, "max-autotune"),
            device=self.device,
            inputs=describe(facts.inputs),
            outputs=describe(facts.outputs),
            notes=facts.notes,
        )

    def _compiled_us(self, standard: Standard, mode: str) -> float | None:
        return baselines.compiled_us(standard, mode) if self.compile_baselines else None

    def _judge(
        self,
        task: Task,
        source: str,
        on_running: Callable[[], None],
        doing: Callable[[str], None],
    ) -> Verdict | Problem:
        standard = self._standard_of(task)
        if isinstance(standard, Problem):
            return standard
        with ExitStack() as stack:
            confinement = self._confinement("candidate", stack, trusted=False)
            trial = Trial(self._nursery, standard, self.limits, confinement, source)
            verdict = trial.run(on_running, doing)
        starved = self._nursery.starved and verdict.verdict is Word.CRASHED
        return msgspec.structs.replace(
            verdict,
            verdict=Word.OUT_OF_MEMORY if starved else verdict.verdict,
            device=self.device.fingerprint,
            sandbox_level=self.level,
        )

    def _standard_of(self, task: Task) -> Standard | Problem:
        """Return the standard of `task`: the one at hand, or a new one."""
        held = self._standard
        if held is not None and held.alive and held.task == task:
            return held
        self._drop_standard()
        folder = self.scratch.fresh("task")
        confinement = self._confined(folder, trusted=True)
        standard = Standard(self._nursery, task, self.limits, confinement)
        self._standard = standard
        problem = standard.open()
        if problem is not None:
            self._drop_standard()
            return problem
        return standard

    # --- surroundings ------------------------------------------------------------------------

    def _confinement(self, name: str, stack: ExitStack, *, trusted: bool) -> Confinement:
        folder = self.scratch.fresh(name)
        stack.callback(self.scratch.remove, folder)
        return self._confined(folder, trusted=trusted)

    def _confined(self, folder: Path, *, trusted: bool) -> Confinement:
        cuda = self.kind == "cuda"
        gib = max(self.limits.memory_gib, CUDA_DATA_GIB) if cuda else self.limits.memory_gib
        extra = {"MAX_JOBS": str(min(BUILD_JOBS, os.cpu_count() or 1))}
        if cuda and not trusted:
            extra["TORCH_CUDA_ARCH_LIST"] = devices.arch_list(self.device)
        if not self._nursery.alive():
            self._nursery.start()
        environment = sandbox.environment(dict(os.environ), str(folder), **extra)
        return Confinement(
            folder=str(folder),
            hide=self._hide,
            keep=self._keep,
            environment=environment,
            data_bytes=None if trusted else int(gib * 2**30),
            file_bytes=None if trusted else FILE_GIB * 2**30,
            processes=PROCESSES,
            memory_bytes=None if trusted else self._together(),
        )

    def _together(self) -> int:
        """Return what a candidate's processes may take together, pages that they share included."""
        whole = int(2 * self.limits.memory_gib * 2**30)
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(whole, ram // 2) if self.kind == "cuda" else whole

    def _drop_standard(self) -> None:
        if self._standard is not None:
            self._standard.close()
            self.scratch.remove(Path(self._standard.confinement.folder))
            self._standard = None

    def _reset(self) -> None:
        self._drop_standard()
        self._nursery.stop()

    def close(self) -> None:
        """End everything and remove the scratch folder; may be called from another thread.

        If work is under way and does not stop at once, the end of this process ends the children.
        """
        self._closing = True
        if self._busy.acquire(timeout=CLOSE_S):
            try:
                self._reset()
                self.scratch.close()
            finally:
                self._busy.release()


__all__ = ["Judge", "Problem", "Unjudgeable", "Unwanted"]
