"""One text for calls of several layouts: numbers that vary with the inputs' sizes are these sizes.

torch.export writes the sizes of one call into its operations: `x.reshape([2, 257])`.  The texts
of calls that differ in such numbers alone become one: `x.reshape([x.shape[0], 257])`.
Whether it is right for all is not decided here: it is proven with recorded calls like any text.
"""

from __future__ import annotations

import io
import itertools
import token
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from actors.adopt.model.call_layouts import CallKind, tensors_of
from actors.adopt.tasks.module_graph import module_graph
from actors.adopt.tasks.operation_text import UntranslatableError
from actors.adopt.tasks.task_text import TaskText, task_text

Numbers = tuple[int, ...]  # one for each call
HEADER = "if True:\n"  # the lines of a forward are indented


@dataclass(frozen=True)
class _Size:
    """A size of an input, or the product of two, in each of the calls."""

    text: str
    numbers: Numbers


def with_varying_sizes(
    text: TaskText, calls: Sequence[tuple[torch.nn.Module, dict[str, Any]]], kind: CallKind
) -> TaskText:
    """Return a task's text, for as many of the recorded calls as can have one.

    `text` is that of the first call, of this kind; of the others the later ones are given up first.
    """
    forwards, sizes = [text.forward], [_sizes(text, calls[0][1])]
    for module, call in calls[1:]:
        try:
            graph = module_graph(module, call["args"], call["kwargs"], kind)
            forward = task_text(graph, module, list(_tensors(call)), "").forward
        except UntranslatableError:
            continue
        forwards.append(forward)
        sizes.append(_sizes(text, call))
    for count in range(len(forwards), 1, -1):
        names = sizes[0].keys()
        shared = {name: tuple(each.get(name, 0) for each in sizes[:count]) for name in names}
        found = text_of_all(forwards[:count], shared)
        if found is not None:
            return text.with_forward(found)
    return text


def text_of_all(texts: Sequence[str], sizes: Mapping[str, Numbers]) -> str | None:
    """Return the text of forwards that differ in sizes alone; None where there is none.

    `sizes`: expression -> what it is in each of the calls.
    """
    columns = [list(_tokens(text)) for text in texts]
    if len({len(tokens) for tokens in columns}) > 1:
        return None
    varying = list(_varying(sizes))
    lines = (HEADER + texts[0]).splitlines()
    for same in reversed(list(zip(*columns, strict=True))):
        if len({each.string for each in same}) == 1:
            continue
        text = _size_text(same, varying)
        if text is None:
            return None
        (row, begin), (_, end) = same[0].start, same[0].end
        lines[row - 1] = lines[row - 1][:begin] + text + lines[row - 1][end:]
    return "\n".join(lines).removeprefix(HEADER)


def _tensors(call: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    return tensors_of((call["args"], call["kwargs"]))


def _sizes(text: TaskText, call: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the forward's arguments in one call."""
    tensors = list(_tensors(call))
    return {
        f"{name}.shape[{dim}]": size
        for name, number in zip(text.arguments, text.inputs, strict=True)
        for dim, size in enumerate(tensors[number].shape)
    }


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(f"{HEADER}{text}\n").readline)


def _varying(sizes: Mapping[str, Numbers]) -> Iterator[_Size]:
    """Yield the sizes that differ between the calls, then the products of two sizes."""
    single = [_Size(text, numbers) for text, numbers in sizes.items()]
    yield from (size for size in single if len(set(size.numbers)) > 1)
    for left, right in itertools.combinations(single, 2):
        pairs = zip(left.numbers, right.numbers, strict=True)
        numbers = tuple(one * other for one, other in pairs)
        if len(set(numbers)) > 1:
            yield _Size(f"{left.text} * {right.text}", numbers)


def _size_text(same: Sequence[tokenize.TokenInfo], sizes: Sequence[_Size]) -> str | None:
    """Return an expression that is each of these numbers in its call."""
    if not all(each.type == token.NUMBER and each.string.isdecimal() for each in same):
        return None
    numbers = tuple(int(each.string) for each in same)
    for size in sizes:
        if numbers == size.numbers:
            return f"({size.text})" if "*" in size.text else size.text
        times, parts = _ratio(numbers, size.numbers), _ratio(size.numbers, numbers)
        if times or parts:
            return f"({size.text} * {times})" if times else f"({size.text} // {parts})"
    return None


def _ratio(numbers: Numbers, sizes: Numbers) -> int:
    """Return the whole number that all numbers are of their sizes; 0 where there is none."""
    if 0 in (*numbers, *sizes):
        return 0
    ratio = numbers[0] // sizes[0]
    pairs = zip(numbers, sizes, strict=True)
    return ratio if all(number == ratio * size for number, size in pairs) else 0
