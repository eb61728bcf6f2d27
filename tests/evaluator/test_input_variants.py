"""Varied inputs and perturbed parameters: which values change, and which keep their meaning."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

from actors.evaluator.children import input_variants
from actors.evaluator.children.input_memory import find_aliases
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors import parameter_loading, value_kinds
from actors.evaluator.reference.fixture import INPUT_KINDS

MASK = (torch.rand(64, 64) < 0.5).float()
SQUARE = torch.randn(16, 16)
RISING = torch.linspace(0, 1, 64)


@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_every_kind_differs_from_the_task_s_own_draw(kind: input_variants.InputKind) -> None:
    """A tensor of independent values changes, keeps shape and dtype, and is finite if it may be."""
    x = torch.randn(32, 48)
    other = input_variants.vary([x], kind, 5)
    assert isinstance(other, list)
    assert (other[0].shape, other[0].dtype) == (x.shape, x.dtype)
    assert bool(other[0].isfinite().all()) is (kind != "missing")
    assert not torch.equal(other[0], x)


@pytest.mark.parametrize("kind", INPUT_KINDS)
@pytest.mark.parametrize(
    "structured",
    [
        torch.arange(64),
        MASK,
        MASK * 2 - 1,
        torch.randn(32, 32).tril(),
        SQUARE + SQUARE.mT,
        torch.softmax(torch.randn(16, 20), -1),
        RISING,
    ],
    ids=["indices", "mask", "signs", "triangular", "symmetric", "probabilities", "sorted"],
)
def test_structured_inputs_do_not_change(
    kind: input_variants.InputKind, structured: torch.Tensor
) -> None:
    """Indices, masks, probabilities, symmetric and sorted tensors stay as they are."""
    varied = input_variants.vary(structured, kind, 3)
    assert isinstance(varied, torch.Tensor)
    assert torch.equal(varied, structured)


def test_spikes_are_few_in_some_draws_and_many_in_others() -> None:
    """A logsumexp of a seventh of its rows was right: with a thousand spikes each part has some."""
    x = torch.randn(1 << 19)
    counts = []
    for seed in range(12):
        varied = input_variants.vary(x, "spikes", seed)
        assert isinstance(varied, torch.Tensor)
        counts.append(int((varied != x).sum()))
    assert 0 < min(counts) < 40
    assert max(counts) > 300


@pytest.mark.parametrize("part", [(slice(None, None, 16),), (slice(None), slice(None, None, 16))])
@pytest.mark.parametrize("is_unit", [False, True])
def test_a_part_of_a_tensor_does_not_say_what_the_mean_of_all_is(
    part: tuple[slice, ...], is_unit: bool
) -> None:
    """A mean of squares of every sixteenth row was right in bfloat16, and 10 times as fast."""
    x = torch.rand(1 << 11, 1 << 10) if is_unit else torch.randn(1 << 11, 1 << 10)
    right = {"plain": 0, "uneven": 0}
    for kind, seed in itertools.product(("plain", "uneven"), range(16)):
        varied = input_variants.vary(x, kind, seed)
        assert isinstance(varied, torch.Tensor)
        assert not is_unit or 0 <= varied.min() <= varied.max() <= 1
        mean, of_all = varied[part].square().mean(), varied.square().mean()
        right[kind] += int(abs(mean / of_all - 1) < 0.02)
    assert right["plain"] == 16
    assert right["uneven"] <= 6


def test_inputs_from_zero_to_one_get_below_zero() -> None:
    """A candidate without a relu, since inputs are never negative, is wrong on these inputs."""
    changed = input_variants.vary(torch.rand(64, 64), "shifted", 1)
    assert isinstance(changed, torch.Tensor)
    assert bool((changed < 0).any())


def test_parameters_of_zeros_and_ones_are_perturbed() -> None:
    """A candidate without bias and scale is wrong then; running variances stay positive."""
    module = nn.Sequential(nn.LayerNorm(16), nn.BatchNorm1d(16))
    state = input_variants.perturb(module, 4)
    assert all(
        not value_kinds.is_constant(state[name]) for name in ("0.weight", "0.bias", "1.bias")
    )
    assert bool((state["1.running_var"] > 0).all())
    assert int(state["1.num_batches_tracked"]) == 0


def test_constants_near_zero_grow() -> None:
    """What LayerScale begins with says nothing of the branch that it scales."""
    module = nn.Module()
    module.gamma, module.ones = nn.Parameter(torch.full((64,), -1e-6)), nn.Parameter(torch.ones(4))
    grown = input_variants.perturb(module, 4)
    assert float(grown["gamma"].abs().mean()) > 0.05
    assert bool((grown["gamma"] <= 0).all())
    kept = input_variants.perturb(module, 4, grows=False)
    assert float(kept["gamma"].abs().max()) < 2e-6
    assert torch.equal(grown["ones"], kept["ones"])


def test_buffers_of_one_number_are_scaled() -> None:
    """A scale of ones was left out; zeros may be a state, and others an index or a mask."""
    module = nn.Module()
    values = {"scale": torch.ones(64), "zeros": torch.zeros(64), "step": torch.tensor(2.0)}
    values |= {"mask": torch.ones(8, 8).tril(), "kept": torch.ones(64, dtype=torch.bool)}
    for name, value in values.items():
        module.register_buffer(name, value)
    state = input_variants.perturb(module, 4)
    assert not value_kinds.is_constant(state["scale"])
    assert bool((state["scale"] > 0.5).all())
    assert all(torch.equal(state[name], values[name]) for name in values if name != "scale")
    kept = input_variants.perturb(module, 4, scales_buffers=False)
    assert torch.equal(kept["scale"], values["scale"])


class Renamed(nn.Module):
    """Has a linear layer's parameters under other names, one of them unregistered."""

    def __init__(self, *, gamma: bool = True) -> None:
        super().__init__()
        linear = nn.Linear(8, 8)
        self.matrix = nn.Parameter(linear.weight.detach().clone())
        self.plain = linear.bias.detach().clone()
        if gamma:
            self.beta, self.gamma = nn.Parameter(torch.zeros(8)), nn.Parameter(torch.ones(8))


