"""Which calls of the unfitted model a winner is expected to take."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.adopt.call_layouts import CallKind
from actors.adopt.taken_tasks import Take, TakenTask


class ExpectedSite(msgspec.Struct, frozen=True, kw_only=True):
    """One place of a winner, and the module whose calls are counted for it.

    A region is called inside of its module, once or not at all in a call of each kind.
    """

    site: str  # of the task
    path: str  # of the module
    kinds: tuple[CallKind, ...]  # of the module's calls
    counts: tuple[int, ...]  # of the kernel's calls in a call of each kind

    def calls_in(self, kind: CallKind) -> int:
        """Return how often the kernel runs in a call of this kind."""
        return self.counts[self.kinds.index(kind)] if kind in self.kinds else 0


def expected_sites(taken: Take, task: TakenTask, judged: Sequence[CallKind]) -> list[ExpectedSite]:
    """Return the sites of a task whose winner was judged for some kinds of calls."""
    found = []
    for site in task.sites:
        place = taken.split_of(site)
        if place is None:
            counts = (1,) * len(judged)
            found.append(ExpectedSite(site=site, path=site, kinds=tuple(judged), counts=counts))
            continue
        split, region = place
        calls = {layout.kind: int(layout.regions.get(region) in judged) for layout in split.layouts}
        found.append(
            ExpectedSite(
                site=site, path=split.site, kinds=tuple(calls), counts=tuple(calls.values())
            )
        )  # fmt: skip
    return found
