"""Laws of the rule book's backward: its gradients are autograd's, by rules and by kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recipe_runner import Bench, leaves, task

from actors.agents.recipes.codegen.compiler import compile_candidate
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.ir.derivatives import FLAT, OPERAND_RULES, UNARY_RULES, Derivatives
from actors.agents.recipes.ir.graph import MASKS, UNARY, OperationGraph
from actors.agents.recipes.schedule.knobs import Knobs, default_knobs, with_change

OPERATIONS: dict[str, Callable[..., Any]] = {
    "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "expm1": torch.expm1, "log": torch.log,
    "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin,
    "reciprocal": torch.reciprocal, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "cos": torch.cos,
    "erf": torch.erf, "relu": torch.relu, "silu": F.silu, "gelu": F.gelu, "mish": F.mish,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "softplus": F.softplus,
    "sign": torch.sign, "floor": torch.floor, "finite_or_zero": lambda x: x, "add": torch.add,
    "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "where": torch.where, "gt": torch.gt, "lt": torch.lt, "eq": torch.eq,
    "to_float": lambda x: x.double(),
}  # fmt: skip


def values(graph: OperationGraph, given: dict[int, torch.Tensor], wanted: list[int]) -> Any:
    """Compute nodes with torch, in float64."""
    made = dict(given)
    for index, node in enumerate(graph.nodes):
        operands = [made[arg] for arg in node.args]
        if index in made:
            continue
        if node.op == "const":
            made[index] = torch.tensor(node.value, dtype=torch.float64)
        elif node.op == "view":
            made[index] = operands[0].reshape(node.sizes)
        elif node.op in ("sum", "max", "min"):
            reduce = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[node.op]
            made[index] = reduce(operands[0], dim=node.dims, keepdim=True)
        else:
            made[index] = OPERATIONS[node.op](*operands)
    return [made[index] for index in wanted]


def check(graph: OperationGraph, leaf_values: dict[int, torch.Tensor], result: int) -> None:
    """Compare the gradients' nodes with autograd's, of the same operations."""
    inputs = {index: value.clone().requires_grad_() for index, value in leaf_values.items()}
    before = len(graph.nodes)
    (output,) = values(graph, dict(inputs), [result])
    above = torch.randn_like(output)
    expected = torch.autograd.grad(output, list(inputs.values()), above)
    g = graph.leaf("g", graph[result].sizes)
    found = Derivatives(graph).gradients((result,), (g,), tuple(inputs))
    assert len(graph.nodes) > before
    assert None not in found
    got = values(graph, {**leaf_values, g: above}, [node for node in found if node is not None])
    for one, other, leaf in zip(got, expected, inputs, strict=True):
        assert graph[leaf].sizes == one.shape
        torch.testing.assert_close(one, other)


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64) + 0.3


@pytest.mark.parametrize("op", sorted(UNARY_RULES))
def test_each_rule_of_one_operand_is_autograds(op: str) -> None:
    """Positive and negative numbers, where the operation is defined for them."""
    graph = OperationGraph()
    x = graph.leaf("x", (3, 5))
    value = drawn(3, 5)
    if op not in ("log", "sqrt", "rsqrt", "log1p"):
        value *= torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    check(graph, {x: value}, graph.apply(op, x))


@pytest.mark.parametrize("op", sorted(set(OPERAND_RULES) - {"where"}))
@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (4, 3, 5))])
def test_each_rule_of_two_operands_sums_over_what_was_broadcast(
    op: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """An operand of lower rank or of size 1 gets the sum of its gradients."""
    graph = OperationGraph()
    a, b = graph.leaf("a", shapes[0]), graph.leaf("b", shapes[1])
    found = graph.apply("tanh", graph.apply(op, a, b))
    check(graph, {a: drawn(*shapes[0]), b: drawn(*shapes[1])}, found)


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_gradients_go_through_reductions_choices_and_reshapes(op: str) -> None:
    """Equal extremes share a gradient; a mean's gradient is the same along the row."""
    graph = OperationGraph()
    a, b = graph.leaf("a", (4, 6)), graph.leaf("b", (6,))
    view = graph.view(graph.apply("mul", a, b), (4, 2, 3))
    part = graph.reduce(op, view, (2,))
    chosen = graph.apply("where", graph.apply("gt", view, graph.const(0.4)), part, view)
    total = graph.reduce("sum", graph.apply("mul", chosen, part), (0, 1, 2))
    value = drawn(4, 6)
    value[0, :] = 0.5
    check(graph, {a: value, b: torch.ones(6, dtype=torch.float64)}, total)