def seeded(module: type[nn.Module], **options: bool) -> nn.Module:
    torch.manual_seed(3)
    return module(**options)


class Named(nn.Module):
    """Has the task's parameters under the task's names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)


def test_renamed_parameters_are_found_by_their_first_values() -> None:
    """Parameters with other names and plain tensors get the right values."""
    first = {name: value.clone() for name, value in seeded(Named).state_dict().items()}
    wanted = input_variants.perturb(seeded(Named), 9)
    module = seeded(Renamed)
    loaded, _places = parameter_loading.load_parameters(module, wanted, first)
    assert loaded.missing == ()
    assert torch.equal(module.matrix, wanted["linear.weight"])
    assert torch.equal(module.plain, wanted["linear.bias"])
    assert torch.equal(module.gamma, wanted["norm.weight"])
    assert torch.equal(module.beta, wanted["norm.bias"])


def test_a_parameter_has_the_strides_of_the_task_s_own() -> None:
    """A winner works with a model's parameters as they lie in memory: channels_last ones, too."""
    task = nn.Sequential(nn.Conv2d(4, 4, 3)).to(memory_format=torch.channels_last)
    wanted = {name: value.clone() for name, value in task.state_dict().items()}
    module = nn.Sequential(nn.Conv2d(4, 4, 3))
    parameter = module[0].weight
    parameter_loading.load_parameters(module, wanted, wanted)
    assert parameter is module[0].weight
    assert parameter.stride() == task[0].weight.stride()
    assert torch.equal(parameter, wanted["0.weight"])


class Packed(nn.Module):
    """Multiplies by a matrix that it packed, and has it under the task's name, too."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = torch.randn(8, 6).t().contiguous()
        self.weight = nn.Parameter(self.packed.t())


def test_an_order_in_memory_that_a_candidate_chose_stays() -> None:
    """The parameter got new memory, and what shared the old kept its first values: `wrong`."""
    first = {"weight": seeded(Packed).weight.detach().contiguous()}
    wanted = {"weight": torch.randn(8, 6)}
    module = seeded(Packed)
    parameter_loading.load_parameters(module, wanted, first)
    assert torch.equal(module.weight, wanted["weight"])
    assert torch.equal(module.packed, wanted["weight"].t())


def test_a_parameter_that_the_candidate_does_not_have_is_missing() -> None:
    """No other tensor of the candidate takes its place."""
    first = {name: value.clone() for name, value in seeded(Named).state_dict().items()}
    loaded, _places = parameter_loading.load_parameters(
        seeded(Renamed, gamma=False), input_variants.perturb(seeded(Named), 9), first
    )
    assert set(loaded.missing) == {"norm.weight", "norm.bias"}


@pytest.mark.parametrize(
    ("expression", "aliases"),
    [
        ("x.t()", (True,)),
        ("x.relu_()", (True,)),
        ("(x + 1, x)", (False, True)),
        ("x * 2", (False,)),
    ],
)
def test_outputs_in_an_inputs_memory_are_known(
    expression: str, aliases: tuple[bool, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the task's own module returns a view of its input, the next inputs may change it."""
    monkeypatch.chdir(tmp_path)
    source = f"""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {expression}
def get_inputs():
    return [torch.randn(8, 8)]
def get_init_inputs():
    return []
"""
    task = TaskModule(source, "cpu")
    task.make(1)
    assert (aliases, False) == find_aliases(task, task.inputs(2), 1)


def test_noise_does_not_follow_what_the_same_seed_drew() -> None:
    """Weights keep their mean, or outputs grow a thousandfold and no rounding counts any more;
    what stays of a sparse draw is any element, not the largest ones."""
    torch.manual_seed(5)
    linear = nn.Linear(512, 512)
    before = linear.weight.detach().clone()
    moved = input_variants.perturb(linear, 5)["weight"]
    shift = float((moved - before).mean()) / float(before.std())
    assert abs(shift) < 0.01

    torch.manual_seed(5)
    sparse = input_variants.vary(torch.rand(512, 512), "sparse", 5)
    assert isinstance(sparse, torch.Tensor)
    kept = sparse[sparse != 0]
    assert 0.45 < float(kept.mean()) < 0.55


@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_a_varied_tensor_has_the_strides_that_the_task_draws(
    kind: input_variants.InputKind,
) -> None:
    """Before: sparse, spikes and blocks were contiguous, and right channels-last kernels wrong."""
    image = torch.randn(4, 8, 6, 5).to(memory_format=torch.channels_last)
    for x in (image, torch.randn(48, 32).t(), torch.randn(6, 64)[:, ::2]):
        varied = input_variants.vary(x, kind, 5)
        assert isinstance(varied, torch.Tensor)
        assert x.stride() == varied.stride()
        plain = input_variants.vary(x.contiguous(), kind, 5)
        # A mean is added up in the order of memory.
        torch.testing.assert_close(plain, varied, rtol=1e-6, atol=1e-6, equal_nan=True)
