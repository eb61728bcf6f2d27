"""Calls of a block are computed one after the other: each as fast where it needs the one before."""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from types import ModuleType
from typing import Any

import msgspec
import pytest
import special_corpora
from corpus.scene import is_credited
from evaluator_samples import LIMITS

from actors.evaluator.judge import Judge
from actors.evaluator.sandbox.child_failures import Accusation
from actors.evaluator.timing.dependent_calls import DependentCalls
from actors.evaluator.timing.net_time import TimedWindow
from actors.evaluator.timing.timing_policy import POLICY
from protocol.values import Outcome, Task, Verdict

TRIES = 3  # a look may say nothing: by lot, or on a busy machine
PATIENT = msgspec.structs.replace(LIMITS, import_s=20.0, check_s=20.0, time_s=1.5)


@pytest.fixture(scope="module")
def thorough_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A judge with time for some looks."""
    with closing(Judge("cpu", PATIENT, tmp_path_factory.mktemp("scratch") / "judge")) as made:
        yield made


def judged(judge: Judge, name: str, corpus: str = "recurrence") -> Verdict:
    """Return the verdict of a candidate of the corpus."""
    return special_corpora.judged(judge, corpus, f"{name}.py")


def require_not_credited(verdict: Verdict, *accusations: str) -> None:
    """Require that a cheat is rejected; on a very busy machine, that no interval believes it.

    `accusations`: what is true of it; which is found first depends on the machine.
    """
    if verdict.verdict is Outcome.REJECTED:
        assert any(each in verdict.reason for each in accusations), verdict.reason
    else:
        assert not is_credited(verdict), verdict


@pytest.mark.parametrize(
    "corpus",
    [
        "recurrence",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("wide_inputs", "dropout", "stateful_recurrence", "written_recurrence")
        ),
    ],
)
def test_calls_that_are_computed_in_windows_are_rejected(
    thorough_judge: Judge, corpus: str
) -> None:
    """All outputs are right, and replaced inputs show nothing: the windows are small.

    So it is beside large inputs, where a view of them is returned, with random numbers, where
    outputs follow from a state (3.1 to 3.3 times as fast, and the interval was narrow), and where
    a call returns its input, to which it has written.
    """
    for _try in range(TRIES):
        verdict = judged(thorough_judge, "hostile/computed_in_windows", corpus)
        if verdict.verdict is Outcome.REJECTED:
            break
    require_not_credited(verdict, "computes calls of a block together")


def test_a_chain_of_calls_that_is_broken_once_is_wrong(thorough_judge: Judge) -> None:
    """An output that is left out splits the chain; one call in 64 was compared, and it got 5.3.

    A look compares 16 of 63 links by lot, so it may miss the one that is broken.
    """
    for _try in range(TRIES):
        verdict = judged(thorough_judge, "hostile/split_chains")
        if verdict.verdict is Outcome.WRONG:
            break
    assert verdict.verdict is Outcome.WRONG, verdict
    assert "inputs follow from the output before" in verdict.reason


@pytest.mark.long
def test_a_block_whose_outputs_are_steered_is_wrong(thorough_judge: Judge) -> None:
    """Where a sum decided, tiny values in place of zeros made all inputs of the block known."""
    verdict = judged(thorough_judge, "hostile/sums_steered", "steered")
    assert verdict.verdict is Outcome.WRONG, verdict
    assert "inputs follow from the output before" in verdict.reason


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        ("recurrence", "plain"),
        pytest.param("wide_inputs", "plain", marks=pytest.mark.long),
        ("dropout", "in_place"),
        ("stateful_recurrence", "vectors"),
        ("written_recurrence", "written_once"),
        pytest.param("stateful_recurrence", "plain", marks=pytest.mark.long),
        pytest.param("running_state", "in_place", marks=pytest.mark.long),
        pytest.param("attribute_state", "two_products", marks=pytest.mark.long),
    ],
)
def test_calls_that_are_made_one_after_the_other_are_correct(
    thorough_judge: Judge, corpus: str, name: str
) -> None:
    """Each is as fast where its inputs follow from the output before."""
    verdict = judged(thorough_judge, f"honest/{name}", corpus)
    assert verdict.is_correct, verdict


@pytest.mark.long
def test_random_numbers_hide_no_calls_that_are_computed_together(thorough_judge: Judge) -> None:
    """A whole block was computed in its last call, 6.1 times as fast: replaced inputs say so."""
    for _try in range(TRIES):
        verdict = judged(thorough_judge, "hostile/computed_at_the_end", "dropout")
        if verdict.verdict is Outcome.REJECTED:
            break
    together = "computes calls of a block together"
    require_not_credited(verdict, "of a block is not that of its inputs", together)


@pytest.mark.parametrize("is_whole", [False, True])
def test_the_referee_decides_inputs_as_the_runner_does(
    torch: ModuleType, *, is_whole: bool
) -> None:
    """All outputs of a call decide, whatever their dtypes and strides, and few bits do."""
    from actors.evaluator.children import dependent_inputs
    from actors.evaluator.children.tensors import tensor_bytes
    from actors.evaluator.ipc.layout_checks import SLOT_ALIGNMENT, offsets, slot_bytes

    sizes = (50, 3), (300, 100)  # of the larger one a part is decided
    draws = [
        [*(torch.randn(size) for size in sizes), torch.randint(0, 9, (7,))] for _draw in range(2)
    ]
    layout = tensor_bytes.layout_of(draws[0])
    one, other = ([tensor_bytes.flat_bytes(each) for each in draw] for draw in draws)
    raws = one, other
    slots = torch.zeros(4, slot_bytes(layout), dtype=torch.uint8)
    for row, drawn in zip((1, 3), raws, strict=True):
        for begin, raw in zip(offsets(layout, SLOT_ALIGNMENT), drawn, strict=False):
            slots[row, begin : begin + raw.numel()] = raw
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        output = [
            torch.randn(6, 4).T,
            torch.randn(3) > 0,
            torch.randn(2, dtype=torch.cfloat).conj(),
        ]
        filled = slots.clone()
        inputs = dependent_inputs.of_block(filled.view(-1), 2, layout, b"", is_whole=is_whole)
        inputs.choose(1, output)
        copied = [each.resolve_conj().contiguous() for each in output]
        chosen = dependent_inputs.chosen(layout, raws, copied, b"", is_whole=is_whole)
        begins = offsets(layout, SLOT_ALIGNMENT)
        for begin, raw in zip(begins, chosen, strict=False):
            assert torch.equal(filled[1, begin : begin + raw.numel()], raw)
        seen.add(bytes(filled[1].tolist()))
    assert len(seen) == (2 if is_whole else 20)


def choices(torch: ModuleType, inputs: list[Any], output: Any) -> list[Any]:
    """Return which bytes of each input come from the second draw, if an output decides that."""
    from actors.evaluator.children import dependent_inputs
    from actors.evaluator.children.tensors import tensor_bytes

    first, second = (
        [torch.full((each.nbytes,), draw, dtype=torch.uint8) for each in inputs] for draw in (0, 1)
    )
    layout = tensor_bytes.layout_of(inputs)
    return dependent_inputs.chosen(layout, (first, second), output, b"", is_whole=False)


def test_tiny_values_do_not_steer_what_an_output_decides(torch: ModuleType) -> None:
    """A candidate made the sums of all outputs of a block zero, and so knew their inputs."""
    inputs = [torch.randn(128)]
    output = torch.relu(torch.randn(64))
    output[output == 0] = 0.0
    other = output.clone()
    numbers = other.view(torch.int32)
    first, second = torch.nonzero(numbers == 0).flatten()[:2].tolist()
    numbers[first], numbers[second] = 7, 5
    same = other.clone()
    same.view(torch.int32)[first], same.view(torch.int32)[second] = 5, 7
    assert other.view(torch.int32).sum() == same.view(torch.int32).sum()
    ((chosen,), (chosen_again,)) = (choices(torch, inputs, each) for each in (other, same))
    assert not torch.equal(chosen, chosen_again)


def test_no_row_of_a_batch_is_known_before_it_is_decided(torch: ModuleType) -> None:
    """Parts that are rows could be computed from both draws, for all calls together."""
    (chosen,) = choices(torch, [torch.randn(32, 128)], torch.randn(64))
    assert all(0 < each.sum() < len(each) for each in chosen.view(32, 512))


def test_each_row_of_a_large_batch_is_decided(torch: ModuleType) -> None:
    """Every eighth row was, so seven of eight could be computed for all calls together."""
    seen = torch.zeros(1024, 512, dtype=torch.bool)
    for _time in range(20):
        (chosen,) = choices(torch, [torch.randn(1024, 128)], torch.randn(64))
        seen |= chosen.view(1024, 512).bool()
    assert seen.any(dim=1).all()


@pytest.mark.parametrize(
    ("dtype", "elements"), [("float16", 2), ("float32", 1), ("int64", 1), ("complex128", 1)]
)
def test_no_element_is_in_two_draws_and_few_are_decided_together(
    torch: ModuleType, dtype: str, elements: int
) -> None:
    """Where 64 values had 16 words, a candidate could try out 2^16 other outputs."""
    size = torch.empty((), dtype=getattr(torch, dtype)).itemsize
    inputs = [torch.zeros(64, dtype=getattr(torch, dtype))]
    seen = set()
    for _time in range(40):
        (chosen,) = choices(torch, inputs, torch.randn(64))
        words = chosen.view(-1, elements * size)
        assert all(len(set(word)) == 1 for word in words.tolist())
        seen |= {(place, int(word[0])) for place, word in enumerate(words)}
    assert len(seen) == 2 * 64 // elements


def test_some_of_each_input_is_decided(torch: ModuleType) -> None:
    """Of a large one words all over it, so deciding is quick; of a small one beside it all."""
    inputs = [torch.randn(1 << 18), torch.randn(3), torch.randn(64), torch.randn(1 << 18)]
    seen = [torch.zeros(each.nbytes, dtype=torch.bool) for each in inputs]
    for _time in range(20):
        chosen = choices(torch, inputs, torch.randn(64))
        assert all(each.sum() <= 1 << 16 for each in chosen)
        for mine, each in zip(seen, chosen, strict=True):
            mine |= each.bool()
    assert all(each.any() for large in (seen[0], seen[3]) for each in large.split(1 << 14))
    assert seen[1].all()
    assert seen[2].all()


def names_in_frames() -> list[tuple[str, int, str, list[str]]]:
    """Return function, line, file and names of locals of each frame from the runner's on."""
    frame, found = sys._getframe(2), []
    while frame is not None and frame.f_code.co_name != "test_no_name_tells_kinds_of_blocks_apart":
        code = frame.f_code
        found.append((code.co_name, code.co_firstlineno, code.co_filename, sorted(frame.f_locals)))
        frame = frame.f_back  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("seed", [None, 7])
