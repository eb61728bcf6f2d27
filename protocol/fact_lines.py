"""Facts as text: one line each, for models and for people.  Pure.

A line names its figures, and a bound is named by fixed rules over measured figures only
(`docs/evaluation-laws.md`, law 17).  Where nothing is known there is no line.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.facts import (
    DeviceRates,
    MatrixPrecision,
    ReferenceFacts,
    TaskCost,
    TaskFloor,
    VerdictFacts,
)
from protocol.figure_text import (
    bytes_text,
    flops_text,
    in_brackets,
    kernel_name,
    launches_text,
    precision_name,
    rate_text,
    tflops_text,
    us,
)
from protocol.kernel_lines import kernel_lines

MIN_IDLE_SHARE, MIN_IDLE_US = 0.25, 1.0  # of a call in which the device does nothing: named then
MIN_TOLD_US = 0.1  # a shorter time of a task's bytes bounds nothing
MIN_SHARE = 0.02  # of a call's time, or of a floor; a smaller part of it is not named
MIN_LAUNCH_SHARE = 0.2  # of a call's time: less is hidden behind the work of the call before
MIN_HOST_SHARE = 0.6  # of a call's time that passes before it returns to Python
BEYOND = 1.15  # share of a floor from which on a candidate needs less than the reference
MUCH_OF_FLOOR = 0.25  # of a float32 floor: split products run at a multiple of its rate
MIN_TOLD_ERROR = 0.01  # of the tolerance: a smaller error leaves all the room that there is
NEAR_RATE = 0.75  # share of a rate from which on it bounds a kernel
# A float32 product as three of the values' upper and lower parts: far more exact than one.
PRODUCTS_OF_A_SPLIT = 3
SPLIT_PRECISIONS: tuple[MatrixPrecision, ...] = ("tf32", "bfloat16")
_SPLIT = "three products of split values"


def task_fact_lines(facts: ReferenceFacts | None) -> list[str]:
    """Return what is known of a task: rates, bytes and operations, floor, operators, rules."""
    if facts is None:
        return []
    has_products = facts.cost is None or bool(facts.cost.flops or facts.cost.uncounted)
    lines = [*_rate_lines(facts.rates, has_products=has_products)]
    if facts.cost is not None:
        lines += _cost_lines(facts.cost, facts.rates, facts.floor)
    lines += _instruction_lines(facts.rates, facts.floor)
    if facts.floor is not None:
        lines += _floor_lines(facts.floor)
    return [*lines, *_operation_lines(facts), *facts.rule_lines]


def verdict_fact_lines(facts: VerdictFacts | None, task: ReferenceFacts | None) -> list[str]:
    """Return what is known of a candidate: its share of the floor, launches, kernels, errors.

    `task`: the facts of the candidate's task, for the floor and for the device's rates.
    """
    if facts is None:
        return []
    failed = [f"Where it failed: {facts.fault_location}"] if facts.fault_location else []
    shares = [*_share_lines(facts, task), *_launch_lines(facts, task), *kernel_lines(facts)]
    shares += [f"The compiler (ptxas): {remark}." for remark in facts.compiler_remarks]
    shares += [f"No profile: {facts.no_profile}."] if facts.no_profile else []
    return [*failed, *shares, *facts.profile_sentences, *facts.difference, *_error_lines(facts)]


# --- the task -------------------------------------------------------------------------------------


def _rate_lines(rates: DeviceRates, *, has_products: bool) -> Iterator[str]:
    parts = []
    if rates.copy_gb_s is not None:
        copy = f"copies {rate_text(rates.copy_gb_s)} GB/s (read plus written)"
        if rates.cached_copy_gb_s is not None and rates.cache_bytes:
            cache = bytes_text(rates.cache_bytes)
            copy += f", {rate_text(rates.cached_copy_gb_s)} within its last cache of {cache}"
        parts.append(copy)
    reads = {
        "{} from memory": rates.read_gb_s,
        "{} from its last cache": rates.cached_read_gb_s,
        "{} from shared memory": rates.shared_read_gb_s,
    }
    read = [text.format(rate_text(rate)) for text, rate in reads.items() if rate is not None]
    if read:
        parts.append(f"reads alone, GB/s: {', '.join(read)}")
    if rates.tflops and has_products:
        products = ", ".join(
            f"{precision_name(key)} {tflops_text(value)}" for key, value in rates.tflops.items()
        )
        parts.append(f"matrix products {products} TFLOP/s")
    parts += _vector_texts(rates)
    launches = {
        "{} from its call until the device is idle": rates.launch_us,
        "{} each further one of a series": rates.next_launch_us,
        "{} each inside a CUDA graph": rates.graph_launch_us,
    }
    known = [text.format(us(value)) for text, value in launches.items() if value is not None]
    if known:
        parts.append(f"an empty kernel {', '.join(known)}")
    if rates.clusters:
        parts.append(
            "blocks in clusters at once, one a multiprocessor, "
            + ", ".join(f"{size * count} of {size}" for size, count in rates.clusters.items())
        )
    if rates.empty_call_us is not None:
        parts.append(f"an empty call {us(rates.empty_call_us)}")
    if parts:
        threads = f", with {rates.threads} threads" if rates.threads else ""
        yield f"Rates measured on this device{threads}: {'; '.join(parts)}."


def _vector_texts(rates: DeviceRates) -> Iterator[str]:
    if rates.fma_gflops is not None:
        clock = f", at {rates.clock_ghz:.2g} GHz" if rates.clock_ghz is not None else ""
        yield f"vector multiply-adds {rate_text(rates.fma_gflops)} GFLOP/s{clock}"


def _cost_lines(cost: TaskCost, rates: DeviceRates, floor: TaskFloor | None) -> Iterator[str]:
    parts = {
        "inputs": cost.input_bytes,
        "parameters and buffers": cost.state_bytes,
        "outputs": cost.output_bytes,
    }
    named = ", ".join(f"{name} {bytes_text(count)}" for name, count in parts.items() if count)
    moved = f"One call moves at least {bytes_text(cost.total_bytes)} ({named})"
    times = []
    if floor is not None and floor.memory_us is not None and floor.memory_us >= MIN_TOLD_US:
        times.append(f"{us(floor.memory_us)} at these rates")
    if times and floor is not None and floor.cached_us is not None:
        times.append(f"{us(floor.cached_us)} where all of it is in the last cache")
    yield f"{moved}{': ' if times else ''}{', '.join(times)}."
    if cost.flops:
        yield _operations_line(cost, rates, floor)
    if cost.uncounted:
        yield f"Operations of {', '.join(cost.uncounted)} could not be counted."


def _operations_line(cost: TaskCost, rates: DeviceRates, floor: TaskFloor | None) -> str:
    parts = ", ".join(
        f"{flops_text(count)} in {precision_name(key)}" for key, count in cost.flops.items()
    )
    text = f"Its products (of matrices, convolutions, attention) take {parts}"
    if floor is not None and floor.matrix_us is not None:
        text += f": {us(floor.matrix_us)} at the measured rate"
        others = ", ".join(
            f"{us(cost.total_flops / rate / 1e6)} in {precision_name(key)}"
            for key, rate in rates.tflops.items()
            if key not in cost.flops and rate > 0
        )
        text += f" ({others})" if others else ""
        splits = ", ".join(
            f"{us(cost.total_flops / rate / 1e6)} of {precision_name(key)}"
            for key, rate in _split_rates(cost, rates).items()
        )
        text += f"; as {_SPLIT} {splits}" if splits else ""
    return f"{text}."


def _instruction_lines(rates: DeviceRates, floor: TaskFloor | None) -> Iterator[str]:
    """Yield what instructions reach alone, where products are much of a floor."""
    matrix_us = floor.matrix_us if floor is not None else None
    if not rates.instruction_tflops or floor is None or not matrix_us or not floor.us:
        return
    if matrix_us < MUCH_OF_FLOOR * floor.us:
        return
    rows = rates.instruction_tflops.items()
    named = ", ".join(f"{name} {tflops_text(rate)}" for name, rate in rows)
    yield f"Instructions alone, on data at hand, TFLOP/s: {named}."


def _split_rates(cost: TaskCost, rates: DeviceRates) -> dict[MatrixPrecision, float]:
    """Return the rates, 10^12 operations a second, of float32 products made by splits."""
    if set(cost.flops) != {"float32"}:
        return {}
    known = {key: rates.tflops[key] for key in SPLIT_PRECISIONS if rates.tflops.get(key)}
    return {key: rate / PRODUCTS_OF_A_SPLIT for key, rate in known.items()}


def split_products_us(facts: ReferenceFacts) -> float | None:
    """Return the least time of a task's float32 products as sums of split ones; None: unknown."""
    if facts.cost is None:
        return None
    rates = _split_rates(facts.cost, facts.rates).values()
    return facts.cost.total_flops / max(rates) / 1e6 if rates else None


