"""A machine without a C++ compiler: no candidate is charged with that."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from actors.evaluator.build.build_stage import BuildStage, CompilerMissingError
from actors.evaluator.ipc.orders import CandidateRaised, Confinement
from actors.evaluator.judge import Judge
from actors.evaluator.sandbox import sandbox
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError
from protocol.values import Outcome, Task

NOT_FOUND = CandidateRaised(
    kind="RuntimeError", words="c++: not found\nninja: build stopped.", compiling=True
)


class FakeBuilder:
    """A builder in which the candidate's compilation fails."""

    class output:  # an attribute of the real one
        @staticmethod
        def text() -> str:
            return ""

    def ask(self, *_: object) -> tuple[CandidateRaised]:
        return (NOT_FOUND,)

    def kill(self) -> None:
        """Do nothing."""


class FakeZygote:
    """Starts fake builders."""

    pid = 1

    def spawn(self, *_: object, **__: object) -> FakeBuilder:
        return FakeBuilder()


def build_stage(folder: Path) -> BuildStage:
    zygote: Any = FakeZygote()
    environment = sandbox.environment(dict(os.environ), str(folder))
    return BuildStage(
        zygote, Confinement(folder=str(folder), environment=environment), "class ModelNew: ...",
        device="cpu", store=None, toolkit="", is_cancelled=lambda: False,
    )  # fmt: skip


def without_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a machine without a compiler; `folder`: where the interpreter is."""
    monkeypatch.setenv("PATH", str(folder / "none"))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.delenv("CXX", raising=False)


def test_no_candidate_is_charged_where_there_is_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch node without g++ would make every candidate `compile_failed`; it is unfit instead.

    It is not tried again as a machine that fails now and then is.
    """
    without_compiler(tmp_path, monkeypatch)
    with pytest.raises(CompilerMissingError, match=r"c\+\+ is not on PATH") as raised:
        build_stage(tmp_path).run(10.0)
    assert not isinstance(raised.value, JudgeUnavailableError)


def test_a_compiler_beside_the_interpreter_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Children have it on their PATH (conda), so a source with an error ended the evaluator."""
    without_compiler(tmp_path, monkeypatch)
    (tmp_path / "c++").write_text("#!/bin/sh\n")
    (tmp_path / "c++").chmod(0o755)
    fault = build_stage(tmp_path).run(10.0).fault
    assert fault is not None
    assert Outcome.COMPILE_FAILED == fault.outcome


COMPILES_IN_ITS_CALL = """
import torch
from torch.utils.cpp_extension import load_inline


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()

    def forward(self, x, y):
        source = "torch::Tensor f(torch::Tensor x) { return x; }"
        return load_inline("late", source, functions="f").f(x)
"""


def test_no_candidate_is_charged_that_compiles_in_its_call(
    patient_judge: Judge, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`load_inline` in __init__ or forward fails in the runner, not in the builder."""
    monkeypatch.setenv("CXX", str(tmp_path / "missing-c++"))
    with pytest.raises(CompilerMissingError, match=r"missing-c\+\+ is not on PATH"):
        patient_judge.judge(task, COMPILES_IN_ITS_CALL)


def test_a_compilers_errors_are_the_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a compiler is there, also one that CXX names, a failed build is a verdict."""
    compiler = tmp_path / "my-c++"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setenv("CXX", f"{compiler} -pipe")
    fault = build_stage(tmp_path).run(10.0).fault
    assert fault is not None
    assert Outcome.COMPILE_FAILED == fault.outcome
