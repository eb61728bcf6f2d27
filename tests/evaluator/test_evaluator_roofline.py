"""How near a candidate comes to its device's peak, and what is shown of its profile."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.children import profiler
from actors.evaluator.devices import roofline
from actors.evaluator.devices.roofline import DevicePeak
from actors.evaluator.ipc.profile import KernelProfile, KernelProfileRow
from actors.evaluator.profiling import tools
from protocol.values import Device

CARD = DevicePeak(
    gb_s=2000.0, tflops=20.0, tensor_tflops=300.0, cache_bytes=40 << 20, source="table"
)


@pytest.mark.parametrize(
    ("name", "gb_s"),
    [
        ("NVIDIA H100 80GB HBM3", 3352),
        ("NVIDIA H100 PCIe", 2039),
        ("NVIDIA H200", 4800),
        ("NVIDIA A100-SXM4-40GB", 1555),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA L40S", 864),
        ("NVIDIA L4", 300),
        ("NVIDIA A10", 600),
        ("NVIDIA GeForce RTX 4090", 1008),
        ("Tesla V100-SXM2-16GB", 900),
        ("NVIDIA Something 9000", None),
    ],
)
def test_well_known_gpus_are_known(name: str, gb_s: float | None) -> None:
    """The peak of an unknown GPU is not guessed."""
    assert gb_s == roofline.gpu_peak(name).gb_s


def test_the_driver_knows_better_than_the_table_unless_it_is_far_off() -> None:
    """Memory clock times bus width counts; the clock of idle memory is not believed."""
    peak = roofline.gpu_peak("NVIDIA H200", clock_khz=3_201_000, bus_bits=6144)
    assert ("driver", pytest.approx(4916.7, abs=1)) == (peak.source, peak.gb_s)
    idle = roofline.gpu_peak("NVIDIA H200", clock_khz=100_000, bus_bits=6144)
    assert ("table", 4800) == (idle.source, idle.gb_s)
    facts = {"card": "Unheard Of", "memory clock": "1000 MHz", "memory bus": "256 bits"}
    unknown = roofline.device_peak(Device(kind="cuda", facts=facts))
    assert 64 == unknown.gb_s


def test_figures_say_which_bound_is_near() -> None:
    """Bandwidth, arithmetic and their shares; no figure where nothing is known."""
    figures = roofline.roofline_figures(100 << 20, 1e6, 70.0, CARD)
    assert figures["bandwidth"].startswith("1498 GB/s, 75% of the peak")
    assert "memory" == figures["bound"]
    assert "arithmetic" == roofline.roofline_figures(1 << 20, 2e10, 100.0, CARD)["bound"]
    assert "latency" in roofline.roofline_figures(1 << 10, 1e3, 50.0, CARD)["bound"]
    assert "fits" in roofline.roofline_figures(1 << 20, 0, 50.0, CARD)["bandwidth"]
    assert {"bandwidth": "0.02048 GB/s"} == roofline.roofline_figures(
        1 << 10, 0, 50.0, DevicePeak()
    )


@given(
    st.floats(0, 1e12),
    st.floats(0, 1e15),
    st.sampled_from([roofline.gpu_peak(row[0].replace("\\b", "")) for row in roofline.KNOWN_GPUS]),
)
def test_the_floor_is_below_what_the_peak_allows(
    moved: float, flops: float, peak: DevicePeak
) -> None:
    """A perfect kernel by the maker's own figures is never called impossible."""
    assert peak.gb_s is not None
    assert peak.tensor_tflops is not None
    perfect = max(moved / peak.gb_s / 1e3, flops / peak.tensor_tflops / 1e6)
    assert roofline.floor_us(moved, flops, peak) <= perfect / roofline.PEAK_MARGIN + 1e-9


def test_the_floor_refuses_an_absurd_claim() -> None:
    """A GiB does not move in ten microseconds; data that fits into the cache may be quick."""
    assert roofline.floor_us(1 << 30, 0, CARD) > 400
    assert roofline.floor_us(1 << 20, 0, CARD) < 0.1
    assert roofline.floor_us(0, 1e12, CARD) > 1000
    assert roofline.floor_us(1 << 40, 1e18, DevicePeak()) == 0.0


def test_a_processor_is_measured_and_gives_no_floor() -> None:
    """A copy by one core shows how near a candidate comes, not what all cores can't beat."""
    peak = roofline.device_peak(Device(kind="cpu", fingerprint="this one"))
    assert peak is roofline.device_peak(Device(kind="cpu", fingerprint="this one"))
    assert (peak.gb_s or 0) > 0.1
    assert roofline.floor_us(1 << 30, 0, peak) == 0.0


# --- profile --------------------------------------------------------------------------------------


def event(key: str, us: float, device_type: str = "DeviceType.CUDA") -> SimpleNamespace:
    return SimpleNamespace(
        key=key,
        count=3,
        self_cpu_time_total=us,
        self_device_time_total=us,
        device_type=device_type,
    )


