"""Kernels compute what PyTorch computes, with errors like PyTorch's."""

from __future__ import annotations

import random

import pytest
from recipe_runner import EXAMPLES, Bench, candidate, task

TUNED: dict[str, object] = {
    "vector": 16, "passes": "buffer", "unroll": 2, "maths": "quick", "bias": "kernel",
    "memory": "reuse", "store": "stream", "block": 256, "schedule": "dynamic",
}  # fmt: skip
FAMILIES = {
    "rows, odd width, a mask, a tuple": task(
        "self.w = nn.Parameter(torch.randn(37))",
        "y = torch.where(x > 0, x, x * 0.1).masked_fill(x > 2, 1.5) * self.w\n"
        "m, _ = y.max(dim=-1)\n"
        "return torch.log_softmax(y, -1), m, y.std(-1), (y - m[:, None] - 1).abs().amin(1)",
        "torch.randn(19, 37)",
    ),
    "the indices of a maximum, returned and used": task(
        "pass",
        "y = x.sigmoid() * 3\nm, i = y.max(dim=1)\nn = torch.min(y, -1, keepdim=True).values\n"
        "return m * 2, i, (y - n).gather(1, i[:, None]).exp(), y.min(0)[1]",
        "torch.randn(19, 37)",
    ),
    "down few, long columns": task(
        "pass",
        "return x.softmax(0), x.amin(0), x.square().mean(0)",
        "torch.randn(300, 40)",
    ),
    "down columns, two outer dimensions": task(
        "self.b = nn.Parameter(torch.randn(5, 1, 1))",
        "y = F.mish(x + self.b)\nreturn y.softmax(1), y.mean(1, keepdim=True), y.norm(dim=1)",
        "torch.randn(3, 5, 7, 9)",
    ),
    "group norm with what is around it": task(
        "self.n = nn.GroupNorm(4, 12)\nself.s = nn.Parameter(torch.rand(12, 1, 1))",
        "return F.hardswish(self.n(F.silu(x)) * self.s).mean(dim=(2, 3))",
        "torch.randn(2, 12, 6, 5)",
    ),
    "everything to one number": task(
        "pass",
        "return F.huber_loss(x, y), F.kl_div(x.log_softmax(1), y.softmax(1), reduction='sum'),"
        " x / x.norm()",
        "torch.randn(60, 500), torch.randn(60, 500)",
        "x, y",
    ),
    "behind a product: bias, gate, slices": task(
        "self.l = nn.Linear(24, 64)",
        "a, b = self.l(x).chunk(2, dim=-1)\nreturn F.gelu(a) * b[:, :] + a[..., :1]",
        "torch.randn(33, 24)",
    ),
    "a short last dimension, read round and round": task(
        "self.w = nn.Parameter(torch.randn(3))",
        "return torch.tanh(x * self.w) + x.sigmoid(), (x * self.w).square().sum(dim=(1, 2))",
        "torch.randn(5, 41, 3)",
    ),
    "pools with padding, before and after": task(
        "self.n = nn.BatchNorm2d(6)\nself.p = nn.MaxPool2d(3, stride=2, padding=1)\nself.eval()",
        "y = self.p(F.relu(self.n(x)))\n"
        "return torch.erf(y) - 0.5, F.avg_pool2d(F.elu(x), 2), F.avg_pool1d(x[:, 0], 3)",
        "torch.randn(2, 6, 15, 13)",
    ),
    "pools over three dimensions": task(
        "self.p = nn.MaxPool3d((2, 3, 2), stride=2, padding=(1, 1, 0))",
        "y = self.p(torch.sigmoid(x) * 2.0)\n"
        "return F.avg_pool3d(y, 2).relu() - 0.5, F.avg_pool3d(x, 3, stride=1, padding=1)",
        "torch.randn(2, 3, 7, 10, 9)",
    ),
    "channels last, around convolutions": task(
        "self.p = nn.Parameter(torch.randn(12, 10, 1, 1))\n"
        "self.d = nn.Parameter(torch.randn(12, 1, 3, 3))\n"
        "self.b = nn.Parameter(torch.randn(12, 1, 1))",
        "y = torch.tanh(F.conv2d(F.silu(x), self.p) + self.b)\n"
        "z = F.conv2d(y, self.d, None, [1, 1], [1, 1], [1, 1], 12)\n"
        "return F.silu(z) * y, y.mean(1), torch.sigmoid(x)",
        "torch.randn(2, 6, 5, 10).permute(0, 3, 1, 2)",
    ),
    "a block with attention, its parts by unbind": task(
        "self.q, self.o = nn.Linear(32, 96, bias=False), nn.Linear(32, 32)\n"
        "self.n = nn.LayerNorm(32)",
        "q, k, v = self.q(x).reshape(2, 9, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)\n"
        "y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 9, 32)\n"
        "y = x + self.o(y)\nreturn y + F.gelu(self.n(y)), torch.tanh(k)",
        "torch.randn(2, 9, 32)",
    ),
    "rotated pairs, and a mask of booleans": task(
        "self.register_buffer('seen', torch.ones(9, 9, dtype=torch.bool).tril())",
        "turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(2, 4, 9, 16)\n"
        "q = x * 0.6 + turned * 0.8\n"
        "y = F.scaled_dot_product_attention(q, q, x, attn_mask=self.seen)\n"
        "return torch.tanh(y) * F.silu(x)",
        "torch.randn(2, 4, 9, 16)",
    ),
    "heads first, tokens first in memory": task(
        "self.w = nn.Parameter(torch.randn(16))",
        "y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.w\n"
        "z = y.transpose(1, 2)\nreturn y, torch.tanh(z) * F.silu(z), x.sigmoid().mean((1, 3))",
        "torch.randn(2, 9, 4, 16).permute(0, 2, 1, 3)",
    ),
}


