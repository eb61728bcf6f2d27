"""The sentences that are read off ncu's table, and the bound that they begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.kernel_bound import bound_of, unit_shares
from actors.evaluator.profiling.ncu_metrics import (
    DRAM_READ,
    DRAM_SHARE,
    DRAM_WRITTEN,
    DURATION,
    GRID,
    ISSUE_SHARE,
    L1_SHARE,
    L2_SHARE,
    METRICS,
    PIPES,
    SM_ACTIVE,
    SM_COUNT,
    SM_ELAPSED,
    STALL_METRICS,
    WAVES,
    KernelMetrics,
    MeasuredCall,
    MeasuredKernel,
)
from actors.evaluator.profiling.ncu_report import read_report
from actors.evaluator.profiling.profile_sentences import (
    MAX_SENTENCES,
    profile_sentences,
    sources_of,
)
from actors.evaluator.profiling.sentence import ProfileContext

# torch's kernels on an H100, by ncu 2025.3: random numbers, GELU, a float32 matmul, a sum, softmax.
TORCH = (Path(__file__).parent / "tool_outputs/ncu_torch_h100.csv").read_text(encoding="utf-8")
TENSOR, FMA = list(PIPES)[:2]
# A kernel in which nothing is busy, on all multiprocessors.
IDLE = {
    DURATION: 50e3,
    **{DRAM_READ: 1e6, DRAM_WRITTEN: 1e6, DRAM_SHARE: 2.0, L2_SHARE: 5.0, L1_SHARE: 5.0},
    **dict.fromkeys(PIPES, 5.0),
    **{ISSUE_SHARE: 10.0, SM_ACTIVE: 95.0, SM_ELAPSED: 100.0},
    **{GRID: 4096.0, SM_COUNT: 132.0, WAVES: 31.0},
}


def kernel(**figures: float) -> KernelMetrics:
    """Return an idle kernel with other figures, named by constants."""
    names = {**vars(ncu_metrics), "TENSOR": TENSOR, "FMA": FMA}
    changed = {names[name]: value for name, value in figures.items()}
    return KernelMetrics(name="k", figures={**IDLE, **changed})


def call_of(*kernels: KernelMetrics) -> MeasuredCall:
    """Return a call of these kernels."""
    measured = tuple(
        MeasuredKernel(metrics=one, total_us=one.us, dram_bytes=one.dram_bytes) for one in kernels
    )
    return MeasuredCall(kernels=measured, launches=len(kernels))


def texts(call: MeasuredCall, **known: float) -> list[str]:
    context = ProfileContext(**known)  # type: ignore[arg-type]
    return [sentence.text for sentence in profile_sentences(call, context)]


def test_a_short_kernel_on_little_data_has_no_sentence_about_caches() -> None:
    """Twice 2 KB are not "data read from DRAM more than once"; its launch takes the time."""
    tiny = kernel(
        DURATION=2784.0, DRAM_READ=3840.0, DRAM_WRITTEN=0.0, GRID=1.0, WAVES=0.001, L1_SHARE=64.0
    )
    figures = {**tiny.figures, ncu_metrics.L1_HITS: 0.0, ncu_metrics.L2_HITS: 99.0}
    told = texts(
        call_of(KernelMetrics(name="k", figures={**figures, ncu_metrics.BLOCK: 256.0})),
        call_us=68.6,
        least_bytes=2048,
        copy_gb_s=3000.0,
    )

    assert not any("more than once" in text or "times the least" in text for text in told)
    assert not any("0%" in text.split("of the measured")[0] for text in told if "DRAM" in text)
    assert told[0].startswith("Bound by launches and work on the host")
    assert not any(text.startswith(("The grid", "Occupancy", "A warp")) for text in told)


def test_what_the_bound_says_already_is_not_told() -> None:
    """Pipes beside a bound by memory, a grid that fills the card, waits of a few percent."""
    first, second = [*ncu_metrics.STALL_METRICS][:2]
    waits = {first: 96.0, second: 3.0}
    figures = {ncu_metrics.BLOCK: 256.0, **waits}
    memory = BOUNDS["memory"]
    told = texts(call_of(KernelMetrics(name="k", figures={**memory.figures, **figures})))
    compute = BOUNDS["compute"]
    also = texts(call_of(KernelMetrics(name="k", figures={**compute.figures, **figures})))
    assert [False, True] == [any("Busy pipes" in one for one in each) for each in (told, also)]
    assert not any(one.startswith("The grid") for one in (*told, *also))
    (stalls,) = [one for one in told if one.startswith("A warp that")]
    assert stalls.count("%") == 1
    part = {**memory.figures, **figures, SM_ACTIVE: 60.0}
    for of_peak, is_told in ((80.0, False), (70.0, True)):  # saturated, or near its limit
        slower = KernelMetrics(name="k", figures={**part, DRAM_SHARE: of_peak})
        assert is_told == any(one.startswith("The grid") for one in texts(call_of(slower)))


# --- the bound ------------------------------------------------------------------------------------

BOUNDS = {
    "memory": kernel(DRAM_SHARE=80.0, DRAM_READ=90e6, DRAM_WRITTEN=40e6, L2_SHARE=85.0),
    "compute": kernel(FMA=85.0, ISSUE_SHARE=90.0),
    "issue": kernel(ISSUE_SHARE=80.0),
    "L1": kernel(L1_SHARE=90.0),
    "L2": kernel(L2_SHARE=80.0, DRAM_SHARE=20.0),
    "launch": kernel(DURATION=2100.0, GRID=1.0, SM_ACTIVE=1.0),
    "parallelism": kernel(GRID=8.0, SM_ACTIVE=6.0),
    "tail": kernel(FMA=90.0, SM_ACTIVE=55.0, WAVES=1.05),
    "latency": kernel(),
}


@pytest.mark.parametrize("kind", BOUNDS)
def test_each_bound_is_recognised(kind: str) -> None:
    """The unit that is busy, or else what keeps all units idle."""
    bound = bound_of(BOUNDS[kind])
    assert bound is not None
    assert kind == bound.kind
    assert set(bound.metrics) <= set(METRICS)


def test_the_bounds_of_torchs_kernels_are_those_that_an_engineer_names() -> None:
    """A float32 matmul: the FMA pipe; softmax: instructions, DRAM next; GELU and a sum: DRAM."""
    bounds = {
        one.metrics.name.split("<")[0]: bound_of(one.metrics) for one in read_report(TORCH).kernels
    }
    told = {name: (bound.kind, bound.text) for name, bound in bounds.items() if bound is not None}
    assert "compute" == told["cutlass::Kernel2"][0]
    assert "FMA pipe" in told["cutlass::Kernel2"][1]
    assert "issue" == told["at::cunn_SoftMaxForwardReg"][0]
    assert "also busy: DRAM" in told["at::cunn_SoftMaxForwardReg"][1]
    assert "memory" == told["at::vectorized_elementwise_kernel"][0]
    assert "memory" == told["at::reduce_kernel"][0]
    assert "issue" == told["at::distribution_elementwise_grid_stride_kernel"][0]


def test_dram_is_compared_with_a_copy() -> None:
    """2.6 GB/ms are near the limit of a card that copies 3.0, and not of one that copies 8."""
    reading = kernel(DRAM_READ=100e6, DRAM_WRITTEN=30e6, DRAM_SHARE=50.0)
    near, far = bound_of(reading, copy_gb_s=3000.0), bound_of(reading, copy_gb_s=8000.0)
    assert near is not None
    assert far is not None
    assert ("memory", "latency") == (near.kind, far.kind)
    assert "87%" in near.text


def test_few_blocks_are_named_though_they_keep_their_multiprocessors_busy() -> None:
    """One block that fills its own multiprocessor needs more blocks; it is not a grid's end."""
    bound = bound_of(kernel(GRID=1.0, SM_ACTIVE=1.0, L1_SHARE=70.0))
    assert bound is not None
    assert "parallelism" == bound.kind
    short = bound_of(kernel(DURATION=2800.0, GRID=1.0, SM_ACTIVE=1.0, L1_SHARE=70.0))
    assert short is not None
    assert "launch" == short.kind


