"""A rough time of a candidate's calls, taken without the reference and in its own process.

It chooses among the variants of one candidate.  A candidate that deceives this clock spoils its own
choice; the chosen variant is timed beside the reference as every candidate is.
"""

from __future__ import annotations

import time
from statistics import quantiles

from actors.evaluator.ipc.orders import CandidateRaised
from actors.evaluator.ipc.runner_orders import CallRepeatedly, FromRunner
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.timing import timing_statistics

MIN_BLOCKS = 3
MAX_BLOCKS = 200
BLOCK_S = 0.01  # a block is that long, or one call


def timed_calls(
    runner: ChildClient[FromRunner], call_s: float, seconds: float
) -> float | ChildFailure | tuple[FromRunner, list[int]]:
    """Return microseconds a call on the inputs in slot 0, or the answer of a call that failed.

    `call_s`: the limit of a block; `seconds`: the time to spend, after a first call that may
    prepare things.  The lower quartile of the blocks counts, as for the reference's own time.
    """
    blocks_us: list[float] = []
    calls, began = 1, time.monotonic()
    for number in range(MAX_BLOCKS):
        start = time.perf_counter()
        answer = runner.ask(CallRepeatedly(calls=calls, slots=1), call_s)
        spent_s = (time.perf_counter() - start) / calls
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            return answer
        if number == 0:
            began = time.monotonic()
            continue
        calls = timing_statistics.calls_a_block(spent_s, BLOCK_S)
        blocks_us.append(spent_s * 1e6)
        if time.monotonic() - began >= seconds and len(blocks_us) >= MIN_BLOCKS:
            break
    return quantiles(blocks_us, n=4, method="inclusive")[0]
