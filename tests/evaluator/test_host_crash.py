"""The line of C++ code that crashes on a host, by AddressSanitizer in the sandbox."""

from __future__ import annotations

import pytest
from evaluator_samples import candidate

from actors.evaluator.inspection_stage import sanitizer_library
from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task, Verdict

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # it may have to prepare a toolkit

READS_FAR = """
from torch.utils.cpp_extension import load_inline
SOURCE = '''
torch::Tensor scaled(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* a = x.data_ptr<float>();
  float* b = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel() * 100000; ++i) {
    b[i] = 2 * a[i];
  }
  return y;
}
'''
ext = load_inline(name="far", cpp_sources=SOURCE, functions=["scaled"], extra_cflags=["-O3"])
"""


def test_a_segmentation_fault_gets_its_line(judge: Judge, task: Task) -> None:
    """The first access out of bounds, which is long before the one that ends the process."""
    if not sanitizer_library():
        pytest.skip("this compiler has no AddressSanitizer")
    source = candidate(before=READS_FAR, forward="z = ext.scaled(x)")
    found = judge.judge(task, source, inspected="crash")
    assert isinstance(found, Verdict)
    assert found.verdict is Outcome.CRASHED, found.reason
    assert found.facts is not None
    location = found.facts.fault_location
    assert "heap-buffer-overflow" in location
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "b[i] = 2" in text)
    assert f"line {line} of the candidate, `b[i] = 2 * a[i];`" in location
