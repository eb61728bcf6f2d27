"""A model with some of its winners: they are put in and taken out, and their calls are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

NO_CALL = "no call of this layout"
LAYOUT = " in place of "  # in a reason that names another layout


class DroppedError(Exception):
    """A winner can't stay; the text is the reason."""


class FittedStates:
    """One model and the package of its winners."""

    def __init__(self, package: Any, model: torch.nn.Module) -> None:
        """`package`: the imported `stark_fitted`."""
        self._package, self._model = package, model
        self._splits: dict[str, Any] = {}  # path -> a forward in parts: winners share it
        self._held: dict[str, list[Callable[[], None]]] = {}

    def only(self, names: Iterable[str]) -> None:
        """Have exactly these winners in the model; a winner is set up once."""
        self._package.unfit(self._model)
        for name in names:
            if name not in self._held:
                self._held[name] = self._placed(name)
            for put in self._held[name]:
                put()

    def misses(self, name: str, expected: Mapping[str, int]) -> str:
        """Return which module's kernel ran less often than `expected` since it was set up.

        `expected`: path -> calls.  "" where each ran exactly as often.
        """
        counts = self._package.report(self._model)
        for path, calls in expected.items():
            found = counts.get(path)
            if found is None or found["winner"] != name:
                return f"{path}: it has no kernel"
            if found["kernel"] != calls:
                # Calls of other layouts are expected to take the original.
                order = sorted(
                    Counter(found["reasons"]).most_common(), key=lambda each: LAYOUT in each[0]
                )
                why = order[0][0] if order else NO_CALL
                return f"{path}: {found['kernel']} of {calls} ({why})"
        return ""

    def kernel_calls(self, name: str) -> int:
        """Return how often a winner's kernels ran in all modules since it was set up."""
        counts = self._package.report(self._model).values()
        return sum(each["kernel"] for each in counts if each["winner"] == name)

    def _placed(self, name: str) -> list[Callable[[], None]]:
        """Fit a winner; return functions that put it in again."""
        placed = self._package.fit(self._model, only=[name], splits=self._splits)
        if not placed:
            raise DroppedError("none of its modules is in the model that build() returns")
        return [self._put(path) for path in placed]

    def _put(self, path: str) -> Callable[[], None]:
        owner, _, name = path.rpartition(".")
        split = self._splits.get(owner)
        is_region = split is not None and name in split.known
        site = vars(self._model.get_submodule(owner if is_region else path))
        entries = {key: site[key] for key in self._package.KEYS}

        def put() -> None:
            site.update(entries)
            if split is not None and is_region:
                split.use(name)

        return put
