"""From how a child went, or what it raised, to the word of a verdict; and a verdict's JSON."""

from __future__ import annotations

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


class CandidateFault(Value, frozen=True, kw_only=True):
    """What a candidate did wrong."""

    outcome: Outcome
    stage: Stage
    reason: str
    log: str = ""
    max_error: float | None = None


def wrong_result(reason: str, stage: Stage, max_error: float | None = None) -> CandidateFault:
    """Return the fault of a wrong result."""
    return CandidateFault(outcome=Outcome.WRONG, stage=stage, reason=reason, max_error=max_error)


def fault_from_child(answer: object, stage: Stage, output: str) -> CandidateFault:
    """Return the fault behind an answer that is none: `ChildFailure`, or (`CandidateRaised`,
    descriptors).
    """
    if isinstance(answer, ChildFailure):
        return _fault_from_failure(answer, stage, output)
    said = answer[0] if isinstance(answer, tuple) else answer
    if isinstance(said, CandidateRaised):
        return _fault_from_exception(said, stage, output)
    return CandidateFault(
        outcome=Outcome.CRASHED, stage=stage, reason=f"its channel said {type(said).__name__}"
    )


def _fault_from_failure(failure: ChildFailure, stage: Stage, output: str) -> CandidateFault:
    word = Outcome.TIMED_OUT if failure.how == "timed_out" else Outcome.CRASHED
    return CandidateFault(
        outcome=word, stage=stage, reason=failure.readable(), log=output[-OUTPUT_CHARS:]
    )


def _fault_from_exception(said: CandidateRaised, stage: Stage, output: str) -> CandidateFault:
    """Return the fault of an exception: a compiler's no, memory that ran out, or a crash."""
    if said.compiling:
        log = logs.compiler_log(logs.clean_log(said.words, limit=1 << 20))
        reason = f"the compiler says: {logs.first_error(log)}"
        return CandidateFault(outcome=Outcome.COMPILE_FAILED, stage="build", reason=reason, log=log)
    if said.memory:
        word = Outcome.OUT_OF_MEMORY
    else:
        # What does not import has not compiled, as far as an agent that repairs it is concerned.
        word = Outcome.COMPILE_FAILED if stage in ("import", "build") else Outcome.CRASHED
    log = f"{said.trace}\n{output[-OUTPUT_CHARS:]}" if output else said.trace
    return CandidateFault(outcome=word, stage=stage, reason=f"{said.kind}: {said.words}", log=log)


def verdict_json(verdict: Verdict) -> str:
    """Return one line of JSON with the keys of `VERDICT_KEYS`; a figure that was not measured is
    null.
    """
    whole = {name: msgspec.to_builtins(getattr(verdict, name)) for name in VERDICT_KEYS}
    seconds = verdict.seconds
    whole["seconds"] = {"build": seconds.build, "check": seconds.check, "time": seconds.time}
    return msgspec.json.encode(whole).decode()
