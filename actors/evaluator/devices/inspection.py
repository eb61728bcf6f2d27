"""A winner under NVIDIA's tools, in a fresh process: out-of-bounds accesses, races, ncu's numbers.

Minutes would be too long for every candidate, seconds are not for a winner.  Where a tool is not
installed or not permitted, that is what the verdict says.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable

import msgspec

from actors.evaluator.devices import tools
from actors.evaluator.devices.tools import Tool
from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.isolation.nursery import Nursery
from actors.evaluator.standard import Standard
from actors.evaluator.wire.orders import Confinement, Order, Raised
from actors.evaluator.wire.runner_orders import CallOnce, FromRunner

START_S = 30.0  # torch is imported again, under the tool
CALL_S = 60.0
ALL_S = 60.0  # a tool that begins later than this is not begun: a run must come to its end
NAMES: tuple[Tool, ...] = ("memcheck", "racecheck", "ncu")
SHOWN = 3  # of the kernels that ncu saw


def inspect(
    nursery: Nursery,
    standard: Standard,
    source: str,
    fresh: Callable[[], Confinement],
) -> dict[str, str]:
    """Return what each tool found: its name -> words for people."""
    found: dict[str, str] = {}
    until = time.monotonic() + ALL_S
    for name in NAMES:
        executable = "ncu" if name == "ncu" else "compute-sanitizer"
        if shutil.which(executable) is None:
            continue
        if not nursery.ready.namespaces:
            found[name] = "not run: it needs a network namespace of its own (sandbox level 3)"
            continue
        if time.monotonic() > until:
            found[name] = f"not run: the tools before it took {ALL_S:.0f} s"
            continue
        said = _run(nursery, standard, source, fresh(), tuple(tools.command(name, [])))
        found[name] = _numbers(said) if name == "ncu" else _errors(said)
    return found


def errors_in(found: dict[str, str]) -> str:
    """Return memcheck's words when it found something; "" otherwise."""
    words = found.get("memcheck", "")
    return words if words[:1].isdigit() and not words.startswith("0 ") else ""


def _run(
    nursery: Nursery,
    standard: Standard,
    source: str,
    confinement: Confinement,
    command: tuple[str, ...],
) -> str:
    """Call the candidate once under a tool; return all that was printed."""
    child: Child[FromRunner] = nursery.spawn(
        "tool",
        msgspec.structs.replace(confinement, own_network=True),
        FromRunner,
        trusted=False,
        command=command,
        patience_s=START_S,
    )
    drawing = standard.examiner.draw()
    try:
        standard.renew()
        construct, made = standard.construct()
        load, state = standard.load()
        feed, inputs = drawing.feed(0)
        steps: list[tuple[Order, list[int]]] = [
            (standard.import_order(source), []),
            (construct, made),
            (load, state),
            (feed, inputs),
            (CallOnce(slot=0, seed=drawing.seed, keep=0), []),
        ]
        for order, carried in steps:
            answer = child.ask(order, CALL_S, carried)
            if isinstance(answer, Gone) or isinstance(answer[0], Raised):
                break
        child.dismiss(CALL_S)
    finally:
        os.close(drawing.parcel)
        standard.examiner.forget(drawing.number)
        child.kill()
    return child.output.text()


def _errors(said: str) -> str:
    summary = tools.sanitizer_summary(said)
    if summary.count is None:
        return f"did not run to its end: {' '.join(said.split())[-200:]}"
    return f"{summary.count} errors" + "".join(f"; {line}" for line in summary.lines)


def _numbers(said: str) -> str:
    kernels = tools.ncu_numbers(said)
    if not kernels:
        return f"no numbers: {' '.join(said.split())[-200:]}"
    return " | ".join(
        f"{name}: " + ", ".join(f"{key} {value}" for key, value in figures.items())
        for name, figures in list(kernels.items())[:SHOWN]
    )
