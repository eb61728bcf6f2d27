"""Which operations of a task come first, by the measured times of PyTorch's operators."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.cards.operation_times import LEAST_SHARE, by_time
from actors.agents.cards.selection import choose_cards
from actors.agents.cards.task_operations import ORDER
from protocol.facts import OperationTime, ReferenceFacts, TaskFloor
from protocol.values import Device, Reference, Task

H100 = Device(kind="cuda", facts={"compute capability": "9.0"})
MBCONV = {
    "aten::cudnn_batch_norm": 0.38,
    "aten::_conv_depthwise2d": 0.27,
    "aten::clamp": 0.2,
    "aten::cudnn_convolution": 0.15,
}
SUM_OF_PRODUCT = {"aten::addmm": 0.98, "aten::sum": 0.01, "aten::max": 0.01}


def times(shares: dict[str, float]) -> tuple[OperationTime, ...]:
    """The facts of operators."""
    return tuple(
        OperationTime(name=name, calls=1, us=share * 100, share=share)
        for name, share in shares.items()
    )


@pytest.mark.parametrize(
    ("operations", "shares", "ordered"),
    [
        (
            ("conv", "depthwise-conv", "batch-norm", "elementwise"),
            MBCONV,
            ["batch-norm", "depthwise-conv", "elementwise", "conv"],
        ),
        (("conv", "matmul"), {"aten::cudnn_convolution": 0.98, "aten::addmm": 0.02}, ["conv"]),
        (("matmul", "softmax", "reduction"), SUM_OF_PRODUCT, ["matmul", "reduction"]),
        (("norm",), {"aten::cudnn_batch_norm": 0.9, "aten::copy_": 0.1}, ["norm"]),
        (("column-reduction",), {"aten::native_batch_norm": 1.0}, ["column-reduction"]),
        (
            ("attention", "matmul", "softmax"),
            {"aten::addmm": 0.5, "aten::bmm": 0.3, "aten::_softmax": 0.2},
            ["attention", "matmul", "softmax"],
        ),
        (("scan", "elementwise"), {"aten::cumsum": 0.8, "aten::mul": 0.2}, ["scan", "elementwise"]),
        (("conv", "pool"), {"my::kernel": 1.0}, ["conv", "pool"]),
        (("conv", "pool"), {}, ["conv", "pool"]),
    ],
)
def test_the_dearest_comes_first(
    operations: tuple[str, ...], shares: dict[str, float], ordered: list[str]
) -> None:
    """By measured shares; attention is made of others and stays; without times nothing changes."""
    assert ordered == by_time(operations, times(shares))


@given(
    operations=st.lists(st.sampled_from(ORDER), unique=True),
    shares=st.dictionaries(
        st.sampled_from([*MBCONV, *SUM_OF_PRODUCT, "aten::bmm", "aten::copy_", "x"]),
        st.floats(LEAST_SHARE, 1.0),
    ),
)
def test_what_is_ordered_was_given(operations: list[str], shares: dict[str, float]) -> None:
    """No class comes in, none comes twice, and a task with classes keeps at least one."""
    found = by_time(operations, times(shares))

    assert set(found) <= set(operations)
    assert len(found) == len(set(found))
    assert bool(found) == bool(operations)


def test_measured_times_decide_which_cards_a_request_shows() -> None:
    """A block whose batch norms take longer than its convolutions gets their card first."""
    source = (
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, n):\n"
        "        self.a = torch.nn.Conv2d(n, 8, 1)\n"
        "        self.d = torch.nn.Conv2d(n, n, 5, groups=n)\n"
        "        self.b = torch.nn.BatchNorm2d(n)\n"
        "    def forward(self, x):\n"
        "        return torch.clamp(self.b(self.d(self.a(x))), 0, 6)\n"
    )
    task = Task(name="t", source=source, device="cuda", backend="cuda")
    names = {}
    for known in ({}, MBCONV):
        floor = TaskFloor(memory_us=90.0, matrix_us=30.0)
        facts = ReferenceFacts(operations=times(known), floor=floor)
        reference = Reference(
            eager_us=1.0, device=H100, inputs="float32[10, 112, 224, 224]", facts=facts
        )
        names[bool(known)] = [card.name for card in choose_cards(task, reference)]

    assert ["cuda-nhwc", "cuda-stencil-2d", "cuda-channel-reduce"] == names[False]
    assert ["cuda-channel-reduce", "cuda-stencil-2d", "cuda-elementwise-float4"] == names[True]
