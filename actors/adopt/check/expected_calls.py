"""Which calls of the unfitted model a winner is expected to take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from actors.adopt.model.call_layouts import CallKind
from actors.adopt.model.call_recorder import ModuleCalls
from actors.adopt.take.taken_tasks import Take, TakenTask


class ExpectedSite(msgspec.Struct, frozen=True, kw_only=True):
    """One place of a winner, and the module whose calls are counted for it.

    A region is called once in each call of the module's kinds.
    """

    site: str  # of the task
    path: str  # of the module
    kinds: tuple[CallKind, ...]  # of the module's calls


def expected_sites(taken: Take, task: TakenTask, judged: Sequence[CallKind]) -> list[ExpectedSite]:
    """Return the sites of a task whose winner was judged for some kinds of calls."""
    found = []
    for site in task.sites:
        place = taken.split_of(site)
        if place is None:
            found.append(ExpectedSite(site=site, path=site, kinds=tuple(judged)))
            continue
        split, region = place
        kinds = [each.kind for each in split.layouts if each.regions.get(region) in judged]
        found.append(ExpectedSite(site=site, path=split.site, kinds=tuple(kinds)))
    return found


def expected_calls(
    task: TakenTask, sites: Iterable[ExpectedSite], calls: Mapping[str, ModuleCalls]
) -> tuple[dict[str, int], float]:
    """Return the calls at each site, and how many µs they take.

    `calls`: recorded ones by the path of the module.
    """
    expected, spent = dict.fromkeys(task.sites, 0), 0.0
    for site in sites:
        for each in calls[site.path].kinds:
            if each.kind in site.kinds:
                expected[site.site] += each.calls
                call_us = sum(each.samples) / len(each.samples)
                spent += each.calls * (task.proof.times.in_model_us if task.place else call_us)
    return expected, spent
