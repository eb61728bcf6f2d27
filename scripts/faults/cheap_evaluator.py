"""An evaluator that reads a candidate's verdict from its source: no torch, a few milliseconds.

`python -m scripts.faults.cheap_evaluator --connect … --slot … --run-dir …` replaces
`actors.evaluator`, on the real actor loop.  A line `# cheap: correct 40.0` or `# cheap: wrong` in
the source is the verdict, so a run takes seconds and can be disturbed a thousand times.
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
    BaselinesMeasured,
    Evaluate,
    Evaluated,
    HandedBack,
    MeasureBaselines,
    MeasureReference,
    ReferenceMeasured,
    Result,
    Work,
)
from protocol.values import Device, Outcome, Reference, Role, Seconds, Stage, Verdict

EAGER_US = 100.0
VERDICT_COMMENT = re.compile(r"^# cheap: (?P<outcome>\w+)(?: (?P<us>[\d.]+))?", re.MULTILINE)
DEVICE = Device(name="no device at all", fingerprint="cheap")


class CheapEvaluator:
    """Measures nothing."""

    role = Role.EVALUATOR
    credit = 1
    device: Device | None = DEVICE

    def __init__(self, work_s: float) -> None:
        self._work_s = work_s

    def work(self, request: Work, context: WorkContext) -> Result | HandedBack:
        """Return a fixed time for the reference, or the verdict in a candidate's source."""
        lease = request.lease
        if isinstance(request, MeasureReference):
            context.set_activity(f"measuring {request.task.name}")
            reference = Reference(
                eager_us=EAGER_US, device=DEVICE, baselines_pending=request.defer_baselines
            )
            return ReferenceMeasured(lease=lease, reference=reference)
        if isinstance(request, MeasureBaselines):
            context.set_activity(f"measuring torch.compile of {request.task.name}")
            # No figures: a request that shows them would depend on when they were measured.
            return BaselinesMeasured(lease=lease, note="the cheap evaluator has no torch.compile")
        if not isinstance(request, Evaluate):
            raise TypeError(f"an evaluator was leased a {type(request).__name__}")
        context.set_activity(f"judging {lease.work}")
        context.candidate_running()
        until = time.monotonic() + self._work_s
        while (remaining_s := until - time.monotonic()) > 0:
            if context.is_revoked():
                return HandedBack(lease=lease, reason="no longer wanted")
            time.sleep(min(0.05, remaining_s))
        return Evaluated(lease=lease, verdict=verdict_of(request.source))

    def close(self) -> None:
        """Do nothing: the worker holds no resources."""


def verdict_of(source: str) -> Verdict:
    """Return the verdict that a source contains."""
    comment = VERDICT_COMMENT.search(source)
    outcome = Outcome(comment["outcome"]) if comment else Outcome.WRONG
    seconds, level = Seconds(check=0.001), 1
    if comment is None or outcome is not Outcome.CORRECT:
        stage: Stage = "build" if outcome is Outcome.COMPILE_FAILED else "check"
        return Verdict(
            verdict=outcome,
            reason="as its comment says",
            stage=stage,
            seconds=seconds,
            sandbox_level=level,
        )
    median_us = float(comment["us"] or EAGER_US)
    ratio = EAGER_US / median_us
    return Verdict(
        verdict=outcome,
        median_us=median_us,
        reference_us=EAGER_US,
        speedup=ratio,
        speedup_ci95=(ratio, ratio),
        seconds=seconds,
        sandbox_level=level,
        device=DEVICE.fingerprint,
    )


def main() -> int:
    """Serve in a run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_identity_arguments(parser)
    parser.add_argument("--device", default="cpu", help="accepted as by the real evaluator")
    parser.add_argument("--work-s", type=float, default=0.002)
    arguments, _ = parser.parse_known_args()
    return run_actor(CheapEvaluator(arguments.work_s), identity_from(arguments))


if __name__ == "__main__":
    sys.exit(main())
