"""What of a module is not as its constructor made it: the kernels know nothing of it."""

# mypy: ignore-errors
from __future__ import annotations

import functools as _functools
import types as _types

import torch as _torch

from actors.release.guard.equal_values import _EXACT, _is_equal
from actors.release.guard.judged_values import _IS_DIFFERENTIATED, _warned
from actors.release.guard.module_state import _attributes

# --- copied from here on ---

_MOST_ITEMS = 256  # of a list or a dictionary among the attributes
_CODED = (_types.FunctionType, _types.MethodType)
_SINGLE = (type, _types.BuiltinFunctionType, _types.ModuleType)


_OTHER_MODE = "its kernels were judged in another mode (training or evaluation)"


class _Part:
    """One submodule as the candidate was set up for it."""

    def __init__(self, module, training, is_root=False, carried=()):
        """`carried`: the attributes that calls change."""
        self.module, self.training, self.is_root = module, training, is_root
        self.own, self.kind, self.children = vars(module), type(module), dict(module._modules)
        self.keys = frozenset(self.own)
        # (dictionary, key, value, what shows a change in place) of attributes and constants
        held = [(self.own, *each) for each in _attributes(module) if each[0] not in carried]
        held += [(module._buffers, *each) for each in _constants(module)]
        self.watched = [(*each, _inside(each[2])) for each in held]

    def misfit(self):
        """Return what was changed since; "" for nothing."""
        own = self.own
        if own["training"] is not self.training:
            return _OTHER_MODE
        if own["_modules"] != self.children:
            return "a submodule was replaced"
        if not self.is_root and (own["_forward_hooks"] or own["_forward_pre_hooks"]):
            return "a submodule has hooks"
        for number, (store, key, value, inside) in enumerate(self.watched):
            found = store.get(key, _warned)
            is_changed = inside is not None and _inside(value) != inside
            if is_changed or (found is not value and not _is_held(found, value)):
                if is_changed or not _is_equal(found, value):
                    where = "attribute" if store is own else "buffer"
                    return f"the {where} {key} was changed after construction"
                self.watched[number] = (store, key, found, _inside(found))
        hooks = _IS_DIFFERENTIATED and (own["_backward_hooks"] or own["_backward_pre_hooks"])
        if hooks and not self.is_root:
            return "a submodule has hooks"
        if len(own) != len(self.keys) or type(self.module) is not self.kind:
            return self.replaced_method()
        return ""

    def replaced_method(self):
        """Return whether the class or a method is another one; "" for other new attributes."""
        if type(self.module) is not self.kind:
            return "the class of a module was changed"
        for key in self.own.keys() - self.keys:
            if _is_method(self.kind, key):
                return f"the method {key} was replaced"
        self.keys = frozenset(self.own)
        return ""


def _is_held(found, value):
    """Whether a module has this very tensor; while it is exported, what stands for it."""
    mode = getattr(found, "fake_mode", None)
    return found is value or (mode is not None and mode.from_tensor(value) is found)


def _is_method(kind, key):
    """Whether an attribute of a module stands before a method of its class."""
    return key == "forward" or (hasattr(kind, key) and not hasattr(_torch.nn.Module, key))


def _constants(part):
    """Return the buffers that no state dict has: the candidate has its own ones."""
    kept = part._non_persistent_buffers_set
    return [(key, part._buffers[key]) for key in sorted(kept) if key in part._buffers]


def _inside(value):
    """Return what shows a change of a value in place; None for a value that has no inside."""
    if isinstance(value, _torch.Tensor):
        return (value.data_ptr() if value.layout is _torch.strided else 0, value._version)
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    elif not isinstance(value, (list, set)):
        return None
    return _Items(value)


class _Items:
    """The items of a list, a dictionary or a set, compared by identity, lists in it as well."""

    def __init__(self, value):
        self.items = list(value)[:_MOST_ITEMS]
        self.count = len(value)
        self.inside = [_inside(item) for item in self.items]

    def __eq__(self, other):
        return (
            self.count == other.count
            and all(map(_is_same, self.items, other.items))
            and self.inside == other.inside
        )


def _is_same(one, other):
    return one is other


def _changed_module(module, reference, construct, carried=()):
    """Return how a module differs from a new one of its constructor; "" for nothing.

    `carried`: places, (a submodule's name, an attribute), that are not compared.  `construct`
    returns another new module.  A value that differs between two new modules, such as a
    number of its own, is no difference.
    """
    passed = set(carried)
    while True:
        reason, place = _first_difference(module, reference, passed)
        if place is None or _first_difference(construct(), reference, passed)[1] != place:
            return reason
        passed.add(place)


def _first_difference(module, reference, passed):
    """Return (a text, the place) of the first difference; ("", None) without one."""
    own, wanted = dict(module.named_modules()), dict(reference.named_modules())
    if own.keys() != wanted.keys():
        return f"it has other submodules: {sorted(own.keys() ^ wanted.keys())[:3]}", None
    for name, part in wanted.items():
        mine = own[name]
        if part is not reference and type(mine) is not type(part):
            return f"its submodule {name} is a {type(mine).__name__}", None
        held, values = dict(_attributes(mine)), dict(_attributes(part))
        replaced = [key for key in held if key not in values and _is_method(type(mine), key)]
        if replaced:
            return f"its method {replaced[0]} was replaced", None
        held |= {key: mine._buffers.get(key) for key, _ in _constants(part)}
        for key, value in (*values.items(), *_constants(part)):
            if (name, key) not in passed and not _alike(held.get(key, _warned), value):
                where = f"{name}.{key}" if name else key
                return f"its {where} is not what its constructor makes", (name, key)
    return "", None


def _alike(one, other, depth=0):
    """Whether two values, each of a module of its own, mean the same."""
    if one is other:
        return True
    if type(one) is not type(other) or depth == 5:
        return type(one) is type(other)
    if isinstance(one, _torch.Tensor):
        if one.requires_grad:
            return False
        same = one.shape == other.shape and one.dtype == other.dtype
        return same and _torch.equal(one.detach(), other.detach().to(one.device))
    if isinstance(one, _EXACT):
        return one == other or one != one
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_alike(*pair, depth + 1) for pair in zip(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _alike(one[key], other[key], depth + 1) for key in one
        )
    if isinstance(one, (set, frozenset)):
        return one == other
    if isinstance(one, _CODED):
        return one.__code__ is other.__code__
    if isinstance(one, _SINGLE):
        return False
    if isinstance(one, _functools.partial):
        return _alike(one.__reduce__()[2], other.__reduce__()[2], depth + 1)
    held = getattr(one, "__dict__", None)
    return held is None or isinstance(one, _torch.nn.Module) or _alike(held, vars(other), depth + 1)