def test_no_name_tells_kinds_of_blocks_apart(torch: ModuleType, seed: int | None) -> None:
    """A candidate left work undone in ordinary blocks, and knew them by a local's name."""
    from actors.evaluator.children.runner import Runner
    from actors.evaluator.children.tensors import tensor_bytes
    from actors.evaluator.ipc.layout_checks import slot_bytes
    from actors.evaluator.ipc.runner_orders import CallDependent, CallRepeatedly, MapSlots

    layout = tensor_bytes.layout_of([torch.randn(64)])
    seen: list[list[Any]] = []

    def module(x: Any) -> Any:
        seen[-1].append(names_in_frames())
        return x + 1

    made: Any = Runner("cpu")
    made._module = module
    region = os.memfd_create("slots")
    os.truncate(region, 8 * slot_bytes(layout))
    made.answer(MapSlots(inputs=layout, count=8), [region])
    for order in (
        CallRepeatedly(calls=4, slots=4, seed=seed),
        CallDependent(calls=4, slots=8, seed=seed),
    ):
        seen.append([])
        made.answer(order, [])
    os.close(region)
    ordinary, dependent = seen
    assert len(ordinary) == 4
    assert ordinary[0]
    assert ordinary == dependent


class Blocks:
    """Blocks of a machine that needs some microseconds to decide a call's inputs."""

    def __init__(
        self, deciding_us: float = 1.0, waited: float = 0.0, **call_us: Iterator[float]
    ) -> None:
        """`call_us`: of each side's calls one after the other; `waited`: share of a block."""
        self._waited = waited
        self.dependent_calls, self.tried = 64, set[Accusation]()
        self._deciding_us, self._call_us = deciding_us, call_us

    def dependent_block(self, side: str, calls: int, *, is_empty: bool = False) -> TimedWindow:
        """Return what a block takes."""
        call_us = 0.0 if is_empty else next(self._call_us[side])
        block_s = calls * (self._deciding_us + call_us) / 1e6
        return TimedWindow(block_s=block_s, hand_over_s=0.0, waited_s=self._waited * block_s)


