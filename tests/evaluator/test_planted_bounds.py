"""Kernels with one bound planted in each, as ncu measured them on an H200: what is said of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from actors.evaluator.profiling.ncu_report import read_report
from actors.evaluator.profiling.profile_sentences import profile_sentences
from actors.evaluator.profiling.sentence import ProfileContext

TABLE = (Path(__file__).parent / "tool_outputs/ncu_planted_h200.csv").read_text(encoding="utf-8")
NAMES, UNITS, *ROWS = TABLE.splitlines()
COPY_GB_S = 4131.0  # as measured on that card
FEW_ADDRESSES = "many accesses to few addresses take turns there"
# kernel -> a pattern of the first sentence, and of what no sentence may say.
PLANTED = {
    "k01_copy": ("Bound by memory: DRAM works at 94%", "not coalesced"),
    "k02_few_in_flight": (r"latency: .*data from global or local memory \(9\d%\)", ""),
    "k03_below_rate": ("memory: .* would take 60.2 of its 88 µs", ""),
    "k04_l2": ("the L2 cache, at 87% of its peak", ""),
    # The compiler loads one float of each 16 bytes: four threads share a bank.
    "k05_shared": ("shared memory, busy for 99% .* bank conflicts, 75% .*4-way", ""),
    "k06_conflicts": ("shared memory, busy for 100% .* bank conflicts, 97% .*32-way", ""),
    # A scalar load that L1 answers costs its address and its use, more than the load itself.
    "k07_l1_loads": ("the number of instructions, .* 93% .*; also busy: ALU pipe", "the ALU pipe"),
    "k08_fma": ("the FMA pipe .* is busy for 90%", ""),
    "k09_tail": ("the tail: .* would take 312 of the 587 µs", ""),
    "k10_short": ("the launch: the kernel runs for 2.6 µs", ""),
    "k11_atomics": (
        f"L2 cache, at 83% .*{FEW_ADDRESSES}; cause: 89% .* atomic operations",
        "by latency",
    ),
    "k12_32_blocks": ("too little parallel work: 32 blocks for 132", ""),
    # 131,072 chains of scattered loads: the memory is full of them.
    "k13_chain": (
        "the L2 cache, at 91% .*also busy: DRAM 70%; .* use 13% of them: not coalesced",
        "by latency",
    ),
    "k14_columns": (
        "the L2 cache, at 95% .*cause: a warp's loads touch 32 sectors .* 4 would do",
        "",
    ),
    "k15_local": ("memory: .*99% of the sectors that it loads and stores are local memory", ""),
    "k16_mma": ("the tensor cores are busy for 97%", ""),
    # 256 bytes that all warps load again and again beside a stream.
    "k17_broadcast": (f"L2 cache, at 86% .*{FEW_ADDRESSES}; also busy: DRAM 53%", "not coalesced"),
    "k18_exp": (r"the XU pipe \(exp, sqrt, division, casts\) is busy for 94%", ""),
    "k19_instructions": ("the ALU pipe .* is busy for 80%", ""),
    "k20_l1_vector": ("the L1 cache, busy for 99%", ""),
    "k21_chain": ("latency: .* at 3% occupancy .* data from global or local memory", ""),
    "k22_spills": ("99% of the sectors that it loads and stores are local memory", ""),
    "k23_stores": (
        "the L2 cache, at 80% .*cause: a warp's stores touch 32 sectors .* 4 would do",
        "",
    ),
    "k24_long_code": (r"latency: .* instructions to be fetched \(long code.*\) \(96%\)", ""),
    "k25_barriers": (r"latency: .* other warps at a barrier \(73%\)", ""),
    "k26_double": ("the float64 pipe is busy for 99%", ""),
    "k27_divergent": ("number of instructions.* 1.4 of a warp's 32 threads take part", ""),
    "k28_division": ("the XU pipe .*division.* is busy for 79%", ""),
    "k29_int_products": (r"the FMA-heavy pipe \(integer products\) is busy for 99%", "by latency"),
    "k30_wgmma": (
        "the tensor cores are busy for 100% .*; also busy: shared memory 75%",
        "conflict",
    ),
    "k31_unequal": ("the tail: .* would take 94 of the 414 µs", ""),
    "k33_shared_atomics": ("shared memory, busy for 99% .* bank conflicts", "by latency"),
    "k34_spread_atomics": ("the L2 cache, at 96% .*atomic operations", "one address"),
    # ncu says that one slice of L2 is busy for 99 %, by 2,418 sectors in all.
    "k35_dependent": ("latency: .* the fixed latency of the instruction before", ""),
    "k36_grid_sync": ("latency: .* other warps at a barrier .* atomic operations", ""),
    "k37_fill": ("memory: DRAM works at 9[34]%", ""),
    "k38_read": ("memory: DRAM works at 104% of the rate that a copy reaches", ""),
    "k39_hot_returns": (
        r"latency: .* queue of global memory \(68%\); cause: 100% .* atomic operations",
        "",
    ),
    "k40_shared_scalar": ("shared memory, busy for 98%", "conflict"),
    "k32_tiny": ("the launch: the kernel runs for 2.4 µs", ""),
}


def told_of(row: str) -> tuple[str, list[str]]:
    """Return the name of the kernel in a row of the table, and its sentences."""
    call = read_report("\n".join([NAMES, UNITS, row]))
    context = ProfileContext(call_us=call.us, copy_gb_s=COPY_GB_S)
    found = profile_sentences(call, context)
    return call.kernels[0].metrics.name, [sentence.text for sentence in found]


def test_each_planted_kernel_was_measured() -> None:
    """A kernel that the table lacks would be checked by nothing."""
    assert list(PLANTED) == [told_of(row)[0] for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=list(PLANTED))
def test_the_first_sentence_names_what_was_planted(row: str) -> None:
    """An engineer who reads it changes what takes the time."""
    name, told = told_of(row)
    wanted, false = PLANTED[name]
    assert re.search(wanted, told[0])
    assert not false or [text for text in told if re.search(false, text)] == []
