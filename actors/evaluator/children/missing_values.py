"""Whether a module asks for values that are not finite: then draws have some, too.

`nan_to_num`, `nanmean` or `isfinite` do nothing on what `get_inputs` draws, so leaving them out was
right.  Elsewhere a NaN means nothing: of `relu` and `fmax` either result is right.  Runs in the
trusted referee.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.task_module import TaskModule

ASKING = frozenset(
    {"isnan", "isfinite", "nan_to_num", "nan_to_num_", "nansum", "nanmean", "nanmedian"}
    | {"nanquantile"}
)


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


def asks_for_missing(task: TaskModule, inputs: list[object], seed: int) -> bool:
    """Whether a call on these inputs uses a function that is about NaN; the call may fail."""
    with _NamesCalled() as called:
        # A task may refuse what its own get_inputs never gives it.
        try:
            task.eager_outputs(inputs, seed, module_copy(task.model))
        except Exception:  # noqa: BLE001
            return False
    return not ASKING.isdisjoint(called.names)