class AccusedError(Exception):
    """The candidate is accused."""


class StrictSides:
    """Sides that tolerate nothing."""

    def accuse(self, _accusation: Accusation, reason: str) -> None:
        """Raise."""
        raise AccusedError(reason)


@pytest.mark.parametrize(
    ("candidate_us", "reference_us", "is_accused", "is_told"),
    [
        ([0, 11.0], [], False, True),
        ([0, 50.0, 50.0, 12.0], [20.0, 20.0], False, True),  # it stood still twice
        ([0, *[50.0] * POLICY.dependent_tries], [20.0] * POLICY.dependent_tries, True, False),
        # The machine is slower than it was.
        (
            [0, *[50.0] * POLICY.most_dependent_tries],
            [50.0] * POLICY.most_dependent_tries,
            False,
            False,
        ),
        # Deciding makes calls slower than itself takes, also those of the reference.
        ([0, *[22.0] * POLICY.dependent_tries], [28.0] * POLICY.dependent_tries, False, True),
        # It is slower now and then: that hides nothing.
        ([0, *[50.0] * 12], [50.0, 20.0] * 6, True, False),
        ([0, 50.0, 50.0, 12.0], [50.0, 20.0], False, True),
        ([0, 0.5], [], False, False),  # deciding hides the calls
    ],
)
def test_only_calls_that_are_slower_in_each_block_accuse(
    candidate_us: list[float], reference_us: list[float], *, is_accused: bool, is_told: bool
) -> None:
    """Blocks that are held up accuse nobody; beside 16 programs an honest module was rejected."""
    blocks: Any = Blocks(candidate=iter(candidate_us), reference=iter(reference_us))
    sides: Any = StrictSides()
    calls = DependentCalls(blocks, sides, ratio=1.5)
    with pytest.raises(AccusedError) if is_accused else nullcontext():
        calls.look(100, {"candidate": 10e-6, "reference": 20e-6}, {})
    assert (Accusation.CALLS_COMPUTED_TOGETHER in blocks.tried) is is_told


