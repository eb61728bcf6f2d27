"""Laws of facts: floors by hand-worked figures, occupancy as NVIDIA computes it, parsed texts."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.evaluator.children import (
    cluster_limits,
    kernel_resources,
    product_kernels,
    profiler,
)
from actors.evaluator.children.kernel_resources import KernelResources
from actors.evaluator.children.product_kernels import PRODUCTS
from actors.evaluator.devices.rates_cache import UNSETTLED_S, RatesCache
from actors.evaluator.facts.judge_rules import rule_lines
from actors.evaluator.facts.occupancy import multiprocessor_limits, theoretical_occupancy
from actors.evaluator.facts.task_floor import rates_that_allow, task_floor
from actors.evaluator.facts.verdict_facts import OWN_CODE, candidate_facts, worst_errors
from actors.evaluator.ipc.profile import KernelProfile, KernelProfileRow
from actors.evaluator.ipc.referee_orders import OutputTolerance, TaskDescribed
from protocol.facts import DeviceRates, DrawError, TaskCost
from protocol.settings import JudgeRules
from protocol.values import Device

RATES = DeviceRates(
    copy_gb_s=2000.0,
    cached_copy_gb_s=5000.0,
    cache_bytes=50 << 20,
    next_launch_us=2.0,
    tflops={"float32": 50.0, "tf32": 400.0},
)
H100 = {
    "compute capability": "9.0",
    "multiprocessors": "132",
    "threads a multiprocessor": "2048",
    "registers a multiprocessor": "65536",
    "shared memory a multiprocessor": "228 KiB",
    "threads a warp": "32",
}


# --- floors ---------------------------------------------------------------------------------------


def test_a_floor_is_the_largest_of_its_parts() -> None:
    """2 GB at 2000 GB/s take a millisecond; 100 GFLOP at 50 TFLOP/s take two."""
    cost = TaskCost(input_bytes=10**9, output_bytes=10**9, flops={"float32": 100e9})
    floor = task_floor(cost, RATES)
    assert (floor.memory_us, floor.cached_us) == (pytest.approx(1000.0), None)
    assert floor.matrix_us == pytest.approx(2000.0)
    assert floor.launch_us == 2.0
    assert floor.us == pytest.approx(2000.0)


def test_bytes_that_stay_in_the_cache_have_its_rate() -> None:
    """The floor of a small task is not that of memory, which its bytes need not reach."""
    floor = task_floor(TaskCost(input_bytes=10_000_000), RATES)
    assert floor.memory_us == pytest.approx(5.0)
    assert floor.cached_us == pytest.approx(2.0)
    assert floor.parts["bytes"] == pytest.approx(2.0)


def test_bytes_that_are_only_read_have_the_rate_of_reading() -> None:
    """A reduction reads nearly all: its floor is not that of a copy of as many bytes."""
    rates = replace(RATES, read_gb_s=2500.0)
    reduction = TaskCost(input_bytes=2 * 10**9, state_bytes=10**9, output_bytes=10**9)
    assert task_floor(reduction, rates).memory_us == pytest.approx(1000.0 + 800.0)
    written = TaskCost(input_bytes=10**9, output_bytes=3 * 10**9)
    assert task_floor(written, rates).memory_us == pytest.approx(2000.0)
    raised = rates_that_allow(1700.0, reduction, rates)
    assert task_floor(reduction, raised).us == pytest.approx(1700.0)


def test_each_precision_has_its_own_rate() -> None:
    """Convolutions in TF32 beside products in float32 add up at their own rates."""
    floor = task_floor(TaskCost(flops={"float32": 50e6, "tf32": 400e6}), RATES)
    assert floor.matrix_us == pytest.approx(2.0)


def test_unknown_rates_set_no_floor() -> None:
    """A precision without a measured rate leaves its part out instead of guessing it."""
    assert task_floor(TaskCost(flops={"float64": 1e12}), RATES).matrix_us is None
    assert task_floor(TaskCost(input_bytes=1 << 30, flops={"tf32": 1e12}), DeviceRates()).us is None


def test_a_floor_is_never_above_the_tasks_own_time() -> None:
    """A rate that the task's own module exceeds is raised; one that is far off says nothing."""
    cost = TaskCost(input_bytes=10**9, flops={"tf32": 400e9})
    raised = rates_that_allow(900.0, cost, RATES)
    assert raised.tflops == {"float32": 50.0, "tf32": pytest.approx(444.4, abs=0.1)}
    assert raised.copy_gb_s == 2000.0
    assert task_floor(cost, raised).us == pytest.approx(900.0)
    assert rates_that_allow(1100.0, cost, RATES) == RATES
    copied = rates_that_allow(450.0, TaskCost(input_bytes=10**9), RATES)
    assert copied.copy_gb_s == pytest.approx(2222.2, abs=0.1)
    assert rates_that_allow(100.0, cost, RATES) == DeviceRates()


