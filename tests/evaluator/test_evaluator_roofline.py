"""The roofline and the profile."""

from __future__ import annotations

import math
import time
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.children import profiler
from actors.evaluator.devices import roofline
from actors.evaluator.devices.roofline import DevicePeak
from actors.evaluator.ipc.profile import KernelProfile, KernelProfileRow
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
def test_well_known_cards_are_known(name: str, gb_s: float | None) -> None:
    """The figures of an unknown card are not guessed."""
    assert gb_s == roofline.gpu_peak(name).gb_s


def test_the_drivers_figure_counts_unless_it_is_far_from_the_table() -> None:
    """Memory clock times bus width; the clock of idle memory is not used."""
    driver = roofline.gpu_peak("NVIDIA H200", clock_khz=3_201_000, bus_bits=6144)
    assert ("driver", pytest.approx(4916.7, abs=1)) == (driver.source, driver.gb_s)
    idle = roofline.gpu_peak("NVIDIA H200", clock_khz=100_000, bus_bits=6144)
    assert ("table", 4800) == (idle.source, idle.gb_s)
    facts = {"card": "Unheard Of", "memory clock": "1000 MHz", "memory bus": "256 bits"}
    unknown = roofline.device_peak(Device(kind="cuda", facts=facts))
    assert 64 == unknown.gb_s


@given(
    st.floats(0, 1e12),
    st.floats(0, 1e15),
    st.sampled_from([roofline.gpu_peak(row[0].replace("\\b", "")) for row in roofline.KNOWN_GPUS]),
)
def test_the_floor_is_below_the_peak(moved: float, flops: float, peak: DevicePeak) -> None:
    """A perfect kernel at the maker's own figures is never rejected."""
    assert peak.gb_s is not None
    assert peak.tensor_tflops is not None
    perfect = max(moved / peak.gb_s / 1e3, flops / peak.tensor_tflops / 1e6)
    assert roofline.floor_us(moved, flops, peak) <= perfect / roofline.PEAK_MARGIN + 1e-9


def test_the_floor_rejects_impossible_claims() -> None:
    """A GiB does not move in ten microseconds; bytes that fit into the cache may be quick."""
    assert roofline.floor_us(1 << 30, 0, CARD) > 400
    assert roofline.floor_us(1 << 20, 0, CARD) < 0.1
    assert roofline.floor_us(0, 1e12, CARD) > 1000
    assert roofline.floor_us(1 << 40, 1e18, DevicePeak()) == 0.0


def test_a_processor_has_no_floor() -> None:
    """Nothing is known of a processor's peak, so no honest candidate is below a floor of it."""
    peak = roofline.device_peak(Device(kind="cpu", fingerprint="this one"))
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


def test_the_table_is_short_and_sorted_with_times_for_one_call() -> None:
    """It has ten rows, the longest first, shares of the total, names of one bounded line."""
    events = [event(f"k{n}\x1b[2J" + "x" * 200, 3.0 * n) for n in range(1, 21)]
    others = [event("Lazy Function Loading", 1e9), event("aten::mm", 1e9, "DeviceType.CPU")]
    profile = profiler.profile_of_events([*events, *others], 3, "cuda")
    assert profiler.MAX_ROWS == len(profile.rows)
    assert (10, 210.0) == (profile.more, profile.whole_us)
    assert (20.0, 1) == (profile.rows[0].us, profile.rows[0].calls)
    assert profile.rows[0].share == pytest.approx(20 / 210, abs=1e-4)
    assert all(len(row.name) <= 80 and row.name.isprintable() for row in profile.rows)
    assert 20 == profile.launches


def test_a_forged_table_is_cut() -> None:
    """The table comes from a process with candidate code."""
    row = KernelProfileRow(
        name="x\n" * 10_000, calls=-1, us=math.nan, share=7.0, registers=1 << 60, grid=(1, -1, 1)
    )
    found = profiler.sanitized_profile(
        KernelProfile(rows=(row,) * 1000, whole_us=-1.0, host_us=1e99)
    )
    assert (profiler.MAX_ROWS, 0.0, None) == (len(found.rows), found.whole_us, found.host_us)
    kept = found.rows[0]
    assert (0, 0.0, 0.0, None, None) == (kept.calls, kept.us, kept.share, kept.registers, kept.grid)
    assert len(kept.name) <= 80
    assert kept.name.isprintable()


def test_a_call_is_profiled(torch: ModuleType) -> None:
    """torch's own profiler works on this machine."""
    x = torch.randn(64, 64)
    profile = profiler.profile_call(lambda: torch.relu(x @ x), "cpu")
    assert {"aten::mm", "aten::clamp_min"} <= {row.name for row in profile.rows}
    assert all(row.calls == 1 for row in profile.rows if row.name == "aten::mm")


def test_an_operator_that_was_interrupted_is_not_the_longest(torch: ModuleType) -> None:
    """Of several calls on a host the one with the least time in operators is told."""
    x, delays = torch.randn(64, 64), iter((0.0, 0.3, 0.0))

    def call() -> None:
        with torch.autograd.profiler.record_function("interrupted"):
            time.sleep(next(delays))
        x @ x

    rows = {row.name: row for row in profiler._operators_of(call, 3).rows}
    assert 1 == rows["aten::mm"].calls
    assert rows["interrupted"].us < 2e5
