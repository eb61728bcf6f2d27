"""The kinds of samples: inputs, the right result, and torch's own operation for the same work.

A sample's tensors are what the card's harness (`cuda/`, `cpp/`, `triton/`) gets, in its order.  The
last ones are scratch.  `compute` in float64 is the right result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Compute = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One call of a card: shapes of inputs, outputs and scratch, sizes for the harness."""

    inputs: Sequence[tuple[int, ...]]
    outputs: Sequence[tuple[int, ...]]
    scratch: Sequence[int] = ()  # floats
    sizes: Sequence[int] = ()
    compute: Compute  # from the inputs; torch's own operation, and in float64 the right result
    tolerance: float = 1e-6  # of the largest absolute value of the right result
    offset: float = 0.0  # added to the inputs: a mean far from 0 shows a bad variance
    scales: Sequence[float] = ()  # of the inputs; (): 1 for all
    flops: float = 0.0
    steps: int = 0  # of a recurrence: its figure is the time of one
    is_timed: bool = False
    is_part: bool = False  # a step of a larger kernel: torch's operation is no comparison
    dtype: torch.dtype = torch.float32  # of inputs and outputs

    @property
    def bytes(self) -> int:
        """What the least of reading inputs and writing outputs moves."""
        return self.dtype.itemsize * sum(_size(shape) for shape in (*self.inputs, *self.outputs))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def make_inputs(sample: Sample, device: str, seed: int = 0) -> list[Tensor]:
    """Draw a sample's inputs."""
    generator = torch.Generator(device=device).manual_seed(seed)
    scales = sample.scales or [1.0] * len(sample.inputs)
    return [
        (torch.randn(shape, device=device, generator=generator) * scale + sample.offset).to(
            sample.dtype
        )
        for shape, scale in zip(sample.inputs, scales, strict=True)
    ]


def gemm(
    m: int,
    n: int,
    k: int,
    *,
    is_timed: bool = False,
    tolerance: float = 1e-5,
    scratch: Sequence[int] = (),
) -> Sample:
    """C = A B^T; torch's own float32 is wrong by 4e-6 at 4096 products, split bfloat16 by 5e-6."""
    return Sample(
        inputs=[(m, k), (n, k)],
        outputs=[(m, n)],
        scratch=scratch,
        sizes=[m, n, k],
        compute=lambda a, b: a @ b.T,
        tolerance=tolerance,
        flops=2.0 * m * n * k,
        is_timed=is_timed,
    )


def half_product(m: int, n: int, k: int, *, is_timed: bool = False) -> Sample:
    """C = A B^T in bfloat16, which has 8 bits."""
    return Sample(
        inputs=[(m, k), (n, k)],
        outputs=[(m, n)],
        sizes=[m, n, k],
        compute=lambda a, b: a @ b.T,
        tolerance=4e-3,
        flops=2.0 * m * n * k,
        is_timed=is_timed,
        dtype=torch.bfloat16,
    )


def product_maxima(m: int, n: int, k: int, *, is_timed: bool = False) -> Sample:
    """The maximum of each row of A B^T in bfloat16, which has 8 bits; torch stores the product."""
    return Sample(
        inputs=[(m, k), (n, k)],
        outputs=[(m,)],
        sizes=[m, n, k],
        compute=lambda a, b: (a @ b.T).amax(1),
        tolerance=4e-3,
        flops=2.0 * m * n * k,
        is_timed=is_timed,
        dtype=torch.bfloat16,
    )


def scan(r: int, n: int, *, words: int = 0, timed: bool = False) -> Sample:
    """Inclusive prefix sums of rows; `words`: of 8 bytes of scratch."""
    return rows(
        r,
        n,
        lambda x: x.cumsum(-1),
        same=True,
        scratch=[2 * words] if words else [],
        tolerance=5e-6,
        offset=0.1,
        is_timed=timed,
    )


