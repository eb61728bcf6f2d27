"""Turns a child's failure or a candidate's exception into a verdict's outcome; a verdict's JSON."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from actors.evaluator.ipc import logs
from actors.evaluator.ipc.orders import CandidateRaised
from actors.evaluator.sandbox.child_client import ChildFailure
from protocol.values import Outcome, Stage, Value, Verdict

OUTPUT_CHARS = 4096

# Other programs read these keys: none is added, removed or moved.
VERDICT_KEYS = (
    "verdict",
    "reason",
    "stage",
    "median_us",
    "reference_us",
    "speedup",
    "speedup_ci95",
    "max_error",
    "log",
    "profile",
    "seconds",
    "sandbox_level",
)


class Accusation(StrEnum):
    """What a candidate is rejected for: evidence that its time is not the time of its calls."""

    RAN_WHILE_FROZEN = "ran while frozen"
    BELOW_FLOOR = "below the floor"  # faster than its outputs can be moved
    NOT_FREEZABLE = "not freezable"
    INPUTS_READ_AHEAD = "inputs read ahead"  # before their call
    INPUTS_TOUCHED_AHEAD = "inputs touched ahead"  # pages of them
    INPUTS_READ_LATE = "inputs read late"  # after their call has returned
    CALLS_COMPUTED_TOGETHER = "calls computed together"  # not one after the other
    WORK_NOT_JOINED = "work not joined"  # goes on when the caller's stream is done
    MEMORY_OUT_OF_REACH = "memory out of reach"  # the judge can't write or read it


class CandidateFault(Value, frozen=True, kw_only=True):
    """A candidate's fault: the outcome, the stage and the reason of its verdict."""

    outcome: Outcome
    stage: Stage
    reason: str
    log: str = ""
    max_error: float | None = None
    accusation: Accusation | None = None  # of a rejection while it was timed
    difference: tuple[str, ...] = ()  # of a wrong output: where it is wrong, and how

    @property
    def is_of_compiler(self) -> bool:
        """Whether an extension could not be built, at whatever stage."""
        return self.outcome is Outcome.COMPILE_FAILED and self.stage == "build"


def wrong_result(
    reason: str,
    stage: Stage,
    max_error: float | None = None,
    difference: tuple[str, ...] = (),
) -> CandidateFault:
    """Return the fault of a wrong result."""
    return CandidateFault(
        outcome=Outcome.WRONG,
        stage=stage,
        reason=reason,
        max_error=max_error,
        difference=difference,
    )


def fault_from_child(answer: object, stage: Stage, output: str) -> CandidateFault:
    """Return the fault behind a `ChildFailure`, a `CandidateRaised` or an unexpected answer.

    An answer may be a pair: the message and its descriptors.
    """
    if isinstance(answer, ChildFailure):
        return _fault_from_failure(answer, stage, output)
    message = answer[0] if isinstance(answer, tuple) else answer
    if isinstance(message, CandidateRaised):
        return _fault_from_exception(message, stage, output)
    return CandidateFault(
        outcome=Outcome.CRASHED, stage=stage, reason=f"its channel said {type(message).__name__}"
    )


def _fault_from_failure(failure: ChildFailure, stage: Stage, output: str) -> CandidateFault:
    is_late = failure.how in ("timed_out", "stalled")
    outcome = Outcome.TIMED_OUT if is_late else Outcome.CRASHED
    log = logs.without_own_frames(output[-OUTPUT_CHARS:])
    return CandidateFault(outcome=outcome, stage=stage, reason=failure.readable(), log=log)


def _fault_from_exception(raised: CandidateRaised, stage: Stage, output: str) -> CandidateFault:
    """Return the fault of an exception: a compiler error, memory that ran out, or a crash."""
    if raised.compiling:
        log = logs.compiler_log(logs.clean_log(raised.words, limit=1 << 20))
        reason = f"the compiler says: {logs.first_error(log)}"
        return CandidateFault(outcome=Outcome.COMPILE_FAILED, stage="build", reason=reason, log=log)
    if raised.memory:
        outcome = Outcome.OUT_OF_MEMORY
    else:
        # To an agent that repairs it, a file that does not import is one that does not compile.
        outcome = Outcome.COMPILE_FAILED if stage in ("import", "build") else Outcome.CRASHED
    log = f"{raised.trace}\n{output[-OUTPUT_CHARS:]}" if output else raised.trace
    return CandidateFault(
        outcome=outcome, stage=stage, reason=f"{raised.kind}: {raised.words}", log=log
    )


def verdict_json(verdict: Verdict) -> str:
    """Return one line of JSON with the keys of `VERDICT_KEYS`; unmeasured figures are null.

    Only the verdict of a candidate that declared variants has two more keys, and only that of a
    task with cases one more.
    """
    whole = {name: msgspec.to_builtins(getattr(verdict, name)) for name in VERDICT_KEYS}
    seconds = verdict.seconds
    whole["seconds"] = {"build": seconds.build, "check": seconds.check, "time": seconds.time}
    if verdict.variants:
        whole["variants"] = msgspec.to_builtins(verdict.variants)
        whole["variant"] = verdict.variant
    if verdict.cases:
        whole["cases"] = [
            {name: getattr(case, name) for name in case.__struct_fields__} for case in verdict.cases
        ]
    return msgspec.json.encode(whole).decode()