CAUSES = {
    "local memory": kernel(
        L1_SHARE=90.0, LOCAL_LOAD_SECTORS=8e6, LOCAL_STORE_SECTORS=1e6, LOAD_SECTORS=1e6,
        STORE_SECTORS=0.0,
    ),
    "atomic operations": kernel(
        L2_SHARE=80.0, L2_READS=1e6, L2_WRITES=1e6, L2_ATOMICS=0.0, L2_REDUCTIONS=8e6
    ),
    "bank conflicts": kernel(
        L1_SHARE=90.0, SHARED_TURNS=100.0, SHARED_LEAST_TURNS=3.0, SHARED_BYTES_A_TURN=4.0
    ),
    "use 25% of them": kernel(
        L2_SHARE=80.0, LOAD_REQUESTS=25e4, LOAD_SECTORS=8e6, STORE_SECTORS=1e6,
        LOAD_BYTES_A_SECTOR=8.0, STORE_BYTES_A_SECTOR=32.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("bytes_a_turn", "share"), [(128.0, 0.0), (64.0, 0.5), (16.0, 0.75)])
def test_turns_of_wide_accesses_are_no_conflicts(bytes_a_turn: float, share: float) -> None:
    """An access of 16 bytes a thread takes four turns, which are full."""
    found = kernel(SHARED_TURNS=4e6, SHARED_LEAST_TURNS=1e6, SHARED_BYTES_A_TURN=bytes_a_turn)
    assert share == found.conflict_share


def test_conflicts_are_told_at_their_least_without_the_bytes_of_a_turn() -> None:
    """32 turns an access are conflicts, however wide it is; four may be none."""
    wide = kernel(SHARED_TURNS=4e6, SHARED_LEAST_TURNS=1e6)
    assert 0.0 == wide.conflict_share
    assert 0.875 == kernel(SHARED_TURNS=32e6, SHARED_LEAST_TURNS=1e6).conflict_share


@pytest.mark.parametrize("cause", CAUSES)
def test_a_bound_names_its_cause(cause: str) -> None:
    """That a cache is busy does not say what to change; spills and conflicts do."""
    bound = bound_of(CAUSES[cause])
    assert bound is not None
    assert cause in bound.text
    assert set(bound.metrics) <= set(METRICS)
    for kind in BOUNDS:
        plain = bound_of(BOUNDS[kind])
        assert plain is not None
        assert cause not in plain.text


def test_a_busy_pipe_needs_no_cause() -> None:
    """Spills of a kernel that computes all the time are not what bounds it."""
    computing = kernel(FMA=85.0, LOCAL_LOAD_SECTORS=8e6, LOCAL_STORE_SECTORS=1e6, LOAD_SECTORS=1e6)
    bound = bound_of(computing)
    assert bound is not None
    assert ("compute", False) == (bound.kind, "local memory" in bound.text)


def test_without_metrics_no_bound_is_named() -> None:
    """A kernel of which only the time is known may be bound by anything."""
    assert bound_of(KernelMetrics(name="k", figures={DURATION: 50e3})) is None


# --- the sentences --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(5))
def test_four_to_ten_sentences_begin_with_the_bound(number: int) -> None:
    """For each of torch's kernels; each sentence has a number and names metrics of ours."""
    one = read_report(TORCH).kernels[number]
    found = profile_sentences(
        MeasuredCall(kernels=(one,), launches=one.launches), ProfileContext(call_us=one.total_us)
    )
    assert 4 <= len(found) <= MAX_SENTENCES
    assert found[0].text.startswith("Bound by ")
    assert all(any(char.isdigit() for char in sentence.text) for sentence in found)
    assert all(sentence.metrics and set(sentence.metrics) <= set(METRICS) for sentence in found)
    assert all(len(sentence.text) < 500 for sentence in found)


def test_people_see_what_a_sentence_was_read_off() -> None:
    """One line for each sentence, also for one of many metrics."""
    found = profile_sentences(read_report(TORCH), ProfileContext())
    lines = sources_of(found).splitlines()
    assert len(found) == len(lines)
    assert "sentence 2: gpu__time_duration.sum" == lines[1]
    assert any(line.endswith("and 14 more") for line in lines)


def test_traffic_is_compared_with_the_least_and_with_a_copy() -> None:
    """A copy of 268 MB moves each byte once, near the rate of the device's own copy."""
    copy = kernel(DURATION=107.5e3, DRAM_READ=134.2e6, DRAM_WRITTEN=134.2e6, DRAM_SHARE=75.0)
    found = " ".join(texts(call_of(copy), least_bytes=268_000_000, copy_gb_s=3000.0))
    assert "It moves 256 MiB from and to DRAM (128 MiB read) at 2497 GB/s" in found
    assert "83% of the measured copy rate (3000)" in found
    assert "that is about the 255.6 MiB of inputs, parameters and outputs." in found
    spilling = " ".join(texts(call_of(copy), least_bytes=272_000, copy_gb_s=3000.0))
    assert "987 times the 265.6 KiB of inputs" in spilling


def test_traffic_below_the_least_is_no_ratio() -> None:
    """ "0.53 times the least" reads as a saving; what is missing is in the L2 cache."""
    matmul = read_report(TORCH).kernels[0]
    call = MeasuredCall(kernels=(matmul,), launches=1)
    found = " ".join(texts(call, least_bytes=33_554_432, copy_gb_s=3000.0))
    assert "; inputs, parameters and outputs have 32 MiB: the rest stays in the L2 cache" in found
    assert "least" not in found
    assert "times the" not in found


def test_a_kernels_time_and_the_judged_time_are_named() -> None:
    """A kernel under ncu may take longer than the whole call; a model must know which counts."""
    for one in read_report(TORCH).kernels:
        call = MeasuredCall(kernels=(one,), launches=one.launches)
        times = texts(call, call_us=0.98 * one.total_us)[1]
        assert f"{one.total_us:.4g} µs under ncu, with empty caches" in times
        assert times.endswith(f"judged time is that of the whole call, {0.98 * call.us:.4g} µs.")


def test_busy_caches_are_told_before_what_they_explain() -> None:
    """Of torch's softmax: L2's figures stand right behind the traffic, L2 first."""
    softmax = next(one for one in read_report(TORCH).kernels if "SoftMax" in one.metrics.name)
    found = texts(MeasuredCall(kernels=(softmax,), launches=1), least_bytes=100_000_000)
    assert found[2].startswith("It moves")


@pytest.mark.parametrize(
    ("xu", "shared_bytes", "what"),
    [
        (
            100.0,
            1024.0,
            "room in the queue of the XU pipe (exp, sqrt, division, casts) (mio_throttle, 80%)",
        ),
        (1.0, 2048.0, "room in the queue of shared memory (mio_throttle, 80%)"),
        (1.0, 1024.0, "room in the queue of the XU pipe or special registers (mio_throttle, 80%)"),
        (30.0, 2048.0, "of shared memory, the XU pipe or special registers (mio_throttle, 80%)"),
    ],
)
def test_the_busy_one_of_two_units_with_one_queue_is_named(
    xu: float, shared_bytes: float, what: str
) -> None:
    """A kernel of exponentials that uses no shared memory does not wait for shared memory."""
    stalls = {metric: 0.0 for metric in STALL_METRICS}
    stalls.update({m: 8.0 for m, reason in STALL_METRICS.items() if reason == "mio_throttle"})
    stalls.update({m: 2.0 for m, reason in STALL_METRICS.items() if reason == "wait"})
    figures = {ncu_metrics.XU_PIPE: xu, ncu_metrics.SHARED_BYTES: shared_bytes, **stalls}
    one = KernelMetrics(name="k", figures={**IDLE, **figures})
    waits = next(text for text in texts(call_of(one)) if text.startswith("A warp"))
    assert what in waits


def test_the_gain_of_removing_a_tail_is_told() -> None:
    """140 blocks on 132 multiprocessors: half of the time, as the bound says with microseconds."""
    figures = {**kernel(FMA=95.0, SM_ACTIVE=53.0, GRID=140.0, WAVES=1.06).figures}
    one = KernelMetrics(name="k", figures={**figures, ncu_metrics.BLOCK: 1024.0, DURATION: 683e3})
    found = texts(call_of(one))
    grid = next(text for text in found if text.startswith("The grid"))
    assert grid.endswith(
        "53% of the multiprocessors have a block; without the tail 47% less time at best."
    )
    assert "spread evenly it would take 362 of the 683 µs" in found[0]


def test_a_call_whose_kernels_take_little_of_it_is_bound_by_launches() -> None:
    """Ten kernels of 2 µs in a call of 60 µs; what the kernels do does not matter."""
    small = kernel(DURATION=2000.0)
    ten = MeasuredKernel(metrics=small, launches=10, total_us=20.0)
    call = MeasuredCall(kernels=(ten,), launches=10)
    assert (
        "Bound by launches and work on the host: the 10 kernels take 20 of the call's 60 µs, "
        "launching takes about 22 µs (2.2 µs each), and other work of the host (Python, libraries) "
        "38 µs; kernels run meanwhile."
    ) == texts(call, call_us=60.0, next_launch_us=2.2)[0]
    graph = texts(call, call_us=41.0, next_launch_us=5.5)[0]
    assert graph.endswith("the 10 kernels take 20 of the call's 41 µs.")
    assert "launch" in texts(call, call_us=25.0)[0]
    # Of a call that was cut, only torch's profiler knows the time of the other kernels.
    cut = MeasuredCall(kernels=(ten,), launches=10, is_cut=True)
    assert "host" not in texts(cut, call_us=60.0)[0]
    assert "the 40 kernels take 25 of" in texts(cut, call_us=60.0, device_us=25.0, launches=40)[0]


def test_waste_is_told_only_where_it_is() -> None:
    """Strided loads, spills, bank conflicts and idle lanes each get a sentence, else none."""
    clean = " ".join(texts(call_of(kernel())))
    for word in ("sectors", "Local memory", "bank conflicts", "take part"):
        assert word not in clean
    wasteful = KernelMetrics(
        name="k",
        figures={
            **IDLE,
            ncu_metrics.LOAD_REQUESTS: 1000.0,
            ncu_metrics.LOAD_SECTORS: 32_000.0,
            ncu_metrics.LOAD_BYTES_A_SECTOR: 4.0,
            ncu_metrics.STORE_SECTORS: 0.0,
            ncu_metrics.LOCAL_LOAD_SECTORS: 1e6,
            ncu_metrics.LOCAL_STORE_SECTORS: 1e6,
            ncu_metrics.SHARED_TURNS: 32e6,
            ncu_metrics.SHARED_LEAST_TURNS: 1e6,
            ncu_metrics.SHARED_BYTES_A_TURN: 4.0,
            ncu_metrics.ACTIVE_THREADS: 11.2,
        },
    )
    found = " ".join(texts(call_of(wasteful)))
    assert "A warp's loads touch 32 sectors of 32 bytes where 4 would do and use 12% of" in found
    assert "98% of the sectors that it loads and stores are local memory, 61.04 MiB" in found
    assert "Bank conflicts, 97% of the 32 million wavefronts of shared memory (32-way" in found
    assert "11.2 of a warp's 32 threads" in found


def test_a_long_second_kernel_has_its_bound_told() -> None:
    """A call of a matmul and a softmax of nearly the same time: two bounds."""
    second = kernel(FMA=90.0, DURATION=40e3)
    found = texts(call_of(BOUNDS["memory"], second))
    assert found[0].startswith("k (56% of the time) is bound by memory")
    assert found[1].startswith("k (44% of the time) is bound by compute")


# --- what an engineer says of ten kernels ---------------------------------------------------------

STALL = {reason: metric for metric, reason in STALL_METRICS.items()}
QUIET = {metric: 0.0 for metric in STALL_METRICS}
WAITS_FOR_DATA = {**QUIET, STALL["long_scoreboard"]: 8.0, STALL["wait"]: 2.0}
ENGINEER = {
    "a reduction by 128 cooperative blocks, two loads in flight": (
        {GRID: 128.0, WAVES: 0.97, SM_ACTIVE: 93.0, DRAM_SHARE: 40.0, **WAITS_FOR_DATA},
        ["latency", "DRAM most, 43%", "data from global or local memory (80%)"],
        ["too little parallel work"],
    ),
    "a stream at 70 % of a copy": (
        {DRAM_READ: 80e6, DRAM_WRITTEN: 25e6, DRAM_SHARE: 64.4, L2_SHARE: 60.0},
        ["memory: DRAM works at 70%", "the same bytes would take 35 of its 50 µs"],
        [],
    ),
    "a table in L2 that all blocks read": (
        {L2_SHARE: 84.0, L1_SHARE: 80.0, DRAM_SHARE: 5.0},
        ["the L2 cache, at 84% of its peak"],
        ["L1 cache, busy"],
    ),
    "a product from shared memory by float32": (
        {L1_SHARE: 88.0, ncu_metrics.SHARED_WAVEFRONTS: 132 * 95 * 0.85, FMA: 55.0},
        ["shared memory, busy for 84%", "also busy: FMA pipe"],
        ["the L1 cache"],
    ),
    "scalar loads of what L1 has": (
        {ncu_metrics.LSU_PIPE: 91.0, L1_SHARE: 60.0, ISSUE_SHARE: 50.0},
        ["load and store instructions", "86%"],
        ["compute"],
    ),
    "a kernel of 7 µs, a third of them its start and end": (
        {DURATION: 7000.0, GRID: 132.0, WAVES: 1.0, SM_ACTIVE: 66.0},
        ["the launch: of its 7.0 µs the multiprocessors have no block for 2.4"],
        ["the tail"],
    ),
    "140 blocks of a streaming kernel, one a multiprocessor": (
        {DURATION: 200e3, GRID: 140.0, WAVES: 1.06, SM_ACTIVE: 54.0, DRAM_SHARE: 45.0},
        ["the tail: 46%", "1.06 waves", "108 of the 200 µs"],
        ["latency"],
    ),
    "a histogram with a few hot counters": (
        {ncu_metrics.L2_READS: 6e6, ncu_metrics.L2_WRITES: 0.0, ncu_metrics.L2_ATOMICS: 0.0,
         ncu_metrics.L2_REDUCTIONS: 1e6},
        ["latency", "14% of the sectors that reach L2 are atomic operations"],
        [],
    ),
    "one value for all threads of a warp, beside a stream": (
        {DRAM_READ: 100e6, DRAM_WRITTEN: 35e6, DRAM_SHARE: 85.0,
         ncu_metrics.LOAD_REQUESTS: 1e6, ncu_metrics.LOAD_SECTORS: 1e6,
         ncu_metrics.LOAD_BYTES_A_SECTOR: 4.0, ncu_metrics.STORE_SECTORS: 1e5,
         ncu_metrics.STORE_REQUESTS: 1e5, ncu_metrics.STORE_BYTES_A_SECTOR: 32.0},
        ["memory: DRAM works at 92%"],
        ["not coalesced", "Neighbouring"],
    ),
    "integer products, for which half of the FMA pipe is there": (
        {FMA: 49.0, ncu_metrics.FMA_HEAVY_PIPE: 98.0, ISSUE_SHARE: 52.0},
        ["the FMA-heavy pipe (integer products) is busy for 93%"],
        ["latency"],
    ),
    "float32 products, in both halves": (
        {FMA: 90.0, ncu_metrics.FMA_HEAVY_PIPE: 92.0, ISSUE_SHARE: 95.0},
        ["the FMA pipe (float32) is busy for 86%", "also busy: issue slots"],
        ["FMA-heavy"],
    ),
    "a branch of its own for each thread of a warp": (
        {FMA: 90.0, ISSUE_SHARE: 95.0, ncu_metrics.ACTIVE_THREADS: 1.1},
        ["the FMA pipe", "on average 1.1 of a warp's 32 threads take part"],
        [],
    ),
    "a wgmma pipeline with two stages": (
        {TENSOR: 48.0, ISSUE_SHARE: 12.0, **QUIET, STALL["gmma"]: 6.0, STALL["barrier"]: 3.0},
        ["latency", "tensor cores most, 46%", "warpgroup matrix products (67%)"],
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ENGINEER)
def test_the_first_sentence_says_what_an_engineer_would(kind: str) -> None:
    """Kernels whose figures are easily read wrong: what must be said, and what must not."""
    figures, wanted, misleading = ENGINEER[kind]
    one = KernelMetrics(name="k", figures={**IDLE, **figures})
    found = texts(call_of(one))
    assert [words for words in wanted if words not in found[0]] == []
    assert [words for words in misleading if any(words in text for text in found)] == []


def test_what_a_bound_leaves_of_the_call_is_told() -> None:
    """A kernel that takes 60 % of a call is not all there is to say."""
    figures = {**BOUNDS["memory"].figures, DURATION: 60e3}
    found = texts(call_of(KernelMetrics(name="k", figures=figures)), call_us=100.0)
    assert found[0].startswith("Bound by memory")
    assert found[0].endswith("; launches and the host take 40 of the call's 100 µs.")
    assert "the host" not in texts(call_of(BOUNDS["memory"]), call_us=55.0)[0]


def test_intermediate_results_are_not_called_data_read_again() -> None:
    """Two kernels with a tensor between them move more than the least, and read all once."""
    much = {
        DRAM_READ: 120e6,
        DRAM_WRITTEN: 80e6,
        ncu_metrics.L1_HITS: 0.0,
        ncu_metrics.L2_HITS: 9.0,
    }
    found = texts(
        call_of(KernelMetrics(name="k", figures={**IDLE, **much})), least_bytes=100_000_000
    )
    assert any("or intermediate results do" in text for text in found)
    assert "more than once" not in " ".join(found)


def test_the_shares_of_dram_and_tensor_cores_are_kept() -> None:
    """They stand beside other attempts' times; what was not measured or not used is left out."""
    both = kernel(TENSOR=40.0, DRAM_READ=100e6, DRAM_WRITTEN=40e6)
    shares = {each.unit: each.share for each in unit_shares(both, 3500.0)}
    assert shares == {"DRAM": pytest.approx(0.8), "tensor cores": pytest.approx(0.38)}
    assert unit_shares(KernelMetrics(name="k", figures={DURATION: 1e3}), None) == ()
