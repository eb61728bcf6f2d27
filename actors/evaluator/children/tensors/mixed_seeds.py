"""Seeds that a task sets while it draws inputs, mixed with the judge's.

A task whose `get_inputs` begins with `torch.manual_seed(0)` or `numpy.random.default_rng(0)` would
draw the same each time.  What was seeded before (a generator that is made at import) is not mixed.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import torch

SEEDED_BY = (
    (torch, "manual_seed"),
    (torch.random, "manual_seed"),
    (torch.cuda, "manual_seed"),
    (torch.cuda, "manual_seed_all"),
    (random, "seed"),
)
MOST_SEEDS = {"numpy": 1 << 32}  # that a library takes; others take those of torch
TORCH_SEEDS = 1 << 63
Mixed: TypeAlias = Callable[[object], int]  # a seed of the task -> the seed that is used


@contextmanager
def mixed_seeds(seed: int, namespace: dict[str, Any] | None = None) -> Iterator[None]:
    """Mix `seed` into every seed that the code within gives torch, Python or NumPy.

    `namespace`: of the code, which may have imported such a function by its name.
    """
    with ExitStack() as stack:
        for place, name, changed in [*_torch_and_python(seed), *_numpy(seed)]:
            usual = getattr(place, name)
            _replace(stack, vars(place), name, changed)
            for own, value in list((namespace or {}).items()):
                if value is usual:
                    _replace(stack, namespace or {}, own, changed)
        yield


def _replace(stack: ExitStack, names: dict[str, Any], name: str, value: object) -> None:
    stack.callback(names.__setitem__, name, names[name])
    names[name] = value


def _torch_and_python(seed: int) -> Iterator[tuple[ModuleType, str, object]]:
    """Yield a place, a name, and what is there instead."""
    mixed = _mixed_with(seed, TORCH_SEEDS)

    class MixedGenerator(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            return super().manual_seed(mixed(seed))

    for place, name in SEEDED_BY:
        yield place, name, _mixing(getattr(place, name), mixed)
    yield torch, "Generator", MixedGenerator


def _numpy(seed: int) -> Iterator[tuple[ModuleType, str, object]]:
    """Yield the same of NumPy, where it is in use, and seed it.

    Children are forks of one process: its generator would go on from one state in all of them.
    """
    if "numpy" not in sys.modules:
        return
    numpy: Any = importlib.import_module("numpy.random")
    mixed = _mixed_with(seed, MOST_SEEDS["numpy"])
    numpy.seed(mixed(None))
    usual = numpy.RandomState

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, usual)

    class MixedState(usual, metaclass=Kind):  # type: ignore[misc,valid-type]
        def __init__(self, seed: object = None) -> None:
            super().__init__(mixed(seed))

    yield numpy, "seed", _mixing(numpy.seed, mixed)
    yield numpy, "default_rng", _mixing(numpy.default_rng, mixed, numpy.Generator)
    yield numpy, "RandomState", MixedState


def _mixed_with(seed: int, limit: int) -> Mixed:
    return lambda own: (hash(repr(own)) + seed) % limit


def _mixing(
    given_to: Callable[[Any], object], mixed: Mixed, kept: type | tuple[()] = ()
) -> Callable[..., object]:
    """Return a function that mixes a seed; `kept`: what it takes and returns as it is."""

    def seeded(own: object = None, *_version: object, **named: object) -> object:
        if isinstance(own, kept):
            return given_to(own)
        return given_to(mixed((own, *named.values()) if named else own))

    return seeded
