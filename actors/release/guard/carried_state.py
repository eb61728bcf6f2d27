"""The state that a module keeps in plain attributes: kernels get it at each call and give it back.

The judge records which attributes a call changes (`_JUDGED["carried"]`).  The module owns their
values.  So plain calls and calls of kernels continue from one state, and a copy has its own.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch as _torch

from actors.release.guard.judged_values import _ALIGNMENT, _CASES, _DEVICE, _JUDGED, _misfit
from actors.release.guard.module_state import _unregistered_places

# --- copied from here on ---

_CHANGED_BY_CALLS = _JUDGED.get("carried", ("dict", (), ()))
_KEEPS_STATE = bool(_CHANGED_BY_CALLS[1])
# Name -> what a call makes of the attribute; nothing where the judged cases differ in it.
_CARRIED = {
    name: spec
    for name, spec in zip(*_CHANGED_BY_CALLS[1:])
    if all(case.get("carried") == _CHANGED_BY_CALLS for case in _CASES)
    and "unchecked state" not in _JUDGED
}
_NOT_CARRIED = (
    f"each call changes its attribute {_CHANGED_BY_CALLS[1][0]}, and whether the kernels keep it "
    "was not checked"
    if _KEEPS_STATE and not _CARRIED
    else ""
)
_CARRIED_PLACES = frozenset(tuple(name.rpartition(".")[::2]) for name in _CARRIED)


class _CarriedState:
    """The attributes of one module that its calls change, and their places in the candidate."""

    def __init__(self, module, reference, kernel):
        """`missing`: why the kernels can't run, where constructor or candidate have no such one."""
        self.missing = ""
        self.places = []  # (name, spec, dictionary, key, the candidate's dictionary, spec if new)
        for name, spec in _CARRIED.items():
            path, _, key = name.rpartition(".")
            own, first, theirs = (_held_by(each, path) for each in (module, reference, kernel))
            new = _as_made(first, key)
            said = f"each call of the module changes its attribute {name}"
            if new is None or (new[0] == "tensor" and new[1:3] != spec[1:3]):
                self.missing = f"{said}, which its constructor makes in another form"
            elif theirs is None or key not in theirs or _misfit(theirs[key], new, "", loose=True):
                self.missing = f"{said}, and the kernels' class has no such attribute"
            self.places.append((name, spec, own, key, theirs, new))
        carried = {(id(store), key) for _, _, store, key, _, _ in self.places}
        tensors = [*module.parameters(), *module.buffers()]
        tensors += [
            store[key]
            for store, key in _unregistered_places(module)
            if (id(store), key) not in carried
        ]
        self.others = frozenset(map(_memory_of, tensors))

    def misfit(self, tensors):
        """Return what of the state kernels can't take in a call on `tensors`; "" for nothing."""
        if _DEVICE == "cuda" and _torch.cuda.is_current_stream_capturing():
            return "a CUDA graph is captured, and each call changes the module's state"
        used = [_memory_of(tensor) for tensor in tensors]
        for name, spec, own, key, _, new in self.places:
            value, what = own.get(key), f"its {name}"
            reason = _form_misfit(value, spec, new, what)
            if reason:
                return reason
            if value is None:  # as the constructor makes it
                continue
            if value.requires_grad or value.is_neg() or value.is_conj():
                return f"{what} requires a gradient, or is a view with other signs"
            if value.is_inference() and not _torch.is_inference_mode_enabled():
                return f"{what} was made in inference mode"
            if value.data_ptr() % _ALIGNMENT:
                return f"{what} does not begin at a multiple of {_ALIGNMENT} bytes"
            if value.is_cuda and value.get_device() != _torch.cuda.current_device():
                return f"{what} is not on the current device"
            place = _memory_of(value)
            if place in self.others or place in used:
                return f"{what} shares its memory with another tensor"
            used.append(place)
        return ""

    def hand_over(self):
        """Give the module's state to the candidate."""
        for _, _, own, key, theirs, _ in self.places:
            theirs[key] = own[key]

    def take_back(self):
        """Give the candidate's state to the module: all of it, or raise `TypeError`."""
        for name, spec, _, key, theirs, new in self.places:
            value = theirs.get(key)
            reason = _form_misfit(value, spec, new, name)
            if reason or (value is not None and value.requires_grad):
                raise TypeError(reason or f"{name} requires a gradient")
        for _, _, own, key, theirs, _ in self.places:
            own[key] = theirs[key]


def _form_misfit(value, spec, new, name):
    """Return how a value differs from what a call makes and from a new one; "" for either form."""
    reason = _misfit(value, spec, name)
    if reason and value is None and new[0] == "plain":
        return ""
    return reason and (new[0] == "plain" or _misfit(value, new, name)) and reason


def _as_made(attributes, key):
    """Return what a constructor makes of an attribute, as a spec: a tensor or None; else None."""
    if attributes is None or key not in attributes:
        return None
    made = attributes[key]
    if made is None:
        return ("plain", None)
    if not isinstance(made, _torch.Tensor) or made.requires_grad:
        return None
    # A tensor that is no buffer stays on the host until a call moves it.
    stride = None if made.is_contiguous() else made.stride()
    return ("tensor", made.dtype, made.shape, stride, made.device.type)


def _held_by(module, path):
    """Return the attributes of a submodule; None where there is no such submodule."""
    if not path:
        return vars(module)
    parts = dict(module.named_modules(remove_duplicate=False)) if hasattr(module, "modules") else {}
    return vars(parts[path]) if path in parts else None


def _memory_of(tensor):
    """Return where a tensor's memory begins; the tensor's number where it has none of its own."""
    if tensor.layout is not _torch.strided:
        return ("", id(tensor))
    return tensor.untyped_storage().data_ptr() or ("", id(tensor))