def attainable_parts(facts: ReferenceFacts | None) -> dict[str, float]:
    """Return the parts of a task's floor, its float32 products at the rate of split ones.

    Microseconds by name, as `TaskFloor.parts`; {} where the floor is not known.
    """
    if facts is None or facts.floor is None:
        return {}
    parts = dict(facts.floor.parts)
    split = split_products_us(facts)
    if split is not None and "operations" in parts:
        parts["operations"] = min(split, parts["operations"])
    return parts


def _floor_lines(floor: TaskFloor) -> Iterator[str]:
    if floor.us is None:
        return
    largest = max(floor.parts, key=lambda name: floor.parts[name])
    yield (
        f"Floor of the reference's own work: {us(floor.us)} ({largest}). It counts bytes, products "
        "and a launch: other arithmetic, exponentials and gathers may take longer, exact shortcuts "
        "less."
    )


def _operation_lines(facts: ReferenceFacts) -> Iterator[str]:
    if not facts.operations:
        return
    rows = ", ".join(
        f"{kernel_name(row.name)}{f' x{row.calls}' if row.calls > 1 else ''} {us(row.us)}"
        f" ({row.share:.0%})"
        for row in facts.operations
    )
    whole = []
    if facts.device_us is not None:
        whole.append(f"{us(facts.device_us)} on the device")
    if facts.launches is not None:
        whole.append(launches_text(facts.launches))
    more = f", and {facts.more_operations} more" if facts.more_operations else ""
    yield f"PyTorch's own call by operator{in_brackets(whole)}: {rows}{more}."