# --- occupancy ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "share", "limit", "blocks"),
    [
        (256, 32, 0, 1.0, "", 8),
        (256, 64, 0, 0.5, "registers", 4),
        (1024, 64, 0, 0.5, "registers", 1),
        (128, 40, 0, 0.75, "registers", 12),
        (256, 32, 100 * 1024, 0.25, "shared memory", 2),
        (32, 16, 0, 0.5, "blocks", 32),
        (768, 24, 0, 0.75, "threads", 2),
    ],
)
def test_occupancy_is_that_of_the_programming_guide(
    threads: int, registers: int, shared: int, share: float, limit: str, blocks: int
) -> None:
    """The figures of NVIDIA's occupancy calculator for compute capability 9.0."""
    limits = multiprocessor_limits(H100)
    assert limits is not None
    found = theoretical_occupancy(threads, registers, shared, limits)
    assert found is not None
    assert (found.share, found.limit, found.blocks) == (pytest.approx(share), limit, blocks)


def test_occupancy_of_an_unknown_card_is_unknown() -> None:
    """A driver that does not report a limit leads to no figure, and a block too large to none."""
    assert multiprocessor_limits({"compute capability": "9.0"}) is None
    limits = multiprocessor_limits(H100)
    assert limits is not None
    assert theoretical_occupancy(1024, 255, 0, limits) is None


# --- what kernels take ----------------------------------------------------------------------------

CUOBJDUMP = """
Fatbin elf code:
================
arch = sm_90a
code version = [1,8]
host = linux
compile_size = 64bit
identifier = k.cu

Resource usage:
 Common:
  GLOBAL:0 CONSTANT[3]:24
 Function _Z7row_sumPKfPfi:
  REG:40 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:548 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _ZN2my4gemmILi64EEEvPKfS2_Pf:
  REG:255 STACK:96 SHARED:0 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _ZN2my4gemmILi32EEEvPKfS2_Pf:
  REG:128 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def test_the_output_of_cuobjdump_is_read() -> None:
    """Registers and local memory of each function, by its mangled name."""
    found = kernel_resources.parse_resource_usage(CUOBJDUMP)
    assert [(each.registers, each.local_bytes) for each in found] == [(40, 0), (255, 96), (128, 0)]


@pytest.mark.parametrize(
    ("kernel", "registers", "local_bytes"),
    [
        ("row_sum(float const*, float*, int)", 40, 0),
        ("my::gemm<64>(float const*, float const*, float*)", 255, 96),
        ("my::gemm<32>(float const*, float const*, float*)", 128, 0),
        ("my::gemm<16>(float const*, float const*, float*)", 99, None),
        ("sum(float const*)", 40, None),
        ("", 40, None),
    ],
)
def test_a_launched_kernel_finds_its_own_function(
    kernel: str, registers: int, local_bytes: int | None
) -> None:
    """Instances of one template are told apart by their registers; in doubt nothing is said."""
    resources = kernel_resources.parse_resource_usage(CUOBJDUMP)
    assert local_bytes == kernel_resources.local_bytes_of(kernel, registers, resources)


@settings(max_examples=30)
@given(st.text(max_size=200))
def test_cuobjdumps_output_may_be_anything(garbage: str) -> None:
    """The library that it reads is the candidate's own."""
    found = kernel_resources.parse_resource_usage(garbage + CUOBJDUMP)
    assert all(isinstance(each, KernelResources) for each in found)


TRACE = """{"traceEvents": [
 {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 5.0, "args": {}},
 {"ph": "X", "cat": "kernel", "name": "row_sum(float const*, float*, int)", "dur": 30.5,
  "args": {"registers per thread": 40, "shared memory": 1024, "grid": [4096, 1, 1],
           "block": [256, 1, 1], "blocks per SM": inf}},
 {"ph": "X", "cat": "kernel", "name": "row_sum(float const*, float*, int)", "dur": 29.5},
 {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 2.0, "args": {"bytes": 4}},
 {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 2.0, "args": {"bytes": 4}}
]}"""


def test_a_trace_of_a_card_is_read() -> None:
    """Kernels and memory sets of two calls, with the first launch's grid, block and registers."""
    profile = profiler.profile_of_trace(profiler.trace_events(TRACE), 2)
    assert (32.0, 2) == (profile.whole_us, profile.launches)
    first, second = profile.rows
    assert (first.us, first.registers, first.shared_bytes) == (30.0, 40, 1024)
    assert (first.grid, first.block) == ((4096, 1, 1), (256, 1, 1))
    assert (second.name, second.us, second.grid) == ("Memset (Device)", 2.0, None)


