"""Kinds of draws that are for modules with certain functions alone.

`nan_to_num`, `nanmean` or `isfinite` do nothing on what `get_inputs` draws, so leaving them out was
right.  Elsewhere a NaN means nothing: of `relu` and `fmax` either result is right.  And of products
of thousands of numbers below one all but the first are zero.  Runs in the trusted referee.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_copies import clone
from actors.evaluator.ipc.orders import InputKind

# Names of functions by the kind of draw that is only for modules which call one of them.
FUNCTIONS: Mapping[InputKind, frozenset[str]] = {
    "missing": frozenset(
        {"isnan", "isfinite", "nan_to_num", "nan_to_num_", "nansum", "nanmean", "nanmedian"}
        | {"nanquantile"}
    ),
    "near one": frozenset({"prod", "cumprod", "cumprod_"}),
}


class _NamesCalled(TorchFunctionMode):
    """Notes the names of torch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def is_asked_for(kind: InputKind, task: TaskModule, inputs: list[object], seed: int) -> bool:
    """Whether a call on these inputs uses a function that the kind is for; the call may fail."""
    if kind not in FUNCTIONS:
        return True
    with _NamesCalled() as called:
        # A task may refuse what its own get_inputs never gives it.
        try:
            task.eager_outputs(clone(inputs), seed, module_copy(task.model))
        except Exception:  # noqa: BLE001
            return False
    return not FUNCTIONS[kind].isdisjoint(called.names)
