"""The judge: measures tasks and judges candidates, one at a time, and survives all of them.

It never imports torch or candidate code.  A candidate's fault is a `Verdict`, a task's fault is a
`TaskProblem`.  `JudgeUnavailableError` means that the machine failed twice, and
`EvaluationCancelledError` that the result is not wanted any more.  Several threads may call it: the
device is theirs in turn (`device_queue.py`), and candidates are built ahead where that disturbs no
measurement (`build/build_ahead.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.evaluator.build.build_ahead import BuildAhead, Builder, builds_ahead
from actors.evaluator.build.build_stage import NO_MODULES, BuildResult
from actors.evaluator.device_queue import DeviceQueue, DeviceWait
from actors.evaluator.evaluation import MAX_SOURCE_BYTES, EvaluationRequest, Inspected
from actors.evaluator.fastbuild import may_compile, store_of_user
from actors.evaluator.profiling import inspection
from actors.evaluator.reference.fixture import TaskProblem
from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError
from actors.evaluator.session import DeviceSession
from actors.work_context import STANDALONE, EvaluationContext
from protocol.release import Release
from protocol.settings import JudgeRules, Limits
from protocol.values import Device, DeviceKind, Outcome, Reference, Task, Verdict

T = TypeVar("T")

CLOSE_S = 3.0
DEFAULT_RULES = JudgeRules()


def discard_line(_line: str) -> None:
    """Log nothing."""


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
        """`ahead`: how many builds may run beside measurements; None: as many as the device allows.

        `hide`: folders that children must not see; `min_level`: the weakest sandbox that will do.
        """
        self.kind = device
        self.limits = limits
        self.scratch = Scratch(scratch_root)
        self.ahead = builds_ahead(device) if ahead is None else ahead
        self._log_line = log_line
        self._rules = rules
        store = store_of_user(os.environ)
        confinements = ConfinementFactory(
            device, limits, hide, store if store.make_folders() else None, rules.import_paths
        )
        builder = Builder(confinements, limits, log_line)
        self.session = DeviceSession(
            confinements, builder, self.scratch, rules, log_line, min_level=min_level
        )
        build_scratch = self.scratch.root.with_name(f"{self.scratch.root.name}-builds")
        self._build_ahead = (
            BuildAhead(builder, limits, build_scratch, min_level, confinements.hide)
            if self.ahead
            else None
        )
        self._queue = DeviceQueue()
        self.session.is_device_wanted = lambda: self._queue.waiting > 0
        self._closing = False

    @property
    def zygote_pid(self) -> int | None:
        """The pid of the zygote, if there is one; tests look at its children."""
        return self.session.zygote.pid

    @property
    def level(self) -> int:
        """The level of the sandbox that candidates are judged in."""
        return self.session.zygote.ready.level

    @property
    def device(self) -> Device:
        """The device of all results; raises `JudgeUnavailableError` where there is none."""
        return self.session.device_info.device

    def take_stage_seconds(self) -> dict[str, float]:
        """Return where the seconds since the last call went."""
        return self.session.zygote.stages.take()

    # --- work --------------------------------------------------------------------------------

    def measure(
        self,
        task: Task,
        context: EvaluationContext = STANDALONE,
        *,
        defer_baselines: bool = False,
    ) -> Reference | TaskProblem:
        """Measure a task's own module; raise `JudgeUnavailableError` or
        `EvaluationCancelledError`.

        `defer_baselines`: `measure_baselines` is called later for torch.compile's times.
        """
        return self._with_device(
            task,
            context,
            lambda turn: self.session.measure(task, turn, defer_baselines=defer_baselines),
        )

    def measure_baselines(
        self, task: Task, reference: Reference, context: EvaluationContext = STANDALONE
    ) -> Reference:
        """Return the reference with torch.compile's times; raise as `measure` does."""
        return self._with_device(
            task, context, lambda turn: self.session.measure_baselines(task, reference, turn)
        )

    def prepare(self, sources: list[str]) -> None:
        """Prepare the toolkit for `sources` in the background, where that disturbs nothing."""
        if self._build_ahead is not None and any(map(may_compile, sources)):
            self._build_ahead.prepare(sources, self._arch(STANDALONE))

    def build(
        self,
        source: str,
        modules: Mapping[str, str] = NO_MODULES,
        context: EvaluationContext = STANDALONE,
    ) -> BuildResult | None:
        """Build a candidate ahead of its turn, on the caller's thread; `judge` takes the result.

        None if there is nothing to build, or if builds take turns with measurements; then `judge`
        builds.  Raises `EvaluationCancelledError`, or `JudgeUnavailableError` when there is no such
        device.  `modules`: files that the task imports.
        """
        if (
            self._build_ahead is None
            or not may_compile(source)
            or len(source.encode()) > MAX_SOURCE_BYTES
        ):
            return None
        context.log_step("building ahead of its turn on the device")
        return self._build_ahead.build(source, self._arch(context), context.is_revoked, modules)

    def judge(
        self,
        task: Task,
        source: str,
        context: EvaluationContext = STANDALONE,
        *,
        built: BuildResult | None = None,
        labelled_source: str = "",
        best_speedup: float = 0.0,
        inspected: Inspected = "no",
        trial_s: float | None = None,
    ) -> Verdict | TaskProblem:
        """Judge one candidate; `context` is told right before its code is first checked.

        `built` is what `build` returned, and is used up.  `labelled_source`: what labels are read
        off, if `source` is a drop-in file around it.  `best_speedup`: a candidate that is clearly
        slower is timed roughly.  `inspected`: whether tools look at it afterwards.
        `trial_s`: seconds of rough timing by the candidate's own process; None: the real timing.
        Raises `JudgeUnavailableError` or `EvaluationCancelledError`.
        """
        has_build = built is not None and built.has_folder
        request = EvaluationRequest(
            source=source,
            labelled_source=labelled_source or source,
            built=built if has_build else None,
            best_speedup=best_speedup,
            inspected=inspected,
            trial_s=trial_s,
        )
        # A second try must not find what the first try's runner left, so it builds anew.
        tries = iter((request, msgspec.structs.replace(request, built=None)))
        try:
            return self._with_device(
                task, context, lambda turn: self.session.judge(task, next(tries), turn)
            )
        finally:
            if built is not None and self._build_ahead is not None:
                self._build_ahead.remove(built)

    def release(
        self, task: Task, source: str, context: EvaluationContext = STANDALONE
    ) -> Release | TaskProblem:
        """Check a winner as a drop-in file; raise `JudgeUnavailableError` or
        `EvaluationCancelledError`.
        """
        return self._with_device(
            task, context, lambda turn: self.session.release(task, source, turn)
        )

    def inspect(
        self,
        task: Task,
        source: str,
        verdict: Verdict,
        context: EvaluationContext = STANDALONE,
    ) -> Verdict:
        """Run the GPU maker's tools on a winner; out-of-bounds accesses make it `wrong`.

        A candidate without a kernel of its own is not inspected.
        """
        labels = (verdict.profile or {}).get("labels", "")
        is_left_out = self.kind == "cpu" or "library_only" in labels
        if is_left_out or not verdict.is_correct or self._rules.profile == "none":
            return verdict
        inspected = self._with_device(
            task, context, lambda _turn: self.session.inspect(task, source, verdict)
        )
        errors = inspection.memcheck_errors(inspected.profile or {})
        if not errors:
            return inspected
        reason = f"compute-sanitizer's memcheck: {errors}"[:500]
        return msgspec.structs.replace(
            inspected, verdict=Outcome.WRONG, stage="check", reason=reason
        )

    # --- the device, one caller at a time ----------------------------------------------------

    @contextmanager
    def turn(self, task: Task | None, context: EvaluationContext) -> Iterator[None]:
        """Hold the device for work on `task`: the calls of this thread inside are one turn.

        Raises `EvaluationCancelledError` when the work is not wanted any more.
        """
        wait = DeviceWait(ClosableContext(context, self))
        with self._queue.turn(task.name if task is not None else "", wait.poll):
            wait.end()
            yield

    def _with_device(
        self,
        task: Task | None,
        context: EvaluationContext,
        work: Callable[[EvaluationContext], T],
    ) -> T:
        """Do `work` in its turn; if the machine fails, do it once more with everything fresh."""
        closable = ClosableContext(context, self)
        with self.turn(task, context):
            self.session.zygote.is_cancelled = closable.is_revoked
            try:
                return work(closable)
            except JudgeUnavailableError as error:
                self._log_line(f"begun again with everything fresh: {error}")
                self.session.reset()
                return work(closable)

    def _arch(self, context: EvaluationContext) -> str:
        """Return what CUDA is built for; the device is asked once, in its turn."""
        device_info = self.session.device_info
        return (
            device_info.arch
            if device_info.is_known
            else self._with_device(None, context, lambda _turn: device_info.arch)
        )

    @property
    def is_closing(self) -> bool:
        """Whether the judge ends."""
        return self._closing

    def close(self) -> None:
        """End everything and remove the scratch folder; may be called from another thread.

        If work is under way and does not stop at once, the end of this process ends the children.
        """
        self._closing = True
        if self._build_ahead is not None:
            self._build_ahead.close()
        deadline = time.monotonic() + CLOSE_S
        try:
            with self._queue.turn("", lambda: _raise_if_after(deadline)):
                self.session.reset()
                self.scratch.close()
        except EvaluationCancelledError:
            return


class ClosableContext:
    """A caller's context that is revoked by the end of the judge, too."""

    def __init__(self, context: EvaluationContext, judge: Judge) -> None:
        self._judge = judge
        self.set_activity = context.set_activity
        self.log_step = context.log_step
        self.candidate_running = context.candidate_running
        self._is_revoked = context.is_revoked

    def is_revoked(self) -> bool:
        """Whether the caller's work is revoked, or the judge ends."""
        return self._judge.is_closing or self._is_revoked()


def _raise_if_after(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise EvaluationCancelledError


__all__ = ["EvaluationCancelledError", "Judge", "JudgeUnavailableError", "TaskProblem"]
