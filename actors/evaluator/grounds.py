"""What every child of one judge may see and take, and what of this machine lasts between them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from actors.evaluator import sandbox
from actors.evaluator.fastbuild.store import TOOLKITS, Store
from actors.evaluator.isolation import surroundings
from actors.evaluator.wire.orders import Confinement
from protocol.settings import Limits
from protocol.values import DeviceKind

PROCESSES = 1024  # of one candidate, threads counted; a compiler needs a few dozen
FILE_GIB = 4
COPIES = 4  # of a task's tensors that honest code may hold beside what the limit is meant for
CUDA_DATA_GIB = 64.0  # CUDA maps much more than it uses
BUILD_JOBS = 4


class Grounds:
    """One judge's surroundings; `store` is None where fast builds can't be kept."""

    def __init__(
        self, kind: DeviceKind, limits: Limits, hide: tuple[Path, ...], store: Store | None
    ) -> None:
        self.kind = kind
        self.limits = limits
        self.store = store
        self.task_bytes = 0  # of the present task's inputs, parameters and outputs
        private = [*hide, *surroundings.homes(), *map(Path, surroundings.SHARED)]
        self._keep = surroundings.needed()
        self._toolkits: tuple[str, ...] = ()
        if store is not None:
            private.append(store.root)  # one candidate's results are no other's
            self._toolkits = (str(store.toolkits),)
        self.hide = surroundings.hidden(private)

    def confinement(
        self, folder: Path, *, trusted: bool, arch: str = "", toolkit: str = ""
    ) -> Confinement:
        """Return the confinement of a child whose scratch is `folder`.

        With a `toolkit` it builds the short way; the toolkits are its to read.
        """
        cuda = self.kind == "cuda"
        data = int(self.limits.memory_gib * 2**30) + COPIES * self.task_bytes
        if cuda:
            data = max(data, int(CUDA_DATA_GIB * 2**30))
        extra = {TOOLKITS: self._toolkits[0]} if toolkit else {}
        return Confinement(
            folder=str(folder),
            hide=self.hide,
            keep=(*self._keep, *(self._toolkits if toolkit else ())),
            environment=self._environment(folder, arch, extra),
            data_bytes=None if trusted else data,
            file_bytes=None if trusted else FILE_GIB * 2**30,
            processes=PROCESSES,
            memory_bytes=None if trusted else self._together(),
        )

    def of_maker(self, store: Store, arch: str) -> Confinement:
        """Return the confinement of the child that makes toolkits: their folder is its own."""
        return Confinement(
            folder=str(store.toolkits),
            hide=self.hide,
            keep=self._keep,
            environment=self._environment(store.toolkits, arch, {}),
            processes=PROCESSES,
        )

    def _environment(self, folder: Path, arch: str, extra: Mapping[str, str]) -> dict[str, str]:
        jobs = {"MAX_JOBS": str(min(BUILD_JOBS, os.cpu_count() or 1))}
        archs = {"TORCH_CUDA_ARCH_LIST": arch} if arch else {}
        return sandbox.environment(dict(os.environ), str(folder), **jobs, **archs, **extra)

    def _together(self) -> int:
        """Return what a candidate's processes may take together, pages that they share included."""
        whole = int(2 * self.limits.memory_gib * 2**30) + COPIES * self.task_bytes
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(whole, ram // 2) if self.kind == "cuda" else whole
