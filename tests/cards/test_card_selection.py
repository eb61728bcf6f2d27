"""Which cards a request shows: laws of the rules, and what known tasks get."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.agents.cards.card import BOTTLENECKS, MAX_CARD_BYTES, MAX_PLACES, load_cards
from actors.agents.cards.selection import (
    card_lines,
    choose_cards,
    floor_bottleneck,
    runs_on,
)
from actors.agents.cards.task_operations import ORDER, longest_row, task_operations
from actors.agents.cards.techniques import techniques_in
from protocol.facts import (
    DeviceRates,
    MatrixPrecision,
    OperationTime,
    ReferenceFacts,
    TaskCost,
    TaskFloor,
)
from protocol.values import BACKENDS, Backend, Device, Reference, Task

H100 = Device(kind="cuda", facts={"compute capability": "9.0"})
T4 = Device(kind="cuda", facts={"compute capability": "7.5"})
SAPPHIRE = Device(kind="cpu", facts={"vector": "512 bits, avx2 avx512f amx_tile"})
OLD_CPU = Device(kind="cpu", facts={"vector": "256 bits, avx2"})
STATEMENTS = (
    *("x = torch.relu(x)", "x = self.linear(x)", "x = x @ x.T", "x = x.softmax(-1)"),
    *("x = torch.sum(x, dim=1)", "x = x.mean()", "x = F.layer_norm(x, (4,))", "x = self.odd(x)"),
    *("x = F.conv2d(x, w)", "x = F.cross_entropy(x, y)", "x = F.batch_norm(x, m, v)"),
)


def source_of(*statements: str, init: str = "pass") -> str:
    """A task's text."""
    body = "\n        ".join(statements)
    return (
        "import torch\n\nclass Model(torch.nn.Module):\n"
        f"    def __init__(self, n):\n        super().__init__()\n        {init}\n\n"
        f"    def forward(self, x):\n        {body}\n        return x\n\n"
        "def get_inputs():\n    return [torch.softmax(torch.rand(8, 8), 1).sum(0)]\n"
    )


def chosen(
    source: str, device: Device, backend: Backend, inputs: str = "", bottleneck: str = ""
) -> list[str]:
    """The names of a task's cards."""
    task = Task(name="t", source=source, device=device.kind, backend=backend)
    reference = Reference(eager_us=1.0, device=device, inputs=inputs)
    return [card.name for card in choose_cards(task, reference, bottleneck=bottleneck)]


@given(
    statements=st.lists(st.sampled_from(STATEMENTS), max_size=5),
    device=st.sampled_from([H100, T4, SAPPHIRE, OLD_CPU, Device()]),
    backend=st.sampled_from(BACKENDS),
    row=st.integers(1, 1 << 24),
    bottleneck=st.sampled_from(["", *BOTTLENECKS]),
)
@example(["x = self.linear(x)"], H100, "cuda", 512, "")  # as long as three cards get
def test_laws_of_the_choice(
    statements: list[str], device: Device, backend: Backend, row: int, bottleneck: str
) -> None:
    """At most three places, none twice, all run on the device and fit the rows; always the same."""
    source, inputs = source_of(*statements), f"float32[8, {row}]"
    task = Task(name="t", source=source, device=device.kind, backend=backend)
    reference = Reference(eager_us=1.0, device=device, inputs=inputs)
    cards = choose_cards(task, reference, bottleneck=bottleneck)
    operations = set(task_operations(source, inputs))
    known = longest_row(inputs, "", task_operations(source, inputs))  # of attention it is not

    assert sum(card.places for card in cards) <= MAX_PLACES
    assert len({card.name for card in cards}) == len(cards)
    assert all(card.backend == backend and runs_on(card, device) for card in cards)
    assert all(set(card.operations) & (operations | {"any"}) for card in cards)
    assert known in (row, None)
    if known is not None:
        assert all(card.least_row <= row <= (card.most_row or row) for card in cards)
    assert cards == choose_cards(
        task, reference, bottleneck=bottleneck, cards=reversed(load_cards())
    )
    assert len("\n".join(card_lines(cards)).encode()) <= MAX_PLACES * MAX_CARD_BYTES


HOPPER_HALF = ["cuda-cublaslt-epilogue", "cuda-tma-tile", "cuda-wgmma-half"]


