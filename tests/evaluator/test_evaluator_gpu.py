"""On a card: shared device memory, red zones around outputs, faults that end with a process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import special_corpora
from corpus.scene import is_credited
from evaluator_samples import TASK, candidate

from actors.evaluator.judge import Judge, TaskProblem
from protocol.settings import Limits
from protocol.values import Outcome, Task, Verdict

pytestmark = pytest.mark.gpu

FAULT = "z = x[torch.tensor([1 << 40], device=x.device)]\ntorch.cuda.synchronize()"
LATE = "self.late = x[torch.tensor([1 << 40], device=x.device)] if self.training else None"


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    judge = Judge("cuda", Limits(time_s=0.3), tmp_path_factory.mktemp("card") / "judge")
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def on_card() -> Task:
    return Task(name="small", source=TASK, device="cuda", backend="cuda")


def verdict(judge: Judge, task: Task, source: str) -> Verdict:
    found = judge.judge(task, source)
    assert isinstance(found, Verdict)
    return found


def test_an_honest_candidate_is_correct_and_has_the_clocks(card: Judge, on_card: Task) -> None:
    """The task's own module is correct, and the profile has the driver's clocks."""
    found = verdict(card, on_card, candidate())
    assert found.is_correct, found.reason
    assert found.profile is not None
    assert "MHz" in found.profile["clocks"]


@pytest.mark.parametrize("fault", [FAULT, LATE])
def test_a_fault_ends_with_its_own_process(card: Judge, on_card: Task, fault: str) -> None:
    """A device-side fault is its candidate's verdict, and the next candidate is correct."""
    assert verdict(card, on_card, candidate(forward=fault)).verdict is Outcome.CRASHED
    assert verdict(card, on_card, candidate()).is_correct


ENDLESS = """
z = torch.relu(x * self.scale + y) + self.bias
torch.cuda._sleep(1 << 62)
return z
"""


def test_a_kernel_without_an_end_gives_the_card_back_soon(card: Judge, on_card: Task) -> None:
    """The limit of a slow start is not that of kernels, and the next candidate is correct.

    It is the last kernel: CUDA loads a kernel at its first launch, and may wait for others then.
    """
    found = verdict(card, on_card, candidate(forward=ENDLESS))
    assert (Outcome.TIMED_OUT, "check") == (found.verdict, found.stage)
    assert "its kernels had not ended 10 s after forward returned" == found.reason
    assert verdict(card, on_card, candidate()).is_correct


def test_a_kernel_without_an_end_inside_of_forward_gives_the_card_back(
    card: Judge, on_card: Task
) -> None:
    """A thread that waits for it prepares nothing, and the next candidate is correct."""
    waits = "torch.cuda._sleep(1 << 62)\nx.sum().item()"
    found = verdict(card, on_card, candidate(forward=waits))
    assert (Outcome.TIMED_OUT, "check") == (found.verdict, found.stage)
    assert found.reason.startswith("no end in sight: for 10 s")
    assert verdict(card, on_card, candidate()).is_correct


def test_device_memory_comes_back(card: Judge, on_card: Task) -> None:
    """A candidate's memory is free again when its verdict is returned."""
    assert verdict(card, on_card, candidate()).is_correct
    before = card.session.device_info.sensors.memory_used()
    hog = "self.hog = torch.empty(1 << 32, dtype=torch.uint8, device='cuda')"
    assert verdict(card, on_card, candidate(init=hog)).is_correct
    after = card.session.device_info.sensors.memory_used()
    assert before is not None
    assert after is not None
    assert after - before < 1 << 28


VIEW = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.t(), x[:, ::2]


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return []


class ModelNew(nn.Module):
    def forward(self, x):
        return {returned}
"""


@pytest.mark.parametrize(
    ("returned", "outcome"),
    [
        ("(x.t(), x[:, ::2])", Outcome.CORRECT),
        ("(x.t().contiguous(), x[:, ::2].clone())", Outcome.CORRECT),
        ("(x.t(), x[:, 1::2])", Outcome.WRONG),
    ],
)
def test_outputs_in_their_inputs_are_compared_there(
    card: Judge, returned: str, outcome: Outcome
) -> None:
    """Views lie in the slots, copies in the arena; both are read, and a wrong view is wrong."""
    source = VIEW.format(rows=64, columns=256, returned=returned)
    task = Task(name="view", source=source, device="cuda")
    assert verdict(card, task, source).verdict is outcome


def test_a_view_in_timed_calls_for_a_copy_in_checks_is_wrong(card: Judge) -> None:
    """What the task returns in memory of its own can't lie in an input."""
    late = "self.calls = getattr(self, 'calls', 0) + 1\n        "
    late += "return x.t().contiguous() if self.calls <= 12 else x.t()"
    source = VIEW.format(rows=64, columns=64, returned="x").replace(
        "return x.t(), x[:, ::2]", "return x.t().contiguous()"
    )
    task = Task(name="copy", source=source, device="cuda")
    found = verdict(card, task, source.replace("return x\n", f"{late}\n"))
    assert Outcome.WRONG is found.verdict
    assert "is in an input's memory" in found.reason


