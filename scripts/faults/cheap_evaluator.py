"""An evaluator that believes what a candidate says of itself: no torch, a few milliseconds.

`python -m scripts.faults.cheap_evaluator --connect … --slot … --run-dir …`, in the place of
`actors.evaluator`, on the real actor loop.  A line `# cheap: correct 40.0` or `# cheap: wrong` in
the source is its verdict, so that a run can be disturbed a thousand times.
"""

from __future__ import annotations

import argparse
import re
import sys
import time

from actors.actor import run_actor
from actors.identity import add_identity_arguments, identity_from
from actors.work_context import WorkContext
from protocol.messages import (
    Evaluate,
    Evaluated,
    HandedBack,
    MeasureReference,
    ReferenceMeasured,
    Result,
    Work,
)
from protocol.values import Device, Outcome, Reference, Role, Seconds, Stage, Verdict

EAGER_US = 100.0
VERDICT_COMMENT = re.compile(r"^# cheap: (?P<word>\w+)(?: (?P<us>[\d.]+))?", re.MULTILINE)
DEVICE = Device(name="no device at all", fingerprint="cheap")


class CheapEvaluator:
    """Measures nothing."""

    role = Role.EVALUATOR
    credit = 1
    device: Device | None = DEVICE

    def __init__(self, work_s: float) -> None:
        self._work_s = work_s

    def work(self, request: Work, context: WorkContext) -> Result | HandedBack:
        """Give the reference a time, a candidate the verdict that it asks for."""
        lease = request.lease
        if isinstance(request, MeasureReference):
            context.set_activity(f"measuring {request.task.name}")
            return ReferenceMeasured(
                lease=lease, reference=Reference(eager_us=EAGER_US, device=DEVICE)
            )
        if not isinstance(request, Evaluate):
            raise TypeError(f"an evaluator was leased a {type(request).__name__}")
        context.set_activity(f"judging {lease.work}")
        context.candidate_running()
        until = time.monotonic() + self._work_s
        while (left := until - time.monotonic()) > 0:
            if context.is_revoked():
                return HandedBack(lease=lease, reason="no longer wanted")
            time.sleep(min(0.05, left))
        return Evaluated(lease=lease, verdict=verdict_of(request.source))

    def close(self) -> None:
        """Nothing to end."""


def verdict_of(source: str) -> Verdict:
    """Return the verdict that a source asks for."""
    said = VERDICT_COMMENT.search(source)
    word = Outcome(said["word"]) if said else Outcome.WRONG
    seconds, level = Seconds(check=0.001), 1
    if said is None or word is not Outcome.CORRECT:
        stage: Stage = "build" if word is Outcome.COMPILE_FAILED else "check"
        return Verdict(
            verdict=word, reason="as it says", stage=stage, seconds=seconds, sandbox_level=level
        )
    median_us = float(said["us"] or EAGER_US)
    ratio = EAGER_US / median_us
    return Verdict(
        verdict=word,
        median_us=median_us,
        reference_us=EAGER_US,
        speedup=ratio,
        speedup_ci95=(ratio, ratio),
        seconds=seconds,
        sandbox_level=level,
        device=DEVICE.fingerprint,
    )


def main() -> int:
    """Sit at the post; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_identity_arguments(parser)
    parser.add_argument("--device", default="cpu", help="as the real one takes it")
    parser.add_argument("--work-s", type=float, default=0.002)
    arguments, _ = parser.parse_known_args()
    return run_actor(CheapEvaluator(arguments.work_s), identity_from(arguments))


if __name__ == "__main__":
    sys.exit(main())