def test_the_table_is_short_sorted_and_a_call_each() -> None:
    """Ten rows, the longest first, shares of the total, names of one bounded line."""
    events = [event(f"k{n}\x1b[2J" + "x" * 200, 3.0 * n) for n in range(1, 21)]
    others = [event("Lazy Function Loading", 1e9), event("aten::mm", 1e9, "DeviceType.CPU")]
    made = profiler.profile_of_events([*events, *others], 3, "cuda")
    assert profiler.MAX_ROWS == len(made.rows)
    assert (10, 210.0) == (made.more, made.whole_us)
    assert (20.0, 1) == (made.rows[0].us, made.rows[0].calls)
    assert made.rows[0].share == pytest.approx(20 / 210, abs=1e-4)
    assert all(len(row.name) <= 80 and row.name.isprintable() for row in made.rows)
    assert len(profiler.profile_text(made)) < 2000
    assert "and 10 more" in profiler.profile_text(made)


def test_a_forged_table_is_cut() -> None:
    """The table comes from a process with a candidate in it."""
    row = KernelProfileRow(name="x\n" * 10_000, calls=1, us=1.0, share=1.0)
    forged = KernelProfile(rows=(row,) * 1000)
    assert len(profiler.profile_text(profiler.sanitized_profile(forged))) < 2000


def test_an_empty_table_adds_no_line() -> None:
    """An empty profile adds nothing to the figures."""
    assert {"timing": "x"} == profiler.verdict_profile(KernelProfile(), {"timing": "x"})


def test_a_call_is_profiled(torch: ModuleType) -> None:
    """torch's own profiler, on this machine."""
    x = torch.randn(64, 64)
    made = profiler.profile_call(lambda: torch.relu(x @ x), "cpu")
    assert {"aten::mm", "aten::clamp_min"} <= {row.name for row in made.rows}
    assert all(row.calls == 1 for row in made.rows if row.name == "aten::mm")


# --- the maker's tools ----------------------------------------------------------------------------

NCU = """==PROF== Connected to process 77
noise from the program
==PROF== Disconnected from process 77
"ID","Process ID","Kernel Name","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed","dram__bytes_read.sum","launch__registers_per_thread","lts__t_sector_hit_rate.pct"
"","","","ns","%","byte","register/thread","%"
"0","77","relu_kernel(const float *, float *, int)","4,608","12.5","8,388,608","16","n/a"
"1","77","relu_kernel(const float *, float *, int)","9,999","1","1","1","1"
"2","77","other","1000","50","2048","255","99.5"
"3","77","cut of
"""  # noqa: E501


def test_ncus_numbers_are_read() -> None:
    """Figures by kernel, the first launch of each, without what a GPU does not measure."""
    found = tools.ncu_numbers(NCU)
    assert {
        "time": "4.61 µs",
        "read from memory": "8.00 MiB",
        "multiprocessors busy": "12.5 %",
        "registers a thread": "16",
    } == found["relu_kernel(const float *, float *, int)"]
    assert "99.5 %" == found["other"]["L2 hits"]
    assert 2 == len(found)


@given(st.text(max_size=300))
def test_ncus_output_may_be_anything(garbage: str) -> None:
    """With no permission, a crash or a forgery there are no figures."""
    tools.ncu_numbers(garbage)
    tools.ncu_numbers('"ID","Kernel Name"\n' + garbage)
    tools.sanitizer_summary(garbage)


# As compute-sanitizer of CUDA 13.0 prints it, shortened.
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at w(float *)+0x70 in /tmp/x/candidate-1/cuda.cu:7
=========     by thread (32,0,0) in block (0,0,0)
=========     Access to 0x7f8af4800170 is out of bounds
=========     and is 113 bytes after the nearest allocation at 0x7f8af4800000 of size 256 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x8cfd] in bad
=========
========= Invalid __global__ write of size 4 bytes
=========     at w(float *)+0x70 in /tmp/x/candidate-1/cuda.cu:7
=========     by thread (33,0,0) in block (0,0,0)
=========     Access to 0x7f8af4800174 is out of bounds
=========
========= Invalid __global__ read of size 4 bytes
=========     at other(float *)+0x10 in cuda.cu:9
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum(float *)+0x40 in cuda.cu:9
=========     and Read access at sum(float *)+0x80 in cuda.cu:11 [1984 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_the_sanitizers_findings_are_short() -> None:
    """Their number and the first of them, without folders of this machine."""
    found = tools.sanitizer_summary(MEMCHECK)
    assert 3 == found.count
    assert "Invalid __global__ write of size 4 bytes" == found.lines[0]
    assert "cuda.cu:7" in found.lines[1]
    assert "cuda.cu:9" in found.lines[-1]
    assert 7 == len(found.lines)
    assert not any("/tmp" in line or "ost" in line for line in found.lines)  # noqa: S108
    raced = tools.sanitizer_summary(RACECHECK)
    assert 1 == raced.count
    assert "Race reported" in raced.lines[0]
    assert "Read access" in raced.lines[1]
    assert tools.sanitizer_summary("========= ERROR SUMMARY: 0 errors\n").is_clean
    assert not tools.sanitizer_summary("killed").is_clean


def test_commands_end_with_the_program() -> None:
    """The tool's own options come first, so a program's options can't be taken for them."""
    program = ["python", "-m", "actors.evaluator.once"]
    assert program == tools.tool_command("ncu", program)[-3:]
    assert ["/opt/cs", "--tool", "racecheck"] == tools.tool_command(
        "racecheck", program, "/opt/cs"
    )[:3]
