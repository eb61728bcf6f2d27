"""From how a child went, or what it raised, to the word of a verdict; and a verdict's JSON."""

from __future__ import annotations

import msgspec

from actors.evaluator import evidence
from actors.evaluator.isolation.child import Gone
from actors.evaluator.wire.orders import Raised
from protocol.values import Stage, Value, Verdict, Word

OUTPUT_CHARS = 4096

# Other programs read these keys: none is added, removed or moved.
KEYS = (
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


class Fault(Value, frozen=True, kw_only=True):
    """What a candidate did wrong."""

    word: Word
    stage: Stage
    reason: str
    log: str = ""
    max_error: float | None = None


def wrong(reason: str, stage: Stage, max_error: float | None = None) -> Fault:
    """Return the fault of a wrong result."""
    return Fault(word=Word.WRONG, stage=stage, reason=reason, max_error=max_error)


def fault_of(answer: object, stage: Stage, output: str) -> Fault:
    """Return the fault behind an answer that is none: `Gone`, or (`Raised`, descriptors)."""
    if isinstance(answer, Gone):
        return _fault_of_gone(answer, stage, output)
    said = answer[0] if isinstance(answer, tuple) else answer
    if isinstance(said, Raised):
        return _fault_of_raised(said, stage, output)
    return Fault(word=Word.CRASHED, stage=stage, reason=f"its channel said {type(said).__name__}")


def _fault_of_gone(gone: Gone, stage: Stage, output: str) -> Fault:
    word = Word.TIMED_OUT if gone.how == "timed_out" else Word.CRASHED
    return Fault(word=word, stage=stage, reason=gone.said(), log=output[-OUTPUT_CHARS:])


def _fault_of_raised(said: Raised, stage: Stage, output: str) -> Fault:
    """Return the fault of an exception: a compiler's no, memory that ran out, or a crash."""
    if said.compiling:
        log = evidence.compiler_log(evidence.clean(said.words, limit=1 << 20))
        reason = f"the compiler says: {evidence.first_error(log)}"
        return Fault(word=Word.COMPILE_FAILED, stage="build", reason=reason, log=log)
    if said.memory:
        word = Word.OUT_OF_MEMORY
    else:
        # What does not import has not compiled, as far as an agent that repairs it is concerned.
        word = Word.COMPILE_FAILED if stage in ("import", "build") else Word.CRASHED
    log = f"{said.trace}\n{output[-OUTPUT_CHARS:]}" if output else said.trace
    return Fault(word=word, stage=stage, reason=f"{said.kind}: {said.words}", log=log)


def verdict_json(verdict: Verdict) -> str:
    """Return one line of JSON with the keys of `KEYS`; a figure that was not measured is null."""
    whole = {name: msgspec.to_builtins(getattr(verdict, name)) for name in KEYS}
    seconds = verdict.seconds
    whole["seconds"] = {"build": seconds.build, "check": seconds.check, "time": seconds.time}
    return msgspec.json.encode(whole).decode()
