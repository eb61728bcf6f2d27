"""The guard of one module: at every call it decides whether the kernels may run."""

# mypy: ignore-errors
from __future__ import annotations

import contextlib as _contextlib
import threading as _threading
import weakref as _weakref

import torch as _torch
from torch.nn import Module as Model

from actors.release.guard.call_context import _context_misfit
from actors.release.guard.carried_state import (
    _CARRIED,
    _CARRIED_PLACES,
    _NOT_CARRIED,
    _CarriedState,
)
from actors.release.guard.judged_values import (
    _ALIGNMENT,
    _ALL_CONTIGUOUS,
    _ALL_TENSORS,
    _CASES,
    _DEVICE,
    _GRADIENT_INPUTS,
    _GRADIENTS,
    _INPUTS,
    _IS_DIFFERENTIATED,
    _LIMITS,
    _MOST_BINDINGS,
    _STOP,
    _handles,
    _misfit,
    _modules,
    _owner,
    _tensors_of,
    _warn_once,
    _warned,
)
from actors.release.guard.kernel_module import _NO_KERNELS, _kernels, _own_architecture
from actors.release.guard.module_changes import _OTHER_MODE, _changed_module, _Part
from actors.release.guard.module_state import (
    _constructor_misfit,
    _counterparts,
    _fitting,
    _state_misfit,
    _state_places,
)

# --- copied from here on ---


