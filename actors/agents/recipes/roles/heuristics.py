"""The changes that a planner weighs: one knob each, with its advice and its prior.

The priors are rules of thumb of a kernel engineer, not measurements.  A change that leaves the
source as it is, or leads to a source that was tried already, is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from actors.agents.recipes.codegen.compiler import CaseText, CompiledCandidate, compile_candidate
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.schedule.knobs import Knobs, read_knobs, with_change
from protocol.values import AttemptView, source_key

MAX_COMPILES = 600  # candidates compiled to find out whether any is new: a few seconds
CACHE_BYTES = 8 << 20  # a larger output leaves the caches before it is read


class KnobChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one knob."""

    change: dict[str, object]
    advice: str
    prior: float
    compiled: CompiledCandidate

    @property
    def knob(self) -> str:
        return next(iter(self.change))


CPP_CHANGES: dict[tuple[str, object], tuple[float, str]] = {
    ("vector", 16): (9.0, "Use vectors of 16 floats: a whole 512-bit register or two 256-bit ones"),
    ("vector", 8): (4.0, "Use vectors of 8 floats: one 256-bit register"),
    ("vector", 4): (1.0, "Use vectors of 4 floats: rows this short waste wider ones"),
    ("passes", "buffer"): (8.0, "Keep what an earlier pass over the row computed in a small buffer"
                                " instead of computing it again"),
    ("passes", "recompute"): (2.0, "Compute intermediate values again in each pass instead of"
                                   " storing them: fewer loads and stores"),
    ("maths", "quick"): (7.0, "Multiply by inverses instead of dividing, and use rational fits"
                              " for erf and tanh: a few rounding errors for half the work"),
    ("maths", "tight"): (1.0, "Divide exactly and use the tighter fits of erf and tanh"),
    ("memory", "reuse"): (7.5, "Write the result over the matrix product that PyTorch made for"
                               " us alone: no new pages to touch, and the cache lines are there"),
    ("memory", "fresh"): (1.0, "Write the result to memory of its own"),
    ("bias", "kernel"): (6.0, "Let the kernel add the linear layer's bias while the product"
                              " passes through it"),
    ("bias", "torch"): (1.0, "Leave the linear layer's bias to the library"),
    ("unroll", 2): (5.0, "Keep two vectors under way at once, so that latencies overlap"),
    ("unroll", 4): (4.0, "Keep four vectors under way at once, so that latencies overlap"),
    ("unroll", 1): (1.0, "Keep one vector under way: fewer registers"),
    ("block", 256): (2.0, "Cut the work into pieces of 256 numbers, which stay in the first cache"),
    ("block", 1024): (2.5, "Cut the work into pieces of 1,024 numbers"),
    ("block", 4096): (3.5, "Cut the work into pieces of 4,096 numbers: less bookkeeping"),
    ("block", 16384): (3.0, "Cut the work into pieces of 16,384 numbers: hardly any bookkeeping"),
    ("store", "stream"): (2.0, "Write the result past the caches: it is not read again here, and"
                               " its lines need not be fetched before they are written"),
    ("store", "cached"): (2.0, "Write through the caches: whoever reads the result finds it there"),
    ("schedule", "dynamic"): (1.2, "Hand pieces of work to whichever thread is free"),
    ("schedule", "static"): (1.0, "Give each thread its share of the work in advance"),
    ("threads", 1): (0.6, "Run on one thread: work this small is not worth waking another"),
    ("threads", 0): (3.0, "Run on all threads"),
    ("fusion", "all"): (6.0, "Fuse everything that one loop can hold"),
    ("fusion", "layers"): (0.8, "Fuse within each layer only: shorter kernels, fewer registers"),
    ("fusion", "single"): (0.3, "Keep reductions apart from what is around them"),
}  # fmt: skip

CUDA_CHANGES: dict[tuple[str, object], tuple[float, str]] = {
    ("vector", 4): (9.0, "Load and store four floats at a time: a quarter of the instructions"),
    ("vector", 2): (4.0, "Load and store two floats at a time"),
    ("vector", 1): (1.0, "Load one float at a time: sizes this odd do not divide"),
    ("threads", 32): (6.0, "Give each row to one warp, so that no barrier is needed"),
    ("threads", 0): (3.0, "Give each row to a whole block"),
    ("passes", "buffer"): (8.0, "Keep the row's values in registers between the passes, so that"
                                " memory is read once"),
    ("passes", "recompute"): (2.0, "Read the row again in each pass: fewer registers"),
    ("memory", "reuse"): CPP_CHANGES["memory", "reuse"],
    ("memory", "fresh"): CPP_CHANGES["memory", "fresh"],
    ("bias", "kernel"): CPP_CHANGES["bias", "kernel"],
    ("bias", "torch"): CPP_CHANGES["bias", "torch"],
    ("unroll", 2): (5.0, "Let each thread do two loads before it uses either"),
    ("unroll", 4): (5.5, "Let each thread do four loads before it uses any"),
    ("unroll", 1): (1.0, "Let each thread do one load: more threads, fewer registers"),
    ("block", 128): (3.0, "Use blocks of 128 threads"),
    ("block", 256): (2.5, "Use blocks of 256 threads"),
    ("block", 512): (3.5, "Use blocks of 512 threads"),
    ("block", 1024): (2.0, "Use blocks of 1,024 threads: the longest rows need them"),
    ("maths", "quick"): (1.5, "Multiply by inverses instead of dividing"),
    ("maths", "tight"): (1.0, "Divide exactly"),
    ("fusion", "all"): CPP_CHANGES["fusion", "all"],
    ("fusion", "layers"): CPP_CHANGES["fusion", "layers"],
    ("fusion", "single"): CPP_CHANGES["fusion", "single"],
}  # fmt: skip


