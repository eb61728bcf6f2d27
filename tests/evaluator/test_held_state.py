"""What a module keeps in plain attributes: found by name, and put back as it was."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def _module(torch: ModuleType) -> Any:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    module.calls = 3
    module.rate = 0.5
    module.is_warm = True
    module[0].kept = [torch.zeros(2), {"last": torch.ones(2), 7: 1}]
    module.table = list(range(1000))
    return module


def test_tensors_and_numbers_are_found_in_lists_and_dictionaries(torch: ModuleType) -> None:
    """Neither truth values nor tables, and what the state dict has under its own name."""
    from actors.evaluator.children.tensors.held_state import held_state, plain_attributes

    module = _module(torch)
    kept = {"calls", "rate", "0.kept.0", "0.kept.1.last", "0.kept.1.7"}
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
