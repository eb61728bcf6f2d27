"""What of a module a kernel or a trace relies on: submodules, modes, attributes and tensors."""

# mypy: ignore-errors
from __future__ import annotations

import hashlib
import inspect
import operator

import torch

# What a fitted module has of its own; torch.jit.script calls the last one.
KEYS = ("forward", "__reduce_ex__", "_replicate_for_data_parallel", "__prepare_scriptable__")
OWN = frozenset(vars(torch.nn.Module())) | {*KEYS, "_compiled_call_impl"}
PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
_CONTAINERS = (list, tuple, dict, set)
MOST_ITEMS = 64  # of a container that is compared by value


def parts_of(site):
    """Return what of a module and its submodules must stay: a tuple for each of them.

    It is (part, training, its submodules, names of its attributes, a function that returns their
    values, the values, copies of the small containers among them by name).
    """
    return [part_of(part) for part in site.modules()]


def part_of(part, is_small=True):
    """Return what of a module alone must stay.  `is_small`: of containers the small plain ones."""
    names = names_of(part)
    # One call for all of them, for it runs at every call; twice, so that it is always a tuple.
    values = operator.itemgetter("training", "training", *names)
    found, children = values(vars(part)), dict(part._modules)
    return part, part.training, children, names, values, found, copies_of(part, is_small)


def names_of(part):
    """Return the names of a module's attributes besides those that every module has."""
    return [key for key in vars(part) if key not in OWN]


def copies_of(part, is_small):
    """Return copies of the containers among a module's attributes, by name."""
    own = vars(part)
    return {
        key: copied(own[key])
        for key in names_of(part)
        if type(own[key]) in _CONTAINERS and not (is_small and _size_of(own[key]) > MOST_ITEMS)
    }


def _size_of(value):
    """Return how many plain values are in a value; more than MOST_ITEMS if others are in it."""
    if type(value) in PLAIN:
        return 1
    if type(value) not in _CONTAINERS or len(value) > MOST_ITEMS:
        return MOST_ITEMS + 1
    return sum(map(_size_of, [*value, *value.values()] if type(value) is dict else value))


def copied(value):
    """Return a copy of nested containers."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return type(value)(map(copied, value)) if type(value) in _CONTAINERS else value


def equal(found, value):
    """Whether two nested containers are equal; what is not plain has to be the same object."""
    if found is value and type(value) not in _CONTAINERS:
        return True
    if type(found) is not type(value):
        return False
    if type(value) in (list, tuple):
        return len(found) == len(value) and all(map(equal, found, value))
    if type(value) is dict:
        return equal([*found.items()], [*value.items()])
    return type(value) in (set, *PLAIN) and found == value


def changed_container(own, copies):
    """Return the name of the first container that is not as its copy; "" for none."""
    return next((key for key, copy in copies.items() if not equal(own.get(key), copy)), "")


def spec_of(tensor):
    """Return what a kernel relies on of a tensor of its module."""
    strides = tensor.stride() if tensor.layout is torch.strided else tensor.layout
    return tensor.dtype, tensor.shape, strides


def class_names(kind):
    """Return the names of the plain attributes of a user's class."""
    own = [each for each in kind.__mro__ if not each.__module__.startswith(("torch.", "builtins"))]
    names = dict.fromkeys(name for each in own for name in vars(each) if name[:2] != "__")
    return [name for name in names if type(inspect.getattr_static(kind, name)) in PLAIN]


def plain_object(value):
    """Return the plain attributes of an object such as a configuration; None for other values."""
    if isinstance(value, (torch.nn.Module, torch.Tensor)) or inspect.isroutine(value):
        return None
    if inspect.isclass(value) or inspect.ismodule(value) or not hasattr(value, "__dict__"):
        return None
    return {key: each for key, each in vars(value).items() if type(each) in PLAIN}


def tensors_in(site):
    """Yield (path, dictionary, key) of all parameters, buffers and other tensors of a module."""
    for path, part in site.named_modules():
        start = f"{path}." if path else ""
        for store in (part._parameters, part._buffers):
            yield from ((start + key, store, key) for key in store)
        own = vars(part)
        for key in names_of(part):
            if isinstance(own[key], torch.Tensor):
                yield start + key, own, key


def tied(tensors):
    """Return for each tensor the first place of the same one."""
    first = {}
    return tuple(first.setdefault(id(each), place) for place, each in enumerate(tensors))


def recorded(site):
    """Return what of a module the trace of its forward may have read, as texts by path.

    Of a tensor the first word is the type of its device.
    """
    found = {"default dtype": str(torch.get_default_dtype())}
    tensors = [*tensors_in(site)]
    for path, part in site.named_modules():
        start, own = f"{path}." if path else "", vars(part)
        found[f"{start}training"] = str(part.training)
        found |= {start + key: _text(own[key]) for key in names_of(part)}
        kind = type(part)
        for key in class_names(kind):
            found[f"{start}{key} of {kind.__name__}"] = _text(inspect.getattr_static(kind, key))
        for key in names_of(part):
            inner = plain_object(own[key]) or {}
            found |= {f"{start}{key}.{name}": _text(value) for name, value in inner.items()}
    for path, store, key in tensors:
        found[path] = _text(store[key])
    found["tied tensors"] = str(tied([store[key] for _, store, key in tensors]))
    return found


