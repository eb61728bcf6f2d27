"""The release checks of a winner: how long each may take, and when no other one is made."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from actors.evaluator import release_stage
from actors.evaluator.ipc.layout_checks import Nest
from actors.evaluator.ipc.runner_orders import ReleaseChecked
from actors.evaluator.judge import Judge
from actors.evaluator.release_stage import (
    CHECK_S,
    ESSENTIAL_CHECKS,
    FIXED_INPUTS_CHECK,
    MODULE_STATE_CHECK,
    SLOWEST_FACTOR,
    ReleaseStage,
    essential_failure,
)
from actors.work_context import STANDALONE
from protocol.release import Judged, Release
from protocol.settings import Limits
from protocol.values import Reference, Task


@pytest.mark.parametrize("first_s", [1.0, 175.0])
def test_a_busy_machine_gives_later_checks_more_time(
    monkeypatch: pytest.MonkeyPatch, first_s: float
) -> None:
    """A gradient took over 210 s where a fresh process had taken 175: the winner was `wrong`."""
    now, limits = 0.0, []

    class Process:
        def __init__(self, *_given: object) -> None:
            pass

        def outcome(self, _name: str, limit_s: float) -> ReleaseChecked:
            nonlocal now
            limits.append(limit_s)
            now += first_s if len(limits) == 1 else 0.0
            return ReleaseChecked(passed=True)

        def close(self) -> None:
            pass

    monkeypatch.setattr(time, "monotonic", lambda: now)
    release = released(monkeypatch, Process)
    assert isinstance(release, Release)
    least = CHECK_S + Limits().check_s
    assert [least, max(least, SLOWEST_FACTOR * first_s)] == limits[:2]
    assert set(limits[2:]) == {limits[1]}


def test_what_is_no_drop_in_is_checked_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two minutes of the card went into the other checks of a winner that was already `wrong`."""
    asked = []

    class Process:
        def __init__(self, *_given: object) -> None:
            pass

        def outcome(self, name: str, _limit_s: float) -> ReleaseChecked:
            asked.append(name)
            return ReleaseChecked(passed=name != "fresh process", reason="other numbers")

        def close(self) -> None:
            pass

    release = released(monkeypatch, Process)
    assert FIXED_INPUTS_CHECK not in release.skipped
    assert set(ESSENTIAL_CHECKS) - {MODULE_STATE_CHECK} == set(asked)
    assert "not a drop-in module: fresh process: other numbers" == essential_failure(release)
    assert "an essential check has failed" == release.skipped["compile"]


def released(monkeypatch: pytest.MonkeyPatch, process: type) -> Release:
    """Return what the stage says of a winner whose checks a class stands for."""
    monkeypatch.setattr(release_stage, "_CheckProcess", process)
    monkeypatch.setattr(release_stage, "drop_in_source", lambda *_given: "")
    task = Task(name="t", source="")
    none = Nest(kind="list", items=())
    judged = Judged(device="cpu", init=none, inputs=none, outputs=none, state=none)
    facts = SimpleNamespace(fixed_inputs=())
    fixture = SimpleNamespace(limits=Limits(), task=task, judged=judged, facts=facts)
    return ReleaseStage(fixture, None, STANDALONE).run("")  # type: ignore[arg-type]


STATEFUL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.table, self.last = torch.randn(8), torch.ones(8), None

    def forward(self, x):
        self.state = torch.tanh(self.state + x) * self.table
        self.last = x + 1
        return self.state * 2

def get_inputs():
    return [torch.rand(8)]

def get_init_inputs():
    return []
"""


def test_the_reference_names_the_attributes_that_calls_change(patient_judge: Judge) -> None:
    """A winner's file has them, and not the constant, which kernels may have built in."""
    reference = patient_judge.measure(Task(name="stateful", source=STATEFUL, checks=3))
    assert isinstance(reference, Reference)
    assert reference.judged is not None
    carried = reference.judged.carried
    assert isinstance(carried, Nest)
    assert {"state", "last"} == set(carried.keys)
