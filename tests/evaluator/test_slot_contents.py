"""Input slots: fresh contents for each, of which nothing is known but what every draw has."""

from __future__ import annotations

import gc
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.layout_checks import slot_bytes

if TYPE_CHECKING:
    from actors.evaluator.children.slot_contents import SlotContents
    from actors.evaluator.children.tensors.input_slots import SlotMemory

COUNT = 5


def made(torch: ModuleType, draw: Any) -> tuple[SlotContents, SlotMemory]:
    """Return prepared contents and the memory of a few slots; `draw` makes a task's inputs."""
    from actors.evaluator.children.slot_contents import SlotContents
    from actors.evaluator.children.tensors.input_slots import SlotMemory
    from actors.evaluator.children.tensors.tensor_bytes import layout_of

    def seeded(seed: int, kind: str = "plain") -> list[object]:
        torch.manual_seed(seed)
        return list(draw() if kind == "plain" else draw(kind))

    layout = layout_of(seeded(0))
    contents = SlotContents(layout, seeded)
    contents.try_mixing(1, lambda _mix: True)
    contents.prepare(2)
    region = shared_memory.allocate_unsealed(COUNT * slot_bytes(layout))
    memory = SlotMemory(region, layout, COUNT)
    os.close(region)
    return contents, memory


def inputs_of(contents: SlotContents, slot: int) -> list[object]:
    """Return a copy of what was last written into a slot."""
    return contents.values(contents.written(slot))


def is_changed(contents: SlotContents, memory: SlotMemory, slot: int) -> bool:
    """Whether a slot holds something else than what was written into it."""
    return any(contents.changes(memory, slot, contents.written(slot)))


