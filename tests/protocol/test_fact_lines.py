"""Laws of facts as text: a line for what is known, none for what is not, bounds by figures only."""

from __future__ import annotations

from msgspec.structs import replace

from protocol.fact_lines import task_fact_lines, verdict_fact_lines
from protocol.facts import (
    DeviceRates,
    DrawError,
    KernelFacts,
    OperationTime,
    ReferenceFacts,
    TaskCost,
    TaskFloor,
    VerdictFacts,
)

RATES = DeviceRates(
    copy_gb_s=2900.0,
    cached_copy_gb_s=5200.0,
    cache_bytes=50 << 20,
    launch_us=6.1,
    next_launch_us=2.1,
    tflops={"float32": 50.0, "tf32": 400.0},
)
MEMORY = ReferenceFacts(
    rates=RATES,
    cost=TaskCost(input_bytes=512 << 20, output_bytes=512 << 20),
    floor=TaskFloor(memory_us=370.0, launch_us=2.1),
    operations=(OperationTime(name="aten::native_layer_norm", calls=1, us=8300.0, share=1.0),),
    device_us=8300.0,
    launches=3,
    rule_lines=("A rule.",),
)
MATRIX = ReferenceFacts(
    rates=RATES,
    cost=TaskCost(input_bytes=1 << 20, flops={"float32": 100e9}),
    floor=TaskFloor(memory_us=0.4, matrix_us=2000.0, launch_us=2.1),
)


def verdict_text(facts: VerdictFacts, task: ReferenceFacts | None = None) -> str:
    return "\n".join(verdict_fact_lines(facts, task))


def test_nothing_known_says_nothing() -> None:
    """Without facts, or with empty ones, a prompt gets no line."""
    assert task_fact_lines(None) == task_fact_lines(ReferenceFacts()) == []
    assert verdict_fact_lines(None, MEMORY) == verdict_fact_lines(VerdictFacts(), MEMORY) == []
    assert verdict_fact_lines(VerdictFacts(median_us=3.0), None) == []


def test_a_tasks_lines_have_the_figures() -> None:
    """Rates, bytes, floor, operators and rules, in this order."""
    lines = task_fact_lines(MEMORY)
    assert "2,900 GB/s" in lines[0]
    assert "TFLOP/s" not in lines[0]  # it has no products
    assert "float32 50, TF32 400 TFLOP/s" in task_fact_lines(MATRIX)[0]
    assert "at least 1 GiB (inputs 512 MiB" in lines[1]
    assert "370 µs at these rates" in lines[1]
    assert lines[2].startswith("Floor of the reference's own work: 370 µs (bytes).")
    assert "aten::native_layer_norm 8.3 ms (100%)" in lines[3]
    assert lines[-1] == "A rule."


def test_rates_of_reading_are_in_the_line_of_rates() -> None:
    """A reduction's author needs what reading alone reaches, from each place."""
    rates = replace(RATES, read_gb_s=3050.0, cached_read_gb_s=6400.0, shared_read_gb_s=31000.0)
    line = task_fact_lines(replace(MEMORY, rates=rates))[0]
    assert "; reads alone, GB/s: 3,050 from memory, 6,400 from its last cache, 31,000 from" in line


def test_a_floor_that_one_part_sets_is_told_once() -> None:
    """ "135 µs, 73%: its bytes 135 µs (73%; 3,076 GB/s)" had both figures twice."""
    text = verdict_text(VerdictFacts(median_us=740.0), MEMORY)
    floor = "Of its 740 µs a call the reference's floor is 370 µs, 50%"
    assert text.startswith(f"{floor}: its bytes (1,451 GB/s).")


def test_the_share_of_launches_is_told_where_both_are_known() -> None:
    """Four launches at 2.1 µs of a call of 20 µs; nothing where a graph must launch them."""
    launched = VerdictFacts(median_us=20.0, launches=4, device_us=6.0)
    assert "4 launches a call, whose launching takes 8.4 µs here (42% of the call), 6 µs of" in (
        verdict_text(launched, MEMORY)
    )
    assert "whose launching" not in verdict_text(replace(launched, median_us=8.0), MEMORY)
    assert "whose launching" not in verdict_text(replace(launched, median_us=60.0), MEMORY)


