"""The guard of one module: at every call it decides whether the kernels may run."""

# mypy: ignore-errors
from __future__ import annotations

import threading as _threading
import weakref as _weakref

import torch as _torch
from torch.nn import Module as Model

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
    _handles,
    _misfit,
    _modules,
    _owner,
    _tensors_of,
    _warn_once,
    _warned,
)
from actors.release.guard.kernel_module import _NO_KERNELS, _kernels
from actors.release.guard.module_state import (
    _attributes,
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
        self.off = _NO_KERNELS or ("" if self.made else misfit)  # why the kernels can never run
        self.kernel = self.call = None  # the candidate and its forward, once bound
        self.lock = _threading.Lock()
        self.bindings = 0
        self.ties = ()  # (dictionary, key, tensor): the module's own, which the candidate uses
        self.parts = ()  # (submodule, training, children, attributes) as they were judged
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
        reason = _context_misfit(tensors, self.ties)
        if not reason and not _fit(args, wanted, self.cases):
            reason = _inputs_misfit(args, self.cases) or _tensors_misfit(tensors, wanted)
        if reason:
            return reason
        for store, key, tensor in self.ties:
            if store.get(key) is not tensor:
                self.call = None  # a parameter was replaced
        if self.call is None:
            reason = self.bind(module, tensors) or _inputs_misfit(args, self.cases)
            if reason:
                return reason
        if wanted and not _IS_DIFFERENTIATED:
            for tie in self.ties:
                if tie[2].requires_grad:
                    return _GRADIENTS
        return (_DEVICE == "cuda" and self.card_misfit(tensors)) or self.module_misfit(module)

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
        for part, training, children, attributes in self.parts:
            if part.training is not training:
                return self.follow_mode(module)
            if part._modules != children:
                return "a submodule was replaced"
            if (part._forward_hooks or part._forward_pre_hooks) and part is not module:
                return "a submodule has hooks"
            own = vars(part)
            for key, value in attributes:
                if own.get(key, _warned) is not value:
                    return f"the attribute {key} was changed after construction"
        return ""

    def follow_mode(self, module):
        """Give the candidate the module's mode, where it was right in it; else say so."""
        flags = [part.training for part in module.modules()]
        if flags == self.judged_flags:
            for part, flag in self.kernel_flags:
                part.training = flag
        elif "other mode" in _LIMITS or len(set(flags)) != 1:
            return "its kernels were judged in another mode (training or evaluation)"
        elif isinstance(self.kernel, _torch.nn.Module):
            self.kernel.train(flags[0])
        pairs = zip(self.parts, flags)
        self.parts = [(part, flag, *rest) for (part, _, *rest), flag in pairs]
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
                if _owner is not None and _owner() not in (None, self):
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
        with _torch.random.fork_rng(cards), _torch.no_grad():
            _torch.manual_seed(0)
            reference = Model(*args, **kwargs).to(device, dtype)
            _torch.manual_seed(0)
            self.kernel = kernel = _kernels.ModelNew(*args, **kwargs)
            if isinstance(kernel, _torch.nn.Module):
                kernel.to(device, dtype)
        for name, (store, key) in _counterparts(kernel, reference).items():
            own, mine = state[name]
            store[key] = own[mine]
        parts = kernel.modules() if isinstance(kernel, _torch.nn.Module) else ()
        self.kernel_flags = [(part, part.training) for part in parts]
        self.judged_flags = [part.training for part in reference.modules()]
        self.parts = [
            (part, flag, dict(part._modules), _attributes(part))
            for part, flag in zip(module.modules(), self.judged_flags)
        ]
        self.ties = tuple((store, key, store[key]) for store, key in state.values())
        self.card = device.index if device.type == "cuda" else None
        self.thread = _threading.get_ident()
        self.call = kernel.forward if isinstance(kernel, _torch.nn.Module) else kernel

    def unbind(self):
        """Have the candidate constructed anew at the next call: the module's tensors moved."""
        self.kernel = self.call = None
        self.cases = self.made
        self.ties = ()


def _on_side_stream():
    return _torch.cuda.current_stream() != _torch.cuda.default_stream()


def _context_misfit(tensors, ties):
    """Return what around a call the kernels can't take; "" for nothing."""
    if _torch._C._functorch.peek_interpreter_stack() is not None:
        held = [tensor for tensor in tensors if isinstance(tensor, _torch.Tensor)]
        held += [tie[0][tie[1]] for tie in ties]
        if any(map(_torch._C._functorch.is_batchedtensor, held)):
            raise RuntimeError("ModelNew does not support torch.vmap: use the plain class Model")
        return "a transformation of torch.func is active"
    if _torch._C._get_tracing_state() is not None:
        return "torch.jit.trace records plain operations"
    if _torch._C._len_torch_dispatch_stack():
        return "a dispatch mode is active"
    if _torch.is_autocast_enabled(_DEVICE):
        return "autocast is on"
    if _torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode derivatives are wanted"
    return ""


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
        if tensor.data_ptr() % _ALIGNMENT:
            return f"an input does not begin at a multiple of {_ALIGNMENT} bytes"
    return ""


def _run(module, args):
    """Call the kernels, or the plain forward where they can't be used."""
    guard = module._kernel_guard
    reason = guard.misfit(module, args)
    if not reason:
        try:
            result = guard.call(*args)
        except Exception as error:  # the candidate's own: the plain forward is there
            said = " ".join(str(error).split())[:300]
            reason = guard.off = f"its kernels failed ({type(error).__name__}: {said})"
        else:
            guard.kernel_calls += 1
            return result
    guard.note_plain(reason)
    return Model.forward(module, *args)