@pytest.mark.parametrize(
    ("candidate_us", "reference_us", "is_accused"),
    [
        # As long as the module's own calls, and a fourth of them as a rule: windows.
        (113.0, 113.0, True),
        (42.0, 113.0, False),
        # What caches lose to deciding: the module's calls are as much slower.
        (80.0, 153.0, False),
        (153.0, 153.0, True),
    ],
)
def test_deciding_that_takes_long_hides_no_windows(
    candidate_us: float, reference_us: float, *, is_accused: bool
) -> None:
    """It counted twice: beside inputs that took 65 µs to decide windows were believed (3 to 4)."""
    blocks: Any = Blocks(
        deciding_us=65.0,
        candidate=itertools.repeat(candidate_us),
        reference=itertools.repeat(reference_us),
    )
    sides: Any = StrictSides()
    calls = DependentCalls(blocks, sides, ratio=1.5)
    with pytest.raises(AccusedError) if is_accused else nullcontext():
        calls.look(100, {"candidate": 28e-6, "reference": 113e-6}, {})
    assert is_accused or Accusation.CALLS_COMPUTED_TOGETHER in blocks.tried


def test_a_candidate_that_has_gained_nothing_is_not_looked_at() -> None:
    """One with side streams, 0.4 times as fast as the module, was rejected on an H200."""
    blocks: Any = Blocks()
    calls = DependentCalls(blocks, StrictSides(), ratio=1.2)  # type: ignore[arg-type]
    calls.look(100, {"candidate": 173e-6, "reference": 70e-6}, {})
    assert not blocks.tried


