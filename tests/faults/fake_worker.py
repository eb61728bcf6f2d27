"""A worker process on the real actor loop whose outcomes are a function of the work's name.

`python fake_worker.py --role evaluator --connect … --slot … --run-dir …`: no torch, no model, a
few milliseconds a piece of work, so that a run can be disturbed hundreds of times.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from random import Random

from actors.actor import run_actor
from actors.port import Port
from actors.post import add_post_arguments, post_from
from protocol import messages
from protocol.values import (
    Call,
    Candidate,
    Device,
    Plan,
    Reference,
    Role,
    Verdict,
    Word,
    request_key,
)

EAGER_US = float(os.environ.get("FAKE_EAGER_US", "100"))  # a slower machine measures more
INPUTS = "float32[64, 256]"
USD, MOST_USD = 0.01, 0.03  # of a call
CHARGED = Path("charged.txt")  # what the server would have on its bill


def verdict_of(source: str) -> Verdict:
    """Return what a candidate always comes to."""
    rng = Random(source)
    if rng.random() < 0.4:
        return Verdict(verdict=Word.WRONG, reason="as scripted", stage="check")
    median_us = round(rng.uniform(20.0, 150.0), 1) * EAGER_US / 100.0
    if EAGER_US != 100.0:  # another machine also ranks a little differently
        median_us *= Random(f"{source} {EAGER_US}").uniform(0.6, 1.6)
    return Verdict(
        verdict=Word.CORRECT,
        median_us=median_us,
        reference_us=EAGER_US,
        speedup=EAGER_US / median_us,
        speedup_ci95=(EAGER_US / median_us, EAGER_US / median_us),
    )


class FakeWorker:
    """Answers every request for its role."""

    def __init__(self, role: Role, work_s: float) -> None:
        self.role = role
        self.credit = 1
        self.device: Device | None = None
        self._work_s = work_s

    def work(self, request: messages.Work, port: Port) -> messages.Result | messages.Returned:
        lease = request.lease
        port.doing(lease.work)
        if isinstance(request, messages.Ask):
            self._ask(request, port)
            if port.revoked():
                return messages.Returned(lease=lease, reason="stopped")
        match request:
            case messages.Measure():
                return messages.Measured(
                    lease=lease, reference=Reference(eager_us=EAGER_US, inputs=INPUTS)
                )
            case messages.Evaluate():
                port.running()
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
                self._ask(request, port)
                told = getattr(request, "reflections", ())
                words = Plan(advice=f"words {lease.work} after {len(told)}", scaffold="")
                source = f"# {lease.work} from {request.node.node}: {' | '.join(told)}\n"
                return messages.Written(lease=lease, candidate=Candidate(source=source), plan=words)

    def _ask(self, request: messages.AgentWork, port: Port) -> None:
        """Buy a reply with leave, and write down on the side that it was charged."""
        work = request.lease.work
        if request.answered or not port.reserve("fake", request_key(work), MOST_USD):
            return
        with CHARGED.open("a") as bill:
            bill.write(f"{work}\n")
        time.sleep(self._work_s)
        port.answered(Call(model="fake", request=work, reply="…", usd=USD))

    def close(self) -> None:
        """Nothing to end."""


def main() -> int:
    parser = argparse.ArgumentParser()
    add_post_arguments(parser)
    parser.add_argument("--role", type=Role, required=True)
    parser.add_argument("--work-s", type=float, default=0.002)
    arguments = parser.parse_args()
    worker = FakeWorker(arguments.role, arguments.work_s)
    return run_actor(worker, post_from(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
