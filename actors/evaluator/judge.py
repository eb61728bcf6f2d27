"""The judge: measures tasks and judges candidates, one at a time, and survives all of them.

It never imports torch or candidate code.  What a candidate does wrong is a `Verdict`, what is wrong
with a task is a `TaskProblem`; `JudgeUnavailableError` means that the world failed twice,
`EvaluationCancelledError` that nobody waits.  Several threads may ask: they get the bench in their
order, and candidates are built ahead where that disturbs no clock (`builds`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.evaluator.build.ahead import BuildAhead, Builder, builds_ahead
from actors.evaluator.build.stage import NO_MODULES, BuildResult
from actors.evaluator.evaluation import MAX_SOURCE_BYTES
from actors.evaluator.fastbuild import may_compile, store_of_user
from actors.evaluator.fifo_lock import FifoLock
from actors.evaluator.profiling import inspection
from actors.evaluator.reference.fixture import TaskProblem, discard_line
from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError
from actors.evaluator.session import DeviceSession
from protocol.release import Release
from protocol.settings import JudgeRules, Limits
from protocol.values import Device, DeviceKind, Outcome, Reference, Task, Verdict

T = TypeVar("T")

CLOSE_S = 3.0


def never_cancelled() -> bool:
    """The answer to "is it unwanted?" by hand."""
    return False


DEFAULT_RULES = JudgeRules()


class Judge:
    """One device's judge."""

    def __init__(
        self,
        device: DeviceKind,
        limits: Limits,
        scratch_root: Path,
        *,
        hide: tuple[Path, ...] = (),
        rules: JudgeRules = DEFAULT_RULES,
        min_level: int = 0,
        ahead: int | None = None,
        log_line: Callable[[str], None] = discard_line,
    ) -> None:
        """`ahead`: how many builds may run beside measurements; `log_line` hears what a log
        should.
        """
        self.kind = device
        self.limits = limits
        self.scratch = Scratch(scratch_root)
        self.ahead = builds_ahead(device) if ahead is None else ahead
        self._log_line = log_line
        store = store_of_user(os.environ)
        confinements = ConfinementFactory(
            device, limits, hide, store if store.make_folders() else None
        )
        builder = Builder(confinements, limits, log_line)
        self.session = DeviceSession(
            confinements, builder, self.scratch, rules, log_line, min_level=min_level
        )
        beside = self.scratch.root.with_name(f"{self.scratch.root.name}-builds")
        self._build_ahead = (
            BuildAhead(builder, limits, beside, min_level, confinements.hide)
            if self.ahead
            else None
        )
        self._device_lock = FifoLock()
        self._closing = False

    @property
    def zygote_pid(self) -> int | None:
        return self.session.zygote.pid

    @property
    def level(self) -> int:
        """The level of the sandbox that candidates are judged in."""
        return self.session.zygote.ready.level

    @property
    def device(self) -> Device:
        """What results are measured on; raises `JudgeUnavailableError` where there is no such
        device.
        """
        return self.session.device_info.device

    # --- work --------------------------------------------------------------------------------

    def measure(
        self,
        task: Task,
        is_cancelled: Callable[[], bool] = never_cancelled,
        set_activity: Callable[[str], None] = discard_line,
    ) -> Reference | TaskProblem:
        """Measure a task's own module; raise `JudgeUnavailableError` or
        `EvaluationCancelledError`.
        """
        return self._retry_once(lambda: self.session.measure(task, set_activity), is_cancelled)

    def prepare(self, sources: list[str]) -> None:
        """Prepare fast builds of `sources` beside what comes first, where that disturbs nothing."""
        if self._build_ahead is not None and any(map(may_compile, sources)):
            self._build_ahead.prepare(sources, self._arch(never_cancelled))

    def build(
        self,
        source: str,
        is_cancelled: Callable[[], bool] = never_cancelled,
        modules: Mapping[str, str] = NO_MODULES,
    ) -> BuildResult | None:
        """Build a candidate ahead of its turn, on the caller's thread; `judge` wants it back.

        None where there is nothing to build, or builds take turns with measurements; `judge` builds
        then.  Raises `EvaluationCancelledError`, or `JudgeUnavailableError` when there is no such
        device.
        """
        if (
            self._build_ahead is None
            or not may_compile(source)
            or len(source.encode()) > MAX_SOURCE_BYTES
        ):
            return None
        return self._build_ahead.build(source, self._arch(is_cancelled), is_cancelled, modules)

    def judge(
        self,
        task: Task,
        source: str,
        reference: Reference | None = None,
        on_running: Callable[[], None] = discard_line,
        set_activity: Callable[[str], None] = discard_line,
        is_cancelled: Callable[[], bool] = never_cancelled,
        built: BuildResult | None = None,
        *,
        profiled: bool = False,
        written: str = "",
    ) -> Verdict | TaskProblem:
        """Judge one candidate; `on_running` is called right before its code is first judged.

        `reference` is not used for the ratio: the reference is timed again, in turn with the
        candidate.  `built` is used up; `profiled`: look at a correct one with the profiler, which
        takes seconds; `written`: what labels are read off, where `source` is a drop-in file around
        it.  Raises `JudgeUnavailableError` or `EvaluationCancelledError`.
        """
        ready = [built] if built is not None and built.has_folder else []

        def gone() -> bool:
            return self._closing or is_cancelled()

        def work() -> Verdict | TaskProblem:
            # A second try must not find what the first one's runner left: it builds anew.
            first = ready.pop() if ready else None
            return self.session.judge(
                task,
                source,
                on_running,
                set_activity,
                gone,
                first,
                profiled=profiled,
                written=written or source,
            )

        try:
            return self._retry_once(work, is_cancelled)
        finally:
            if built is not None and self._build_ahead is not None:
                self._build_ahead.remove(built)

    def release(
        self,
        task: Task,
        source: str,
        set_activity: Callable[[str], None] = discard_line,
        is_cancelled: Callable[[], bool] = never_cancelled,
    ) -> Release | TaskProblem:
        """Check a winner as a drop-in file; raise `JudgeUnavailableError` or
        `EvaluationCancelledError`.
        """
        return self._retry_once(
            lambda: self.session.release(task, source, set_activity), is_cancelled
        )

    def _retry_once(self, work: Callable[[], T], is_cancelled: Callable[[], bool]) -> T:
        """Do `work` in its turn; if the world fails, do it once more with everything fresh."""
        with self._device_lock.held(lambda: self._raise_if_cancelled(is_cancelled)):
            self.session.zygote.is_cancelled = lambda: self._closing or is_cancelled()
            try:
                return work()
            except JudgeUnavailableError as error:
                self._log_line(f"begun again with everything fresh: {error}")
                self.session.reset()
                return work()

    def _raise_if_cancelled(self, unwanted: Callable[[], bool]) -> None:
        if self._closing or unwanted():
            raise EvaluationCancelledError

    def inspect(
        self,
        task: Task,
        source: str,
        verdict: Verdict,
        is_cancelled: Callable[[], bool] = never_cancelled,
    ) -> Verdict:
        """Look at a winner with the maker's tools; out-of-bounds accesses make it `wrong`.

        One without a kernel of its own is spared that: there is nothing of its own to look at.
        """
        labels = (verdict.profile or {}).get("labels", "")
        if self.kind == "cpu" or not verdict.is_correct or "library_only" in labels:
            return verdict
        found = self._retry_once(lambda: self.session.inspect(task, source), is_cancelled)
        said = msgspec.structs.replace(verdict, profile={**(verdict.profile or {}), **found})
        errors = inspection.memcheck_errors(found)
        if not errors:
            return said
        reason = f"compute-sanitizer's memcheck: {errors}"[:500]
        return msgspec.structs.replace(said, verdict=Outcome.WRONG, stage="check", reason=reason)

    def _arch(self, is_cancelled: Callable[[], bool]) -> str:
        """Return what CUDA is built for; the first time the device is asked, in its turn."""
        device_info = self.session.device_info
        return (
            device_info.arch
            if device_info.is_known
            else self._retry_once(lambda: device_info.arch, is_cancelled)
        )

    def close(self) -> None:
        """End everything and remove the scratch folder; may be called from another thread.

        If work is under way and does not stop at once, the end of this process ends the children.
        """
        self._closing = True
        if self._build_ahead is not None:
            self._build_ahead.close()
        until = time.monotonic() + CLOSE_S
        try:
            with self._device_lock.held(lambda: _deadline_check(until)):
                self.session.reset()
                self.scratch.close()
        except EvaluationCancelledError:
            return


def _deadline_check(until: float) -> None:
    if time.monotonic() > until:
        raise EvaluationCancelledError


__all__ = ["EvaluationCancelledError", "Judge", "JudgeUnavailableError", "TaskProblem"]
