"""Runs a candidate once under a tool, in a fresh confined process and within a time limit.

Beyond the limit the whole process tree is killed, and what was written so far is the output.
"""

from __future__ import annotations

import os
import time

import msgspec

from actors.evaluator.ipc.orders import CandidateRaised, Confinement, Order
from actors.evaluator.ipc.runner_orders import CallOnce, FromRunner
from actors.evaluator.ipc.tool_process import PROFILED_CALL, TOOL_VARIABLE, Tool
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.zygote_client import ZygoteClient
from protocol.values import Value

LIMIT_S = 15.0  # torch is imported again, under the tool, and the candidate is called
END_SHARE = 0.4  # of the limit that is kept for the tool to write its report


class ToolRun(Value, frozen=True, kw_only=True):
    """What a tool and the candidate under it wrote."""

    text: str
    seconds: float
    is_finished: bool  # whether it ended before the limit


def run_tool(
    zygote: ZygoteClient,
    fixture: ReferenceFixture,
    source: str,
    confinement: Confinement,
    tool: Tool,
    command: tuple[str, ...],
    limit_s: float = LIMIT_S,
) -> ToolRun:
    """Import, construct and call the candidate under `command`; return all output.

    Under ncu the module is called twice, and the second call is measured: the first one may
    compile, tune itself or load libraries.
    """
    began = time.monotonic()
    variables = {**confinement.environment, TOOL_VARIABLE: tool}
    if tool in ("memcheck", "racecheck"):
        # Without caching each tensor is an allocation of its own, and the tool knows its end.
        variables["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    child: ChildClient[FromRunner] = zygote.spawn(
        "tool",
        msgspec.structs.replace(confinement, own_network=True, environment=variables),
        FromRunner,
        trusted=False,
        command=command,
        patience_s=limit_s,
    )
    drawn = fixture.referee.draw()
    try:
        fixture.refresh_buffers()
        construct, init = fixture.construct_order()
        load, state = fixture.load_order()
        feed, inputs = drawn.set_inputs_order(0)
        calls = PROFILED_CALL if tool == "ncu" else 1
        steps: list[tuple[Order, list[int]]] = [
            (fixture.import_order(source), []),
            (construct, init),
            (load, state),
            (feed, inputs),
            *((CallOnce(slot=0, seed=drawn.seed, keep=keep), []) for keep in range(calls)),
        ]
        for order, carried in steps:
            answer = child.ask(order, max(0.0, began + limit_s - time.monotonic()), carried)
            if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
                break
        # The tool may still have its report to write.
        left = max(END_SHARE * limit_s, began + limit_s - time.monotonic())
        ended = child.dismiss(left)
    finally:
        os.close(drawn.buffer)
        fixture.referee.forget(drawn.number)
        child.kill()
    return ToolRun(
        text=child.output.text(),
        seconds=time.monotonic() - began,
        is_finished=ended.how not in ("timed_out", "garbled", "lost"),
    )