class _Guard:
    """Decides at every call of one module whether its kernels may run."""

    def __init__(self, module, arguments):
        self.kernel_calls, self.plain_calls, self.reasons = 0, 0, {}
        self.arguments = arguments
        # The numbers of the judged cases that a call may be: all that the constructor, and once it
        # is bound the state, are like.
        numbers = range(len(_CASES))
        self.made, misfit = _fitting(numbers, lambda n: _constructor_misfit(arguments, n))
        self.cases = self.made
        self.off = (
            _NO_KERNELS or _NOT_CARRIED or ("" if self.made else misfit)
        )  # why the kernels can never run
        self.kernel = self.call = None  # the candidate and its forward, once bound
        self.carried = None  # the state in attributes, once bound
        self.lock, self.turn = _threading.Lock(), _threading.RLock()
        self.bindings = 0
        self.ties = ()  # of the module's parameters and buffers, which the candidate uses
        self.parts = ()  # the submodules as they were judged
        self.card = self.thread = None
        self.handle = next(_handles)
        _modules[self.handle] = module

    def note_plain(self, reason):
        """Count a call of the plain forward, and say once why."""
        self.plain_calls += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        _warn_once(reason)

    def misfit(self, module, args):
        """Return why the kernels can't take this call; "" when they can."""
        if self.off:
            return self.off
        wanted = _torch.is_grad_enabled()
        tensors = args if _ALL_TENSORS else _tensors_of(args)
        reason = _context_misfit()
        if not reason and not _fit(args, wanted, self.cases):
            reason = _inputs_misfit(args, self.cases) or _tensors_misfit(tensors, wanted)
        if reason:
            return reason
        for store, key, tensor, address, count, _ in self.ties:
            if (
                store.get(key) is not tensor
                or tensor.data_ptr() != address  # its `data` was replaced
                or tensor.numel() != count
                or not tensor.is_contiguous()
            ):
                self.call = None
        if self.call is None:
            reason = self.bind(module, tensors) or _inputs_misfit(args, self.cases)
            if reason:
                return reason
        if wanted:
            for tie in self.ties:
                if tie[2].requires_grad and not tie[5]:
                    return _GRADIENTS
        reason = (_DEVICE == "cuda" and self.card_misfit(tensors)) or self.module_misfit(module)
        if self.carried is None or reason:
            return reason
        if wanted and _IS_DIFFERENTIATED:  # the state of the next call would have a derivative
            return _GRADIENTS
        return self.carried.misfit(tensors)

    def card_misfit(self, tensors):
        """Return what of the card's state the kernels can't take; "" for nothing."""
        current = _torch.cuda.current_device()
        if self.card not in (None, current):
            return f"the current device is {current}, the kernels were set up on {self.card}"
        for tensor in tensors:
            if tensor.get_device() != current:
                return f"an input is not on the current device {current}"
        if "side stream" in _LIMITS and _on_side_stream():
            return "its kernels were not right on another stream than the default one"
        if "CUDA graph" in _LIMITS and _torch.cuda.is_current_stream_capturing():
            return "its kernels were not right in a CUDA graph"
        return ""

    def module_misfit(self, module):
        """Return what of the module is not as the kernels know it; "" for nothing."""
        if "threads" in _LIMITS and self.thread != _threading.get_ident():
            return "its kernels were not right in several threads"
        for part in self.parts:
            reason = part.misfit()
            if reason:
                return self.follow_mode(module) if reason is _OTHER_MODE else reason
        return ""

    def follow_mode(self, module):
        """Give the candidate the module's mode, where it was right in it; else say so."""
        flags = [part.training for part in module.modules()]
        if flags == self.judged_flags:
            for part, flag in self.kernel_flags:
                part.training = flag
        elif "other mode" in _LIMITS or len(set(flags)) != 1:
            return _OTHER_MODE
        elif isinstance(self.kernel, _torch.nn.Module):
            self.kernel.train(flags[0])
        for part, flag in zip(self.parts, flags):
            part.training = flag
        return self.module_misfit(module)

    def bind(self, module, tensors):
        """Construct the candidate around the module's own tensors; return why not, or ""."""
        global _owner
        if _DEVICE == "cuda" and _torch.cuda.is_current_stream_capturing():
            return "a CUDA graph is captured before the kernels were set up by an ordinary call"
        with self.lock:
            if self.call is not None:
                return ""
            state = _state_places(module)
            cases, misfit = _fitting(self.made, lambda n: _state_misfit(state, n))
            if not cases:
                return misfit
            if self.bindings == _MOST_BINDINGS:
                return "its parameters were replaced too often"
            self.bindings += 1
            if "second instance" in _LIMITS:
                # Also after the end of the first one: what the kernels kept of it is there.
                if _owner is not None and _owner() is not self:
                    self.off = "its kernels were not right in a second instance"
                    return self.off
                _owner = _weakref.ref(self)
            self.cases = cases
            try:
                self.construct(module, state, tensors)
            except Exception as error:  # the candidate's own: the plain forward is there
                said = " ".join(str(error).split())[:300]
                self.off = f"its kernels can't be set up ({type(error).__name__}: {said})"
            return self.off

    def construct(self, module, state, tensors):
        """Make the candidate, and put the module's parameters and buffers in place of its own."""
        held = [store[key] for store, key in state.values()] or tensors
        device = held[0].device if held else _torch.device(_DEVICE)
        args, kwargs = self.arguments
        cards = [device] if device.type == "cuda" else []
        dtype = _CASES[self.cases[0]].get("dtype")

        def plain():
            _torch.manual_seed(0)
            return Model(*args, **kwargs).to(device, dtype)

        with _torch.random.fork_rng(cards), _torch.no_grad():
            reference = plain()
            self.off = _changed_module(module, reference, plain, _CARRIED_PLACES)
            if self.off:
                return
            _torch.manual_seed(0)
            with _own_architecture():
                self.kernel = kernel = _kernels.ModelNew(*args, **kwargs)
            if isinstance(kernel, _torch.nn.Module):
                kernel.to(device, dtype)
        if _CARRIED:
            self.carried = _CarriedState(module, reference, kernel)
            self.off = self.carried.missing
            if self.off:
                return
        for name, (store, key) in _counterparts(kernel, reference).items():
            own, mine = state[name]
            store[key] = own[mine]
        self.note_parts(module, reference)
        self.ties = tuple(self.tie(reference, name, *place) for name, place in state.items())
        self.card = device.index if device.type == "cuda" else None
        self.thread = _threading.get_ident()
        self.call = kernel.forward if isinstance(kernel, _torch.nn.Module) else kernel

    def note_parts(self, module, reference):
        """Keep what module and candidate are, to compare with at each call."""
        kernel = self.kernel
        parts = kernel.modules() if isinstance(kernel, _torch.nn.Module) else ()
        self.kernel_flags = [(part, part.training) for part in parts]
        self.judged_flags = [part.training for part in reference.modules()]
        flags = zip(module.named_modules(), self.judged_flags)
        self.parts = [
            _Part(
                part, flag, part is module, {key for path, key in _CARRIED_PLACES if path == name}
            )
            for (name, part), flag in flags
        ]

    @staticmethod
    def tie(reference, name, store, key):
        """Return what a call compares of one parameter or buffer."""
        tensor = store[key]
        first, first_key = _state_places(reference)[name]
        is_judged = _IS_DIFFERENTIATED and first[first_key].requires_grad
        return store, key, tensor, tensor.data_ptr(), tensor.numel(), is_judged

    def unbind(self):
        """Have the candidate constructed anew at the next call: the module's tensors moved."""
        self.kernel = self.call = self.carried = None
        self.cases = self.made
        self.ties = ()


