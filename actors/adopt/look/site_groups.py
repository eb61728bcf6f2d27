"""Groups of equal modules, and the choice of those that are worth a task.

Modules with the same class, structure and parameter shapes are one candidate, however often they
occur.  Of nested modules one is chosen: the outer one where its own operations add something that
its parts together do not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec
import torch

from actors.adopt.look.module_profile import DeviceProfile

MOST_OPERATIONS = 64  # of a module that becomes one task
LONE_OPERATION_VALUE = 0.3  # one operation alone: nothing can be fused with it
OUTER_VALUE = 0.8  # a module instead of its parts has to add this much


class SiteGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal modules of a model, with their part of a step."""

    name: str  # a file name: "layers-mlp"
    class_name: str
    sites: tuple[str, ...]  # paths in the model
    calls: float  # of all of them, a step
    share: float  # of the device time, submodules included
    library_share: float  # the part of `share` inside of library operations
    operations: float  # a call
    ceiling: float  # the step's speed-up if they took no time at all
    is_chosen: bool = False  # `take` makes a task of it
    place: str = ""  # of a region of a forward: where the first one is

    @property
    def free_share(self) -> float:
        """The share of operations outside of libraries."""
        return max(self.share - self.library_share, 0.0)

    @property
    def value(self) -> float:
        """The share that a task made of it could save, roughly."""
        if self.operations > MOST_OPERATIONS:
            return 0.0
        return self.free_share * (1.0 if self.operations > 1 else LONE_OPERATION_VALUE)

    def of_sites(self, sites: tuple[str, ...]) -> SiteGroup:
        """Return the group with some of its modules only; its shares are divided equally."""
        part = len(sites) / len(self.sites)
        return msgspec.structs.replace(
            self,
            sites=sites,
            calls=self.calls * part,
            share=self.share * part,
            library_share=self.library_share * part,
        )


class _Subtree(msgspec.Struct):
    """The device time of one module with its submodules."""

    us: float = 0.0
    library_us: float = 0.0
    operations: float = 0.0  # a call
    calls: int = 0


def site_groups(
    model: torch.nn.Module, profile: DeviceProfile, steps: int, busy: float
) -> list[SiteGroup]:
    """Return the groups of all called modules, the largest share first.

    `steps`: how many were profiled.  `busy`: the part of a step's time in which the device works.
    """
    times = {path: _subtree(model, path, profile) for path, _ in model.named_modules()}
    members: dict[str, list[str]] = {}
    for path, module in model.named_modules():
        if path and times[path].calls:
            members.setdefault(structure_key(module), []).append(path)
    names: set[str] = set()
    groups = []
    for paths in members.values():
        share = sum(times[path].us for path in paths) / (profile.total_us or 1.0)
        libraries = sum(times[path].library_us for path in paths) / (profile.total_us or 1.0)
        calls = sum(times[path].calls for path in paths)
        groups.append(
            SiteGroup(
                name=_name(paths, names),
                class_name=type(model.get_submodule(paths[0])).__name__,
                sites=tuple(paths),
                calls=calls / steps,
                share=share,
                library_share=libraries,
                operations=max(times[path].operations for path in paths),
                ceiling=amdahl(share * busy),
            )
        )
    chosen = set(chosen_paths(model, "", groups))
    marked = [
        msgspec.structs.replace(group, is_chosen=not chosen.isdisjoint(group.sites))
        for group in groups
    ]
    return sorted(marked, key=lambda group: (-group.share, group.name))


def chosen_paths(model: torch.nn.Module, top: str, groups: Iterable[SiteGroup]) -> list[str]:
    """Return the modules below `top`, and without it, that are worth a task: none in another."""
    values = {path: group.value / len(group.sites) for group in groups for path in group.sites}

    def choice(path: str) -> list[str]:
        inner = [found for part in parts_of(model, path) for found in choice(part)]
        below = sum(values[found] for found in inner)
        is_better = path != top and values.get(path, 0.0) * OUTER_VALUE > below
        return [path] if is_better else inner

    return choice(top)


def amdahl(share: float) -> float:
    """Return the speed-up of a whole whose part `share` takes no time any more."""
    return 1.0 / max(1.0 - share, 1e-3)


def structure_key(module: torch.nn.Module) -> str:
    """Return a text that is equal for modules of one class, structure and parameter shapes."""
    kind = type(module)
    tensors = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype}"
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    ]
    modes = [part.training for part in module.modules()]
    text = f"{kind.__module__}.{kind.__qualname__}\n{module!r}\n{tensors}\n{modes}"
    return hashlib.sha256(text.encode()).hexdigest()


def parts_of(model: torch.nn.Module, path: str) -> Iterator[str]:
    """Yield the paths of a module's direct submodules."""
    for name, _ in model.get_submodule(path).named_children():
        yield f"{path}.{name}" if path else name


def _subtree(model: torch.nn.Module, path: str, profile: DeviceProfile) -> _Subtree:
    total = _Subtree()
    if path in profile.modules:
        total.calls = profile.modules[path].calls
    for inner, _ in model.get_submodule(path).named_modules():
        found = profile.modules.get(".".join(filter(None, (path, inner))))
        if found is not None:
            total.us += found.own_us
            total.library_us += found.library_us
            total.operations += found.operations / max(total.calls, 1)
    return total


def _name(paths: list[str], names: set[str]) -> str:
    """Return a file name that no other group has: the path's words without numbers."""
    words = [word for word in paths[0].split(".") if not word.isdigit()] or ["module"]
    base = "-".join(words[-3:])
    name = next(
        each for count in range(1, len(names) + 2)
        if (each := base if count == 1 else f"{base}-{count}") not in names
    )  # fmt: skip
    names.add(name)
    return name
