"""The evaluator as an actor: takes `Measure` and `Evaluate`, gives `Measured` and `Evaluated`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actors.evaluator.devices.health import Quarantined
from actors.evaluator.isolation.child import Unwanted
from actors.evaluator.isolation.nursery import ReferenceFailed, Unjudgeable
from actors.evaluator.judge import Judge, Problem
from actors.evaluator.release_stage import essential_failure
from actors.evaluator.rounds import combined, has_enough
from actors.port import Port
from actors.release.composition import drop_in_source
from protocol.messages import (
    Evaluate,
    Evaluated,
    Measure,
    Measured,
    Returned,
    Work,
)
from protocol.values import Device, Role, Verdict, Word

KILLED = (Word.CRASHED, Word.COMPILE_FAILED)  # what a signal from outside looks like
FAILURES = 3  # in a row, then the actor ends and the supervisor decides


class EvaluatorWorker:
    """One device's evaluator: one candidate on the device, others being built meanwhile.

    `running` is said when a candidate's turn on the device begins, not when it is built, though
    that runs its code, too: a build has no device and is the better confined, and if it counted,
    one candidate that takes the evaluator down would be charged to all that were being built.
    """

    role = Role.EVALUATOR

    def __init__(self, judge: Judge) -> None:
        self.credit = 1 + judge.ahead
        self.judge = judge
        self.device: Device | None = judge.device
        self._failures = 0

    def work(self, request: Work, port: Port) -> Measured | Evaluated | Returned:
        """Measure a task or judge a candidate; hand back what can't be done now."""
        try:
            result = self._work(request, port)
        except Unwanted:
            return Returned(lease=request.lease, reason="no longer wanted")
        except Unjudgeable as error:
            self._failures += 1
            if self._failures >= FAILURES:
                raise
            sick = isinstance(error, Quarantined)
            # A task whose own module fails here will fail again; a machine that can't start a
            # process, or has no room, must not make verdicts of it.
            tried = isinstance(error, ReferenceFailed)
            return Returned(lease=request.lease, reason=str(error), quarantined=sick, tried=tried)
        self._failures = 0
        if isinstance(result, Evaluated) and result.verdict.verdict in KILLED and port.revoked():
            # A batch system signals every process of a job: that was not the candidate's doing.
            return Returned(lease=request.lease, reason="ended while this machine was leaving")
        return result

    def _work(self, request: Work, port: Port) -> Measured | Evaluated:
        name = request.lease.work.rpartition("/")[0]
        if isinstance(request, Measure):
            task = request.task.name
            port.doing(f"measuring {task}")
            return self._measure(request, port, lambda words: port.doing(f"{words} {task}"))
        if isinstance(request, Evaluate):
            return self._evaluate(request, port, lambda words: port.doing(f"{words} {name}"))
        raise TypeError(f"an evaluator was leased a {type(request).__name__}")

    def _measure(self, request: Measure, port: Port, doing: Callable[[str], None]) -> Measured:
        found = self.judge.measure(request.task, port.revoked, doing)
        if isinstance(found, Problem):
            return Measured(lease=request.lease, problem=found.words)
        return Measured(lease=request.lease, reference=found)

    def _evaluate(self, request: Evaluate, port: Port, doing: Callable[[str], None]) -> Evaluated:
        if request.rounds > 1:
            return self._confirm(request, port, doing)
        verdict = self._judge(request, port, doing, request.source)
        return Evaluated(lease=request.lease, verdict=verdict)

    def _judge(
        self,
        request: Evaluate,
        port: Port,
        doing: Callable[[str], None],
        source: str,
        *,
        profiled: bool = False,
    ) -> Verdict:
        verdict = self.judge.judge(
            request.task,
            source,
            request.reference,
            port.running,
            doing,
            port.revoked,
            self.judge.build(source, port.revoked, request.task.modules),
            profiled=profiled,
            written=request.source,
        )
        if isinstance(verdict, Problem):
            # It was measured before, so this machine is the odd one.
            raise ReferenceFailed(verdict.words)
        return verdict

    def _confirm(self, request: Evaluate, port: Port, doing: Callable[[str], None]) -> Evaluated:
        """Judge one of the best as its users will have it: as a drop-in file, several times."""
        port.running()
        release = self.judge.release(request.task, request.source, doing, port.revoked)
        if isinstance(release, Problem):
            raise ReferenceFailed(release.words)
        reason = essential_failure(release)
        if reason:
            verdict = Verdict(verdict=Word.WRONG, stage="check", reason=reason, release=release)
            return Evaluated(lease=request.lease, verdict=verdict)
        source = drop_in_source(request.task.source, request.source, release)
        verdicts: list[Verdict] = []
        while not verdicts or not has_enough(verdicts, request.rounds, request.most_rounds):
            try:
                # Profiled once: what a planner needs to know, and too slow for every candidate.
                verdict = self._judge(request, port, doing, source, profiled=not verdicts)
            except Unwanted:
                if len(verdicts) < request.rounds:
                    raise
                break  # there is no time for more: what was measured so far is the verdict
            verdicts.append(verdict)
        verdict = combined(verdicts)
        doing("inspecting")
        verdict = self.judge.inspect(request.task, source, verdict, port.revoked)
        released = msgspec.structs.replace(verdict, release=release)
        return Evaluated(lease=request.lease, verdict=released)

    def close(self) -> None:
        """End every child."""
        self.judge.close()