def test_a_task_of_gigabytes_is_judged_or_refused_with_figures(card: Judge) -> None:
    """Four gigabytes of inputs are judged; a terabyte is refused before it is drawn."""
    source = VIEW.format(rows=1 << 15, columns=1 << 15, returned="(x.t(), x[:, ::2])")
    small = source.replace("return x.t(), x[:, ::2]", "return x.sum(-1)").replace(
        "(x.t(), x[:, ::2])", "x.sum(-1)"
    )
    assert verdict(card, Task(name="large", source=small, device="cuda"), small).is_correct
    huge = small.replace("32768, 32768", "1 << 20, 1 << 18")
    refused = card.judge(Task(name="huge", source=huge, device="cuda"), huge)
    assert isinstance(refused, TaskProblem)
    assert "too large for this card: its tensors take 1024.0 GiB" in refused.reason


def test_a_module_with_large_temporaries_is_judged(card: Judge) -> None:
    """Six gigabytes in, out and between: no process keeps what it no longer needs."""
    import torch

    if torch.cuda.mem_get_info()[1] < 75 << 30:
        pytest.skip("needs a card of 80 GB")
    source = VIEW.format(rows=4096, columns=393216, returned="x / x.abs().add_(1)").replace(
        "return x.t(), x[:, ::2]", "return x / (1 + x.abs())"
    )
    found = verdict(card, Task(name="softsign", source=source, device="cuda"), source)
    assert found.is_correct, found.reason


TF32 = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(112, 112, 1, bias=False), nn.BatchNorm2d(112)

    def forward(self, x):
        return self.bn(self.conv(x))


