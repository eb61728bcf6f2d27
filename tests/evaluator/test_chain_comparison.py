"""The referee repeats calls whose inputs follow from outputs, and outputs from a state."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from actors.evaluator.ipc.referee_orders import (
    CompareChain,
    DrawDependent,
    ImportTask,
    MakeModel,
    PrepareTask,
)
from actors.evaluator.reference.referee_client import RefereeClient

CALLS, SEED = 12, 5
TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {begin}

    def forward(self, x):
        {step}

def get_inputs():
    return [torch.rand(4, 256)]

def get_init_inputs():
    return []
"""
MEAN = "self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)"
TASKS = {
    "buffer": ('self.register_buffer("mean", torch.rand(256))', f"{MEAN}; return x - self.mean"),
    "attribute": (
        "self.mean = torch.rand(256)",
        "self.mean = self.mean * 0.9 + x.mean(0) * 0.1; return x - self.mean",
    ),
    "dropout": (
        'self.register_buffer("mean", torch.rand(256))',
        f"{MEAN}; return torch.dropout(x, 0.5, True) - self.mean",
    ),
    "jumps": (
        'self.register_buffer("mean", torch.rand(256))',
        f"jumps = torch.floor(self.mean * 1e4) % 2; {MEAN}; return jumps + x[0]",
    ),
}


class DirectChild:
    """A referee in this process."""

    def __init__(self) -> None:
        from actors.evaluator.children.referee import Referee

        self.referee = Referee("cpu")

    def ask(self, order: Any, _limit_s: float, carried: list[int]) -> tuple[Any, list[int]]:
        """Carry out an order."""
        return self.referee.answer(order, carried)


class Chain:
    """A block of one task, whose calls a candidate makes, and the referee's view of it."""

    def __init__(self, torch: ModuleType, name: str) -> None:
        begin, step = TASKS[name]
        self._torch = torch
        self._child: Any = DirectChild()
        self._client = RefereeClient(
            self._child, AssertionError, check_s=9.0, uses_device_memory=False
        )
        for order in (
            ImportTask(source=TASK.format(begin=begin, step=step), modules={}),
            MakeModel(seed=1),
        ):
            self._child.ask(order, 9.0, [])
        prepared, _carried = self._child.ask(PrepareTask(seed=2), 9.0, [])
        assert prepared.follows_state
        self._names = prepared.updated.keys
        self._client.prepare_slots(2 * CALLS, b"")
        self._client.fill_slots(2 * CALLS)
        self._outputs: list[Any] = []
        self._links: list[DrawDependent] = []

    def make_calls(self, change: Callable[[int, Any, Any], Any]) -> None:
        """Make all calls; `change` gets a call's number, the module and its output, returns it."""
        from actors.evaluator.children import module_updates
        from actors.evaluator.children.source_import import seed_all
        from actors.evaluator.children.tensors import tensor_bytes

        task, memory = self._child.referee._task_module, self._child.referee._timing_memory
        module_updates.begin_state(task, self._names)
        for call in range(CALLS):
            inputs = memory.inputs_of(0)
            if call:
                before = self._outputs[-1]
                leaf = tensor_bytes.layout_of(before)
                link = DrawDependent(
                    slot=call, other=CALLS + call, stashed=call - 1, tensors=(leaf,)
                )
                self._links.append(link)
                inputs = memory.dependent_draw(link, [before])
            seed_all(SEED + call)
            with self._torch.no_grad():
                output = task.call(task.model, inputs).clone()
            self._outputs.append(change(call, task.model, output))

    def compare(self, *compared: int) -> str:
        """Have the referee compare the outputs of some calls."""
        from actors.evaluator.children.tensors import tensor_bytes

        size = self._outputs[0].nbytes
        memory = self._client.lend_memory(CALLS * size)
        with mmap.mmap(memory, CALLS * size) as buffer:
            for each in self._outputs:
                buffer.write(bytes(each.view(self._torch.uint8).flatten().tolist()))
        parts = [(call * size, (call + 1) * size) for call in range(CALLS)]
        self._client.stash_outputs(memory, CALLS * size, parts)
        last = max(compared)
        layouts = tuple(map(tensor_bytes.layout_of, self._outputs[: last + 1]))
        order = CompareChain(
            names=self._names,
            links=tuple(self._links[:last]),
            outputs=layouts,
            compared=compared,
            seed=SEED,
        )
        return self._client.compared(order).reason


@pytest.fixture
def made(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Chain]:
    """Make a chain; the task's file is written to the working directory."""
    monkeypatch.chdir(tmp_path)
    return lambda name: Chain(torch, name)


def as_it_is(_call: int, _module: Any, output: Any) -> Any:
    """Change nothing."""
    return output


@pytest.mark.parametrize("name", TASKS)
def test_a_chain_of_the_task_itself_is_right(made: Callable[[str], Chain], name: str) -> None:
    """Also where the calls draw random numbers, and where an attribute is the state."""
    chain = made(name)
    chain.make_calls(as_it_is)
    assert chain.compare(3, 7, 11) == ""


@pytest.mark.parametrize("name", ["buffer", "attribute", "dropout"])
def test_an_output_that_is_left_out_is_wrong(made: Callable[[str], Chain], name: str) -> None:
    """It would split the chain into two that can be computed together."""
    chain = made(name)
    chain.make_calls(lambda call, _module, output: output * 0 if call == 5 else output)
    assert chain.compare(3, 5, 9) != ""
    assert chain.compare(3, 9) == ""  # the others follow from it


def test_a_state_that_is_not_changed_is_wrong(made: Callable[[str], Chain]) -> None:
    """The referee's state is its own: the candidate's says nothing."""

    def set_back(call: int, module: Any, output: Any) -> Any:
        if call == 4:
            module.mean.zero_()
        return output

    chain = made("buffer")
    chain.make_calls(set_back)
    assert chain.compare(2, 4) == ""
    assert chain.compare(6) != ""


@pytest.mark.parametrize(("changed", "is_right"), [(1, True), (200, False)])
def test_jumps_are_excused_as_far_as_other_last_digits_cause_them(
    made: Callable[[str], Chain], torch: ModuleType, *, changed: int, is_right: bool
) -> None:
    """As in other blocks: one element on the other side of a jump is right, all of them are not."""

    def jumped(call: int, _module: Any, output: Any) -> Any:
        if call == 8:
            first = output[:changed]
            first += torch.where(first >= 1, -1, 1)
        return output

    chain = made("jumps")
    chain.make_calls(jumped)
    assert is_right is (chain.compare(8) == "")
