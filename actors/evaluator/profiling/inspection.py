"""Runs a winner under NVIDIA's tools: out-of-bounds accesses, races, ncu's numbers.

The winner runs in a fresh process.  The tools take too long for every candidate, but not for a
winner.  The verdict also reports a tool that is not permitted.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable

import msgspec

from actors.evaluator.ipc.orders import CandidateRaised, Confinement, Order
from actors.evaluator.ipc.runner_orders import CallOnce, FromRunner
from actors.evaluator.profiling import tools
from actors.evaluator.profiling.tools import Tool
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.zygote_client import ZygoteClient

START_S = 30.0  # torch is imported again, under the tool
CALL_S = 60.0
ALL_S = 60.0  # no tool starts after this time, so that a run ends
TOOL_NAMES: tuple[Tool, ...] = ("memcheck", "racecheck", "ncu")
MAX_KERNELS_SHOWN = 3  # of ncu's kernels


def inspect_candidate(
    zygote: ZygoteClient,
    fixture: ReferenceFixture,
    source: str,
    fresh: Callable[[], Confinement],
) -> dict[str, str]:
    """Return tool name -> its findings as text for people."""
    found: dict[str, str] = {}
    until = time.monotonic() + ALL_S
    for name in TOOL_NAMES:
        executable = "ncu" if name == "ncu" else "compute-sanitizer"
        if shutil.which(executable) is None:
            continue
        if not zygote.ready.namespaces:
            found[name] = "not run: it needs a network namespace of its own (sandbox level 3)"
            continue
        if time.monotonic() > until:
            found[name] = f"not run: the tools before it took {ALL_S:.0f} s"
            continue
        output = _run(zygote, fixture, source, fresh(), tuple(tools.tool_command(name, [])))
        found[name] = _numbers(output) if name == "ncu" else _errors(output)
    return found


def memcheck_errors(found: dict[str, str]) -> str:
    """Return memcheck's findings; "" when it found nothing."""
    text = found.get("memcheck", "")
    return text if text[:1].isdigit() and not text.startswith("0 ") else ""


def _run(
    zygote: ZygoteClient,
    fixture: ReferenceFixture,
    source: str,
    confinement: Confinement,
    command: tuple[str, ...],
) -> str:
    """Call the candidate once under a tool; return all output of both."""
    child: ChildClient[FromRunner] = zygote.spawn(
        "tool",
        msgspec.structs.replace(confinement, own_network=True),
        FromRunner,
        trusted=False,
        command=command,
        patience_s=START_S,
    )
    drawn = fixture.referee.draw()
    try:
        fixture.refresh_buffers()
        construct, init = fixture.construct_order()
        load, state = fixture.load_order()
        feed, inputs = drawn.set_inputs_order(0)
        steps: list[tuple[Order, list[int]]] = [
            (fixture.import_order(source), []),
            (construct, init),
            (load, state),
            (feed, inputs),
            (CallOnce(slot=0, seed=drawn.seed, keep=0), []),
        ]
        for order, carried in steps:
            answer = child.ask(order, CALL_S, carried)
            if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
                break
        child.dismiss(CALL_S)
    finally:
        os.close(drawn.buffer)
        fixture.referee.forget(drawn.number)
        child.kill()
    return child.output.text()


def _errors(output: str) -> str:
    summary = tools.sanitizer_summary(output)
    if summary.count is None:
        return f"did not run to its end: {' '.join(output.split())[-200:]}"
    return f"{summary.count} errors" + "".join(f"; {line}" for line in summary.lines)


def _numbers(output: str) -> str:
    kernels = tools.ncu_numbers(output)
    if not kernels:
        return f"no numbers: {' '.join(output.split())[-200:]}"
    return " | ".join(
        f"{name}: " + ", ".join(f"{key} {value}" for key, value in figures.items())
        for name, figures in list(kernels.items())[:MAX_KERNELS_SHOWN]
    )