# The tests of halves have other knobs.
@pytest.mark.parametrize(
    "change", [{}, pytest.param(TUNED, marks=pytest.mark.long)], ids=["first", "tuned"]
)
@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_agrees_with_float64(
    bench: Bench, name: str, change: dict[str, object]
) -> None:
    """For all loops and knobs, errors are a small multiple of eager PyTorch's."""
    assert bench.worst(FAMILIES[name], candidate(FAMILIES[name], change)) < 6


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_every_example_gets_kernels_that_agree(bench: Bench, path: object) -> None:
    """Each example of the README is recognised, and computed correctly."""
    source = path.read_text()  # type: ignore[attr-defined]
    assert bench.worst(source, candidate(source, {"vector": 16, "maths": "quick"})) < 6


ONE = ["F.gelu({0})", "torch.tanh({0})", "{0}.sigmoid()", "F.leaky_relu({0}, 0.2)", "-{0}",
       "({0} * 0.5).exp()", "F.softplus({0})", "{0}.abs().sqrt()", "F.hardsigmoid({0})",
       "torch.clamp({0}, -1.0, 2.0)", "{0}.pow(2)", "F.selu({0})", "torch.log1p({0}.abs())",
       "{0}.softmax(-1)", "{0} - {0}.mean(-1, keepdim=True)", "F.layer_norm({0}, (W,))",
       "{0} / ({0}.square().mean(-1, keepdim=True) + 1e-3).sqrt()"]  # fmt: skip
TWO = ["({0} + {1})", "({0} - {1})", "({0} * {1})", "torch.maximum({0}, {1})",
       "torch.where({0} > {1}, {0}, 0.3 * {1})", "({0} / ({1}.abs() + 1.0))"]  # fmt: skip


def random_task(draw: random.Random) -> str:
    """A forward of random operations on two inputs and two parameters that broadcast."""
    width = draw.choice([8, 21, 64])
    known = ["x", "y", "self.a", "self.b"]
    lines = []
    for number in range(draw.randint(4, 9)):
        form = draw.choice(ONE if draw.random() < 0.6 else TWO)
        wide = [name for name in known if not name.startswith("self.")]
        words = [draw.choice(wide), draw.choice(known)]
        lines.append(f"v{number} = {form.format(*words).replace('W', str(width))}")
        known.append(f"v{number}")
    results = draw.sample(known[4:], k=min(2, len(known) - 4))
    lines.append(f"return {', '.join([*results, known[-1]])}, {known[-1]}.amax(-1)")
    return task(
        f"self.a = nn.Parameter(torch.rand({width}))\nself.b = nn.Parameter(torch.rand(11, 1))",
        "\n".join(lines),
        f"torch.randn(2, 11, {width}), torch.randn(2, 11, {width})",
        "x, y",
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_forwards_agree_with_float64(bench: Bench, seed: int) -> None:
    """Fusion does not change the result of any mix of operations, at every knob."""
    draw = random.Random(seed)
    source = random_task(draw)
    change: dict[str, object] = {
        "fusion": draw.choice(["all", "layers", "single"]),
        "passes": draw.choice(["recompute", "buffer"]),
        "vector": draw.choice([4, 8, 16]),
        "unroll": draw.choice([1, 2, 4]),
        "block": draw.choice([256, 1024]),
    }
    # A random chain can lose digits that eager PyTorch, in another order, does not lose.
    assert bench.worst(source, candidate(source, change)) < 20


def test_another_shape_type_or_mode_calls_the_plain_forward(bench: Bench) -> None:
    """A candidate is a drop-in: inputs that its kernels were not written for are computed, too."""
    source = FAMILIES["pools with padding, before and after"]
    torch = bench.torch
    _, reference, made = bench.models(source, candidate(source, {}))
    with torch.no_grad():
        for inputs in (torch.randn(3, 6, 9, 8), torch.randn(2, 6, 15, 13).transpose(2, 3)):
            for mine, theirs in zip(made(inputs), reference(inputs), strict=True):
                torch.testing.assert_close(mine, theirs)
        many = torch.randn(2, 6, 15, 13)
        for mine, theirs in zip(
            made.double()(many.double()), reference.double()(many.double()), strict=True
        ):
            torch.testing.assert_close(mine, theirs)
        made.float().train()
        reference.float().train()
        torch.testing.assert_close(made(many)[0], reference(many)[0])


def test_no_output_shares_memory_with_another_call(bench: Bench) -> None:
    """The next call does not change a call's results: no memory is cached or reused."""
    source = FAMILIES["behind a product: bias, gate, slices"]
    torch = bench.torch
    task_module, _, made = bench.models(source, candidate(source, TUNED))
    with torch.no_grad():
        (first,) = task_module.get_inputs()
        result = made(first)
        kept = result.clone()
        made(torch.randn(33, 24))
    assert torch.equal(kept, result)


def test_infinities_and_nan_are_where_pytorch_has_them(bench: Bench) -> None:
    """Masked softmax with -inf and maxima of NaN rows give the same special numbers."""
    source = task(
        "pass",
        "return x.softmax(-1), x.amax(-1), F.relu(x), torch.tanh(x), F.silu(x.clamp(-5, 5)),"
        " torch.logsumexp(x, -1)",
        "torch.randn(6, 40)",
    )
    torch = bench.torch
    _, reference, made = bench.models(source, candidate(source, {"vector": 16}))
    x = torch.randn(6, 40)
    x[0, 3:9] = -float("inf")
    x[1, 2] = float("inf")
    x[2, 30] = float("nan")
    x[3] = -float("inf")
    with torch.no_grad():
        for mine, theirs in zip(made(x), reference(x), strict=True):
            torch.testing.assert_close(mine, theirs, equal_nan=True)
