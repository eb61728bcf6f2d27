"""Tensors that are not contiguous: kernels read and write them in their own order in memory."""

from __future__ import annotations

from recipe_runner import Bench, candidate, task

CHANNELS_LAST = "torch.randn(2, 6, 5, 10).permute(0, 3, 1, 2)"
HEADS = "torch.randn(2, 9, 4, 16).permute(0, 2, 1, 3)"
ACTIVATION = task(
    "self.s = nn.Parameter(torch.rand(10, 1, 1))", "return self.s * F.relu(x) ** 2", CHANNELS_LAST
)
HEAD_NORM = task("pass", "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)", HEADS)
AROUND_CONVOLUTION = task(
    "self.c = nn.Parameter(torch.randn(12, 10, 1, 1))",
    "return torch.tanh(F.conv2d(F.silu(x) * 2, self.c)) + 1",
    CHANNELS_LAST,
)

ATTENTION = task(
    "pass",
    "q = torch.tanh(x) * 2\n"
    "return torch.sigmoid(F.scaled_dot_product_attention(q, q, q).transpose(1, 2)) * 3",
    HEADS,
)

ATTENTION_BLOCK = task(
    "self.q = nn.Linear(32, 96, bias=False)\nself.o = nn.Linear(32, 32)",
    "q, k, v = self.q(x).reshape(2, 9, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)\n"
    "y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 9, 32)\n"
    "return torch.tanh(x + self.o(y))",
    "torch.randn(2, 9, 32)",
)


def copies(bench: Bench, source: str) -> tuple[int, bool]:
    """Return how many tensors a call copies, and whether results have eager's strides."""
    drawn, reference, made = bench.models(source, candidate(source, {}))
    inputs = drawn.get_inputs()
    made(*inputs)
    with bench.torch.profiler.profile() as profile:
        result = made(*inputs)
    names = [event.name for event in profile.events()]
    return names.count("aten::copy_"), result.stride() == reference(*inputs).stride()


def test_no_copy_is_made_of_tensors_in_another_order(bench: Bench) -> None:
    """A channels-last model, a norm of heads, and attention pay for no change of layout."""
    for source in (ACTIVATION, HEAD_NORM, AROUND_CONVOLUTION, ATTENTION):
        assert (0, True) == copies(bench, source)


def test_what_follows_attention_is_in_a_kernel(bench: Bench) -> None:
    """Before, the shape was lost at `unbind`, and a block's other half stayed in PyTorch."""
    made = candidate(ATTENTION_BLOCK, {})
    assert "1 kernel in place of PyTorch's operations" in made
    assert bench.worst(ATTENTION_BLOCK, made) < 6
    _, reference, module = bench.models(ATTENTION_BLOCK, made)
    x = bench.torch.randn(2, 9, 32)
    with bench.torch.profiler.profile() as profile:
        module(x)
    with bench.torch.profiler.profile() as eager:
        reference(x)
    counted = [
        sum(event.name == "aten::copy_" for event in each.events()) for each in (profile, eager)
    ]
    assert counted[0] <= counted[1]


def test_tensors_of_two_orders_are_still_right(bench: Bench) -> None:
    """Where inputs differ in their order, or a view is taken, numbers are as PyTorch's."""
    two = task(
        "pass", "return torch.tanh(x) * y",
        f"{CHANNELS_LAST}, torch.randn(2, 10, 6, 5)", "x, y",
    )  # fmt: skip
    norm = task("self.n = nn.GroupNorm(2, 10)", "return F.silu(self.n(x))", CHANNELS_LAST)
    spatial = task("pass", "return torch.tanh(x - x.mean((2, 3), keepdim=True))", CHANNELS_LAST)
    for source in (two, norm, spatial):
        assert bench.worst(source, candidate(source, {"memory": "reuse"})) < 6


def test_calls_in_another_order_are_right(bench: Bench) -> None:
    """The order is a guess: a contiguous tensor, and one in a third order, give the same."""
    drawn, reference, made = bench.models(ACTIVATION, candidate(ACTIVATION, {}))
    (x,) = drawn.get_inputs()
    for other in (x.contiguous(), x.transpose(2, 3).contiguous().transpose(2, 3)):
        bench.torch.testing.assert_close(reference(x), made(other))


def test_results_are_contiguous_where_pytorch_s_are(bench: Bench) -> None:
    """A caller may take a view of them: softmax and norms return contiguous memory for any."""
    softmax = task("pass", "return F.softmax(x, 1) * 2", CHANNELS_LAST)
    norm = task("self.n = nn.LayerNorm(16)", "return self.n(x)", HEADS)
    for source in (softmax, norm):
        drawn, _reference, made = bench.models(source, candidate(source, {}))
        (x,) = drawn.get_inputs()
        assert made(x).view(2, -1).shape == (2, x.numel() // 2)
    channels = task("self.n = nn.BatchNorm2d(10)\nself.eval()", "return self.n(x)", CHANNELS_LAST)
    assert copies(bench, channels) == (0, True)
