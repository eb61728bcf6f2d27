"""What a module keeps in plain attributes: found by name, and put back as it was."""

from __future__ import annotations

from collections import deque
from types import ModuleType
from typing import Any, NamedTuple


class State(NamedTuple):
    """A state with names."""

    cell: Any
    steps: int


class Cache:
    """A state of its own class."""

    def __init__(self, keys: Any) -> None:
        self.keys = keys
        self.lengths = [1, 2]


def _module(torch: ModuleType) -> Any:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    module.calls = 3
    module.rate = 0.5
    module.is_warm = True
    module[0].kept = [torch.zeros(2), {"last": torch.ones(2), 7: 1}]
    module[0].pair = (torch.zeros(2), deque([torch.zeros(1), 2], maxlen=2))
    module[0].state = State(torch.zeros(2), 3)
    module.cache = Cache(torch.zeros(2))
    module.table = list(range(1000))
    return module


def test_tensors_and_numbers_are_found_in_other_objects(torch: ModuleType) -> None:
    """Not tables, nor whether a module is trained; what the state dict has under its own name."""
    from actors.evaluator.children.tensors.held_state import held_state, plain_attributes

    module = _module(torch)
    kept = {"calls", "rate", "is_warm", "0.kept.0", "0.kept.1.last", "0.kept.1.7"}
    kept |= {"0.pair.0", "0.pair.1.0", "0.pair.1.1", "0.state.0", "0.state.1"}
    kept |= {"cache.keys", "cache.lengths.0", "cache.lengths.1"}
    found = kept | {"0.in_features", "0.out_features"}
    assert found == set(plain_attributes(module))
    assert found | {"0.weight", "0.bias"} == set(held_state(module))


def test_a_value_is_put_where_it_was_found(torch: ModuleType) -> None:
    """Numbers stay numbers, and a tensor is another one than that which was given."""
    from actors.evaluator.children.tensors.held_state import attribute, set_state

    module, value = _module(torch), torch.full((2,), 9.0)
    number = torch.tensor(4)
    set_state(module, {"calls": number, "0.kept.1.7": number, "0.kept.1.last": value})
    assert (4, 4) == (module.calls, module[0].kept[1][7])
    assert type(module.calls) is int
    last = module[0].kept[1]["last"]
    assert last is not value
    assert torch.equal(last, value)
    assert torch.equal(last, attribute(module, "0.kept.1.last"))
    assert [None, None] == [attribute(module, name) for name in ("0.kept.5", "none.0")]


def test_a_value_is_put_into_a_tuple_or_a_deque(torch: ModuleType) -> None:
    """A tuple can't be written to: it becomes another one of its type."""
    from actors.evaluator.children.tensors.held_state import attribute, set_state

    module, value = _module(torch), torch.full((2,), 9.0)
    names = ("0.pair.0", "0.state.0")
    set_state(module, {**dict.fromkeys(names, value), "0.pair.1.1": torch.tensor(5)})
    set_state(module, {"is_warm": torch.tensor(False), "0.state.1": torch.tensor(4)})
    set_state(module, {"cache.keys": value, "cache.lengths.1": torch.tensor(7)})
    assert torch.equal(value, module.cache.keys)
    assert module.cache.lengths == [1, 7]
    assert all(torch.equal(value, attribute(module, name)) for name in names)
    assert (False, 4) == (module.is_warm, module[0].state.steps)
    assert type(module[0].state) is State
    assert (5, 2) == (module[0].pair[1][1], module[0].pair[1].maxlen)