@pytest.fixture
def slow_draws(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """All draws count as slow."""
    from actors.evaluator.children import slot_contents

    assert torch
    monkeypatch.setattr(slot_contents, "CHEAP_DRAW_S", 0.0)


@pytest.mark.usefixtures("slow_draws")
def test_what_is_in_a_slot_is_what_a_draw_from_it_has(torch: ModuleType) -> None:
    """Turned, nested, integer, boolean, half, complex and empty tensors and plain values."""
    from actors.evaluator.children.tensors.tensor_bytes import tensors_in

    contents, memory = made(
        torch,
        lambda: [
            torch.randn(17, 20).T,
            [torch.randint(0, 99, (40,)), torch.rand(33) > 0.5],
            {"a": torch.randn(7, 17).half(), "b": torch.randn(35, dtype=torch.complex128)},
            torch.empty(0, 3),
            torch.tensor(3.0),
            4,
        ],
    )
    assert contents.is_mixing
    for seed in (1, 2, 3):
        contents.fill(memory, COUNT, seed)
        for slot, value in enumerate(memory.values()):
            drawn = inputs_of(contents, slot)
            assert not is_changed(contents, memory, slot)
            for mine, theirs in zip(tensors_in(value), tensors_in(drawn), strict=True):
                assert mine.stride() == theirs.stride()
                assert torch.equal(mine, theirs)


def test_large_slots_are_written_in_pieces(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last piece is shorter, and the values are what they are without pieces."""
    from actors.evaluator.children import mixed_tensor

    monkeypatch.setattr(mixed_tensor, "MIN_PIECE_BYTES", 64)
    monkeypatch.setattr(mixed_tensor, "PIECE_BYTES", COUNT * 200)
    contents, memory = made(torch, lambda: [torch.randn(333), torch.randint(0, 99, (1025,))])
    contents.fill(memory, COUNT, 1)
    assert not any(is_changed(contents, memory, slot) for slot in range(COUNT))


def test_all_slots_of_all_blocks_differ(torch: ModuleType) -> None:
    """No call has inputs that another one had."""
    contents, memory = made(torch, lambda: [torch.randn(200)])
    seen = []
    for seed in (1, 2, 3):
        contents.fill(memory, COUNT, seed)
        seen += [value[0].clone() for value in memory.values()]  # type: ignore[attr-defined]
    for number, one in enumerate(seen):
        assert not any(torch.equal(one, other) for other in seen[:number])


def test_a_change_is_seen(torch: ModuleType) -> None:
    """One element of a slot that a call changed."""
    contents, memory = made(torch, lambda: [torch.randn(50), torch.randn(50)])
    contents.fill(memory, COUNT, 1)
    memory.values()[3][1][49] += 1  # type: ignore[index]
    assert [is_changed(contents, memory, slot) for slot in range(COUNT)] == [
        False, False, False, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["sorted", "permutation", "probabilities", "one-hot", "symmetric", "unit rows"],
)
def test_what_many_elements_have_together_stays(torch: ModuleType, name: str) -> None:
    """Each slot has a draw of its own, so that nothing computed from such a tensor comes again."""

    def draw() -> list[Any]:
        square = torch.randn(8, 8)
        structured = {
            "sorted": torch.randn(4, 30).sort(-1).values,
            "permutation": torch.randperm(40),
            "probabilities": torch.softmax(torch.randn(4, 30), -1),
            "one-hot": torch.nn.functional.one_hot(torch.randint(0, 9, (6,)), 9),
            "symmetric": square + square.T,
            "unit rows": torch.nn.functional.normalize(torch.randn(6, 20), dim=-1),
        }
        return [structured[name], torch.randn(64)]

    contents, memory = made(torch, draw)
    assert not contents.is_mixing
    contents.fill(memory, COUNT, 1)
    slots: list[Any] = [inputs_of(contents, slot)[0] for slot in range(COUNT)]
    for number, one in enumerate(slots):
        assert not any(torch.equal(one, other) for other in slots[:number])


@pytest.mark.parametrize("name", ["tokens", "two signs", "tokens beside others"])
def test_values_without_a_factor_have_draws(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What is computed of each value of two draws would be asked for again in each call."""
    from actors.evaluator.children import slot_contents

    monkeypatch.setattr(slot_contents, "CHEAP_DRAW_S", 60.0)  # on a busy machine a draw is slow
    draws: dict[str, Any] = {
        "tokens": lambda: [torch.randint(0, 50000, (4, 64))],
        "two signs": lambda: [(torch.rand(300) + 1) * (torch.randint(0, 2, (300,)) * 2 - 1)],
        "tokens beside others": lambda: [torch.randn(64), torch.randint(0, 50000, (4, 64))],
    }
    contents, memory = made(torch, draws[name])
    assert not contents.is_mixing
    contents.fill(memory, COUNT, 1)
    values: Any = torch.stack([inputs_of(contents, slot)[-1] for slot in range(COUNT)])
    assert len(values.unique()) > 0.9 * values.numel()


@pytest.mark.parametrize("dtype", ["bool", "int8"])
def test_values_of_one_byte_are_mixed(torch: ModuleType, dtype: str) -> None:
    """A table of them is honest, and draws for each slot took most of a small task's timing."""
    few = getattr(torch, dtype)
    contents, _memory = made(
        torch, lambda: [torch.randn(64), torch.randint(0, 2, (64, 128)).to(few)]
    )
    assert contents.is_mixing


@pytest.mark.parametrize("name", ["time steps", "scalar"])
def test_a_tensor_of_few_contents_has_draws(torch: ModuleType, name: str) -> None:
    """Two draws of a few whole numbers make so few mixes that results could be kept by them."""
    small: dict[str, Any] = {
        "time steps": lambda: torch.randint(0, 1000, (4,)),
        "scalar": lambda: torch.rand(1) + 1,
    }
    contents, memory = made(torch, lambda: [torch.randn(64), small[name]()])
    assert not contents.is_mixing
    contents.fill(memory, COUNT, 1)
    slots: list[Any] = [inputs_of(contents, slot)[1] for slot in range(COUNT)]
    for number, one in enumerate(slots):
        assert not any(torch.equal(one, other) for other in slots[:number])


def test_a_tensor_that_is_the_same_in_all_draws_stays(torch: ModuleType) -> None:
    """A constant mask does not keep the values beside it from being mixed."""
    contents, memory = made(torch, lambda: [torch.ones(8, 8).tril(), torch.randn(64)])
    assert contents.is_mixing
    contents.fill(memory, COUNT, 1)
    for slot in range(COUNT):
        assert torch.equal(torch.ones(8, 8).tril(), inputs_of(contents, slot)[0])  # type: ignore[arg-type]


def test_where_nothing_can_be_mixed_each_slot_has_a_draw(torch: ModuleType) -> None:
    """A task of one permutation has another one in each slot."""
    contents, memory = made(torch, lambda: [torch.randperm(50)])
    assert not contents.is_mixing
    contents.fill(memory, COUNT, 1)
    slots = [value[0] for value in memory.values()]
    for number, one in enumerate(slots):
        assert torch.equal(one.sort().values, torch.arange(50))  # type: ignore[attr-defined]
        assert not any(torch.equal(one, other) for other in slots[:number])
        assert not is_changed(contents, memory, number)


def test_a_task_that_does_not_work_on_the_mix_has_draws(torch: ModuleType) -> None:
    """What the task refuses is not used."""
    contents, _memory = made(torch, lambda: [torch.randn(50)])
    assert not contents.try_mixing(1, lambda _mix: False)
    assert not contents.is_mixing


@pytest.mark.parametrize("length", [200, 1 << 17])
def test_replaced_contents_are_new_and_known(torch: ModuleType, length: int) -> None:
    """A slot that is written again holds other inputs, and they are what the judge compares with.

    So the output of a call that had read the inputs before is not that of the new ones.
    """
    contents, memory = made(torch, lambda: [torch.randn(length)])
    contents.fill(memory, COUNT, 1)
    before = inputs_of(contents, 1)[0]
    contents.prepare_replacement(1, 2)
    assert is_changed(contents, memory, 1)
    contents.replace(memory)
    assert not is_changed(contents, memory, 1)
    assert not torch.equal(inputs_of(contents, 1)[0], before)
    after: Any = inputs_of(contents, 1)[0]
    assert torch.equal(after.view(torch.uint8), _bytes_of(memory, 1, 4 * length))
    assert not is_changed(contents, memory, 0)
    contents.fill(memory, COUNT, 3)
    assert not is_changed(contents, memory, 1)


@pytest.mark.parametrize("is_slow", [False, True])
def test_restored_contents_are_those_of_before(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    """What an earlier call had read is what its output is compared with."""
    from actors.evaluator.children import slot_contents

    monkeypatch.setattr(slot_contents, "CHEAP_DRAW_S", 0.0 if is_slow else 10.0)
    contents, memory = made(torch, lambda: [torch.randn(200)])
    contents.fill(memory, COUNT, 1)
    before = inputs_of(contents, 1)[0]
    contents.prepare_replacement(1, 2)
    contents.replace(memory)
    contents.restore(memory)
    assert not any(is_changed(contents, memory, slot) for slot in range(COUNT))
    assert torch.equal(before, inputs_of(contents, 1)[0])
    assert torch.equal(before, memory.values()[1][0])  # type: ignore[arg-type]


def test_slots_of_one_block_hold_draws_of_several_kinds(torch: ModuleType) -> None:
    """They are what outputs are compared with; a kind with another layout is left out."""

    def draw(kind: str = "plain") -> list[Any]:
        drawn = {"plain": torch.randn(64), "shifted": torch.randn(64) + 100}
        return [drawn[kind] if kind in drawn else torch.randn(65)]

    contents, memory = made(torch, draw)
    contents.fill(memory, COUNT, 1)
    before = inputs_of(contents, 3)[0]
    contents.prepare_replacement(1, 2, "shifted")
    contents.prepare_replacement(3, 2, "sparse")
    contents.replace(memory)
    assert not any(is_changed(contents, memory, slot) for slot in range(COUNT))
    shifted: Any = memory.values()[1][0]
    assert float(shifted.min()) > 50
    assert torch.equal(before, memory.values()[3][0])  # type: ignore[arg-type]
    assert [contents.kind_of(slot) for slot in range(4)] == ["plain", "shifted", "plain", "plain"]
    contents.fill(memory, COUNT, 2)
    assert contents.kind_of(1) == "plain"


@pytest.mark.parametrize("kind", ["plain", "shifted"])
def test_gigabytes_that_were_written_are_drawn_again_and_not_kept(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """A card that was full of slots had no room for one more copy when an output was compared."""
    from actors.evaluator.children import slot_contents

    monkeypatch.setattr(slot_contents, "LARGE_BYTES", 0)
    monkeypatch.setattr(slot_contents, "LARGE_DRAW_BYTES_PER_S", 1e-9)
    length = (1 << 20) + 11  # no other tensor has it
    contents, memory = made(torch, lambda kind="": [torch.randn(length) + 9 * (kind == "shifted")])
    assert not contents.is_mixing
    contents.fill(memory, COUNT, 1)
    contents.prepare_replacement(1, 2, kind)
    contents.replace(memory)
    kept = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    assert not [each for each in kept if each.untyped_storage().nbytes() == 4 * length]
    assert not is_changed(contents, memory, 1)
    shifted: Any = inputs_of(contents, 1)[0]
    assert bool(shifted.mean() > 5) == (kind == "shifted")


@pytest.mark.parametrize(("most", "is_mixed"), [(1 << 16, True), ((1 << 16) - 1, False)])
def test_the_gap_between_slots_does_not_make_inputs_large(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch, most: int, *, is_mixed: bool
) -> None:
    """Inputs of 256 MiB were drawn 48 times for each block, which took five times as long."""
    from actors.evaluator.children import slot_contents

    monkeypatch.setattr(slot_contents, "LARGE_BYTES", most)
    monkeypatch.setattr(slot_contents, "LARGE_DRAW_BYTES_PER_S", 1e-9)
    contents, _memory = made(torch, lambda: [torch.randn(1 << 14)])
    assert contents.is_mixing == is_mixed


@pytest.mark.usefixtures("slow_draws")
def test_large_tensors_are_mixed_of_both_draws(torch: ModuleType) -> None:
    """Whole words are chosen where a tensor is large: each element is one of the two draws'."""
    contents, memory = made(
        torch, lambda: [torch.randint(0, 1 << 30, (1 << 17,)).int(), torch.randn(64)]
    )
    contents.fill(memory, COUNT, 1)
    inputs: list[Any] = [inputs_of(contents, slot)[0] for slot in range(2)]
    first, second = (each[0].view(torch.int32) for each in contents._draws)
    is_first = inputs[0] == first
    assert bool((is_first | (inputs[0] == second)).all())
    assert 0.4 < float(is_first.float().mean()) < 0.6
    assert not torch.equal(inputs[0], inputs[1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [200, 1 << 17])
def test_no_value_is_that_of_an_earlier_call(torch: ModuleType, dtype: str, length: int) -> None:
    """A function of single elements can't be answered from what it gave in another slot."""
    contents, memory = made(torch, lambda: [torch.randn(length).to(getattr(torch, dtype))])
    contents.fill(memory, COUNT, 1)
    one, other = (inputs_of(contents, slot)[0] for slot in (1, 2))
    assert not is_changed(contents, memory, 1)
    least = 0.9 if dtype in ("float32", "float64") else 0.4  # halves have few values
    assert float((one != other).float().mean()) > least  # type: ignore[attr-defined]


@pytest.mark.parametrize("length", [4, 1 << 14])
def test_no_row_of_a_few_elements_has_the_direction_of_an_earlier_one(
    torch: ModuleType, length: int
) -> None:
    """Normalised, sorted or decomposed rows could be kept, whatever factor a whole slot has."""
    contents, memory = made(torch, lambda: [torch.randn(length, 16)])
    assert contents.is_mixing
    contents.fill(memory, COUNT, 1)
    rows: list[Any] = [inputs_of(contents, slot)[0] for slot in range(COUNT)]
    normed = [torch.nn.functional.normalize(each.double(), dim=1) for each in rows]
    for slot, one in enumerate(normed):
        for other in normed[:slot]:
            nearest = 1 - (one * other).sum(1).abs()
            assert float((nearest < 1e-10).double().mean()) < 0.01


@pytest.mark.usefixtures("slow_draws")
@pytest.mark.parametrize(
    ("shape", "is_mixed"),
    [
        ((15,), False),
        ((16,), True),
        ((400, 4), False),
        ((400, 4, 1), False),
        ((400, 1), True),
        ((4, 9, 7, 7), True),
    ],
)
def test_short_rows_and_small_tensors_have_draws(
    torch: ModuleType, shape: tuple[int, ...], *, is_mixed: bool
) -> None:
    """What they have in common but for a factor could be interpolated."""
    contents, _memory = made(torch, lambda: [torch.randn(shape), torch.randn(64)])
    assert contents.is_mixing is is_mixed


@pytest.mark.parametrize("most", [2.0, -1.0])
def test_values_away_from_zero_come_nearer_to_their_middle(torch: ModuleType, most: float) -> None:
    """Their function could be kept from two draws, and their bounds have to stay."""
    contents, memory = made(torch, lambda: [torch.rand(1 << 15) + most - 1])
    assert contents.is_mixing
    contents.fill(memory, COUNT, 1)
    values: Any = torch.stack([inputs_of(contents, slot)[0] for slot in range(COUNT)])
    assert not any(is_changed(contents, memory, slot) for slot in range(COUNT))
    assert most - 1 <= float(values.min()) < float(values.max()) <= most
    for place in range(0, 1 << 15, 999):
        assert len(values[:, place].unique()) == COUNT


@pytest.mark.usefixtures("slow_draws")
@pytest.mark.parametrize("kind", ["zeros", "mask", "whole", "bounded", "unit interval"])
def test_smaller_values_are_of_the_same_kind(torch: ModuleType, kind: str) -> None:
    """Zeros stay zeros, masks masks, and bounds bounds."""
    draws: dict[str, Any] = {
        "zeros": lambda: torch.relu(torch.randn(300)),
        "mask": lambda: torch.randint(0, 2, (300,)).float(),
        "whole": lambda: torch.randint(-5, 5, (300,)).float(),
        "bounded": lambda: torch.rand(300) + 1,
        "unit interval": lambda: torch.rand(300),
    }
    contents, memory = made(torch, lambda: [draws[kind](), torch.randn(64)])
    assert contents.is_mixing
    contents.fill(memory, COUNT, 1)
    values: Any = torch.stack([inputs_of(contents, slot)[0] for slot in range(COUNT)])
    expected = {
        "zeros": 0.3 < float((values == 0).float().mean()) < 0.7,
        "mask": set(values.unique().tolist()) == {0.0, 1.0},
        "whole": bool((values == values.round()).all()),
        "bounded": float(values.min()) >= 1,
        "unit interval": 0 <= float(values.min()) and float(values.max()) < 1,
    }
    assert expected[kind]


def _bytes_of(memory: SlotMemory, slot: int, size: int) -> Any:
    return memory.bytes[slot * memory.stride : slot * memory.stride + size]