def _on_side_stream():
    # The default stream's handle is 0.  Two `torch.cuda.Stream`s take several microseconds a call.
    return _torch._C._cuda_getCurrentRawStream(_torch.cuda.current_device()) != 0


def _fit(args, wanted, cases):
    """Whether all inputs are as judged; the short way, where all of them are contiguous tensors."""
    if not _ALL_CONTIGUOUS:
        return False
    for case in cases:
        specs = _INPUTS[case]
        if len(args) != len(specs):
            continue
        for number, (value, (_, dtype, shape, _, _)) in enumerate(zip(args, specs)):
            if not (
                type(value) is _torch.Tensor
                and value.shape == shape
                and value.dtype is dtype
                and value.is_contiguous()
                and (value.is_cuda if _DEVICE == "cuda" else value.is_cpu)
                and not value.data_ptr() % _ALIGNMENT
                and not value.is_neg()
                and not value.is_conj()
                and not (wanted and value.requires_grad and number not in _GRADIENT_INPUTS)
            ):
                break
        else:
            return True
    return False


def _inputs_misfit(args, cases):
    """Return how the inputs differ from those of a judged case; "" when they do not."""
    found, reason = _fitting(cases, lambda case: _case_misfit(args, _INPUTS[case]))
    return "" if found else reason


def _case_misfit(args, specs):
    if len(args) != len(specs):
        return f"{len(args)} inputs, the kernels take {len(specs)}"
    for number, spec in enumerate(specs):
        reason = _misfit(args[number], spec, f"input {number}")
        if reason:
            return reason
    return ""


def _tensors_misfit(tensors, wanted):
    """Return what of the inputs' tensors the kernels can't take; "" for nothing."""
    for number, tensor in enumerate(tensors):
        if wanted and tensor.requires_grad and number not in _GRADIENT_INPUTS:
            return _GRADIENTS
        if tensor.is_neg() or tensor.is_conj():
            return "an input is a view with other signs than its memory has"
        if tensor.data_ptr() % _ALIGNMENT:
            return f"an input does not begin at a multiple of {_ALIGNMENT} bytes"
    return ""


_AT_ONCE = _contextlib.nullcontext()


def _run(module, args):
    """Call the kernels, or the plain forward where they can't be used."""
    if not _CARRIED:
        return _run_in_turn(module, args)
    # One call after the other: the state of a call in another thread is never half of it.
    with getattr(module._kernel_guard, "turn", _AT_ONCE):  # a constructor's call has none
        return _run_in_turn(module, args)


def _run_in_turn(module, args):
    guard = module._kernel_guard
    reason = guard.misfit(module, args)
    if not reason:
        try:
            if guard.carried is not None:
                guard.carried.hand_over()
            result = guard.call(*args)
            if guard.carried is not None:
                guard.carried.take_back()
        except Exception as error:  # the candidate's own: the plain forward is there
            if type(error).__name__ == _STOP:
                raise
            said = " ".join(str(error).split())[:300]
            reason = guard.off = f"its kernels failed ({type(error).__name__}: {said})"
        else:
            guard.kernel_calls += 1
            if _IS_DIFFERENTIATED and _torch.is_grad_enabled():
                _refuse_second_derivatives(result, args)
            return result
    guard.note_plain(reason)
    return Model.forward(module, *args)


def _refuse_second_derivatives(result, args):
    """Have the kernels' derivative raise where it is to be differentiated again."""
    given = [tensor.grad_fn for tensor in _tensors_of(args)]
    for node in {tensor.grad_fn for tensor in _tensors_of(result)}:
        if node is not None and not any(node is each for each in given):
            node.register_prehook(_require_first_derivative)


def _require_first_derivative(grads):
    """Raise where autograd records the derivative: kernels were judged for the first one alone."""
    if _torch.is_grad_enabled():
        raise RuntimeError(
            "ModelNew has no second derivatives (create_graph=True): use the plain class Model"
        )
