"""A traced forward in parts returns what the forward returns, or there is a reason by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from actors.adopt.fitted_package.site_state import SiteState, changed_container, recorded
from actors.adopt.regions.forward_splitter import ForwardSplitter
from actors.adopt.regions.forward_trace import traced_call
from actors.adopt.regions.region_search import ordered, regions_of
from actors.adopt.regions.region_text import split_text

Forward = Callable[..., Any]


class Parent(nn.Module):
    """A module with two products and a norm; each test gives it a forward."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.scale = nn.Parameter(torch.rand(dim))
        self.table = torch.linspace(0, 1, dim)  # neither a parameter nor a buffer
        self.calls, self.seen = 0, list[int]()


def parent_of(forward: Forward) -> Parent:
    """Return a module of a class of its own with this forward."""
    torch.manual_seed(0)
    made: Parent = type("Parent", (Parent,), {"forward": forward})()
    return made.eval()


def split_of(module: nn.Module, *calls: Any) -> ForwardSplitter:
    """Return the split forward of a module that has seen each of these calls three times."""
    split = ForwardSplitter(module, "here", frozenset({"first", "second"}))
    with torch.no_grad():
        for call in calls:
            for _ in range(3):
                module(*call)
    return split


def reason_of(forward: Forward, *call: Any) -> str:
    """Return why calls of a forward are not traced."""
    split = split_of(parent_of(forward), call or (torch.randn(4, 8),))
    return next(iter(split.refused.values()), "")