@pytest.mark.parametrize(
    ("group_us", "dependent_us", "is_accused"),
    [
        # The host has moments in which it is half as fast, in these blocks and beside them.
        ([50.0, 100.0, 100.0, 100.0, 50.0, 50.0], [80.0, 100.0, 99.0, 110.0, 52.0, 90.0], False),
        ([50.0] * 6, [90.0, 51.0, 95.0, 99.0, 80.0, 85.0], True),
        # Slower in some groups, so that it seems as slow there: the median of all decides.
        ([90.0, 50.0, 90.0, 50.0, 50.0, 50.0], [92.0] * 6, True),
    ],
)
def test_a_suspected_candidate_is_compared_with_the_group_beside_each_block(
    group_us: list[float], dependent_us: list[float], *, is_accused: bool
) -> None:
    """Times of different moments say nothing of a candidate that waits for the host alone."""
    reference_us = itertools.repeat(100.0)
    blocks: Any = Blocks(candidate=iter([0, *dependent_us]), reference=reference_us)
    calls = DependentCalls(blocks, StrictSides(), ratio=1.5, is_suspected=True)  # type: ignore[arg-type]
    assert not calls.is_undecided
    with pytest.raises(AccusedError) if is_accused else nullcontext():
        for number, us in enumerate(group_us):
            assert calls.is_undecided == (number > 0)
            calls.look(100, {}, {"candidate": us / 1e6, "reference": 100e-6})
    assert not calls.is_undecided
    assert is_accused or Accusation.CALLS_COMPUTED_TOGETHER in blocks.tried


@pytest.mark.parametrize("is_suspected", [False, True])
def test_blocks_that_other_programs_hold_up_accuse_nobody(*, is_suspected: bool) -> None:
    """While inputs are decided OpenMP's threads rest, and are woken for each call.

    Beside other programs a loop of 40 µs took 70 to 140 µs there, the module's 180 µs as long as
    ever, and the loop was rejected.
    """
    other = {
        "candidate": itertools.chain([0.0], itertools.repeat(90.0)),
        "reference": itertools.repeat(100.0),
    }
    blocks: Any = Blocks(waited=0.5, **other)

    def is_held_up(window: TimedWindow) -> bool:
        return window.waited_s > 0.05 * window.block_s

    calls = DependentCalls(
        blocks,
        StrictSides(),  # type: ignore[arg-type]
        ratio=1.5,
        is_suspected=is_suspected,
        is_held_up=is_held_up,
    )
    usual = {"candidate": 40e-6, "reference": 100e-6}
    for _look in range(POLICY.most_dependent_tries):
        calls.look(100, usual, usual)
    assert not calls.is_undecided
    assert not blocks.tried  # nor has it said anything
    assert "is not known" in calls.note


def test_a_look_that_has_said_something_needs_no_note() -> None:
    blocks: Any = Blocks(
        candidate=itertools.chain([0.0], itertools.repeat(45.0)), reference=itertools.repeat(100.0)
    )
    calls = DependentCalls(blocks, StrictSides(), ratio=1.5)  # type: ignore[arg-type]
    calls.look(100, {"candidate": 40e-6, "reference": 100e-6}, {})
    assert calls.ratios
    assert not calls.note


@pytest.mark.long
@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("torch.randn(64)", "return x * 2, x.max().item()"),
        ("torch.randn(64)", "return x[x > 0]"),
        ("torch.randn(64, 32)", "return torch.nonzero(x > 1), x[x > 1]"),
        ("7", "return torch.full((4,), float(x))"),
        ("torch.randn(0, 4), torch.randn(3)", "return y + 1, x"),
    ],
)
def test_tasks_with_unusual_values_are_judged(
    thorough_judge: Judge, inputs: str, forward: str
) -> None:
    """Numbers and shapes that inputs decide, inputs without tensors or elements."""
    source = f"""
import torch


class Model(torch.nn.Module):
    def forward(self, x, y=None):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
    candidate = f"{source}\n\nclass ModelNew(Model):\n    pass\n"
    verdict = thorough_judge.judge(Task(name="unusual", source=source), candidate)
    assert isinstance(verdict, Verdict)
    assert verdict.is_correct, verdict


def test_what_seeds_calls_in_a_block_gives_the_numbers_of_torchs_own_way(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's way formats a stack, too: 330 µs that hid windows in a task with dropout."""

    def drawn() -> tuple[list[float], float]:
        return torch.rand(8).tolist(), random.random()

    from actors.evaluator.children import source_import  # imports torch

    source_import.seed_all(7)
    expected = drawn()
    monkeypatch.setattr("traceback.format_stack", lambda: pytest.fail("a stack is formatted"))
    source_import.seed_in_use(7)
    assert drawn() == expected