@pytest.mark.parametrize(
    ("statement", "inputs", "first"),
    [
        ("x = x.cumsum(1)", "float32[64, 4096]", ["cuda-row-scan"]),
        ("x = x.cumsum(1)", "float32[4, 1048576]", ["cuda-row-scan", "cuda-scan-look-back"]),
        ("x = x @ x.T", "bfloat16[4096, 64]", HOPPER_HALF),
        ("x = x @ x.T", "float16[4096, 64]", HOPPER_HALF),
    ],
)
def test_scans_and_halves_have_cards(statement: str, inputs: str, first: list[str]) -> None:
    """A short row's scan needs no look-back; a product in half precision no split."""
    names = chosen(source_of(statement), H100, "cuda", inputs)
    assert first == names[: len(first)]
    assert not any("bf16x3" in name for name in names) or "float32" in inputs


@pytest.mark.parametrize(
    ("statements", "init", "inputs", "operations"),
    [
        (("x = self.ln(x)",), "self.ln = torch.nn.LayerNorm(n)", "", ("norm",)),
        (("x = torch.sum(x, dim=1)",), "pass", "float32[8, 16]", ("reduction",)),
        (("x = x.sum(0)",), "pass", "float32[8, 16]", ("column-reduction", "reduction")),
        (("x = x.mean()",), "pass", "", ("loss", "reduction")),
        (("x = torch.cumsum(x, dim=1)",), "pass", "float32[8, 16]", ("scan",)),
        (
            ("x = torch.relu(self.l(x))",),
            "self.l = torch.nn.Linear(n, n)",
            "",
            ("matmul", "elementwise", "epilogue"),
        ),
        (("x = (x @ x.mT).softmax(-1) @ x",), "pass", "", ("attention", "matmul", "softmax")),
        (("x = F.cross_entropy(x, x)",), "pass", "", ("softmax", "loss")),
        (("x = self.p(x)",), "self.p = torch.nn.MaxPool2d(2)", "", ("pool",)),
        (("x = self.p(x)",), "self.p = torch.nn.AdaptiveAvgPool2d(1)", "", ("reduction",)),
        (("x = self.r(x)",), "self.r = torch.nn.GRU(n, n)", "", ("recurrence", "matmul")),
        (
            ("for t in range(9): x = torch.tanh(x[:, t] @ self.w)",),
            "pass",
            "",
            ("recurrence", "matmul", "elementwise", "epilogue"),
        ),
        (("for i in range(9): x = self.layers[i](x) @ x",), "pass", "", ("matmul",)),
        (("x = self.odd(x)",), "pass", "", ()),
    ],
)
def test_the_operations_of_a_task(
    statements: tuple[str, ...], init: str, inputs: str, operations: tuple[str, ...]
) -> None:
    """Operations come from the module alone, not from get_inputs, and the dearest is first."""
    assert operations == task_operations(source_of(*statements, init=init), inputs)
    assert set(operations) <= set(ORDER)


def test_a_text_that_is_not_python_has_no_operations() -> None:
    """A task that can't be parsed gets no cards; nothing is raised."""
    assert () == task_operations("def forward(:\n")
    assert [] == chosen("def forward(:\n", H100, "cuda")


def test_the_longest_row() -> None:
    """A norm of images normalises all dimensions but the first; a matrix has its last one."""
    assert 4 << 20 == longest_row("float32[16, 64, 256, 256]", "", ("norm",))
    assert 4096 == longest_row("float32[16, 4096], float32[]", "float32[16]", ("softmax",))
    assert longest_row("", "", ("norm",)) is None