def residual(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.second(self.norm(x + self.first(x) * self.scale))


def test_a_residual_and_a_norm_between_two_products_are_a_region() -> None:
    """One region is found between the two products, and its tensors are the module's own."""
    module = parent_of(residual)
    value = torch.randn(4, 8)
    with torch.no_grad():
        plain = module(value)
        split = split_of(module, (value,)).put_in()
        result = module(value)

    assert ["region_1"] == list(split.regions)
    assert {"scale": "scale", "weight": "norm.weight", "bias": "norm.bias"} == split.regions[
        "region_1"
    ].state
    assert "after first, before second" == split.places["region_1"]
    assert module.get_submodule("region_1").weight is module.norm.weight
    assert torch.equal(plain, result)


def test_taking_a_split_out_leaves_the_module_as_it_was() -> None:
    """Regions are no submodules any more, and the forward is that of the class."""
    module = parent_of(residual)
    before = [list(vars(part)) for part in module.modules()]
    split = split_of(module, (torch.randn(4, 8),))
    split.put_in()
    split.take_out()

    assert before == [list(vars(part)) for part in module.modules()]
    assert ["first", "second", "norm"] == [name for name, _ in module.named_children()]


def test_equal_regions_of_one_forward_have_one_text() -> None:
    """Two residuals with different weights are two regions whose texts are equal."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x + self.first(x) * self.first.bias)
        return torch.tanh(x + self.second(x) * self.second.bias)

    split = split_of(parent_of(forward), (torch.randn(4, 8),)).put_in()

    assert ["region_1", "region_2"] == list(split.regions)
    assert 1 == len({text.key for text in split.regions.values()})
    assert {"first.bias", "second.bias"} == {
        path for text in split.regions.values() for path in text.state.values()
    }


def test_each_side_of_a_branch_on_the_shape_is_right() -> None:
    """A branch on a shape is decided by the layout; an unseen layout takes the forward."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = torch.tanh(x) * self.scale if len(x) > 4 else torch.exp(-x) + 1.0
        return self.second(x)

    module = parent_of(forward)
    values = [torch.randn(size, 8) for size in (3, 6, 9)]
    with torch.no_grad():
        plain = [module(value) for value in values]
        split = split_of(module, (values[0],), (values[1],)).put_in()
        found = [module(value) for value in values]

    assert 2 == len(split.layouts)
    assert 2 == len({layout.body for layout in split.layouts})
    assert all(map(torch.equal, plain, found))


COUNTS = {"calls": 0}


def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
    COUNTS["calls"] += 1
    return residual(self, x)


def printing(self: Any, x: torch.Tensor) -> torch.Tensor:
    print("called", end="")  # noqa: T201  # it is what the test is about
    return residual(self, x)


def keeping(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.seen.append(1)
    return residual(self, x)


def branching(self: Any, x: torch.Tensor) -> torch.Tensor:
    return residual(self, x) if x.sum() > 0 else x + 1.0


def reading(self: Any, x: torch.Tensor) -> torch.Tensor:
    return residual(self, x) * float(x.max())


def drawing(self: Any, x: torch.Tensor) -> torch.Tensor:
    return residual(self, functional.dropout(x, 0.5, training=True))


def writing(self: Any, x: torch.Tensor) -> torch.Tensor:
    x += 1.0
    return residual(self, x)


def switching(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return residual(self, x) + 1.0


def unknown(self: Any, x: torch.Tensor) -> torch.Tensor:
    return residual(self, x) + HELD[0]


def alternating(self: Any, x: torch.Tensor) -> torch.Tensor:
    return residual(self, x) + next(NUMBERS)


def counting_rows(self: Any, x: torch.Tensor) -> torch.Tensor:
    return residual(self, x) * float(len((x > -1e9).nonzero()))


def choosing(self: Any, x: torch.Tensor) -> torch.Tensor:
    return residual(self, x[x[:, 0] > -1e9])


HELD = [torch.ones(8)]
NUMBERS = itertools.count()


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (branching, "it reads the values of a tensor in Python (__bool__)"),
        (reading, "it reads the values of a tensor in Python (__float__)"),
        (counting, "it changes the global COUNTS"),
        (printing, "it prints"),
        (keeping, "it changes its own buffers or attributes"),
        (drawing, "it draws random numbers"),
        (writing, "it changes its input in place"),
        (switching, "it switches autocast on"),
        (unknown, "it uses a tensor that is not its input, parameter or attribute"),
        (counting_rows, "a size in it depends on values (nonzero)"),
        (choosing, "a size in it depends on values (__getitem__)"),
        (alternating, "its operations differ from call to call, for arguments of one layout"),
    ],
)
def test_what_a_trace_would_not_repeat_is_refused_by_name(forward: Forward, reason: str) -> None:
    """Each forward does something besides computing from its tensors' layouts."""
    assert reason == reason_of(forward)


def test_a_forward_runs_once_while_it_is_refused() -> None:
    """A call that can't be traced has its effect once, as without a trace."""
    module = parent_of(keeping)
    split_of(module, (torch.randn(4, 8),))
    assert 3 == len(module.seen)


def test_calls_with_gradients_are_not_traced() -> None:
    """Regions are for inference, and the reason says so."""
    module = parent_of(residual)
    split = ForwardSplitter(module, "here", frozenset({"first", "second"}))
    module(torch.randn(4, 8))
    assert ["regions are for inference, and gradients are recorded in it"] == list(
        split.refused.values()
    )


def test_a_tensor_that_is_changed_in_place_is_in_no_region() -> None:
    """What is written into, and every view of it, stays in the forward's own order."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.first(x) * self.scale)
        half = y[:, :4]
        z = torch.exp(y) + half.sum()
        half.mul_(2.0)
        return self.second(y) + torch.exp(z * 0.1)

    module = parent_of(forward)
    value = torch.randn(4, 8)
    with torch.no_grad():
        plain = module(value)
        split = split_of(module, (value,)).put_in()
        assert torch.equal(plain, module(value))
    assert all("tanh" not in text.body for text in split.regions.values())


def test_a_submodule_that_changes_its_input_keeps_its_place() -> None:
    """A submodule that stays a call may write into what it is given."""

    class Writing(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input.relu_())

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x * self.scale) - 0.1
        before = torch.exp(y * 0.5)
        z = self.first(y)
        return torch.exp(y * 0.5) + before + z

    module = parent_of(forward)
    module.first = Writing(8, 8)
    value = torch.randn(4, 8)
    with torch.no_grad():
        plain = module(value)
        split_of(module, (value,)).put_in()
        assert torch.equal(plain, module(value))


def test_the_same_tensor_twice_is_another_call() -> None:
    """A call that was traced with two tensors is not taken for one with the same tensor twice."""

    def forward(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        shift = 1.0 if x is y else 2.0
        return self.second(torch.tanh(self.first(x) + y) * shift)

    module = parent_of(forward)
    one, other = torch.randn(4, 8), torch.randn(4, 8)
    with torch.no_grad():
        plain = module(one, other), module(one, one)
        split_of(module, (one, one)).put_in()
        assert torch.equal(plain[0], module(one, other))
        assert torch.equal(plain[1], module(one, one))


class Choosing(nn.Linear):
    """A submodule whose result has as many rows as its input has positive ones."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input[input[:, 0] > 0])


def test_another_size_of_a_submodules_result_takes_the_forward() -> None:
    """Sizes that a submodule decides are in the text, and are compared at each call."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.second(torch.tanh(y) * float(len(y)) + 1.0)

    module = parent_of(forward)
    module.first = Choosing(8, 8)
    many, few = torch.randn(4, 8).abs(), -torch.randn(4, 8).abs()
    few[0] = 1.0
    with torch.no_grad():
        plain = module(many), module(few)
        split_of(module, (many,)).put_in()
        assert torch.equal(plain[0], module(many))
        assert torch.equal(plain[1], module(few))


class Counting(nn.Linear):
    """A submodule that counts its calls."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(input)


def test_a_submodule_that_must_not_run_twice_is_refused() -> None:
    """A call whose submodule returns another layout begins anew, so that its effects would, too."""
    module = parent_of(residual)
    module.first = Counting(8, 8)
    split = split_of(module, (torch.randn(4, 8),))
    assert ["of first: it changes its own buffers or attributes"] == [*split.refused.values()]
    assert 3 == module.first.calls


def test_containers_that_are_changed_in_place_are_another_module() -> None:
    """Lists, sets and dicts of plain values are compared by value, nested ones too."""
    module = parent_of(residual)
    module.held = {"scales": [0.5, (1, 2)], "names": {"a"}}
    state = SiteState(module, ("first", "second"), recorded(module))
    own, copies = vars(module), state.parts[0][-1]
    assert "" == changed_container(own, copies)
    module.held["scales"][0] = 3.0
    assert "held" == changed_container(own, copies)
    module.held["scales"][0] = 0.5
    module.held["names"].add("b")
    assert "held" == changed_container(own, copies)


@dataclass
class Result:
    """What some models return."""

    first: torch.Tensor
    others: tuple[torch.Tensor | None, ...] = ()


def test_dataclasses_are_returned_as_they_were() -> None:
    """A result of a class of the model's file is made anew, tensors that nobody computes too."""

    def forward(self: Any, x: torch.Tensor) -> Result:
        y = torch.tanh(self.first(x) + self.table) * 2.0
        return Result(self.second(y), (x, None, y))

    module = parent_of(forward)
    value = torch.randn(4, 8)
    with torch.no_grad():
        plain = module(value)
        split_of(module, (value,)).put_in()
        found = module(value)
    assert isinstance(found, Result)
    assert torch.equal(plain.first, found.first)
    assert found.others[0] is value
    assert found.others[1] is None


STEPS = ["tanh", "linear", "add", "view", "chunk", "norm", "scale", "write"]


def drawn_forward(plan: list[tuple[str, int, int]]) -> Forward:
    """Return a forward with these steps; each takes two earlier values."""

    def forward(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x, x * 1.5]
        for step, one, two in plan:
            a, b = values[one % len(values)], values[two % len(values)]
            match step:
                case "tanh":
                    values.append(torch.tanh(a))
                case "linear":
                    values.append((self.first if two % 2 else self.second)(a))
                case "add":
                    values.append(a + b)
                case "view":
                    values.append(a.t().reshape(8, 4).t())
                case "chunk":
                    values.append(torch.cat([*a.chunk(2, -1)][::-1], -1))
                case "norm":
                    values.append(self.norm(a))
                case "scale":
                    values.append(a[:, :] * self.scale)
                case _:
                    values[-1][0].mul_(0.5)  # others may be views of it, or it of them
        return tuple(values[-3:])

    return forward


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 20), st.integers(0, 20)),
        min_size=3, max_size=14,
    )
)  # fmt: skip
def test_any_forward_in_parts_is_the_forward(plan: list[tuple[str, int, int]]) -> None:
    """Whatever the steps are, parts in their order return bit for bit what the forward returns."""
    module = parent_of(drawn_forward(plan))
    value = torch.randn(4, 8)
    with torch.no_grad():
        plain = module(value.clone())
        traced = traced_call(module, module.forward, ((value,), {}), {"first", "second"})
        if traced.trace is None:
            assert "it changes its input in place" == traced.problem
            return
        regions = regions_of(traced.trace)
        steps = [number for region in regions for number in region.steps]
        assert len(steps) == len(set(steps))
        assert len(ordered(traced.trace, regions)) > 0
        split_text(traced.trace)
        split = split_of(module, (value,))
        assert {} == split.refused
        split.put_in()
        assert all(map(torch.equal, plain, module(value)))