def _text(value):
    """Return a text that changes with a value."""
    if type(value) in PLAIN:
        return repr(value)
    if isinstance(value, torch.Tensor):
        words = (type(value).__name__, *spec_of(value))
        return f"{value.device.type} {' '.join(map(str, words))}"
    if type(value) is dict:
        return f"{{{', '.join(f'{_text(key)}: {_text(item)}' for key, item in value.items())}}}"
    if type(value) in _CONTAINERS:
        texts = map(_text, value)
        return f"{type(value).__name__} {[*(sorted(texts) if type(value) is set else texts)]}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def record_misfit(site, record):
    """Return how a module differs from what `recorded` returned; "" for not at all."""
    found = recorded(site)
    for key in (*record, *found):
        was, now = record.get(key, "missing"), found.get(key, "missing")
        tensors = key in found and now.split(" ")[0] in ("cpu", "cuda")  # may be moved
        if was != now and not (tensors and was.partition(" ")[2] == now.partition(" ")[2]):
            return f"{key} is {now}, and was {was} when its calls were traced"
    return ""


class SiteState:
    """What the trace of a module's forward may have read besides its arguments."""

    def __init__(self, site, leaves, record):
        """`leaves`: paths of the submodules that stay calls.  `record`: of `recorded`."""
        inside = tuple(f"{leaf}." for leaf in leaves)
        parts = dict(site.named_modules())
        outside = [part for path, part in parts.items() if not f"{path}.".startswith(inside)]
        self.parts = [part_of(part, is_small=False) for part in outside]
        self.names = [(vars(part), frozenset(names_of(part))) for part in outside]
        held = [part for part in parts.values() if part not in outside]
        self.held = [(part, part.training, dict(part._modules)) for part in held]
        self.copies = [(vars(part), copies_of(part, is_small=False)) for part in held]
        objects = {id(value): value for part in parts.values() for value in vars(part).values()}
        stores = [vars(part) for part in held] + [
            vars(value) for value in objects.values() if plain_object(value)
        ]
        self.plain = [_plain_of(store) for store in stores]
        self.classes = [
            (kind, key, getattr(kind, key))
            for kind in {type(part) for part in parts.values()}
            for key in class_names(kind)
        ]
        self.sizes = [
            (store, len(store))
            for part in parts.values()
            for store in (part._parameters, part._buffers)
        ]
        self.tensors = [
            (store, key, _spec_on(store[key], record[path].split(" ")[0]))
            for path, store, key in tensors_in(site)
        ]
        self.tied = tied([store[key] for store, key, _ in self.tensors])
        self.default_dtype = torch.get_default_dtype()

    def misfit(self):
        """Return what is not as it was; "" for nothing.  `parts` are compared by `_own_misfit`."""
        for part, training, children in self.held:
            if part.training is not training:
                return "a submodule is in another mode (training or evaluation)"
            if part._modules != children:
                return "a submodule was replaced"
        for own, names, expected in self.plain:
            if not equal([own.get(name, OWN) for name in names], expected):
                return "an attribute of a submodule was changed"
        for own, copies in self.copies:
            if copies and changed_container(own, copies):
                return "an attribute of a submodule was changed"
        for kind, key, value in self.classes:
            if not equal(getattr(kind, key, OWN), value):
                return f"the attribute {key} of the class {kind.__name__} was changed"
        for own, names in self.names:
            if own.keys() - OWN != names:
                return "an attribute was added"
        return self.tensor_misfit()

    def tensor_misfit(self):
        """Return which parameter, buffer or other tensor is not as it was; "" for none."""
        found = []
        for store, key, spec in self.tensors:
            tensor = store.get(key)
            found.append(tensor)
            if tensor is None or spec is None:
                if tensor is not spec:
                    return f"the parameter {key} was {'removed' if spec else 'added'}"
            elif type(tensor) is not spec[0] or _spec_on(tensor, tensor.device.type) != spec:
                return f"the parameter {key} has another dtype, layout or device"
        if any(len(store) != size for store, size in self.sizes):
            return "a parameter was added"
        same = tied(found) == self.tied
        return "" if same else "parameters that were one tensor are not any more, or others are"


def _plain_of(store):
    """Return (attributes, the names of the plain ones, their values)."""
    names = [key for key, value in store.items() if type(value) in PLAIN and key not in OWN]
    return store, names, [store[name] for name in names]


def _spec_on(tensor, device):
    """Return what a tensor of the module has to be on this type of device; None without one."""
    return None if tensor is None else (type(tensor), *spec_of(tensor), device)


def structure(module):
    """Return a text that changes with the module's classes, their sources and parameter shapes."""
    tensors = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype}"
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    ]
    sources = []
    for kind in dict.fromkeys(type(part) for part in module.modules()):
        try:
            own = not kind.__module__.startswith("torch.nn.")
            sources.append(inspect.getsource(kind) if own else kind.__name__)
        except (OSError, TypeError):
            sources.append(kind.__qualname__)
    return hashlib.sha256("\n".join([repr(module), *tensors, *sources]).encode()).hexdigest()


def tensor_of(site, path):
    """Return a parameter or buffer by its path."""
    owner, _, key = path.rpartition(".")
    return getattr(site.get_submodule(owner), key)


def is_exporting():
    """Whether torch.export is at work.

    It is decided while a graph is traced: torch 2.11 takes the function of torch's own for True in
    all graphs.
    """
    return torch.compiler.is_exporting()


is_exporting._dynamo_marked_constant = True


def is_same(values, own, expected):
    """Whether a module's attributes are the very objects that they were."""
    try:
        found = values(own)
    except KeyError:
        return False
    return all(map(operator.is_, found, expected))


def cards_of(module):
    tensors = [*module.parameters(), *module.buffers()]
    return sorted({tensor.device for tensor in tensors if tensor.is_cuda}, key=str)