@settings(max_examples=30)
@given(st.text(max_size=100))
def test_a_trace_may_be_anything(garbage: str) -> None:
    """A trace that can't be read leaves the kernels unknown."""
    profiler.trace_events(garbage)
    assert profiler.trace_events('{"traceEvents": 3}') == []


@settings(max_examples=30)
@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(), st.lists))
def test_a_trace_may_lack_any_figure(value: object) -> None:
    """An older profiler writes other fields, and then these figures are unknown."""
    event = {"cat": "kernel", "name": "k", "dur": 1.0, "args": {"grid": value, "block": value}}
    profiler.profile_of_trace([event], 1)


# --- a candidate's facts --------------------------------------------------------------------------


def test_a_kernels_occupancy_and_waves_come_from_its_launch() -> None:
    """12 blocks of 128 threads with 40 registers fit, so 3168 blocks are two waves of 132."""
    row = KernelProfileRow(
        name="k", calls=1, us=9.0, share=1.0, grid=(3168, 1, 1), block=(128, 1, 1), registers=40,
        shared_bytes=0, local_bytes=8,
    )  # fmt: skip
    profile = KernelProfile(rows=(row,), whole_us=9.0, launches=1, host_us=4.0)
    facts = candidate_facts(profile, Device(kind="cuda", facts=H100), 12.0)
    assert (facts.launches, facts.device_us, facts.host_us, facts.median_us) == (1, 9.0, 4.0, 12.0)
    kernel = facts.kernels[0]
    assert (kernel.occupancy, kernel.occupancy_limit) == (0.75, "registers")
    assert kernel.waves == pytest.approx(2.0)
    assert kernel.local_bytes == 8


def test_on_a_host_the_rest_of_a_call_is_the_candidates_own_code() -> None:
    """Operators of torch take their share of the whole call, not of each other."""
    row = KernelProfileRow(name="aten::empty", calls=1, us=10.0, share=1.0)
    profile = KernelProfile(rows=(row,), whole_us=10.0, launches=1, host_us=100.0)
    facts = candidate_facts(profile, Device(), 90.0)
    assert [(each.name, each.share) for each in facts.kernels] == [
        (OWN_CODE, 0.9),
        ("aten::empty", 0.1),
    ]


def test_without_a_profile_only_the_time_is_known() -> None:
    """A candidate whose profile failed has no kernels and no launches."""
    facts = candidate_facts(None, Device(kind="cuda", facts=H100), 12.0)
    assert (facts.kernels, facts.launches, facts.median_us) == ((), None, 12.0)


# --- rules and rates ------------------------------------------------------------------------------


def test_the_rules_are_the_judges_own_numbers() -> None:
    """Tolerance in absolute figures, eager's share, TF32 and kinds of draws stand in the lines."""
    tolerance = OutputTolerance(
        dtype="float32", allowed=1e-4, rms=2.5, eager_error=3e-7, error_factor=8.0, is_double=True
    )
    described = TaskDescribed(tolerances=(tolerance,), tf32_convolutions=True)
    text = "\n".join(rule_lines(described, "cuda", ["shifted", "sparse"], 3, JudgeRules()))
    parts = ["float64", "0.0001 x", "0.00025 for an element near 0", "RMS 2.5", "0.003 of it"]
    parts += ["matrix products: off", "convolutions: on", "shifted, sparse", "at least 3"]
    assert [part for part in parts if part not in text] == []
    plain = "\n".join(rule_lines(described, "cpu", [], 3, JudgeRules()))
    assert "TF32 in" not in plain
    assert "Each call of Model changes" not in plain
    (line,) = set(rule_lines(described, "cpu", [], 3, JudgeRules(), (), ("hidden",))) - set(
        rule_lines(described, "cpu", [], 3, JudgeRules())
    )
    assert line.startswith("Each call of Model changes hidden, tensors in plain attributes")
    names = [f"bn{number}.running_mean" for number in range(8)]
    (line,) = [
        each
        for each in rule_lines(described, "cpu", [], 3, JudgeRules(), names)
        if "Each call of Model changes" in each
    ]
    assert "bn0.running_mean, " in line
    assert "and 2 more: each call of ModelNew has to change them" in line


