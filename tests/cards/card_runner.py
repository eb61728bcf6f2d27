"""Builds cards with their harnesses, and runs them: a right result, and the time beside torch's.

`python -m tests.cards` prints a table of all; the tests beside it call the same functions.
"""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from sample_kinds import Sample, make_inputs
from torch import Tensor
from triton_harness import FUNCTIONS, SIZES

from actors.agents.cards.card import Card
from actors.agents.cards.compile_check import compile_command

HERE = Path(__file__).parent
Call = Callable[[list[Tensor], list[Tensor], Sample], None]


@dataclass(frozen=True, kw_only=True)
class CardResult:
    """A card's run on one sample."""

    name: str
    sizes: str
    error: float  # of the largest right value
    torch_error: float
    tolerance: float
    us: float | None = None
    torch_us: float | None = None
    figure: str = ""

    @property
    def is_right(self) -> bool:
        return self.error <= self.tolerance


def cuda_include() -> list[str]:
    """Folders with cuBLAS headers outside of the toolkit: those of torch's own packages."""
    roots = [Path(entry) / "nvidia" for entry in sys.path if entry]
    return [str(p) for root in roots for p in sorted(root.glob("*/include")) if p.is_dir()]


def cuda_library(name: str) -> list[str]:
    """Flags that link a library such as cublasLt: the one that torch has loaded."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split()[-1]
        if f"lib{name}.so" in path:
            return ["-Xlinker", path]
    return [f"-l{name}"]


def build(card: Card, folder: Path) -> Path:
    """Compile a card and its harness into a library; raises with the compiler's words."""
    suffix = ".cu" if card.backend == "cuda" else ".cpp"
    harness = HERE / card.backend / f"{card.name}{suffix}"
    source, library = folder / f"{card.name}{suffix}", folder / f"{card.name}.so"
    source.write_text(card.whole_code + harness.read_text(encoding="utf-8"), encoding="utf-8")
    is_cuda = card.backend == "cuda"
    command = compile_command(card, cuda_include() if is_cuda else (), native=_architecture(card))
    command += ["-shared", *(["-Xcompiler", "-fPIC"] if is_cuda else ["-fPIC"])]
    command += ["-o", str(library), str(source)]
    for header, name in (("cublasLt.h", "cublasLt"), ("cublas_v2.h", "cublas")):
        if header in card.whole_code:
            command += cuda_library(name)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise AssertionError(f"card {card.name} does not compile:\n{done.stderr[-4000:]}")
    return library


def _architecture(card: Card) -> str:
    """Return this machine's architecture: machine code of another one does not run."""
    if card.backend == "cpp":
        return "native"
    major, minor = torch.cuda.get_device_capability()
    return f"{major}{minor}{'a' if major >= 9 else ''}"


def native_call(library: Path) -> Call:
    """Return a call of a built card."""
    function = ctypes.CDLL(str(library)).card
    function.restype = None

    def call(inputs: list[Tensor], others: list[Tensor], sample: Sample) -> None:
        tensors = [*inputs, *others]
        pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
        sizes = (ctypes.c_longlong * len(sample.sizes))(*sample.sizes)
        stream = torch.cuda.current_stream().cuda_stream if inputs[0].is_cuda else 0
        function(pointers, sizes, ctypes.c_void_p(stream))

    return call


def triton_module(card: Card, folder: Path) -> ModuleType:
    """Import a Triton card: its compiler reads the source from a file."""
    path = folder / f"{card.name.replace('-', '_')}.py"
    path.write_text(card.whole_code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def triton_call(card: Card, folder: Path) -> Call:
    """Return a call of a Triton card."""
    function = getattr(triton_module(card, folder), FUNCTIONS[card.name])

    def call(inputs: list[Tensor], others: list[Tensor], sample: Sample) -> None:
        found = function(*inputs, *sample.sizes[SIZES.get(card.name, slice(0))])
        others[:] = [found] if len(sample.outputs) == 1 else found

    return call


def prepared_call(card: Card, folder: Path) -> Call:
    """Build a card and return its call."""
    return (
        triton_call(card, folder) if card.backend == "triton" else native_call(build(card, folder))
    )


def run_sample(card: Card, call: Call, sample: Sample, device: str, *, timed: bool) -> CardResult:
    """Run a card on a sample, twice with fresh outputs: what the first left may not matter."""
    inputs = make_inputs(sample, device)
    right = _tuple(sample.compute(*(t.double() for t in inputs)))
    own = _tuple(sample.compute(*inputs))
    error = 0.0
    for _again in range(2):
        others = _outputs(sample, device)
        call(inputs, others, sample)
        error = max(error, largest_error(others[: len(right)], right))
    us = torch_us = None
    if timed and sample.is_timed:
        # A candidate allocates its outputs in each call, as torch does.
        us = time_us(lambda: call(inputs, _fresh(sample, device), sample), device)
        if not sample.is_part:
            torch_us = time_us(lambda: sample.compute(*inputs), device)
    return CardResult(
        name=card.name,
        sizes=" ".join("x".join(map(str, shape)) or "1" for shape in sample.inputs),
        error=error,
        torch_error=largest_error(own, right),
        tolerance=sample.tolerance,
        us=us,
        torch_us=torch_us,
        figure=_figure(sample, us),
    )


def largest_error(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return the largest error, of the largest right value of its tensor; infinity for NaN."""
    worst = 0.0
    for one, other in zip(found, right, strict=True):
        scale = float(other.abs().max()) or 1.0
        error = float((one.double().reshape(other.shape) - other).abs().max()) / scale
        worst = max(worst, error if error == error else float("inf"))
    return worst


def time_us(call: Callable[[], object], device: str) -> float:
    """Return the median microseconds of a call, one after another."""
    taken = []
    for _number in range(3):
        call()
    if device == "cpu":
        for _number in range(7):
            start = time.perf_counter()
            call()
            taken.append((time.perf_counter() - start) * 1e6)
        return sorted(taken)[len(taken) // 2]
    for _number in range(5):
        first, last = (torch.cuda.Event(enable_timing=True) for _event in range(2))
        torch.cuda.synchronize()
        first.record()
        for _call in range(10):
            call()
        last.record()
        torch.cuda.synchronize()
        taken.append(first.elapsed_time(last) * 100)
    return sorted(taken)[len(taken) // 2]


def _outputs(sample: Sample, device: str) -> list[Tensor]:
    return [each.fill_(float("nan")) for each in _fresh(sample, device)]


def _fresh(sample: Sample, device: str) -> list[Tensor]:
    outputs = [torch.empty(shape, device=device, dtype=sample.dtype) for shape in sample.outputs]
    return [*outputs, *(torch.empty(length, device=device) for length in sample.scratch)]


def _tuple(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def _figure(sample: Sample, us: float | None) -> str:
    if us is None:
        return ""
    if sample.steps:
        return f"{us / sample.steps:.2f} us a step"
    if sample.flops:
        return f"{sample.flops / us / 1e6:.3g} TFLOP/s"
    return f"{sample.bytes / us / 1e3:.0f} GB/s"
