"""What is read off ncu's table, and how ncu is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.profiling import ncu_report
from actors.evaluator.profiling.ncu_metrics import (
    DRIVER_SHARED_BYTES,
    FMA_HEAVY_PIPE,
    L2_ATOMICS,
    L2_READS,
    L2_REDUCTIONS,
    L2_SLICE_SHARE,
    L2_WRITES,
    METRICS,
    SHARED_ACCESSES,
    MeasuredCall,
)
from actors.evaluator.profiling.ncu_report import metric_table, read_report, short_kernel_name
from actors.evaluator.profiling.profile_sentences import (
    MAX_SENTENCES,
    profile_sentences,
)
from actors.evaluator.profiling.sentence import ProfileContext
from actors.evaluator.profiling.tool_commands import ncu_filter, tool_command

# torch's kernels on an H100, by ncu 2025.3: random numbers, GELU, a float32 matmul, a sum, softmax.
TORCH = (Path(__file__).parent / "tool_outputs/ncu_torch_h100.csv").read_text(encoding="utf-8")


def texts(call: MeasuredCall) -> list[str]:
    """Return the sentences on a call of which nothing else is known."""
    return [sentence.text for sentence in profile_sentences(call, ProfileContext())]


def test_the_kernels_of_a_call_are_read() -> None:
    """Times add up by kernel, the longest first, in base units whatever units ncu printed."""
    call = read_report(TORCH)
    assert 6 == call.launches
    assert not call.is_cut
    assert [423.81, 131.14, 116.77] == [round(one.total_us, 2) for one in call.kernels[:3]]
    assert [1, 1, 2] == [one.launches for one in call.kernels[:3]]
    matmul = call.kernels[0].metrics
    not_recorded = {L2_READS, L2_WRITES, L2_ATOMICS, L2_REDUCTIONS, L2_SLICE_SHARE}
    not_recorded |= {FMA_HEAVY_PIPE, DRIVER_SHARED_BYTES, *SHARED_ACCESSES}
    assert set(METRICS) - not_recorded == set(matmul.figures)
    assert pytest.approx(19.403e6, rel=1e-4) == matmul.dram_bytes
    assert ("registers", 1) == matmul.occupancy_limit
    assert "FMA pipe (float32)" == next(iter(matmul.pipes))
    assert pytest.approx(1.0) == sum(matmul.stalls.values())


def test_a_metric_that_the_card_lacks_is_left_out() -> None:
    """ "n/a", "no data", negative and absurd figures are unknown, and nothing is said of them."""
    rows = [
        '"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum","launch__grid_size",'
        '"lts__t_sector_hit_rate.pct"',
        '"","","ns","byte","","%"',
        '"0","relu(float *)","4,608","n/a","-3","inf"',
    ]
    found = read_report("\n".join(rows))
    assert {"gpu__time_duration.sum": 4608.0} == found.kernels[0].metrics.figures
    assert ["One kernel, relu: 4.608 µs under ncu, with empty caches."] == texts(found)


@given(st.text(max_size=300))
def test_ncus_output_may_be_anything(garbage: str) -> None:
    """Without permission, after a crash or for a forgery there is no report, and no exception."""
    for text in (garbage, '"ID","Kernel Name"\n' + garbage, TORCH[:4000] + garbage):
        call = read_report(text)
        profile_sentences(call, ProfileContext())
        metric_table(call)
    ncu_report.refusal(garbage)


def test_a_forged_table_stays_small() -> None:
    """Names of any length, thousands of launches and unterminated rows give a bounded report."""
    head = '"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n'
    rows = [f'"{n}","k{n}{"<x" * 5000}","{n + 1}"' for n in range(200)]
    call = read_report(head + "\n".join([*rows, '"open']))
    assert len(call.kernels) <= ncu_report.MAX_KERNELS
    assert all(len(one.metrics.name) <= ncu_report.NAME_CHARS for one in call.kernels)
    sentences = texts(call)
    assert len(sentences) <= MAX_SENTENCES
    assert all(len(text) < 500 and text.isprintable() for text in sentences)
    assert len(metric_table(call)) < 16_000
    huge = head + f'"0","{"n" * 200_000}","5"\n"1","small","7"'
    assert ["small"] == [one.metrics.name for one in read_report(huge).kernels]


def test_kernel_names_are_short() -> None:
    """Without parameters; template arguments only while there is room."""
    assert "relu_kernel" == short_kernel_name("void relu_kernel(const float *, float *, int)")
    assert "scale<float, 4>" == short_kernel_name("void <unnamed>::scale<float, 4>(float *)")
    assert "gemm<…>" == short_kernel_name(f"void gemm<{'Shape<_1, _2>, ' * 20}float>(Params)")
    assert "(a)" == short_kernel_name("(a)")


def test_of_many_launches_the_longest_kernels_are_measured() -> None:
    """Their base names select them; names from the candidate's process are no patterns."""
    names = ("void at::native::reduce<512, F(int)>(T)", "(anonymous namespace)::k1", ".*|(", "k4")
    assert ["reduce", "k1"] == ncu_report.longest_kernels(names, 100)
    assert [] == ncu_report.longest_kernels(names, ncu_report.MAX_LAUNCHES)
    assert [] == ncu_report.longest_kernels(names, None)
    command = tool_command("ncu", [*ncu_filter(["reduce", "k1"]), "python"])
    assert ["--kernel-name", "regex:reduce|k1", "python"] == command[-3:]
    call = read_report(TORCH, is_chosen=True)
    times = profile_sentences(call, ProfileContext(launches=100))[1].text
    assert times.startswith("ncu measured 6 of the call's 100 launches: cutlass")


def test_launches_that_were_chosen_are_no_whole_call() -> None:
    """The time of some launches with cold caches is not compared with the call's."""
    call = read_report(TORCH, is_chosen=True)

    first, times, about = profile_sentences(call, ProfileContext(launches=100, call_us=500.0))[:3]

    assert "of the time) is bound" not in first.text
    assert times.text.endswith("; the judged time is that of the whole call, 500 µs.")
    assert about.text.startswith("What follows is about cutlass")
    assert "take" not in times.text
    assert "%" not in times.text


def test_a_refusal_is_named() -> None:
    """The administrator's setting gets its own words; another error of ncu is repeated."""
    denied = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters"
    assert ncu_report.is_not_permitted(denied)
    assert "administrator" in ncu_report.refusal(denied)
    assert "Failed to find x" == ncu_report.refusal("==PROF== a\n==ERROR== Failed to find x\n")
    assert "" == ncu_report.refusal("killed")


def test_ncu_measures_one_call_at_the_clocks_of_the_judge() -> None:
    """The tool's own options come first, so that it does not read the program's options."""
    command = tool_command("ncu", ["python", "-c", "x"])
    assert ["python", "-c", "x"] == command[-3:]
    assert "none" == command[command.index("--clock-control") + 1]
    assert "off" == command[command.index("--profile-from-start") + 1]
    assert ["/opt/cs", "--tool", "racecheck"] == tool_command("racecheck", [], "/opt/cs")[:3]
