"""The knobs of a candidate, and the header line of its source that lists them.

A candidate's first line is `# recipe: {...}`.  The planner reads there which knobs an attempt had.
A plan names one change in a line `recipe: {...}`, which the coder reads.
"""

from __future__ import annotations

import json
import re
from typing import Literal

import msgspec

from actors.agents.recipes.schedule.fusion import Depth


class Knobs(msgspec.Struct, frozen=True, kw_only=True):
    """Every choice that a candidate's source depends on, besides the task itself."""

    fusion: Depth = "all"  # how much runs in one kernel
    bias: Literal["torch", "kernel"] = "torch"  # what adds a linear layer's bias
    passes: Literal["recompute", "buffer"] = "recompute"  # values that later passes use
    maths: Literal["tight", "quick"] = "tight"  # quick: inverses for divisions, rational fits
    vector: int = 8  # floats in one vector (C++), or one load (CUDA)
    unroll: int = 1  # vectors (C++) or loads (CUDA) under way at once
    block: int = 1024  # C++: floats in a piece of work; CUDA: threads in a block
    threads: int = 0  # C++: OpenMP threads, 0 for all; CUDA: threads a row, 0 for the block
    schedule: Literal["static", "dynamic"] = "static"
    store: Literal["cached", "stream"] = "cached"
    memory: Literal["fresh", "reuse"] = (
        "fresh"  # reuse: write over a product that is not read again
    )


KNOB_NAMES = tuple(Knobs.__struct_fields__)
HEADER = re.compile(r"^# recipe: (\{.*\})$", re.MULTILINE)


def default_knobs(backend: str) -> Knobs:
    """The knobs of a task's first candidate: fused, and not tuned.

    On a card two loads of 16 bytes are under way in each thread: with one of 4 bytes, candidates
    that only move memory had 0.67 to 0.79 of eager's speed on an H100.
    """
    if backend == "cuda":
        return Knobs(vector=4, unroll=2, block=256)
    return Knobs()


def knobs_header(knobs: Knobs) -> str:
    """The first line of a candidate's source."""
    return f"# recipe: {json.dumps(msgspec.to_builtins(knobs))}"


def read_knobs(source: str) -> Knobs | None:
    """The knobs of a candidate's source, None if the rule book did not write it."""
    match = HEADER.search(source)
    if match is None:
        return None
    try:
        return msgspec.json.decode(match[1].encode(), type=Knobs)
    except (msgspec.DecodeError, UnicodeError):
        return None


def with_change(knobs: Knobs, change: dict[str, object]) -> Knobs | None:
    """The knobs with a change, None where a name or a value is not valid."""
    try:
        return msgspec.convert({**msgspec.to_builtins(knobs), **change}, type=Knobs)
    except msgspec.ValidationError:
        return None


def read_change(advice: str) -> dict[str, object] | None:
    """The change that a plan's advice names in its `recipe: {...}`."""
    for match in re.finditer(r"recipe:\s*(?=\{)", advice):
        try:
            found, _ = json.JSONDecoder().raw_decode(advice[match.end() :])
        except ValueError:
            continue
        if isinstance(found, dict) and found and set(found) <= set(KNOB_NAMES):
            return found
    return None


def knob_difference(old: Knobs, new: Knobs) -> dict[str, object]:
    """The new value of each knob that differs, by name."""
    return {
        name: getattr(new, name) for name in KNOB_NAMES if getattr(new, name) != getattr(old, name)
    }
