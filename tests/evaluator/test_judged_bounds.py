"""Candidates that were judged with a profile on an H200: what an engineer read wrong or missed.

Each has one bound by construction, known from its instructions and from its shape.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from actors.evaluator.profiling.ncu_metrics import (
    DRIVER_SHARED_BYTES,
    SHARED_BYTES,
    KernelMetrics,
    MeasuredCall,
    MeasuredKernel,
)
from actors.evaluator.profiling.profile_sentences import MAX_SENTENCES, profile_sentences
from actors.evaluator.profiling.sentence import ProfileContext
from protocol.values import Value

TABLES = Path(__file__).parent / "tool_outputs/ncu_judged_h200.json"


class JudgedKernel(Value, frozen=True, kw_only=True):
    """A kernel as the judge's table has it; what is 0 there may not have been measured."""

    name: str
    launches: int
    us: float
    figures: tuple[float, ...]


class JudgedCall(Value, frozen=True, kw_only=True):
    """The kernels of a candidate's call, and what else is known of it."""

    is_chosen: bool
    context: ProfileContext
    kernels: tuple[JudgedKernel, ...]


class Judged(Value, frozen=True, kw_only=True):
    """All of them; `metrics`: the names of the figures."""

    metrics: tuple[str, ...]
    calls: dict[str, JudgedCall]


JUDGED = msgspec.json.decode(TABLES.read_bytes(), type=Judged)


def measured(name: str) -> MeasuredCall:
    """Return the call of a candidate."""
    judged = JUDGED.calls[name]
    kernels = []
    for each in judged.kernels:
        figures = dict(zip(JUDGED.metrics, each.figures, strict=True))
        metrics = KernelMetrics(name=each.name, figures=figures)
        moved = (metrics.dram_bytes or 0.0) * each.launches
        kernels.append(
            MeasuredKernel(
                metrics=metrics, launches=each.launches, total_us=each.us, dram_bytes=moved
            )
        )
    count = sum(each.launches for each in kernels)
    is_chosen = judged.is_chosen
    return MeasuredCall(
        kernels=tuple(kernels), launches=count, is_cut=is_chosen, is_chosen=is_chosen
    )


def told_of(name: str) -> list[str]:
    """Return the sentences about a candidate."""
    return [each.text for each in profile_sentences(measured(name), JUDGED.calls[name].context)]


# candidate -> a pattern of its first sentence, and of what no sentence may say.
BOUNDS = {
    "hot atomics": (
        r"^histogram_kernel \(99% of the time\) is bound by one slice of the L2 cache, at 82% .*"
        "cause: 77% .* atomic operations",
        "without the tail|Occupancy|Busy pipes|shared memory",
    ),
    "distances": (
        r"^Bound by compute: the FMA pipe .* 73% .*\(near its limit\); also busy: issue slots 77%",
        "next:|82%|where blocks run",
    ),
    "log softmax, one block": (
        r"latency: .* 6% occupancy \(shared memory allows 1 block of 128 threads a multiproc",
        "is possible",
    ),
    "swap of axes": (
        r"the L2 cache, at 90% of its peak \(saturated\); .*cause: a warp's stores touch 32 sectors"
        " .* where 4 would do",
        "The grid|Occupancy|shared memory a block|an answer of shared memory",
    ),
    "bags of a table in L2": (
        r"the L2 cache, .*; 537.9 MiB pass it at 9,440 GB/s \(reads alone were measured at 8,226\)",
        "cause:|without the tail",
    ),
    "65 launches": (
        r"^Bound by launches and work on the host: the 65 kernels take 67.51 .*, launching takes "
        r"about 357 µs \(5.5 µs each\), and other work of the host .* 637 µs",
        "empty kernel|Occupancy|The grid|Busy pipes|A warp that",
    ),
    "half-precision product": (
        r"the tensor cores are busy for 89% of the time \(saturated\)",
        "95%|data passes DRAM again",
    ),
    "row scan": (
        r"shared memory, busy for 71% .*cause: bank conflicts, 94% of the 34.6 million wavefronts"
        r" .*16-way",
        "turns|81% busy",
    ),
    "sum of sigmoids": (
        r"the XU pipe \(exp, sqrt, division, casts\) is busy for 91% of the time \(saturated\)",
        "97%|Occupancy",
    ),
    "counts in local memory": (
        r"^Bound by latency: no unit is near its limit \(the L2 cache most, 63%\), and at 22% "
        r"occupancy \(the grid has only 0.32 waves\) .*cause: 87% .* local memory, 1.036 GiB: "
        "arrays with computed indices",
        "shared memory a block|where 4 would do|neighbouring addresses",
    ),
}


