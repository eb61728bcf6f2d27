"""The in-context examples: models imitate them, so they must build and be right."""

from __future__ import annotations

from pathlib import Path

import pytest

import prompts
from actors.evaluator.judge import Judge
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict


def judged(backend: str, device: DeviceKind, folder: Path) -> list[str]:
    """Return the judge's outcome and reason for each of a backend's two candidates."""
    source = {
        name: prompts.read(f"examples/{backend}-{name}.py") for name in ("before", "first", "after")
    }
    task = Task(name=backend, source=source["before"], device=device)
    judge = Judge(device, Limits(time_s=0.2), folder / "judge")
    outcomes = []
    try:
        for name in ("first", "after"):
            verdict = judge.judge(task, source[name])
            assert isinstance(verdict, Verdict)
            outcomes.append(f"{verdict.verdict} {verdict.reason}".strip())
    finally:
        judge.close()
    return outcomes


@pytest.mark.long  # headers are precompiled for the flags of the examples alone
@pytest.mark.timeout(400)
def test_the_cpp_pair_builds_and_agrees(tmp_path: Path) -> None:
    """Both candidates of the C++ example build and give the module's own outputs."""
    assert ["correct", "correct"] == judged("cpp", "cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", ["cuda", "triton"])
def test_the_gpu_pairs_build_and_agree(backend: str, tmp_path: Path) -> None:
    """The same for the CUDA and the Triton example, on a device."""
    assert ["correct", "correct"] == judged(backend, "cuda", tmp_path)
