"""An expression that draws a tensor like a recorded one, from its shape, range and statistics.

No recorded value gets into the text, except the two numbers of a tensor that has only two, such
as a mask.  Masks and position numbers keep their pattern where it is a common one.
"""

from __future__ import annotations

import torch

from actors.adopt.tasks.operation_text import UntranslatableError

DRAWN_DTYPES = frozenset(
    [
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    ]
)


def draw_text(tensor: torch.Tensor) -> str:
    """Return the expression; raise UntranslatableError for a dtype that is not drawn."""
    if tensor.dtype not in DRAWN_DTYPES:
        raise UntranslatableError(f"a tensor is {tensor.dtype}")
    shape = _shape_text(tuple(tensor.shape))
    if not tensor.numel():
        return f"torch.empty({shape}, dtype={tensor.dtype})"
    values = tensor.detach()
    if values.is_contiguous():
        return _values_text(values, shape)
    dense, back = _in_memory_order(values)
    if dense.is_contiguous():  # a transposed tensor
        return f"({_values_text(dense, _shape_text(tuple(dense.shape)))}){back}"
    return _strided_text(values, _values_text(values, shape))


def weight_text(tensor: torch.Tensor) -> str:
    """Return the expression for a parameter or buffer; equal elements become different ones.

    Strides stay: kernels run for weights of the strides that they were judged with.  A model that
    was never trained has weights of ones and zeros, and a kernel may not rely on them.
    """
    values = tensor.detach()
    dense, back = _in_memory_order(values)
    if dense.is_contiguous() and not values.is_contiguous():  # torch.channels_last
        return f"({weight_text(dense)}){back}"
    values = values.contiguous()
    if values.numel() > 1 and values.dtype.is_floating_point and values.min() == values.max():
        shift = float(values.flatten()[0])
        text = f"torch.randn({_shape_text(tuple(values.shape))}) * {max(abs(shift), 1.0) * 0.02:g}"
        text += f" + {shift:g}" if shift else ""
        return text if values.dtype == torch.float32 else f"({text}).to({values.dtype})"
    return draw_text(values)


def _in_memory_order(values: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Return a tensor with its slowest dimension first, and the text that undoes this."""
    order = sorted(range(values.dim()), key=lambda dim: -values.stride()[dim])
    back = (order.index(dim) for dim in range(len(order)))
    return values.permute(order), f".permute({', '.join(map(str, back))})"


def _values_text(values: torch.Tensor, shape: str) -> str:
    low, high = values.min(), values.max()
    if bool(low == high):
        return _full_text(low, shape)
    if bool(((values == low) | (values == high)).all()):
        return _two_values_text(values, low, high, shape)
    if values.dtype.is_floating_point:
        return _floats_text(values, shape)
    if _is_counting(values):
        first = int(values.flatten()[0])
        size = values.shape[-1]
        text = f"torch.arange({first}, {first + size}, dtype={values.dtype})"
        return text if values.dim() == 1 else f"{text}.expand({shape}).contiguous()"
    return f"torch.randint({int(low)}, {int(high) + 1}, {shape}, dtype={values.dtype})"


def _full_text(value: torch.Tensor, shape: str) -> str:
    if value.dtype == torch.float32 and float(value) in (0.0, 1.0):
        return f"torch.{'ones' if float(value) else 'zeros'}({shape})"
    return f"torch.full({shape}, {number_text(value)}, dtype={value.dtype})"


def _two_values_text(
    values: torch.Tensor, low: torch.Tensor, high: torch.Tensor, shape: str
) -> str:
    is_high = values == high
    offset = _triangle(is_high)
    if offset is not None:
        rows, columns = values.shape[-2:]
        mask = f"torch.ones({rows}, {columns}, dtype=torch.bool).tril({offset})"
        mask = mask if values.dim() == 2 else f"{mask}.expand({shape})"
    else:
        part = float(is_high.float().mean())
        mask = f"(torch.rand({shape}) < {part:.3g})"
    if values.dtype == torch.bool:
        return f"{mask}.contiguous()" if ".expand(" in mask else mask
    text = f"torch.where({mask}, {number_text(high)}, {number_text(low)})"
    return f"{text}.to({values.dtype})"


def _floats_text(values: torch.Tensor, shape: str) -> str:
    finite = values.float() if values.dtype != torch.float64 else values
    finite = finite[torch.isfinite(finite)]
    if not finite.numel():
        raise UntranslatableError("a tensor has no finite value")
    mean, low, high = float(finite.mean()), float(finite.min()), float(finite.max())
    deviation = float(finite.std(correction=0))
    spread = "" if f"{deviation:.3g}" == "1" else f" * {deviation:.3g}"
    shift = "" if abs(mean) < 0.05 * deviation else f" + {mean:.3g}"
    text = f"torch.randn({shape}){spread}{shift.replace('+ -', '- ')}"
    if mean - 5 * deviation < low or mean + 5 * deviation > high:
        text = f"({text}).clamp({low:.3g}, {high:.3g})"
    if values.dtype == torch.float32:
        return text
    return f"({text}).to({values.dtype})"


def _strided_text(values: torch.Tensor, text: str) -> str:
    """Return `text` in the strides of `values`; a stride of 0 is an expanded dimension."""
    shape, stride = tuple(values.shape), tuple(values.stride())
    kept = tuple(1 if not step else size for size, step in zip(shape, stride, strict=True))
    made = f"torch.empty_strided({kept}, {stride}, dtype={values.dtype})"
    if kept == shape:
        return f"{made}.copy_({text})"
    index = ", ".join(":" if step else ":1" for step in stride)
    return f"{made}.copy_(({text})[{index}]).expand({_shape_text(shape)})"


def _triangle(mask: torch.Tensor) -> int | None:
    """Return the diagonal of a lower triangle that all the last two dimensions have, or None."""
    if mask.dim() < 2 or min(mask.shape[-2:]) < 2:
        return None
    rows, columns = mask.shape[-2:]
    offset = int(mask.reshape(-1, rows, columns)[0, 0].sum()) - 1
    whole = torch.ones(rows, columns, dtype=torch.bool, device=mask.device).tril(offset)
    return offset if bool((mask == whole).all()) else None


def _is_counting(values: torch.Tensor) -> bool:
    """Whether every row of the last dimension counts up by one from the same number."""
    if not values.dim() or values.shape[-1] < 2:
        return False
    row = values.flatten()[0] + torch.arange(values.shape[-1], device=values.device)
    return bool((values == row).all())


def number_text(value: torch.Tensor) -> str:
    """Return one element as a literal."""
    number = value.item()
    if isinstance(number, float) and number - number != 0:
        return f'float("{number}")'
    return repr(float(f"{number:.6g}")) if isinstance(number, float) else repr(number)


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
