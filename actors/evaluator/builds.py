"""The judge's builds: in turn with its measurements, or ahead of them in a yard of their own.

On a card candidates are built while another one is measured; on a CPU that would be measured, too,
so there builds and timing take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from actors.evaluator.build import NO_MODULES, Building, Built
from actors.evaluator.fastbuild.asked import compiles
from actors.evaluator.fastbuild.slots import fitting_here
from actors.evaluator.grounds import Grounds
from actors.evaluator.isolation.child import Unwanted
from actors.evaluator.isolation.nursery import Nursery, Unjudgeable
from actors.evaluator.isolation.scratch import Scratch
from actors.evaluator.outfit import Outfit
from actors.evaluator.room import Room
from protocol.settings import Limits
from protocol.values import DeviceKind

WALLED = 2  # the sandbox level from which on nobody inside writes to the store
MOST_AHEAD = 4
KEPT_FREE = 2  # cores for judge and runner, which are on the clock


def ahead_of(device: DeviceKind) -> int:
    """Return how many builds may run ahead of the measurements of `device`."""
    if device == "cpu":
        return 0
    return min(MOST_AHEAD, fitting_here(KEPT_FREE))


class Builds:
    """How one judge's candidates get built."""

    def __init__(self, grounds: Grounds, limits: Limits, say: Callable[[str], None]) -> None:
        self._grounds = grounds
        self._limits = limits
        self._outfit = Outfit(say)

    def toolkit(
        self, source: str, nursery: Nursery, arch: str, unwanted: Callable[[], bool]
    ) -> str:
        """Return the key of the toolkit to build `source` with, prepared now; "" for none."""
        store = self._grounds.store
        if store is None or not compiles(source):
            return ""
        nursery.awake()
        if nursery.ready.level < WALLED:
            return ""
        return self._outfit.ready(
            source,
            nursery,
            lambda: self._grounds.of_maker(store, arch),
            unwanted,
            cuda=self._grounds.kind == "cuda",
        )

    def building(
        self,
        source: str,
        nursery: Nursery,
        folder: Path,
        arch: str,
        unwanted: Callable[[], bool],
        modules: Mapping[str, str] = NO_MODULES,
    ) -> Building:
        """Return what builds `source` in `folder`, once all is prepared for it."""
        toolkit = self.toolkit(source, nursery, arch, unwanted)
        return Building(
            nursery,
            self._grounds.confinement(folder, trusted=False, arch=arch, toolkit=toolkit),
            source,
            device=self._grounds.kind,
            store=self._grounds.store,
            toolkit=toolkit,
            unwanted=unwanted,
            modules=modules,
        )


class Yard:
    """Builds ahead: a zygote of their own, so that no measurement ends or stops them.

    A runner's processes are told from others by their zygote, and a judge that begins anew ends its
    own with all that hangs on it.  The card is not in here.
    """

    def __init__(
        self, builds: Builds, limits: Limits, root: Path, least: int, hide: tuple[str, ...]
    ) -> None:
        self._builds = builds
        self._limits = limits
        self._scratch = Scratch(root)
        self._room = Room(self._scratch.root.parent)
        self._nursery = Nursery(
            "cpu", self._scratch.root, limits.output_kib * 1024, least=least, hide=hide
        )
        self._closed = threading.Event()

    def prepare(self, sources: list[str], arch: str) -> None:
        """Prepare in the background what `sources` will be built with."""
        threading.Thread(target=self._prepare, args=(sources, arch), daemon=True).start()

    def _prepare(self, sources: list[str], arch: str) -> None:
        try:
            for source in sources:
                self._builds.toolkit(source, self._nursery, arch, self._closed.is_set)
        except (Unjudgeable, Unwanted):
            return  # the first build that needs it tries again, and says so

    def build(
        self,
        source: str,
        arch: str,
        unwanted: Callable[[], bool],
        modules: Mapping[str, str] = NO_MODULES,
    ) -> Built | None:
        """Build `source` now; None when the world failed, and the judge must do it in turn."""
        folder = self._scratch.fresh("candidate")

        def stop() -> bool:
            return self._closed.is_set() or unwanted()

        try:
            building = self._builds.building(source, self._nursery, folder, arch, stop, modules)
            built = building.run(self._limits.build_s)
            if built.fault is not None:
                self._room.insist_for(built.fault.word, f"{built.fault.reason} {built.fault.log}")
            return built
        except Unjudgeable:
            self._scratch.remove(folder)
            return None
        except BaseException:
            self._scratch.remove(folder)
            raise

    def remove(self, built: Built) -> None:
        """Remove a candidate's folder."""
        self._scratch.remove(Path(built.confinement.folder))

    def close(self) -> None:
        """End all builds and remove what they made."""
        self._closed.set()
        self._nursery.end()
        self._scratch.close()
