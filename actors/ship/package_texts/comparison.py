"""Compares a winner with the original module, in the sense of float64."""

# mypy: ignore-errors
from __future__ import annotations

import copy
import functools
import re

import torch

from .judged_calls import call_inputs, change, constructor_arguments, tensors_of
from .random_fills import large_fills

ERROR_FACTOR = 8.0  # a kernel's error may be so many times the original's own
FLOORS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
SMALL_FLOAT_FLOOR = 0.125
NO_COMPILER = re.compile(r"no (?:C\+\+|CUDA) compiler|find C compiler")  # ours, and Triton's words
_constructed = set()  # parts that have had a winner in this process


class NotCheckableError(Exception):
    """A check can't be made here; one line."""


class Subject:
    """One winner on one device: its modules, its inputs, its operator."""

    def __init__(self, part, device):
        self.part, self.device = part, device
        self.is_on_card = torch.device(device).type == "cuda"
        if self.is_on_card:
            construct_quickly(part.drop_in._Guard)
        self.is_first = True  # whether its winner is the first one of this process

    def plain(self):
        """Return the original module, always with the same parameters."""
        return self._construct(self.part.Model)

    def winner(self, plain=None):
        """Return a winner with the parameters of `plain`."""
        made = self._construct(self.part.ModelNew)
        self.is_first = self.part.__name__ not in _constructed
        _constructed.add(self.part.__name__)
        made.load_state_dict((plain or self.plain()).state_dict())
        return made

    def _construct(self, kind):
        torch.manual_seed(1)
        with large_fills(on_card=self.is_on_card):
            made = kind(*move(constructor_arguments(self.part), self.device))
        return made.to(self.device, self.part.JUDGED.get("dtype"))

    def inputs(self, seed=0):
        torch.manual_seed(seed)
        with large_fills(on_card=self.is_on_card):
            drawn = call_inputs(self.part)
        return move(drawn, self.device)

    def tensors(self, module, inputs):
        """Return the operator's arguments for a module and inputs."""
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        state = [held[name] for name in self.part.STATE_NAMES]
        return [*tensors_of(inputs), *(tensor.detach() for tensor in state)]

    def runs_kernels(self, use=""):
        """Whether the kernels may run on this device, and in a use that may have a limit."""
        judged = self.part.JUDGED
        limits = judged["limits"]
        # A call with a record, or one that changes an attribute, is no operator of a graph.
        if use == "compile" and (self.part.drop_in._has_records() or "carried" in judged):
            return False
        several = self.is_first or "second instance" not in limits
        return self.device == judged["device"] and several and use not in limits

    def require_kernels(self, have_run, winner, use=""):
        """Raise unless the kernels have run, where they may in a use.

        Without a compiler the original runs: then a check of the kernels can't be made.
        """
        if have_run or not self.runs_kernels(use):
            return
        guard = winner._kernel_guard
        reasons = list(dict.fromkeys(filter(None, (guard.off, *guard.reasons))))
        missing = next(filter(NO_COMPILER.search, (*reasons, *self.part.stats()["reasons"])), "")
        if missing:
            raise NotCheckableError(f"the original runs, and is right: {missing}")
        raise AssertionError(f"the kernels did not run: {reasons}")

    def expect(self, winner, plain, inputs, kernels=None):
        """Raise unless both modules return the same, or both raise.

        `kernels`: whether the winner's kernels must have run.
        """
        before = winner.kernel_stats()["kernel"] if hasattr(winner, "kernel_stats") else 0
        try:
            expected = call(plain, inputs)
        except Exception as error:
            try:
                call(winner, inputs)
            except Exception:
                return
            raise AssertionError(f"it returns what the original refuses: {error}") from error
        require_close(call(winner, inputs), expected, exact(plain, inputs))
        if kernels is None or not hasattr(winner, "kernel_stats"):
            return
        stats = winner.kernel_stats()
        if kernels:
            self.require_kernels(stats["kernel"] > before, winner)
        else:
            assert stats["kernel"] == before, "the kernels ran"


@functools.cache
def construct_quickly(guard):
    """Have a guard's modules draw large values on the card, as those of a subject do."""
    construct = guard.construct

    @functools.wraps(construct)
    def quickly(*arguments):
        with large_fills(on_card=True):
            construct(*arguments)

    guard.construct = quickly


def call(module, inputs):
    """Call a module without gradients on copies of the inputs."""
    torch.manual_seed(0)
    with torch.no_grad():
        return module(*copies(inputs))


def copies(inputs):
    """Return clones of contiguous tensors; others are given as they are, with their strides."""
    return change(
        inputs, lambda t: t.clone() if t.is_contiguous() and not t.storage_offset() else t
    )


def exact(plain, inputs):
    """Return the original's outputs in float64, or None where it does not run so."""
    try:
        doubled = copy.deepcopy(plain).double()
        return call(
            doubled, change(inputs, lambda t: t.double() if t.is_floating_point() else t.clone())
        )
    except Exception:
        return None


def require_right(got, plain, inputs):
    """Raise unless each tensor is what the original returns, in the sense of float64."""
    require_close(got, call(plain, inputs), exact(plain, inputs))


def require_close(got, expected, truth=None):
    """Raise unless each tensor is as near to the truth as the original's, times a factor."""
    ours, theirs = tensors_of(got), tensors_of(expected)
    truths = tensors_of(truth) if truth is not None else theirs
    assert len(ours) == len(theirs), f"{len(ours)} outputs in place of {len(theirs)}"
    if len(truths) != len(theirs):
        truths = theirs
    for one, other, true in zip(ours, theirs, truths):
        same = one.shape == other.shape and one.dtype == other.dtype
        assert same, f"{one.dtype}{list(one.shape)} in place of {other.dtype}{list(other.shape)}"
        assert one.device == other.device, f"on {one.device} in place of {other.device}"
        if not other.numel():
            continue
        if not other.is_floating_point():
            assert torch.equal(one, other), "other integers"
            continue
        one, other, true = (t.detach().double() for t in (one, other, true))
        finite = other.isfinite()
        assert torch.equal(one.isfinite(), finite), "other elements are finite"
        if not finite.any():
            continue
        scale = true[finite].abs() + true[finite].square().mean().sqrt() + 1e-30
        off = ((one - true)[finite].abs() / scale).max().item()
        own = ((other - true)[finite].abs() / scale).max().item()
        floor = FLOORS.get(tensors_of(expected)[0].dtype, SMALL_FLOAT_FLOOR)
        allowed = max(floor, ERROR_FACTOR * own)
        assert off <= allowed, f"the error is {off:.2g}, allowed is {allowed:.2g}"


def move(values, device):
    """Return values with their tensors on a device."""
    return change(values, lambda tensor: tensor.to(device))
