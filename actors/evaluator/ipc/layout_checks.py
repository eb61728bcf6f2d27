"""The layout of a Python value made of tensors, without the tensors and without torch.

The judge compares layouts and sizes the memory that results are written to.  The children turn
layouts into tensors and back (`tensors.py`).  A layout from a candidate's process is only compared
with an expected one; no memory is allocated from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from protocol.layouts import ITEM_BYTES, Layout, Leaf, Nest, Other, Plain, describe

ALIGNMENT = 64  # bytes; what torch's own CPU allocator gives
SLOT_ALIGNMENT = 512  # bytes; what torch's allocator on a card gives
PAGE_BYTES = 4096
SLOT_STEP = 5 * SLOT_ALIGNMENT  # odd, and near the golden section: few slots are spread evenly, too
MAX_RANK, MAX_SIZE = 64, 1 << 48  # of a layout that a candidate's process may send
MAX_NESTED = 32  # twice as deep as a runner looks
MAX_LAYOUT_BYTES = 1 << 19  # layouts of a few outputs are passed to the referee in one frame
MAX_TEXT_CHARS = 60  # of a text from a candidate's process that is shown
FLOAT_TOLERANCE = 1e-4  # for a plain Python float among the outputs


def is_sound(layout: Layout) -> bool:
    """Whether a layout from a candidate's process can describe bytes."""
    return _is_plausible(layout) and all(
        leaf.dtype in ITEM_BYTES
        and len(leaf.shape) <= MAX_RANK
        and all(0 <= size < MAX_SIZE for size in leaf.shape)
        and is_dense(leaf)
        for leaf in tensor_leaves(layout)
    )


def _is_plausible(layout: Layout) -> bool:
    """Whether a layout is small: a forged one may have nests and names of megabytes.

    It is checked level by level, since recursion could overflow the stack.
    """
    level: list[Layout] = [layout]
    for _depth in range(MAX_NESTED):
        level = [item for nest in level if isinstance(nest, Nest) for item in nest.items]
        if not level:
            return len(msgspec.msgpack.encode(layout)) <= MAX_LAYOUT_BYTES
    return False


def is_dense(leaf: Leaf) -> bool:
    """Whether the strides are those of a tensor whose elements fill their memory, once each."""
    if leaf.stride is None:
        return True
    if len(leaf.stride) != len(leaf.shape):
        return False
    filled = 1
    for stride, size in sorted(zip(leaf.stride, leaf.shape, strict=True)):
        if size != 1:
            if stride != filled:
                return False
            filled *= size
    return True


def tensor_leaves(layout: Layout) -> Iterator[Leaf]:
    """Yield the tensors of `layout`, in the order of their bytes."""
    if isinstance(layout, Leaf):
        yield layout
    elif isinstance(layout, Nest):
        for item in layout.items:
            yield from tensor_leaves(item)


def untransferable_types(layout: Layout) -> Iterator[str]:
    """Yield the names of types that can't be sent."""
    if isinstance(layout, Other):
        yield layout.type_name
    elif isinstance(layout, Nest):
        for item in layout.items:
            yield from untransferable_types(item)


def offsets(layout: Layout, alignment: int = ALIGNMENT) -> list[int]:
    """Return where each leaf's bytes begin; the last figure is the size of all."""
    begins = [0]
    for leaf in tensor_leaves(layout):
        end = begins[-1] + leaf.nbytes
        begins.append(-(-end // alignment) * alignment)
    return begins


def slot_bytes(inputs: Layout) -> int:
    """Return the bytes of one input slot of a timed block, padding included.

    Each slot begins at another place of a page, five eighths of a page after the one before.  Where
    outputs lie in their pages differs from process to process, and on a host a call's time depends
    on both places by up to a seventh: so the calls of a block have all of them.
    """
    used = offsets(inputs, SLOT_ALIGNMENT)[-1]
    if used < PAGE_BYTES:
        return max(SLOT_ALIGNMENT, used)
    return used + (SLOT_STEP - used) % PAGE_BYTES


def total_bytes(layout: Layout) -> int:
    """Return the bytes that the tensors of `layout` take, padding included."""
    return offsets(layout)[-1]


def difference(expected: Layout, got: Layout, where: str = "output") -> str | None:
    """Return how `got` differs from `expected`; None if it does not.  Strides may differ."""
    if isinstance(expected, Leaf) and isinstance(got, Leaf):
        return _leaf_difference(expected, got, where)
    if isinstance(expected, Nest) and isinstance(got, Nest):
        return _nest_difference(expected, got, where)
    if isinstance(expected, Plain) and isinstance(got, Plain):
        return None if _same_plain(expected, got) else _unequal(expected, got, where)
    return f"{where} is {_kind(got)}, expected {_kind(expected)}"


def _leaf_difference(expected: Leaf, got: Leaf, where: str) -> str | None:
    for name in ("dtype", "shape", "device"):
        left, right = getattr(expected, name), getattr(got, name)
        if left != right:
            return f"{where} has {name} {_listed(right)}, expected {_listed(left)}"
    return None


def _nest_difference(expected: Nest, got: Nest, where: str) -> str | None:
    if (expected.kind, expected.keys) != (got.kind, got.keys) or len(expected.items) != len(
        got.items
    ):
        return f"{where} is {_kind(got)}, expected {_kind(expected)}"
    keys = expected.keys or range(len(expected.items))
    for key, left, right in zip(keys, expected.items, got.items, strict=True):
        found = difference(left, right, f"{where}[{key!r}]")
        if found:
            return found
    return None


def _same_plain(expected: Plain, got: Plain) -> bool:
    if expected.kind != got.kind:
        return False
    if expected.kind != "float":
        return expected.word == got.word
    try:
        left, right = float(expected.word), float(got.word)
    except ValueError:
        return False
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=FLOAT_TOLERANCE)


def _unequal(expected: Plain, got: Plain, where: str) -> str:
    return (
        f"{where} is {describe(got)[:MAX_TEXT_CHARS]}, expected "
        f"{describe(expected)[:MAX_TEXT_CHARS]}"
    )


def _kind(layout: Layout) -> str:
    if isinstance(layout, Nest):
        return f"a {layout.kind} of {len(layout.items)}"
    if isinstance(layout, Leaf):
        return "a tensor"
    if isinstance(layout, Plain) and layout.kind == "none":
        return "None"
    return (
        f"a {layout.type_name[:MAX_TEXT_CHARS]}"
        if isinstance(layout, Other)
        else f"a {layout.kind}"
    )


def _listed(value: object) -> str:
    text = f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
    return text[:MAX_TEXT_CHARS]


__all__ = [
    "ITEM_BYTES",
    "Layout",
    "Leaf",
    "Nest",
    "Other",
    "Plain",
    "describe",
    "difference",
    "is_dense",
    "is_sound",
    "offsets",
    "tensor_leaves",
    "total_bytes",
    "untransferable_types",
]