def products(batch: int, m: int, n: int, k: int, *, is_timed: bool = False) -> Sample:
    """C = A B^T of batches, with three halves of scratch for each float of A and of B.

    A library sums all of k on the tensor cores, which truncate: 2.5e-5 at 4096 (the judge: 1e-4).
    """
    return Sample(
        inputs=[(batch, m, k), (batch, n, k)],
        outputs=[(batch, m, n)],
        scratch=[batch * m * k * 3 // 2, batch * n * k * 3 // 2],
        sizes=[m, n, k, batch],
        compute=lambda a, b: a @ b.mT,
        tolerance=4e-5,
        flops=2.0 * batch * m * n * k,
        is_timed=is_timed,
    )


def linear(m: int, n: int, k: int, *, relu: bool, scratch: int = 0, timed: bool = False) -> Sample:
    """A linear layer, perhaps with ReLU."""

    def compute(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y = functional.linear(x, w, b)
        return y.relu() if relu else y

    return Sample(
        inputs=[(m, k), (n, k), (n,)],
        outputs=[(m, n)],
        scratch=[scratch] if scratch else (),
        sizes=[m, n, k, 4 * scratch],
        compute=compute,
        tolerance=5e-6,
        flops=2.0 * m * n * k,
        is_timed=timed,
    )


def rows(r: int, n: int, compute: Compute, *, same: bool = False, **more: object) -> Sample:
    """A result for each row, or for each element (`same`)."""
    known: dict[str, object] = {"sizes": [r, n], **more}
    return Sample(inputs=[(r, n)], outputs=[(r, n) if same else (r,)], compute=compute, **known)  # type: ignore[arg-type]


def flat(n: int, compute: Compute, *, inputs: int = 1, **more: object) -> Sample:
    """An element-wise map of `inputs` tensors of n floats."""
    known: dict[str, object] = {"sizes": [n], **more}
    return Sample(inputs=[(n,)] * inputs, outputs=[(n,)], compute=compute, **known)  # type: ignore[arg-type]


def columns(r: int, c: int, splits: int, *, timed: bool = False) -> Sample:
    """Sums of columns."""
    return Sample(
        inputs=[(r, c)],
        outputs=[(c,)],
        scratch=[splits * c],
        sizes=[r, c, splits],
        compute=lambda x: x.sum(0),
        is_timed=timed,
    )


def channels(n: int, c: int, s: int, splits: int, *, timed: bool = False) -> Sample:
    """Mean and biased variance of each channel."""

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        variance, mean = torch.var_mean(x, (0, 2), correction=0)
        return mean, variance

    return Sample(
        inputs=[(n, c, s)],
        outputs=[(c,), (c,)],
        scratch=[c * splits * 8 * 2],
        sizes=[n, c, s, splits],
        compute=compute,
        tolerance=3e-6,
        offset=100.0,
        is_timed=timed,
    )


def conv(
    n: int, c: int, h: int, w: int, o: int, r: int, p: int, *, bias: bool, timed: bool = False
) -> Sample:
    """A convolution of stride 1; without padding with a bias."""
    out = (n, o, h + 2 * p - r + 1, w + 2 * p - r + 1)
    inputs = [(n, c, h, w), (o, c, r, r)]
    return Sample(
        inputs=[*inputs, (o,)] if bias else inputs,
        outputs=[out],
        sizes=[n, c, h, w, o, r, p],
        compute=lambda x, f, b=None: functional.conv2d(x, f, b, padding=p),
        tolerance=2e-6,
        flops=2.0 * _size(out) * c * r * r,
        is_timed=timed,
    )


def implicit_gemm(
    image: tuple[int, ...],
    weight: tuple[int, ...],
    stride: int = 1,
    padding: int = 0,
    *,
    timed: bool = False,
) -> Sample:
    """A convolution [n, c, (d,) h, w] * [o, c, (t,) r, r], with scratch for packed weights.

    Tensor cores truncate: 4e-5 at 4,096 terms (the judge: 1e-4).
    """
    sides = zip(image[2:], weight[2:], strict=True)
    out = (image[0], weight[0], *((a + 2 * padding - b) // stride + 1 for a, b in sides))
    d, t = (image[2], weight[2]) if len(image) == 5 else (1, 1)
    blocks = -(-weight[0] // 128) * -(-weight[1] // 16) * t * weight[-1] ** 2
    function = functional.conv2d if len(image) == 4 else functional.conv3d
    channels = weight[0], t, weight[-1]
    return Sample(
        inputs=[image, weight],
        outputs=[out],
        scratch=[blocks * 2048],
        sizes=[*image[:2], d, *image[-2:], *channels, stride, padding],
        compute=lambda x, w: function(x, w, stride=stride, padding=padding),
        tolerance=4e-5,
        flops=2.0 * _size(out) * _size(weight[1:]),
        is_timed=timed,
    )


def max_pool(
    planes: int, h: int, w: int, k: int, stride: int, padding: int, *, timed: bool = False
) -> Sample:
    """Max pooling of planes."""
    out = [(side + 2 * padding - k) // stride + 1 for side in (h, w)]
    return Sample(
        inputs=[(planes, h, w)],
        outputs=[(planes, *out)],
        sizes=[planes, h, w, k, stride, padding],
        compute=lambda x: functional.max_pool2d(x, k, stride, padding),
        is_timed=timed,
    )


def channels_last(n: int, c: int, s: int, *, timed: bool = False) -> Sample:
    """Scale, shift and ReLU of [n, c, s], stored as [n, s, c]."""

    def compute(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        y = (x * scale[:, None] + shift[:, None]).relu()
        return y.transpose(1, 2).contiguous()

    return Sample(
        inputs=[(n, c, s), (c,), (c,)],
        outputs=[(n, s, c)],
        sizes=[n, c, s],
        compute=compute,
        is_timed=timed,
    )


def layer_norm(x: Tensor, w: Tensor | None = None, b: Tensor | None = None) -> Tensor:
    """Layer norm of the last dimension."""
    return functional.layer_norm(x, x.shape[-1:], w, b, 1e-5)


def scaled_norm(r: int, n: int, *, timed: bool = False) -> Sample:
    """Layer norm with scale and shift."""
    return Sample(
        inputs=[(r, n), (n,), (n,)],
        outputs=[(r, n)],
        sizes=[r, n],
        compute=layer_norm,
        tolerance=3e-6,
        offset=10.0,
        is_timed=timed,
    )


def attention(
    heads: int, length: int, d: int, *, is_causal: bool = False, timed: bool = False
) -> Sample:
    """Attention, perhaps causal: half of the products."""
    return Sample(
        inputs=[(heads, length, d)] * 3,
        outputs=[(heads, length, d)],
        sizes=[heads, length, d],
        compute=lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, is_causal=is_causal
        ),
        tolerance=1e-5 if is_causal else 3e-6,
        flops=(2.0 if is_causal else 4.0) * heads * length * length * d,
        is_timed=timed,
    )


def recurrence(hidden: int, steps: int, *, timed: bool = False) -> Sample:
    """h[t] = tanh(W h[t - 1] + x[t]) with h[-1] = 0."""

    def compute(w: Tensor, x: Tensor) -> Tensor:
        states = [x[0].tanh()]
        for each in x[1:]:
            states.append(torch.addmv(each, w, states[-1]).tanh())
        return torch.stack(states)

    return Sample(
        inputs=[(hidden, hidden), (steps, hidden)],
        outputs=[(steps, hidden)],
        sizes=[hidden, steps],
        steps=steps,
        scales=[0.5 / hidden**0.5, 1.0],
        compute=compute,
        tolerance=5e-6,
        is_timed=timed,
    )


def depthwise(
    n: int, c: int, h: int, k: int, stride: int, padding: int, *, timed: bool = False
) -> Sample:
    """A depthwise convolution."""
    side = (h + 2 * padding - k) // stride + 1
    return Sample(
        inputs=[(n, c, h, h), (c, 1, k, k)],
        outputs=[(n, c, side, side)],
        sizes=[n, c, h, h, k, stride, padding],
        compute=lambda x, w: functional.conv2d(x, w, stride=stride, padding=padding, groups=c),
        tolerance=2e-6,
        is_timed=timed,
    )


def softmax(x: Tensor) -> Tensor:
    """Softmax of the last dimension."""
    return x.softmax(-1)


def row_sum(x: Tensor) -> Tensor:
    """Sum of the last dimension."""
    return x.sum(-1)


def norms(r: int, n: int, splits: int, *, timed: bool = False) -> Sample:
    """Layer norm of rows that are split over blocks."""
    return rows(
        r,
        n,
        layer_norm,
        same=True,
        scratch=[r * splits * 3],
        sizes=[r, n, splits],
        tolerance=3e-6,
        offset=10.0,
        is_timed=timed,
    )
