"""Runs a candidate once under a tool, or watched, in a confined process and within a time limit.

Beyond the limit the whole process tree is killed, and what was written so far is the output.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import msgspec

from actors.evaluator.ipc.orders import CandidateRaised, ChildRole, Confinement, Order
from actors.evaluator.ipc.runner_orders import CallOnce, FromRunner
from actors.evaluator.ipc.tool_process import PROFILED_CALL, TOOL_VARIABLE, Tool
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.referee_client import DrawnInputs
from actors.evaluator.sandbox.child_client import (
    ChildClient,
    ChildFailure,
    EvaluationCancelledError,
)
from actors.evaluator.sandbox.zygote_client import ZygoteClient
from protocol.values import Value

LIMIT_S = 15.0  # torch is imported again, under the tool, and the candidate is called
REPORT_S = 3.0  # that a tool has to write its report, also at the limit


class ToolRun(Value, frozen=True, kw_only=True):
    """What a tool and the candidate under it wrote."""

    text: str
    seconds: float
    is_finished: bool  # whether it ended before the limit
    failed: str = ""  # how the candidate failed under the tool, for people


def run_tool(
    zygote: ZygoteClient,
    fixture: ReferenceFixture,
    source: str,
    confinement: Confinement,
    tool: Tool,
    command: tuple[str, ...],
    limit_s: float = LIMIT_S,
    is_enough: Callable[[str], bool] | None = None,
) -> ToolRun:
    """Import, construct and call the candidate under `command`; return all output.

    It ends early where `is_enough` of the output so far: a sanitizer may go on to report every
    thread of a grid.

    Under ncu the module is called twice, and the second call is measured: the first one may
    compile, tune itself or load libraries.
    """
    calls = PROFILED_CALL if tool == "ncu" else 1
    confined = _confined_under(tool, confinement)
    return _run("tool", zygote, fixture, source, confined, command, limit_s, is_enough, calls)


def run_watched(
    zygote: ZygoteClient,
    fixture: ReferenceFixture,
    source: str,
    confinement: Confinement,
    limit_s: float,
    is_enough: Callable[[str], bool],
) -> ToolRun:
    """Import, construct and call the candidate, with launches that wait for their kernels.

    A call that does not end writes its stacks (`children/watched_runner.py`).
    """
    variables = {**confinement.environment, "CUDA_LAUNCH_BLOCKING": "1"}
    confined = msgspec.structs.replace(confinement, environment=variables)
    return _run("watched runner", zygote, fixture, source, confined, (), limit_s, is_enough, 1)


def _run(
    part: ChildRole,
    zygote: ZygoteClient,
    fixture: ReferenceFixture,
    source: str,
    confinement: Confinement,
    command: tuple[str, ...],
    limit_s: float,
    is_enough: Callable[[str], bool] | None,
    calls: int,
) -> ToolRun:
    began = time.monotonic()
    child = _start(part, zygote, confinement, command, limit_s, is_enough)
    drawn = fixture.referee.draw()
    try:
        fixture.refresh_buffers()
        failed = _give(child, _orders(fixture, drawn, source, calls), began + limit_s)
        ended = child.dismiss(max(REPORT_S, began + limit_s - time.monotonic()))
        is_finished = ended.how not in ("timed_out", "garbled", "lost")
    except EvaluationCancelledError:
        if zygote.is_cancelled():
            raise
        is_finished, failed = True, ""
    finally:
        os.close(drawn.buffer)
        fixture.referee.forget(drawn.number)
        child.kill()
    seconds = time.monotonic() - began
    text = child.output.text()
    return ToolRun(text=text, seconds=seconds, is_finished=is_finished, failed=failed)


def _start(
    part: ChildRole,
    zygote: ZygoteClient,
    confinement: Confinement,
    command: tuple[str, ...],
    limit_s: float,
    is_enough: Callable[[str], bool] | None,
) -> ChildClient[FromRunner]:
    """Start the runner; waiting for it ends early where its output is enough."""
    children: list[ChildClient[FromRunner]] = []

    def is_over() -> bool:
        is_told = is_enough is not None and children and is_enough(children[0].output.text())
        return bool(is_told) or zygote.is_cancelled()

    child: ChildClient[FromRunner] = zygote.spawn(
        part,
        confinement,
        FromRunner,
        trusted=False,
        is_cancelled=is_over,
        command=command,
        patience_s=limit_s,
    )
    children.append(child)
    return child


def _give(
    child: ChildClient[FromRunner], orders: Sequence[tuple[Order, list[int]]], until: float
) -> str:
    """Give the orders one after the other, until one is not carried out; return why it is not."""
    for order, carried in orders:
        answer = child.ask(order, max(0.0, until - time.monotonic()), carried)
        if isinstance(answer, ChildFailure):
            return answer.readable()
        if isinstance(answer[0], CandidateRaised):
            return f"{answer[0].kind}: {answer[0].words}"
    return ""


def _confined_under(tool: Tool, confinement: Confinement) -> Confinement:
    """Return the confinement of a candidate under a tool, which talks over its own network."""
    variables = {**confinement.environment, TOOL_VARIABLE: tool}
    if tool in ("memcheck", "racecheck"):
        # Without caching each tensor is an allocation of its own, and the tool knows its end.
        variables["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    return msgspec.structs.replace(confinement, own_network=True, environment=variables)


def _orders(
    fixture: ReferenceFixture, drawn: DrawnInputs, source: str, calls: int
) -> list[tuple[Order, list[int]]]:
    """Return the orders from the import to the last call, each with its descriptors."""
    return [
        *((order, carried) for order, carried, _stage in fixture.start_orders(source)),
        drawn.set_inputs_order(0),
        *((CallOnce(slot=0, seed=drawn.seed, keep=keep), []) for keep in range(calls)),
    ]