# --- a candidate ----------------------------------------------------------------------------------


def _share_lines(facts: VerdictFacts, task: ReferenceFacts | None) -> Iterator[str]:
    """Yield how near the candidate is to the floor's parts, and the bound if one is near."""
    floor, own = task.floor if task is not None else None, facts.median_us
    if task is None or floor is None or not own:
        return
    parts = []
    bytes_us = floor.parts.get("bytes")
    if bytes_us is not None and task.cost is not None and bytes_us >= MIN_SHARE * own:
        rate = task.cost.total_bytes / own / 1e3
        part = f"{bytes_us / own:.0%}; " if bytes_us != floor.us else ""
        parts.append(f"its bytes{f' {us(bytes_us)}' if part else ''} ({part}{rate:,.4g} GB/s)")
    matrix_us = floor.matrix_us
    if matrix_us is not None and task.cost is not None and matrix_us >= MIN_SHARE * own:
        parts += _matrix_share(task.cost, task.rates, matrix_us, own)
    is_launch_told = facts.launches is not None and facts.device_us is not None
    if not is_launch_told and floor.launch_us is not None and floor.launch_us >= MIN_SHARE * own:
        name = "one launch" if task.rates.next_launch_us is not None else "an empty call"
        parts.append(f"{name} {us(floor.launch_us)} ({floor.launch_us / own:.0%})")
    if floor.us is None:
        return
    bound = _bound(facts, task, floor, own)
    share = floor.us / own
    reached = f"{share:.0%}" if share >= MIN_SHARE else f"{share:.1%}"
    text = f"Of its {us(own)} a call the reference's floor is {us(floor.us)}, {reached}"
    if share > BEYOND:
        text = f"Its {us(own)} a call are below the reference's floor of {us(floor.us)}"
    yield f"{text}{': ' if parts else ''}{', '.join(parts)}.{f' {bound}' if bound else ''}"