def test_operations_stand_beside_other_precisions() -> None:
    """A model sees what the same products would take on other units."""
    line = next(line for line in task_fact_lines(MATRIX) if "products" in line and "GFLOP" in line)
    assert "100 GFLOP in float32: 2 ms at the measured rate" in line
    assert "250 µs in TF32" in line


def test_split_products_have_rates_of_their_own() -> None:
    """A model sees what float32 by three TF32 products takes, and how near it comes to that."""
    line = next(line for line in task_fact_lines(MATRIX) if "products" in line and "GFLOP" in line)
    assert "as three products of split values 750 µs of TF32" in line
    text = verdict_text(VerdictFacts(median_us=1000.0), MATRIX)
    assert "of the rates of three products of split values 75% of TF32's" in text
    assert "split" not in verdict_text(VerdictFacts(median_us=3000.0), MATRIX)
    assert MATRIX.cost is not None
    halves = replace(MATRIX, cost=replace(MATRIX.cost, flops={"tf32": 1e11}))
    assert not any("split" in line for line in task_fact_lines(halves))


def test_a_bound_is_named_by_its_share() -> None:
    """Near the copy rate memory bounds a kernel, near the product rate arithmetic, else nothing."""
    assert "Memory bounds it." in verdict_text(VerdictFacts(median_us=420.0), MEMORY)
    assert "bounds it" not in verdict_text(VerdictFacts(median_us=1200.0), MEMORY)
    assert "Arithmetic bounds it." in verdict_text(VerdictFacts(median_us=2500.0), MATRIX)
    assert "bounds it" not in verdict_text(VerdictFacts(median_us=3000.0), MATRIX)
    beyond = verdict_text(VerdictFacts(median_us=500.0), MATRIX)
    assert "fewer operations than the reference, or multiplies in a lower precision" in beyond
    assert "are below the reference's floor of 2 ms: its operations (200 TFLOP/s, 50% of" in beyond
    assert "operations (" not in verdict_text(VerdictFacts(median_us=100.0), MATRIX)


def test_launches_bound_only_where_host_and_device_say_so() -> None:
    """An idle device beside a busy host is named; a kernel that met a warm cache is not."""
    launched = VerdictFacts(median_us=20.0, launches=4, device_us=6.0, host_us=18.0)
    assert "The device is idle for 14 µs of 20 µs, which launches" in verdict_text(launched)
    warm = replace(launched, host_us=5.0)
    assert "idle" not in verdict_text(warm)
    assert "4 launches a call, 6 µs of work on the device" in verdict_text(warm)


def test_a_kernels_line_has_what_it_takes() -> None:
    """Launch, registers, spills, shared memory, occupancy and its limit, waves."""
    kernel = KernelFacts(
        name="row_sum", us=40.1, share=0.92, grid=(64, 1, 1), block=(256, 1, 1), registers=80,
        local_bytes=0, shared_bytes=1024, occupancy=0.375, occupancy_limit="registers", waves=0.16,
    )  # fmt: skip
    text = verdict_text(VerdictFacts(kernels=(kernel,), more_kernels=2))
    assert (
        "- row_sum: once a call, 40.1 µs (92%), grid 64, block 256, 80 registers, no spills, 1 KiB "
        "of shared memory, occupancy at most 38% by registers, 0.16 waves: blocks for only a part "
        "of the multiprocessors' room"
    ) in text
    assert "- and 2 more" in text
    spilling = replace(kernel, local_bytes=96)
    assert "96 B of local memory" in verdict_text(VerdictFacts(kernels=(spilling,)))
    profiled = VerdictFacts(kernels=(kernel, kernel), profile_sentences=("Occupancy is 30%.",))
    lines = verdict_fact_lines(profiled, None)
    assert lines[1] == "- row_sum: once a call, 40.1 µs (92%), no spills"  # a sentence has the rest
    assert "80 registers" in lines[2]
    short = replace(kernel, name="void (anonymous namespace)::tail<float>(float*)", share=0.03)
    text_of_short = verdict_text(VerdictFacts(kernels=(short,)))
    assert text_of_short.endswith("- tail<float>: once a call, 40.1 µs (3%)")
    many = replace(kernel, waves=248.24)
    assert "248 waves" in verdict_text(VerdictFacts(kernels=(many,)))