def adjusted_prior(choice: tuple[str, object], prior: float, compiled: CompiledCandidate) -> float:
    """The prior of a change, adjusted to the loop nests that it would change."""
    knob, value = choice
    written = max(loops.volume * 4 * len(loops.stores) for loops in compiled.loop_nests)
    width = min(loops.width for loops in compiled.loop_nests)
    volume = max(loops.volume for loops in compiled.loop_nests)
    if (knob, value) == ("store", "stream"):
        return prior + (5.0 if written > CACHE_BYTES else -1.5)
    if (knob, value) == ("threads", 1) and volume < 1 << 16:
        return prior + 4.0
    if knob == "vector" and isinstance(value, int) and value > width:
        return 0.2
    return prior


class CompileInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of every candidate of one task, besides its knobs."""

    task: str
    inputs: str
    outputs: str
    backend: str
    more_cases: tuple[CaseText, ...] = ()
    gradients: tuple[int, ...] | None = None  # of a task with a backward pass: inputs that get one

    def compile(self, knobs: Knobs) -> CompiledCandidate:
        """The candidate; raises `UnsupportedSourceError`."""
        return compile_candidate(
            self.task, self.inputs, self.backend, knobs, self.outputs, self.more_cases,
            self.gradients,
        )  # fmt: skip


def single_changes(
    compile_inputs: CompileInputs, base: Knobs
) -> Iterator[tuple[tuple[str, object], Knobs, CompiledCandidate]]:
    """Every single change of the base that compiles, with its knobs and its candidate."""
    for knob, value in CUDA_CHANGES if compile_inputs.backend == "cuda" else CPP_CHANGES:
        if getattr(base, knob) == value:
            continue
        knobs = with_change(base, {knob: value})
        if knobs is None:
            continue
        try:
            yield (knob, value), knobs, compile_inputs.compile(knobs)
        except UnsupportedSourceError:
            continue


def candidate_changes(
    compile_inputs: CompileInputs, base: Knobs, shown: CompiledCandidate, seen: set[str]
) -> Iterator[KnobChange]:
    """The changes of the base whose source is new."""
    known = set(seen)
    table = CUDA_CHANGES if compile_inputs.backend == "cuda" else CPP_CHANGES
    for choice, _, made in single_changes(compile_inputs, base):
        key = source_key(made.source)
        if key in known:
            continue
        known.add(key)
        prior, advice = table[choice]
        prior = adjusted_prior(choice, prior, shown)
        yield KnobChange(change={choice[0]: choice[1]}, advice=advice, prior=prior, compiled=made)


def is_all_tried(compile_inputs: CompileInputs, base: Knobs, seen: set[str]) -> bool:
    """Whether no chain of single changes, through sources that were tried, leads to a new one."""
    known: set[str] = set()
    todo, compile_count = [base], 0
    while todo:
        for _, knobs, made in single_changes(compile_inputs, todo.pop()):
            compile_count += 1
            key = source_key(made.source)
            if key not in seen or compile_count > MAX_COMPILES:
                return False
            if key not in known:
                known.add(key)
                todo.append(knobs)
    return True


def evidence_from_window(
    choice: KnobChange, base: Knobs, score: float | None, window: tuple[AttemptView, ...]
) -> float:
    """What the window adds to a prior: more for settings of faster kernels, less for slower ones.

    A difference counts in equal parts for the knobs that differ: of two kernels that differ in five
    knobs, each knob gets a fifth.
    """
    total = 0.0
    for entry in window:
        knobs = read_knobs(entry.source)
        if knobs is None or getattr(knobs, choice.knob) != choice.change[choice.knob]:
            continue
        differing = sum(getattr(knobs, n) != getattr(base, n) for n in Knobs.__struct_fields__)
        if not differing:
            continue
        if not entry.verdict.is_correct or entry.score_us is None:
            total -= 8.0 / differing
        elif score is not None:
            gain = (score - entry.score_us) / score
            total += max(-1.0, min(1.0, 4.0 * gain)) * 12.0 / differing
    return total