def get_inputs():
    return [torch.rand(4, 112, 64, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("has_double", [True, False])
def test_exact_statistics_are_right_beside_convolutions_in_tf32(
    card: Judge, has_double: bool
) -> None:
    """Means of a convolution in TF32 are off by 5e-4, a candidate's exact ones are not wrong."""
    source = TF32 if has_double else TF32.replace("rand(4, ", "rand(1200, ")
    exact = "with torch.backends.cudnn.flags(allow_tf32=False):\n            "
    candidate = source.replace("class Model", "class ModelNew").replace(
        "return self.bn", f"{exact}return self.bn"
    )
    found = verdict(card, Task(name="tf32", source=source, device="cuda"), candidate)
    assert found.is_correct, found.reason


def test_unjoined_streams_are_not_credited(card: Judge, on_card: Task) -> None:
    """The judge waits for work that still runs on another stream."""
    other = "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    self.kept = x @ y.T"
    assert not is_credited(verdict(card, on_card, candidate(forward=other)))


@pytest.mark.parametrize(
    "name", ["not_joined", "joined_where_decided", "joined_where_stream_is_busy"]
)
def test_calls_on_streams_that_are_not_joined_are_not_credited(card: Judge, name: str) -> None:
    """They overlap each other, 1.3 to 1.5 times as fast; some know where outputs are read."""
    found = verdict(card, *on_streams(f"hostile/{name}"))
    assert not is_credited(found), found


def test_streams_that_are_joined_are_correct(card: Judge) -> None:
    """Nothing of them is left when the caller's stream is done."""
    assert verdict(card, *on_streams("honest/streams_joined")).is_correct


def on_streams(name: str) -> tuple[Task, str]:
    """Return the task of the corpus of streams and one of its candidates."""
    source = special_corpora.task_source("streams_not_joined")
    path = special_corpora.CORPORA / "streams_not_joined" / f"{name}.py"
    task = Task(name="streams", source=source, device="cuda", backend="cuda")
    return task, path.read_text(encoding="utf-8")


def test_memory_of_the_card_passes_to_another_process(tmp_path: Path) -> None:
    """The other process needs only the descriptor."""
    import torch

    from actors.evaluator.children.tensors import cuda_vmm

    torch.zeros(1, device="cuda")
    descriptor = cuda_vmm.allocate(1 << 20)
    assert cuda_vmm.is_device_memory(descriptor)
    mapping = cuda_vmm.Mapping(descriptor, 1 << 20)
    mapping.bytes.fill_(7)
    torch.cuda.synchronize()
    other = cuda_vmm.Mapping(os.dup(descriptor), 1 << 20)
    assert int(other.bytes.sum()) == 7 << 20
    other.close()
    mapping.close()
    os.close(descriptor)


@pytest.mark.parametrize("is_native", [False, True])
def test_what_a_pool_in_an_arena_allocates_is_read_by_its_address(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_native: bool
) -> None:
    """Another mapping of the same memory has the bytes; memory beyond the arena still works.

    With functions of C, and with those of Python where there is no compiler.
    """
    from actors.evaluator.children.tensors import arena_allocator, cuda_vmm
    from actors.evaluator.children.tensors.arena import Arena

    monkeypatch.setattr(arena_allocator, "_library", None)
    assert not is_native or arena_allocator.load(tmp_path)
    torch.zeros(1, device="cuda")
    size = 1 << 26
    descriptor = cuda_vmm.allocate(size)
    arena, other = Arena(descriptor, size), cuda_vmm.Mapping(os.dup(descriptor), size)
    with arena.allocating():
        inside = torch.full((1 << 20,), 7.0, device="cuda")
        beyond = torch.full((1 << 25,), 9.0, device="cuda")
    torch.cuda.synchronize()
    begin = inside.data_ptr() - arena.begin
    assert 0 <= begin <= size - inside.nbytes
    assert torch.equal(other.bytes[begin : begin + inside.nbytes].view(torch.float32), inside)
    assert not arena.begin <= beyond.data_ptr() < arena.end
    assert float(beyond[-1]) == 9.0
    os.close(descriptor)


def test_what_other_streams_have_used_is_used_again_in_the_next_block(torch: ModuleType) -> None:
    """torch keeps what `record_stream` was called for while a pool is allocated from.

    So each call of a candidate with side streams took new memory.
    """
    from actors.evaluator.children.tensors import cuda_vmm
    from actors.evaluator.children.tensors.arena import Arena

    size, block = 256 << 20, 2 << 20
    descriptor = cuda_vmm.allocate(size)
    arena, side = Arena(descriptor, size), torch.cuda.Stream()
    os.close(descriptor)
    reserved = []
    for _block in range(20):
        with arena.allocating():
            for _call in range(40):
                with torch.cuda.stream(side):
                    torch.empty(block, dtype=torch.uint8, device="cuda").record_stream(
                        torch.cuda.default_stream()
                    )
        arena.reclaim()
        torch.cuda.synchronize()
        arena.reclaim()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[2:] == [reserved[2]] * 18


def test_the_references_pool_gives_its_memory_back(torch: ModuleType) -> None:
    """A reference stays for many candidates; between them its memory is other programs'."""
    from actors.evaluator.children.tensors.arena import CallPool

    torch.cuda.empty_cache()
    before, size = torch.cuda.memory_reserved(), 64 << 20
    pool = CallPool()
    with pool.allocating():
        held = [torch.empty(size, dtype=torch.uint8, device="cuda") for _call in range(3)]
    assert pool.can_be_read_at([each.data_ptr() for each in held])
    assert torch.cuda.memory_reserved() >= before + 3 * size
    del held, pool
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + (2 << 20)


def test_an_access_policy_window_on_an_input_slot_is_accepted(torch: ModuleType) -> None:
    """An honest kernel may set a window of the L2 cache on inputs, which lie in mapped slots."""
    from actors.evaluator.children.tensors import cuda_vmm

    class Window(ctypes.Structure):
        _fields_ = (
            ("base", ctypes.c_void_p),
            ("size", ctypes.c_size_t),
            ("hit_ratio", ctypes.c_float),
            ("hit", ctypes.c_int),
            ("miss", ctypes.c_int),
            ("rest", ctypes.c_byte * 64),
        )

    torch.zeros(1, device="cuda")
    size, persisting, streaming, access_policy = 1 << 20, 2, 1, 1
    descriptor = cuda_vmm.allocate(size)
    slot = cuda_vmm.Mapping(descriptor, size)
    window = Window(slot.bytes.data_ptr(), size, 1.0, persisting, streaming)
    stream = ctypes.c_void_p(torch.cuda.Stream().cuda_stream)
    set_attribute = ctypes.CDLL("libcuda.so.1").cuStreamSetAttribute
    assert set_attribute(stream, access_policy, ctypes.byref(window)) == 0
    slot.close()
    os.close(descriptor)


@pytest.mark.parametrize("size", [1000 * 512, 3 << 20, 40 << 20])
def test_a_write_next_to_the_output_is_found(torch: ModuleType, size: int) -> None:
    """A write directly after the end or before the beginning is reported; one inside is not."""
    from actors.evaluator.children.tensors.redzones import RedZones

    set_bytes = ctypes.CDLL("libcuda.so.1").cuMemsetD8_v2
    for offset, breach in ((0, ""), (size, "after the end"), (-1, "before the beginning")):
        redzones = RedZones("cuda", (size,))
        output = torch.empty(size, dtype=torch.uint8, device="cuda")
        set_bytes(
            ctypes.c_ulonglong(output.data_ptr() + offset), ctypes.c_ubyte(1), ctypes.c_size_t(1)
        )
        torch.cuda.synchronize()
        assert breach in redzones.breach()
        assert bool(redzones.breach()) is bool(breach)
