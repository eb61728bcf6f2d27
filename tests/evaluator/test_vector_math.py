"""Torch's vector functions are right at a child's first call (MKL chooses its kernels there)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from actors.evaluator.children.tensors import vector_math

FORKS, BUSY_PROGRAMS = 600, 2
FIRST_CALLS = """\
import os, sys
from actors.evaluator.children import zygote
zygote.import_everything("cpu")
import torch
wrong = 0
for number in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        x = torch.rand(256, 256)
        os._exit(int(not torch.equal(torch.cos(x), torch.cos(x))))
    wrong += os.waitpid(pid, 0)[1] != 0
print(wrong)
"""


class CallRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each call's function, dtype and number of elements."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: set[tuple[str, torch.dtype, int]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if args and isinstance(args[0], torch.Tensor):
            name = str(func.overloadpacket).rpartition(".")[2]
            self.calls.add((name, args[0].dtype, args[0].numel()))
        return func(*args, **(kwargs or {}))


def test_each_function_is_called_on_one_element_in_both_precisions() -> None:
    """One element is no work for a second thread, so no two threads choose a kernel at once."""
    with CallRecorder() as recorder:
        vector_math.choose_kernels()
    mkl = {"acos", "asin", "atan", "cos", "erf", "exp", "log", "sin", "sqrt", "tan", "tanh"}
    called = {name for name, _dtype, _elements in recorder.calls}
    assert mkl <= called
    expected = {(name, dtype, 1) for name in called for dtype in (torch.float32, torch.float64)}
    assert expected == recorder.calls


@pytest.mark.long
def test_a_childs_first_call_is_as_precise_as_its_second() -> None:
    """A fork of the zygote on a busy machine computes its first parallel call right.

    Without the zygote's calls some forks in a thousand computed half of it in low precision.
    """
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: sum(range(10000))"])
        for _program in range(BUSY_PROGRAMS)
    ]
    try:
        found = subprocess.run(
            [sys.executable, "-c", FIRST_CALLS, str(FORKS)],
            env={**os.environ, "OMP_NUM_THREADS": "2"},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        for program in busy:
            program.kill()
            program.wait()
    assert "0" == found.stdout.strip()
