"""Counts the bytes and matrix operations of one call of the task's own module.  Trusted.

Counted are the operations of matrix products, convolutions and attention, by torch's own formulas
(`torch.utils.flop_counter`), under the dtype that reaches the operator, so that autocast counts as
what it is.  Elementwise operations and reductions are not counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from protocol.facts import MatrixPrecision
from protocol.values import DeviceKind

aten = torch.ops.aten
PRECISION_OF: dict[torch.dtype, MatrixPrecision] = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.int8: "int8",
}
# Fused operators without a formula.  With the libraries that they come from switched off, torch
# computes the same from operators that have one.
FUSED_NAMES = frozenset(
    [
        *("_cudnn_rnn", "miopen_rnn", "mkldnn_rnn_layer", "_native_multi_head_attention"),
        "_transformer_encoder_layer_fwd",
    ]
)
CONVOLUTIONS = frozenset(["convolution", "_convolution", "cudnn_convolution", "conv_transpose2d"])


def _vector_product(matrix: torch.Tensor, *_rest: object, **_named: object) -> int:
    return 2 * matrix.numel()


def _added_vector_product(
    _added: torch.Tensor, matrix: torch.Tensor, *_rest: object, **_named: object
) -> int:
    return 2 * matrix.numel()


def _attention(causal_at: int) -> Callable[..., int]:
    """Return the formula of an attention operator; a causal one computes half of the products.

    torch's own formula counts all of them.  `causal_at`: the place of `is_causal`.
    """

    def count(*args: Any, is_causal: bool = False, **_named: object) -> int:
        query, key, value = args[:3]
        batch, heads, rows, size = query.shape
        columns, value_size = key.shape[-2], value.shape[-1]
        causal = is_causal or (len(args) > causal_at and args[causal_at] is True)
        pairs = rows * columns
        if causal:
            pairs = sum(min(row + 1, columns) for row in range(rows))
        return int(2 * batch * heads * pairs * (size + value_size))

    return count


# What torch has no formula for, or another one.
OWN_FORMULAS: dict[object, Callable[..., int]] = {
    packet: formula
    for name, formula in (
        ("mv", _vector_product),
        ("dot", _vector_product),
        ("vdot", _vector_product),
        ("addmv", _added_vector_product),
        ("_scaled_dot_product_flash_attention", _attention(4)),
        ("_scaled_dot_product_flash_attention_for_cpu", _attention(4)),
        ("_scaled_dot_product_efficient_attention", _attention(6)),
        ("_scaled_dot_product_cudnn_attention", _attention(6)),
    )
    if (packet := getattr(aten, name, None)) is not None
}


class MatrixOperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts matrix operations by precision while it is entered."""

    def __init__(self, device: DeviceKind) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self.flops: dict[MatrixPrecision, float] = {}
        self.uncounted: list[str] = []

    def dispatch(
        self,
        func: Any,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run one operator, or the operators that it is composed of, and count it.

        torch calls it as `__torch_dispatch__`.
        """
        named = kwargs or {}
        packet = getattr(func, "_overloadpacket", None)
        formula = OWN_FORMULAS.get(packet) or flop_registry.get(packet)
        if formula is None and hasattr(func, "decompose"):
            with self:
                result = func.decompose(*args, **named)
            if result is not NotImplemented:
                return result
        result = func(*args, **named)
        name = str(getattr(packet, "__name__", ""))
        if formula is not None:
            self._add(name, float(formula(*args, **named, out_val=result)), args)
        elif name in FUSED_NAMES and name not in self.uncounted:
            self.uncounted.append(name)
        return result

    def _add(self, name: str, flops: float, args: tuple[object, ...]) -> None:
        dtype = next((each.dtype for each in args if isinstance(each, torch.Tensor)), None)
        precision = PRECISION_OF.get(dtype) if dtype is not None else None
        if precision is None:
            self.uncounted.append(name)
            return
        if precision == "float32" and self._device == "cuda" and has_tf32(name in CONVOLUTIONS):
            precision = "tf32"
        self.flops[precision] = self.flops.get(precision, 0.0) + flops


# Assigned when the class is there: torch wraps a method that it finds in the class body with a
# decorator that imports its compilers, which takes seconds.
MatrixOperationCounter.__torch_dispatch__ = MatrixOperationCounter.dispatch  # type: ignore[assignment]


def has_tf32(is_convolution: bool) -> bool:
    """Whether torch computes float32 products (or convolutions) in TF32 on a card."""
    try:
        if is_convolution:
            return bool(torch.backends.cudnn.allow_tf32)
        return bool(torch.backends.cuda.matmul.allow_tf32)
    # A task that uses torch's newer names for it must not be read by the older ones.
    except RuntimeError:
        backends: Any = torch.backends
        newer = backends.cudnn.conv if is_convolution else backends.cuda.matmul
        return bool(newer.fp32_precision == "tf32")


@contextmanager
def tf32_products(allowed: bool) -> Iterator[None]:
    """Set whether float32 products use TF32 on a card, and set it back."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def count_operations(
    call: Callable[[], object], device: DeviceKind
) -> tuple[dict[MatrixPrecision, float], tuple[str, ...]]:
    """Return the matrix operations of `call` by precision, and the operators without a formula.

    `call` runs once, and once more where fused operators hide what they compute.
    """
    with torch.no_grad(), MatrixOperationCounter(device) as counter:
        call()
    if FUSED_NAMES.isdisjoint(counter.uncounted):
        return counter.flops, tuple(counter.uncounted)
    try:
        with torch.no_grad(), _without_fused_operators(), MatrixOperationCounter(device) as again:
            call()
    # A module may need the fused operators; then the first count says what it lacks.
    except RuntimeError:
        return counter.flops, tuple(counter.uncounted)
    return again.flops, tuple(again.uncounted)


@contextmanager
def _without_fused_operators() -> Iterator[None]:
    """Switch off the libraries whose operators hide matrix products."""
    fast_attention = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), torch.backends.cudnn.flags(enabled=False):
            warnings.simplefilter("ignore")  # torch's own, about the order of its flags
            with torch.backends.mkldnn.flags(enabled=False):
                yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_attention)
