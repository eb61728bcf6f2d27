"""Regions of the forwards of modules that have library calls: found, and put into the model.

`look` found where the time is; the parents are the modules with enough of it in operations that
are neither a library's nor inside of a submodule with library calls of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import torch

from actors.adopt.look.look import Look
from actors.adopt.look.module_profile import profile_steps
from actors.adopt.look.site_groups import SiteGroup, parts_of, site_groups
from actors.adopt.regions.forward_splitter import TRACES, ForwardSplitter, Split
from actors.adopt.take.taken_tasks import NotTaken
from actors.adopt.take.task_making import ModelSteps
from actors.adopt.tasks.operation_text import UntranslatableError

ROOT = "the model"


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """Equal modules whose forwards may have regions."""

    name: str
    class_name: str
    sites: tuple[str, ...]
    share: float  # of the device time: in no library, and in no submodule with library calls


class RegionSearch:
    """Finds regions in one model."""

    def __init__(self, model: torch.nn.Module, look: Look) -> None:
        self._model, self._look = model, look
        self._groups = {site: group for group in look.groups for site in group.sites}

    def parents(self, is_asked_for: Callable[[str], bool], least: float) -> list[Parent]:
        """Return the parents that are asked for with a share of `least`, the largest first."""
        found = []
        for group in self._look.groups:
            sites = tuple(site for site in group.sites if is_asked_for(site))
            if (
                sites
                and group.library_share
                and list(self._model.get_submodule(sites[0]).children())
            ):
                part = len(sites) / len(group.sites)
                inside = sum(map(self._share_inside, sites))
                found.append(
                    Parent(
                        name=group.name, class_name=group.class_name, sites=sites,
                        share=group.free_share * part - inside,
                    )
                )  # fmt: skip
        if is_asked_for("") and any(self._groups[site].library_share for site in self._called("")):
            rest = 1.0 - self._look.outside_share - self._look.update_share
            rest -= sum(self._library_part(site) for site in self._called(""))
            name = type(self._model).__name__
            found.append(Parent(name=ROOT, class_name=name, sites=("",), share=rest))
        enough = [parent for parent in found if parent.share >= least]
        return sorted(enough, key=lambda parent: -parent.share)

    def leaves(self, site: str) -> frozenset[str]:
        """Return the submodules of a parent that stay calls, by their paths in it."""
        start = len(site) + 1 if site else 0
        return frozenset(path[start:] for path in self._called(site) if not self._is_inlined(path))

    def _share_inside(self, site: str) -> float:
        """Return the share of a parent's submodules with library calls, outside of libraries."""
        return sum(
            self._groups[path].free_share / len(self._groups[path].sites)
            for path in self._called(site)
            if self._groups[path].library_share
        )

    def _library_part(self, path: str) -> float:
        """Return the share of a called module, if it has library calls."""
        group = self._groups[path]
        return group.share / len(group.sites) if group.library_share else 0.0

    def _called(self, site: str) -> Iterator[str]:
        """Yield the outermost called modules inside of a module."""
        for path in parts_of(self._model, site):
            if path in self._groups:
                yield path
            else:
                yield from self._called(path)

    def _is_inlined(self, path: str) -> bool:
        """Whether a submodule's operations may be parts of regions."""
        module = self._model.get_submodule(path)
        return not self._groups[path].library_share and not any(
            part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)
            or isinstance(part, torch.jit.ScriptModule)
            for part in module.modules()
        )  # fmt: skip


class InsertedSplits:
    """The forwards of some modules while they run in parts."""

    def __init__(self, search: RegionSearch, model: torch.nn.Module, steps: ModelSteps) -> None:
        self._search, self._model, self._steps = search, model, steps
        self._forwards: list[tuple[Parent, str, ForwardSplitter]] = []
        self.splits: list[Split] = []

    def put_in(self, parents: Sequence[Parent]) -> dict[Parent, str]:
        """Trace the parents' calls and split them; return for others why not."""
        for parent in parents:
            for site in parent.sites:
                module = self._model.get_submodule(site)
                forward = ForwardSplitter(module, site, self._search.leaves(site))
                self._forwards.append((parent, site, forward))
        for _ in range(TRACES):
            self._steps.run()
        found = {parent: self._split(parent) for parent in parents}
        return {parent: problem for parent, problem in found.items() if problem}

    def _split(self, parent: Parent) -> str:
        """Run the modules of a parent in parts; return why none of them has regions, or ""."""
        problem, count = "it has no two operations between library calls", 0
        for own, _, forward in self._forwards:
            if own is not parent:
                continue
            try:
                split = forward.put_in()
            except UntranslatableError as error:
                problem = str(error)
                continue
            if split.regions:
                self.splits.append(split)
                count += 1
            elif not split.layouts:
                problem = next(iter(forward.refused.values()), "it was not called")
        return "" if count else problem

    def groups(self, look: Look, rounds: int) -> list[SiteGroup]:
        """Return equal regions as groups, with their shares of the device time."""

        def run() -> None:
            for _ in range(rounds):
                self._steps.run()

        profile = profile_steps(self._model, run, self._steps.device)
        sites = {split.path(name) for split in self.splits for name in split.regions}
        groups = site_groups(self._model, profile, rounds * self._steps.count, look.busy)
        return [
            msgspec.structs.replace(group, place=region_place(self.splits, group.sites[0]))
            for group in groups
            if group.sites[0] in sites
        ]

    def take_out(self) -> None:
        """Give all modules their own forwards back."""
        for _, _, forward in self._forwards:
            forward.take_out()
        self._forwards.clear()


def not_split(parent: Parent, reason: str) -> NotTaken:
    """Return the record of a parent that has no regions."""
    return NotTaken(name=f"regions of {parent.name}", sites=parent.sites, reason=reason)


def region_place(splits: Sequence[Split], site: str) -> str:
    """Return where a region is: "in layers.0 (Block), after attn"."""
    for split in splits:
        for name, place in split.places.items():
            if split.path(name) == site:
                return f"in {split.site or ROOT}{', ' if place else ''}{place}"
    return ""
