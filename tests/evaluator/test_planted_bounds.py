"""Kernels with one bound planted in each, as ncu measured them on an H100: what is said of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from actors.evaluator.profiling.ncu_report import read_report
from actors.evaluator.profiling.profile_sentences import profile_sentences
from actors.evaluator.profiling.sentence import ProfileContext

TABLE = (Path(__file__).parent / "tool_outputs/ncu_planted_h100.csv").read_text(encoding="utf-8")
NAMES, UNITS, *ROWS = TABLE.splitlines()
COPY_GB_S = 2950.0  # as measured on that card
# kernel -> a pattern of the last sentence, and of what no sentence may say.
PLANTED = {
    "k01_copy": ("Bound by memory: DRAM works at 96%", "not coalesced"),
    "k02_few_in_flight": (r"latency: .*data from global or local memory \(98%\)", ""),
    "k03_below_rate": ("memory: .* would take 176 of its 220 µs", ""),
    "k04_l2": ("the L2 cache, at 88% of its peak", ""),
    # Loads of 16 bytes a thread take four turns each, which are not conflicts.
    "k05_shared": ("shared memory, busy for 99%", "conflict"),
    "k06_conflicts": ("shared memory, busy for 100%", ""),
    # A scalar load that L1 answers costs its address and its use, more than the load itself.
    "k07_l1_loads": ("the number of instructions, .* 93% .*; next: ALU pipe", "the ALU pipe"),
    "k08_fma": ("the FMA pipe .* is busy for 90%", ""),
    "k09_tail": ("the tail: .* would take 311 of the 588 µs", ""),
    "k10_short": ("the launch: the kernel runs for 3.1 µs", ""),
    "k11_atomics": ("one slice of the L2 cache, at 83% .*; 89% .* atomic operations", "latency:"),
    "k12_32_blocks": ("too little parallel work: 32 blocks for 132", ""),
    # 131,072 chains of scattered loads: one takes 3.7 µs, five times as long as on an idle card.
    "k13_chain": ("the L2 cache, at 82% .*next: DRAM 71%; .* 13% are used", "latency:"),
    "k14_columns": ("the L2 cache, at 94% .* its loads touch 12% are used", ""),
    "k15_local": ("memory: .*99% of the sectors that it loads and stores are local memory", ""),
    "k16_mma": ("the tensor cores are busy for 97%", ""),
    # 256 bytes that all warps load again and again beside a stream: the copy alone took 373 µs.
    "k17_broadcast": ("one slice of the L2 cache, at 88% .*; next: DRAM 74%", "not coalesced"),
    "k18_exp": (r"the XU pipe \(exp, sqrt, division, casts\) is busy for 94%", ""),
    "k19_instructions": ("the ALU pipe .* is busy for 80%", ""),
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
def test_the_last_sentence_names_what_was_planted(row: str) -> None:
    """An engineer who reads it changes what takes the time."""
    name, told = told_of(row)
    wanted, false = PLANTED[name]
    assert re.search(wanted, told[-1])
    assert not false or [text for text in told if re.search(false, text)] == []