def test_an_only_kernel_is_one_line_and_tiny_ones_are_counted() -> None:
    """Its time is the device's, which the line above has; a fill of a counter decides nothing."""
    kernel = KernelFacts(name="row_sum", us=40.1, share=0.99, registers=80, local_bytes=0)
    alone = VerdictFacts(kernels=(kernel,), launches=1, device_us=40.1)
    assert verdict_text(alone).splitlines()[1:] == ["Its kernel, row_sum: 80 registers, no spills."]
    profiled = replace(alone, profile_sentences=("Occupancy is 30%.",))
    assert "Its kernel, row_sum: no spills.\nOccupancy" in verdict_text(profiled)
    tiny = replace(kernel, name="fill", us=0.4, share=0.01)
    both = verdict_text(replace(alone, kernels=(kernel, tiny), more_kernels=1, launches=3))
    assert "fill" not in both
    assert both.endswith("- and 2 more")


def test_rates_of_instructions_are_told_of_tasks_with_many_products() -> None:
    """They are no help where bytes are what counts; clusters are, for any kernel of one wave."""
    rates = replace(
        RATES,
        instruction_tflops={"bfloat16 by mma.sync": 620.0, "bfloat16 by wgmma": 1910.0},
        clusters={2: 66, 8: 15},
    )
    matrix = "\n".join(task_fact_lines(replace(MATRIX, rates=rates)))
    told = "Instructions alone, on data at hand, TFLOP/s: bfloat16 by mma.sync 620, bfloat16"
    assert f"{told} by wgmma 1,910." in matrix
    memory = "\n".join(task_fact_lines(replace(MEMORY, rates=rates)))
    assert "Instructions" not in memory
    assert "blocks in clusters at once, one a multiprocessor, 132 of 2, 120 of 8" in memory


def test_errors_stand_beside_the_tolerance_by_kind_of_inputs() -> None:
    """What is left for lower precision; exact results and tiny errors need no list."""
    given, shifted = (
        DrawError(inputs="as given", share=0.02),
        DrawError(inputs="shifted", share=0.5),
    )
    line = "Largest error, as a share of the tolerance, by inputs: as given 0.02, shifted 0.5."
    assert verdict_fact_lines(VerdictFacts(errors=(given, shifted)), None) == [line]
    tiny = tuple(replace(one, share=one.share / 1000) for one in (given, shifted))
    assert "of the tolerance: 0.0005 (shifted)." in verdict_text(VerdictFacts(errors=tiny))
    exact = (replace(given, share=0.0),)
    assert verdict_fact_lines(VerdictFacts(errors=exact), None) == []
    wrong = VerdictFacts(errors=(given,), difference=("2 of 4 elements are wrong",))
    assert "of the draws before, which were right, as a share" in verdict_text(wrong)


def test_profiles_faults_and_differences_are_passed_on() -> None:
    """Sentences of the profiler, the place of a crash and the pattern of a wrong result."""
    facts = VerdictFacts(
        profile_sentences=("Long scoreboard stalls: 60 %.",),
        fault_location="k.cu:9",
        difference=("2 of 4 elements are wrong",),
    )
    assert verdict_fact_lines(facts, None) == [
        "Where it failed: k.cu:9",
        "Long scoreboard stalls: 60 %.",
        "2 of 4 elements are wrong",
    ]