def _matrix_share(
    cost: TaskCost, rates: DeviceRates, matrix_us: float, own: float
) -> Iterator[str]:
    """Yield how near the reference's operations are to the rates; nothing beyond all of them.

    What is faster than a rate does not run at it: such a share would say nothing.
    """
    reached = cost.total_flops / own / 1e6
    # Products of both parts of split values run at the rate of a lower precision.
    others = ("tf32", "bfloat16") if {"float32", "tf32"} & cost.flops.keys() else ()
    shares = ", ".join(
        f"{reached / rate:.0%} of the {precision_name(key)} rate"
        for key, rate in rates.tflops.items()
        if rate > 0 and (key in cost.flops or key in others) and reached <= BEYOND * rate
    )
    if not shares:
        return
    if reached > rates.tflops.get("float32", reached):
        splits = ", ".join(
            f"{reached / rate:.0%} of {precision_name(key)}'s"
            for key, rate in _split_rates(cost, rates).items()
            if reached <= BEYOND * rate
        )
        shares += f"; of the rates of {_SPLIT} {splits}" if splits else ""
    part = f"{us(matrix_us)} ({matrix_us / own:.0%}; " if matrix_us <= BEYOND * own else "("
    yield f"its operations {part}{reached:.3g} TFLOP/s, {shares})"


def _bound(facts: VerdictFacts, task: ReferenceFacts, floor: TaskFloor, own: float) -> str:
    """Return what bounds it, where figures say so; "" where they do not."""
    if facts.profile_sentences or idle_us(facts) is not None:
        return ""  # a line below says it
    memory = (floor.parts.get("bytes") or 0.0) / own
    matrix = (floor.matrix_us or 0.0) / own
    if NEAR_RATE <= memory <= BEYOND:
        return "Memory bounds it."
    if max(memory, matrix) > BEYOND:
        less = "bytes" if memory >= matrix else "operations"
        other = "finds them in a cache"
        if less == "operations":
            other = "multiplies in a lower precision, or faster than the library that was measured"
        return f"It needs fewer {less} than the reference, or {other}."
    if matrix >= NEAR_RATE:
        return "Arithmetic bounds it."
    return ""


def idle_us(facts: VerdictFacts) -> float | None:
    """Return the time of a call in which the device does nothing, where that is much of it.

    The profiler's calls find warm caches, so a call that takes longer than their kernels is not yet
    idle: its host must be busy, too.
    """
    if facts.device_us is None or not facts.median_us or facts.launches is None:
        return None
    if facts.host_us is None or facts.host_us < MIN_HOST_SHARE * facts.median_us:
        return None
    idle = facts.median_us - facts.device_us
    return idle if idle >= max(MIN_IDLE_US, MIN_IDLE_SHARE * facts.median_us) else None


def _launch_lines(facts: VerdictFacts, task: ReferenceFacts | None) -> Iterator[str]:
    if facts.launches is None or facts.device_us is None:
        return
    text = f"{launches_text(facts.launches)} a call"
    one_us = task.rates.next_launch_us if task is not None else None
    if one_us is not None and facts.median_us:
        launching = facts.launches * one_us
        share = launching / facts.median_us
        if MIN_LAUNCH_SHARE <= share <= 1.0:  # more: a graph launches them
            text += f", whose launching takes {us(launching)} here ({share:.0%} of the call)"
    text += f", {us(facts.device_us)} of work on the device"
    if facts.host_us is not None:
        text += f"; a call returns to Python after {us(facts.host_us)}"
    idle = idle_us(facts)
    if idle is not None and facts.median_us:
        text += (
            f". The device is idle for {us(idle)} of {us(facts.median_us)}, which launches and the "
            "host take"
        )
    yield f"{text}."


def _error_lines(facts: VerdictFacts) -> Iterator[str]:
    """Yield the errors by kind of inputs; of small ones the largest, of exact results nothing."""
    worst = max(facts.errors, key=lambda each: each.share, default=None)
    if worst is None or not worst.share:
        return
    before = " of the draws before, which were right" if facts.difference else ""
    begin = f"Largest error{before}, as a share of the tolerance"
    if worst.share < MIN_TOLD_ERROR or len(facts.errors) == 1:
        yield f"{begin}: {worst.share:.2g} ({worst.inputs})."
        return
    named = ", ".join(f"{each.inputs} {each.share:.2g}" for each in facts.errors)
    yield f"{begin}, by inputs: {named}."
