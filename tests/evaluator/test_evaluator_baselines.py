"""Baselines: measured once for a task and a device, stored, measured again if either changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.evaluator.judge import Judge
from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.evaluator.timing import baseline_cache, baselines
from actors.evaluator.timing.baseline_cache import BaselineCache, ReferenceBaselines
from actors.evaluator.timing.baselines import BaselineTime, CompiledBaselines
from actors.work_context import STANDALONE
from protocol.values import Device, Reference, Task

HERE = Device(kind="cuda", name="card", fingerprint="card; driver 1; torch 2.11; CUDA 13.0")
TASK = Task(name="t", source="class Model: pass")
KEPT = ReferenceBaselines(eager_us=10.0, compile_us=5.0)


@pytest.fixture
def store(tmp_path: Path) -> BaselineCache:
    made = BaselineCache(tmp_path / "deep" / "baselines")
    made.store(TASK, HERE, KEPT)
    return made


def test_stored_baselines_are_found_again(store: BaselineCache) -> None:
    """Another process finds them, under any task name; None stays None."""
    renamed = msgspec.structs.replace(TASK, name="other", checks=9)
    assert KEPT == BaselineCache(store.root).find(renamed, HERE)


@pytest.mark.parametrize("change", ["driver 2", "torch 2.13"])
def test_another_device_or_torch_measures_again(store: BaselineCache, change: str) -> None:
    """Figures of different fingerprints are never mixed."""
    word = change.split()[0]
    old = next(part for part in HERE.fingerprint.split("; ") if part.startswith(word))
    other = msgspec.structs.replace(HERE, fingerprint=HERE.fingerprint.replace(old, change))
    assert store.find(TASK, other) is None
    store.store(TASK, other, ReferenceBaselines(eager_us=1.0))
    assert KEPT == store.find(TASK, HERE)


def test_another_task_measures_again(store: BaselineCache) -> None:
    """One more character in its source makes another task."""
    other = msgspec.structs.replace(TASK, source=TASK.source + " ")
    assert store.find(other, HERE) is None


def test_times_of_another_measuring_method_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that were measured without priority do not outlive the repair."""
    store = BaselineCache(tmp_path)
    monkeypatch.setattr(baseline_cache, "VERSION", baseline_cache.VERSION - 1)
    store.store(TASK, HERE, KEPT)
    assert KEPT == store.find(TASK, HERE)
    monkeypatch.undo()
    assert store.find(TASK, HERE) is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version": 1}',
        b"[" * 100_000,
        msgspec.json.encode({"version": 1, "fingerprint": "another", "task": "x"}),
    ],
)
def test_a_damaged_file_counts_as_missing(store: BaselineCache, garbage: bytes) -> None:
    """A torn or foreign file means measuring again, and is overwritten then."""
    [path] = store.root.iterdir()
    path.write_bytes(garbage)
    assert store.find(TASK, HERE) is None
    store.store(TASK, HERE, KEPT)
    assert KEPT == store.find(TASK, HERE)
    assert [path] == list(store.root.iterdir())


@pytest.mark.parametrize("us", [0.0, -1.0])
def test_impossible_times_are_not_believed(store: BaselineCache, us: float) -> None:
    """A speedup over a time of zero would be infinite."""
    store.store(TASK, HERE, ReferenceBaselines(eager_us=us))
    assert store.find(TASK, HERE) is None


def test_a_cache_that_can_not_be_written_costs_no_result(tmp_path: Path) -> None:
    """A full or read-only home does not prevent judging."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    store = BaselineCache(tmp_path / "file" / "baselines")
    store.store(TASK, HERE, KEPT)
    assert store.find(TASK, HERE) is None


def test_the_cache_is_in_the_users_cache_folder() -> None:
    """XDG_CACHE_HOME if it is absolute, else ~/.cache."""
    last = Path("stark-kernels/baselines")
    assert Path("/c") / last == baseline_cache.cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"})
    assert Path("/h/.cache") / last == baseline_cache.cache_folder(
        {"XDG_CACHE_HOME": "c", "HOME": "/h"}
    )


WAITS_WITHOUT_PRIORITY = """
import time
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        with open("/proc/self/autogroup") as group:
            if "nice -" not in group.read():
                time.sleep(1)
        return x + 1.0

def get_inputs():
    return [torch.rand(8)]

def get_init_inputs():
    return []
"""


class FakeFixture:
    """A fixture of which only the task is looked at."""

    task = TASK


def test_a_mode_that_is_done_is_not_measured_again(
    store: BaselineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate cancels the measurement in the second mode: only that mode is begun again."""
    other = msgspec.structs.replace(HERE, fingerprint="another card")
    measured: list[str | None] = []
    cancelled = [True]

    def time(_process: object, mode: str | None) -> BaselineTime:
        measured.append(mode)
        if mode == "max-autotune" and cancelled.pop():
            raise EvaluationCancelledError
        return BaselineTime(
            us={"default": 5.0, "max-autotune": 4.0, None: 10.0}[mode], is_settled=True
        )

    monkeypatch.setattr(baselines.BaselineProcess, "time", time)
    compiled = CompiledBaselines(store)
    fixture: Any = FakeFixture()
    with pytest.raises(EvaluationCancelledError):
        compiled.measure(fixture, other, STANDALONE)
    cancelled.append(False)
    expected = ReferenceBaselines(eager_us=10.0, compile_us=5.0, max_autotune_us=4.0)
    assert expected == compiled.measure(fixture, other, STANDALONE)
    assert [None, "default", "max-autotune", None, "max-autotune"] == measured
    assert expected == compiled.stored(TASK, other)


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/proc/self/autogroup").exists(), reason="no priority to give"
)
def test_a_module_is_timed_with_priority(patient_judge: Judge) -> None:
    """Beside other programs a short call took as long as their time slices."""
    measured = patient_judge.measure(Task(name="waits", source=WAITS_WITHOUT_PRIORITY))
    assert isinstance(measured, Reference)
    assert measured.eager_us < 1e6


def test_baselines_are_on_the_clock_of_the_reference() -> None:
    """A device that is a tenth slower by now must not make torch.compile look slow."""
    later = ReferenceBaselines(eager_us=11.0, compile_us=5.5)
    assert KEPT == baselines.on_clock_of(10.0, later)


def test_a_missing_baseline_is_explained() -> None:
    """The note names the mode; there is none when both are there."""
    assert "(max-autotune)" in baselines.missing_note(KEPT)
    both = msgspec.structs.replace(KEPT, max_autotune_us=4.0)
    assert "" == baselines.missing_note(both)


def test_a_disturbed_measurement_is_not_for_later_runs() -> None:
    """Contention must not become the baseline of later runs."""
    calm = baselines.baseline_of_blocks([10.0, 10.1, 10.2, 10.1, 500.0])
    assert (True, 10.1) == (calm.is_settled, calm.us)
    assert not baselines.baseline_of_blocks([10.0, 10.0, 50.0, 80.0, 500.0]).is_settled
    assert not baselines.baseline_of_blocks([10.0]).is_settled