def test_each_elementwise_operation_has_a_rule_or_no_slope() -> None:
    """A new operation needs a derivative, or its tasks have no backward without a reason."""
    assert UNARY - set(UNARY_RULES) == FLAT | (UNARY & MASKS)


NORM = task(
    "self.gain = nn.Parameter(torch.rand(48) + 0.5)\nself.norm = nn.LayerNorm(48)",
    "return self.norm(F.gelu(x * self.gain) + y), x.sum(0)",
    "torch.randn(33, 48), torch.randn(33, 48)",
    "x, y",
)
SOFTMAX = task(
    "self.gain = nn.Parameter(torch.rand(48) + 0.5)\nself.register_buffer('shift', torch.ones(48))",
    "return torch.softmax(x * self.gain + self.shift, dim=-1) * torch.maximum(x, y)",
    "torch.randn(2, 9, 48), torch.randn(2, 9, 1)",
    "x, y",
)
BATCH = task(
    "self.norm = nn.BatchNorm2d(8)\nself.eval()",
    "return F.mish(self.norm(x)).mean((2, 3))",
    "torch.randn(4, 8, 5, 5)",
)


def described(source: str, bench: Bench) -> str:
    inputs = bench.module(source).get_inputs()
    return ", ".join(f"float32[{', '.join(map(str, each.shape))}]" for each in inputs)


def differentiated(module: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs, and gradients of inputs and parameters."""
    given = [each.clone().requires_grad_() for each in inputs]
    outputs = leaves(module(*given))
    torch.manual_seed(3)
    above = [torch.randn(each.shape).to(each.dtype) for each in outputs]
    wanted = [*given, *module.parameters()]
    return [*outputs, *torch.autograd.grad(outputs, wanted, above)]


@pytest.mark.parametrize("source", [NORM, SOFTMAX, BATCH])
def test_kernels_give_the_gradients_of_the_module(bench: Bench, source: str) -> None:
    """Of all inputs and parameters, as near to float64 as float32 is."""
    inputs = described(source, bench)
    numbers = tuple(range(inputs.count("[")))
    made = compile_candidate(source, inputs, "cpp", default_knobs("cpp"), gradients=numbers)
    module, reference, winner = bench.models(source, made.source)

    def refused(*args: object) -> None:
        raise AssertionError("the kernels were not used")

    winner.plain_forward = refused
    drawn_inputs = module.get_inputs()
    expected = differentiated(reference, drawn_inputs)
    for _ in range(2):
        for one, other in zip(differentiated(winner, drawn_inputs), expected, strict=True):
            scale = other.abs().max().item() + math.ulp(1.0)
            assert (one - other).abs().max().item() <= 1e-5 * scale


@pytest.mark.parametrize("fusion", ["layers", "single"])
@pytest.mark.parametrize("backend", ["cpp", "cuda"])
def test_less_fusion_and_cuda_have_a_backward_too(bench: Bench, fusion: str, backend: str) -> None:
    """Each depth of fusion has an order of the backward's kernels."""
    knobs = with_change(default_knobs(backend), {"fusion": fusion})
    assert isinstance(knobs, Knobs)
    for source in (NORM, SOFTMAX, BATCH):
        inputs = described(source, bench)
        text = compile_candidate(source, inputs, backend, knobs, gradients=(0,)).source
        assert "def kernels_backward_0" in text


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return F.gelu(self.lin(x))", "the derivative of what PyTorch computes"),
        ("a, b = x.chunk(2, -1)\nreturn a * torch.sigmoid(b)", "the derivative of a slice"),
        ("return {'y': x.exp()}", "a backward has rules for tensors"),
        ("return torch.unique(x.exp() * 2)", "needs a tensor whose shape is not known"),
    ],
)
def test_what_has_no_rule_is_named(forward: str, reason: str) -> None:
    """A refusal is a sentence for the user, and not a candidate with wrong gradients."""
    source = task("self.lin = nn.Linear(48, 48)", forward, "torch.randn(8, 48)")
    with pytest.raises(UnsupportedSourceError, match=reason):
        compile_candidate(source, "float32[8, 48]", "cpp", default_knobs("cpp"), gradients=(0,))
