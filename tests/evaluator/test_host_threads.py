"""What a host does is told, stored and compared for the number of threads that a call has."""

from __future__ import annotations

import os

import pytest

from actors.evaluator.children import device_rates, host_loops
from actors.evaluator.devices import device_description
from actors.evaluator.devices.device_description import cpu_device
from protocol.fact_lines import task_fact_lines
from protocol.facts import DeviceRates, ReferenceFacts


@pytest.mark.parametrize(("text", "words"), [("1", ", 1 thread"), ("0", ""), ("2,1", ""), ("", "")])
def test_fewer_threads_than_cores_are_another_device(
    monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    """Rates of two threads were told, and a product's floor with them, where a call has one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(4))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    usual = cpu_device()
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    found = cpu_device()
    assert f"{usual.name}{words}" == found.name
    assert (usual.fingerprint == found.fingerprint) is not bool(words)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("avx2 avx512f", ("float32",)),
        ("avx2 avx512f avx512_bf16", ("float32", "bfloat16")),
        ("avx2 amx_tile", ("float32", "bfloat16")),
    ],
)
def test_products_of_bfloat16_are_measured_where_a_processor_has_them(
    monkeypatch: pytest.MonkeyPatch, flags: str, expected: tuple[str, ...]
) -> None:
    """Without them the floor of such a task was that of its bytes: 544 times too low for one."""
    monkeypatch.setattr(device_description, "_cpuinfo", lambda: {"flags": flags})
    assert expected == device_rates._host_precisions()


def test_a_host_is_told_by_what_its_vector_units_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that lost its vectors does two operations a cycle; the rate and the clock are told."""
    loops = host_loops.compiled_loops()
    if loops is None:
        pytest.skip("needs a C++ compiler")
    gflops, ghz = loops.gflops(1, 20), loops.clock_ghz(20)
    assert 0.1 < ghz < 10.0
    assert gflops > 4 * ghz
    rates = DeviceRates(threads=2, fma_gflops=224.2, clock_ghz=3.631)
    (line,) = task_fact_lines(ReferenceFacts(rates=rates))
    assert "with 2 threads: vector multiply-adds 224.2 GFLOP/s, at 3.6 GHz" in line
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert host_loops.compiled_loops() is None