@pytest.mark.parametrize("name", JUDGED.calls)
def test_the_first_sentence_names_the_bound_and_its_proof(name: str) -> None:
    """And nothing beside it accuses what is not at fault."""
    told = told_of(name)
    wanted, false = BOUNDS[name]
    assert re.search(wanted, told[0]) is not None
    assert [text for text in told if re.search(false, text)] == []
    assert len(told) <= MAX_SENTENCES


@pytest.mark.parametrize("name", JUDGED.calls)
def test_a_counter_has_one_figure(name: str) -> None:
    """A unit's share where blocks run beside one of the whole time read as two measurements."""
    told = " ".join(told_of(name))
    for unit in (r"FMA pipe \(float32\)", "tensor cores", r"casts\)", "issue slots"):
        pattern = rf"{unit}(?: (?:is|are) busy for)? (\d+)%"
        assert len(set(re.findall(pattern, told))) <= 1


def test_traffic_below_the_least_says_where_the_rest_is() -> None:
    """ "Less than the least" contradicts itself."""
    told = " ".join(told_of("distances"))
    assert "; inputs, parameters and outputs have 20 MiB: the rest stays in the L2 cache" in told
    assert "least" not in told


def test_the_drivers_part_of_shared_memory_is_not_the_kernels() -> None:
    """Of each block the driver takes 1 KiB: known from ncu, or as of compute capability 8.0 on."""
    own = {name: measured(name).kernels[0].metrics.shared_bytes for name in JUDGED.calls}
    expected = {"hot atomics": 0, "distances": 16_896, "row scan": 16_384, "sum of sigmoids": 2_048}
    assert expected == {name: own[name] for name in expected}
    older = KernelMetrics(name="k", figures={SHARED_BYTES: 1024.0, DRIVER_SHARED_BYTES: 0.0})
    assert 1024 == older.shared_bytes
    told = " ".join(told_of("counts in local memory"))
    assert "75%: registers allow 12 blocks of 128 threads a multiprocessor (40 registers a" in told


def test_warps_of_a_kernel_without_shared_memory_do_not_wait_for_it() -> None:
    """A short scoreboard is that of shared memory, the XU pipe and special registers."""
    (waits,) = [text for text in told_of("swap of axes") if text.startswith("A warp that")]
    assert "an answer of the XU pipe or special registers (short_scoreboard, 20%)" in waits
    (waits,) = [text for text in told_of("row scan") if text.startswith("A warp that")]
    assert "an answer of shared memory (short_scoreboard, 21%)" in waits


def test_sectors_of_wide_elements_are_accused_under_a_condition() -> None:
    """A warp that reads the lower halves of int64 elements in a row touches 8 sectors."""
    told = " ".join(told_of("counts in local memory"))
    assert (
        "A warp's loads touch 8 sectors of 32 bytes and use 50% of them: too many, unless these "
        "are parts of elements of 8 bytes."
    ) in told


def test_larger_blocks_are_told_where_shared_memory_limits_their_number() -> None:
    """ "6 % is possible" read as a ceiling."""
    told = " ".join(told_of("log softmax, one block"))
    assert "shared memory allows 1 block of 128 threads a multiprocessor (32 registers" in told
    assert "195.5 KiB of shared memory a block); blocks of 1024 threads would allow 50%." in told


def test_some_launches_of_many_are_told_as_such() -> None:
    """ "16 launches of the longest of the 65 kernels were measured" said little."""
    told = told_of("65 launches")
    assert told[1].startswith("ncu measured 16 of the call's 65 launches: step_kernel 2.656 µs (")
    assert 2 == len(told)