def test_known_tasks_get_the_cards_that_are_about_them() -> None:
    """The first card is about the dearest operation, for the newest architecture of the device."""
    linear = source_of("x = torch.relu(self.l(x))", init="self.l = torch.nn.Linear(n, n)")
    norm = source_of("x = self.n(x)", init="self.n = torch.nn.LayerNorm(n)")
    image = "float32[16, 64, 256, 256]"

    split = ["cuda-mma-bf16x3", "cuda-cublas-bf16x3", "cuda-gemm-bf16x3"]
    assert split == chosen(linear, H100, "cuda", "float32[64, 256]", "compute")
    whole = {"float32": "cuda-gemm-tma-wgmma", "bfloat16": "cuda-gemm-tma-wgmma-half"}
    for dtype, name in whole.items():  # a whole kernel, of all three places
        assert [name] == chosen(linear, H100, "cuda", f"{dtype}[64, 1024]", "compute")
        assert name not in chosen(linear, H100, "cuda", f"{dtype}[64, 1024]", "memory")
    assert ["cuda-cublaslt-epilogue"] == chosen(linear, H100, "cuda", "bfloat16[8, 8]")[:1]
    assert "cuda-cublaslt-epilogue" == chosen(source_of("x = x @ x"), T4, "cuda")[0]
    assert "cuda-welford-split-rows" == chosen(norm, H100, "cuda", image)[0]
    assert "cuda-cluster-layer-norm" == chosen(norm, H100, "cuda", "float32[64, 65536]")[0]
    attention = source_of("x = (x @ x.mT).softmax(-1) @ x")
    assert [
        "cuda-mma-bf16x3",
        "cuda-attention-softmax",
        "cuda-attention-bf16x3",
    ] == chosen(attention, H100, "cuda", "float32[8, 512, 64]", "compute")
    assert (
        "triton-attention" == chosen(source_of("x = (x @ x.mT).softmax(-1) @ x"), H100, "triton")[0]
    )
    assert "cpp-amx-bf16x3" == chosen(linear, SAPPHIRE, "cpp")[0]
    assert [] == chosen(linear, OLD_CPU, "cpp")


def test_launches_as_bottleneck_bring_the_card_for_any_operation() -> None:
    """A card for any operation comes where launches bind, and never else."""
    source = source_of("x = x.mean()")

    assert "cuda-dependent-launch" == chosen(source, H100, "cuda", bottleneck="launch")[0]
    assert "cuda-dependent-launch" not in chosen(source, H100, "cuda", bottleneck="memory")
    assert "cuda-dependent-launch" not in chosen(source, H100, "cuda")


def test_the_bottleneck_is_the_largest_part_of_the_floor() -> None:
    """Without a bottleneck, the judge's floor of the task decides."""

    def of(**parts: float) -> str:
        facts = ReferenceFacts(floor=TaskFloor(**parts))
        return floor_bottleneck(Reference(eager_us=1.0, facts=facts))

    assert "memory" == of(memory_us=9.0, matrix_us=3.0, launch_us=2.0)
    assert "compute" == of(memory_us=9.0, matrix_us=30.0)
    assert "launch" == of(memory_us=1.0, launch_us=2.0)
    assert "" == floor_bottleneck(Reference(eager_us=1.0))


def test_cards_as_lines() -> None:
    """The section has a heading, and each card's title, architecture, effect and code."""
    cards = [card for card in load_cards() if card.name == "cuda-tma-tile"]
    text = "\n".join(card_lines(cards))

    assert [] == card_lines([])
    assert text.startswith("## Verified building blocks\n")
    for part in (cards[0].title, "For sm_90+.", cards[0].code.rstrip()):
        assert part in text


def test_a_depthwise_convolution_is_no_product_of_matrices() -> None:
    """A convolution whose groups are its channels gets the stencil, another one cuDNN's card."""
    layer = "self.c = torch.nn.Conv2d(n, {out}, 3, groups={groups})"
    found = {
        groups: source_of("x = self.c(x)", init=layer.format(out="n", groups=groups))
        for groups in ("n", "1")
    }
    assert ("depthwise-conv",) == task_operations(found["n"])
    assert ("conv",) == task_operations(found["1"])
    assert "cuda-nhwc" == chosen(found["1"], H100, "cuda")[0]
    plan = techniques_in("Multiply by wgmma, a tap at a time.")
    task = Task(name="t", source=found["1"], device="cuda", backend="cuda")
    known = Reference(eager_us=1.0, inputs="float32[4, 64, 56, 56]", device=H100)
    assert ["cuda-conv-wgmma"] == [c.name for c in choose_cards(task, known, techniques=plan)]
    assert ["cuda-stencil-2d"] == chosen(found["n"], H100, "cuda")


def test_a_layers_name_says_nothing_of_its_kind() -> None:
    """`self.conv2d(x)` is what the constructor made it, not what its name resembles."""
    layer = "self.conv2d = torch.nn.Linear(n, n)"
    assert ("matmul",) == task_operations(source_of("x = self.conv2d(x)", init=layer))


def test_a_batch_norm_of_a_matrix_is_about_its_columns() -> None:
    """The channels of [N, C] are columns: the card for [N, C, S] would not fit."""
    source = source_of("x = self.b(x)", init="self.b = torch.nn.BatchNorm1d(n)")

    assert ("column-reduction",) == task_operations(source, "float32[1024, 8192]")
    assert ("batch-norm",) == task_operations(source, "float32[64, 32, 128]")


