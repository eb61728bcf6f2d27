"""A worker process on the real actor loop; its outcomes are a function of the work's name.

`python fake_worker.py --role evaluator --connect … --slot … --run-dir …` needs neither torch nor a
model.  A piece of work takes a few milliseconds, so a test can disturb a run hundreds of times.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from random import Random

from actors.actor import run_actor
from actors.identity import add_identity_arguments, identity_from
from actors.work_context import WorkContext
from protocol import messages
from protocol.values import (
    Call,
    Candidate,
    Device,
    FailedCandidate,
    Outcome,
    Plan,
    Reference,
    Role,
    Verdict,
    request_key,
)

EAGER_US = float(os.environ.get("FAKE_EAGER_US", "100"))  # a slower machine measures longer times
INPUTS = "float32[64, 256]"
USD, MAX_USD = 0.01, 0.03  # cost and reservation of one call
BILL = Path("charged.txt")  # the calls that a server would charge for, a line each


def verdict_of(source: str) -> Verdict:
    """Return the verdict of a candidate: a function of its source alone."""
    rng = Random(source)
    if rng.random() < 0.4:
        return Verdict(verdict=Outcome.WRONG, reason="as scripted", stage="check")
    median_us = round(rng.uniform(20.0, 150.0), 1) * EAGER_US / 100.0
    if EAGER_US != 100.0:  # another machine ranks candidates a little differently, too
        median_us *= Random(f"{source} {EAGER_US}").uniform(0.6, 1.6)
    return Verdict(
        verdict=Outcome.CORRECT,
        median_us=median_us,
        reference_us=EAGER_US,
        speedup=EAGER_US / median_us,
        speedup_ci95=(EAGER_US / median_us, EAGER_US / median_us),
    )


def mended(work: messages.AgentWork, failed: FailedCandidate) -> messages.Result:
    """Return the mended candidate; some answers have none."""
    if Random(f"mend {failed.source}").random() < 0.3:
        return messages.ReplyUnusable(lease=work.lease, reason="no code", gives_up_on="task")
    candidate = Candidate(source=f"{failed.source}# mended: {failed.verdict.reason}\n")
    message = messages.Repaired if isinstance(work, messages.Repair) else messages.Written
    return message(lease=work.lease, candidate=candidate)


class FakeWorker:
    """A worker that answers every request for its role."""

    def __init__(self, role: Role, work_s: float) -> None:
        self.role = role
        self.credit = 1
        self.device: Device | None = None
        self._work_s = work_s

    def work(
        self, request: messages.Work, context: WorkContext
    ) -> messages.Result | messages.HandedBack:
        lease = request.lease
        context.set_activity(lease.work)
        if isinstance(request, messages.AgentRequest):
            self._ask(request, context)
            if context.is_revoked():
                return messages.HandedBack(lease=lease, reason="stopped")
            if request.failed is not None:
                return mended(request, request.failed)
        return self._answer(request, context)

    def _answer(self, request: messages.Work, context: WorkContext) -> messages.Result:
        lease = request.lease
        match request:
            case messages.MeasureReference():
                return messages.ReferenceMeasured(
                    lease=lease, reference=Reference(eager_us=EAGER_US, inputs=INPUTS)
                )
            case messages.MeasureBaselines():
                return messages.BaselinesMeasured(lease=lease, compile_us=EAGER_US / 2)
            case messages.Evaluate():
                context.candidate_running()
                time.sleep(self._work_s)
                return messages.Evaluated(lease=lease, verdict=verdict_of(request.source))
            case messages.MakePlan():
                shown = ",".join(str(entry.node) for entry in request.window)
                plan = Plan(advice=f"advice {lease.work} [{shown}]", scaffold=request.node.source)
                return messages.Planned(lease=lease, plan=plan)
            case messages.Write():
                source = f"# {lease.work} from {request.node.node}: {request.plan.advice}\n"
                return messages.Written(lease=lease, candidate=Candidate(source=source))
            case messages.Repair():
                source = f"# {lease.work} repairs {request.node.node}: {request.plan.advice}\n"
                return messages.Repaired(lease=lease, candidate=Candidate(source=source))

            case messages.Solve() | messages.Reflect():
                self._ask(request, context)
                reflections = getattr(request, "reflections", ())
                advice = f"words {lease.work} after {len(reflections)}"
                source = f"# {lease.work} from {request.node.node}: {' | '.join(reflections)}\n"
                return messages.Written(
                    lease=lease,
                    candidate=Candidate(source=source),
                    plan=Plan(advice=advice, scaffold=""),
                )

    def _ask(self, request: messages.AgentWork, context: WorkContext) -> None:
        """Reserve budget, buy a reply, and note in `BILL` that the call was charged."""
        work = request.lease.work
        if request.completed_calls or not context.reserve_budget(
            "fake", request_key(work), MAX_USD
        ):
            return
        with BILL.open("a") as bill:
            bill.write(f"{work}\n")
        time.sleep(self._work_s)
        context.call_completed(Call(model="fake", request=work, reply="…", usd=USD))

    def close(self) -> None:
        """Do nothing: this worker holds no resources."""


def main() -> int:
    parser = argparse.ArgumentParser()
    add_identity_arguments(parser)
    parser.add_argument("--role", type=Role, required=True)
    parser.add_argument("--work-s", type=float, default=0.002)
    arguments = parser.parse_args()
    worker = FakeWorker(arguments.role, arguments.work_s)
    return run_actor(worker, identity_from(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