def test_eagers_own_error_widens_a_tolerance() -> None:
    """Where eager loses more than a task usually may, the figure is the one that is judged by."""
    tolerance = OutputTolerance(
        dtype="float32", allowed=1e-4, rms=2.5, eager_error=3e-5, error_factor=8.0, is_double=True
    )
    line = rule_lines(TaskDescribed(tolerances=(tolerance,)), "cpu", [], 3, JudgeRules())[0]
    assert "0.00024 x (|element| + RMS" in line
    assert "which is 8 x eager's own error and above 0.0001" in line
    assert line.endswith("Eager's own largest error is 0.12 of it.")
    coarse = TaskDescribed(tolerances=(replace(tolerance, tf32_error=6e-4),))
    line = rule_lines(coarse, "cuda", [], 3, JudgeRules())[0]
    assert line.endswith("error is 0.12 of it, with its products in TF32 2.5.")


def test_errors_of_several_checks_are_the_worst_of_each_kind() -> None:
    """Rounds in fresh processes, and cases, draw anew: the margin is that of the worst draw."""
    one = (DrawError(inputs="as given", share=0.1), DrawError(inputs="shifted", share=0.5))
    other = (DrawError(inputs="as given", share=0.2),)
    assert worst_errors([one, other]) == (
        DrawError(inputs="as given", share=0.2),
        DrawError(inputs="shifted", share=0.5),
    )


def test_rates_are_stored_for_one_device_only(tmp_path: Path) -> None:
    """Another driver, torch or clock measures again; a damaged file counts as missing."""
    cache = RatesCache(tmp_path / "rates")
    here, other = Device(fingerprint="here"), Device(fingerprint="other")
    assert cache.find(here, 1.0) is None
    cache.store(here, RATES, 0.0)
    assert (cache.find(here, 1e9), cache.find(other, 1e9)) == (RATES, None)
    file = next(cache.root.iterdir())
    file.write_text(file.read_text().replace("2000.0", "-1.0"))
    assert cache.find(here, 1.0) is None
    file.write_bytes(b"\xff")
    assert cache.find(here, 1.0) is None


def test_rates_of_a_busy_machine_are_not_told(tmp_path: Path) -> None:
    """Nothing is said for an hour, and then they are measured again."""
    cache, here = RatesCache(tmp_path / "rates"), Device(fingerprint="here")
    assert cache.store(here, RATES, 100.0, is_settled=False) == DeviceRates()
    assert cache.find(here, 160.0) == DeviceRates()
    assert cache.find(here, 100.0 + UNSETTLED_S + 1) is None
    assert cache.find(here, 0.0) is None


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_kernels_of_instructions_assemble(name: str, tmp_path: Path) -> None:
    """What the driver is to compile on a card, its assembler takes here, without spills."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("needs ptxas")
    text, target = tmp_path / "products.ptx", "sm_90a" if "wgmma" in name else "sm_80"
    text.write_text(product_kernels.ptx(PRODUCTS[name]), encoding="utf-8")
    command = [ptxas, "-v", f"-arch={target}", str(text), "-o", str(tmp_path / "products.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores" in done.stderr


def test_a_launch_with_clusters_has_the_drivers_layout() -> None:
    """cuda.h's CUlaunchConfig has 56 bytes, its attribute 72, with the value behind 8."""
    launch = cluster_limits.configuration(4, 528, 1000)
    assert ctypes.sizeof(launch) == 56
    assert (ctypes.sizeof(cluster_limits.LaunchAttribute), type(launch).count.offset) == (72, 48)
    assert cluster_limits.LaunchAttribute.blocks.offset == 8
    assert (launch.attributes[0].number, list(launch.attributes[0].blocks)) == (4, [4, 1, 1])


def test_a_measurement_only_improves_rates(tmp_path: Path) -> None:
    """Other programs lower a rate and never raise it."""
    cache, here = RatesCache(tmp_path / "rates"), Device(fingerprint="here")
    before = replace(RATES, instruction_tflops={"TF32 by wgmma": 500.0}, clusters={2: 66})
    cache.store(here, before, 0.0, is_settled=False)
    slower = DeviceRates(
        copy_gb_s=100.0,
        next_launch_us=1.0,
        tflops={"tf32": 1.0, "float16": 7.0},
        instruction_tflops={"TF32 by wgmma": 480.0},
    )
    told = cache.store(here, slower, 5000.0)
    assert (told.copy_gb_s, told.next_launch_us) == (2000.0, 1.0)
    assert told.tflops == {"float32": 50.0, "tf32": 400.0, "float16": 7.0}
    assert (told.instruction_tflops, told.clusters) == ({"TF32 by wgmma": 500.0}, {2: 66})
    assert cache.find(here, 1e9) == told