def test_the_dimension_of_a_reduction_may_come_from_the_constructor() -> None:
    """`self.dim` is the number that `get_init_inputs` gives, itself or by a name."""
    head = source_of("x = torch.sum(x, dim=self.dim)", init="self.dim = n") + "\n"
    columns = ("column-reduction", "reduction")

    for tail in ("    return [1]\n", "    return [DIM]\n\nDIM = 1\n"):
        source = head + "def get_init_inputs():\n" + tail
        assert columns == task_operations(source, "float32[8, 16, 32]")
    assert ("reduction",) == task_operations(
        head + "def get_init_inputs():\n    return [2]\n", "float32[8, 16, 32]"
    )
    assert ("reduction",) == task_operations(head, "float32[8, 16, 32]")


def test_a_product_with_a_vector_is_a_reduction() -> None:
    """A matrix and a vector are bound by the matrix' bytes: tensor cores do not help."""
    source = source_of("x = x @ y")

    assert ("reduction",) == task_operations(source, "float32[2048, 4096], float32[4096, 1]")
    assert ("matmul",) == task_operations(source, "float32[2048, 4096], float32[4096, 16]")


def test_heads_that_are_too_large_get_the_library() -> None:
    """The attention card holds a head of 64 in registers; larger ones get cuBLAS."""
    source = source_of("x = F.scaled_dot_product_attention(x, x, x)")
    large = chosen(source, H100, "cuda", "float32[32, 32, 512, 1024]", "compute")

    assert "cuda-attention-bf16x3" in chosen(source, H100, "cuda", "float32[32, 8, 512, 64]")
    assert "cuda-attention-bf16x3" not in large
    assert "cuda-cublas-bf16x3" in large


def test_a_product_near_its_bytes_is_bound_by_memory() -> None:
    """Split products take a part of float32's time at the device's rates: bytes may come first."""

    def of(precision: MatrixPrecision, **tflops: float) -> str:
        floor = TaskFloor(memory_us=358.0, matrix_us=1340.0)
        cost = TaskCost(flops={precision: 6.9e10})
        rates = DeviceRates(tflops={"float32": 51.0, **tflops})  # type: ignore[dict-item]
        facts = ReferenceFacts(floor=floor, cost=cost, rates=rates)
        return floor_bottleneck(Reference(eager_us=1.0, facts=facts))

    assert "memory" == of("float32", bfloat16=750.0)
    assert "compute" == of("float32", bfloat16=150.0)  # a device whose splits are no faster
    assert "compute" == of("float32")  # a host
    assert "compute" == of("bfloat16", bfloat16=750.0)
    assert "compute" == of("tf32", bfloat16=750.0)  # three products take longer than one of TF32


def test_a_task_of_products_has_no_card_about_what_follows_them() -> None:
    """On a host tanh and exp take half of PyTorch's call, and little of a fused one."""
    source = "def forward(self, x):\n    return torch.tanh(F.conv2d(x, self.w)) * 2.0\n"
    times = (
        OperationTime(name="aten::tanh", calls=1, us=7_000.0, share=0.6),
        OperationTime(name="aten::convolution", calls=1, us=4_000.0, share=0.4),
    )
    for matrix_us, first in ((3_000.0, "conv"), (10.0, "elementwise")):
        facts = ReferenceFacts(
            floor=TaskFloor(memory_us=39.0, matrix_us=matrix_us), operations=times
        )
        inputs = "float32[4, 8, 128, 128]"
        known = Reference(eager_us=2e4, facts=facts, inputs=inputs, device=SAPPHIRE)
        cards = choose_cards(Task(name="t", source=source), known)
        assert first in cards[0].operations


def test_a_plan_for_streaming_stores_brings_their_card() -> None:
    """A technique of hosts is known by its words, too."""
    source = "def forward(self, x):\n    return torch.relu(x) + 1.0\n"
    known = Reference(eager_us=1.0, inputs="float32[8192, 8192]", device=SAPPHIRE)
    plan = techniques_in("Write the output with streaming stores, which read no line first.")
    assert plan == {"streaming stores"}
    cards = choose_cards(Task(name="t", source=source), known, techniques=plan)
    assert ["cpp-stream-stores"] == [card.name for card in cards]
