"""The confinement of a judge's children: what each may read, write and take.

It also holds the build store, the one folder of this machine that outlives a child.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from actors.evaluator.fastbuild import TOOLKITS_VARIABLE, BuildStore
from actors.evaluator.ipc.orders import Confinement
from actors.evaluator.sandbox import paths, sandbox
from protocol.settings import Limits
from protocol.values import DeviceKind

MAX_PROCESSES = 1024  # of one candidate, threads counted; a compiler needs a few dozen
MAX_FILE_GIB = 4
TASK_COPIES = 4  # honest code may hold this many copies of a task's tensors beyond the limit
CUDA_ADDRESS_SPACE_GIB = 64.0  # CUDA maps much more than it uses
BUILD_JOBS = 4
IMPORT_PATHS_VARIABLE = "STARK_IMPORT_PATHS"  # of a child: where the task's packages are


class ConfinementFactory:
    """Makes the confinements of one judge; `store` is None where fast builds can't be stored."""

    def __init__(
        self,
        kind: DeviceKind,
        limits: Limits,
        hide: tuple[Path, ...],
        store: BuildStore | None,
        import_paths: tuple[str, ...] = (),
    ) -> None:
        """`import_paths`: folders that all children may read, and import from."""
        self.kind = kind
        self.limits = limits
        self.store = store
        self._open_files = sandbox.candidates_open_files()
        self.task_bytes = 0  # size of the present task's inputs, parameters and outputs
        private = [*hide, *paths.home_folders(), *map(Path, paths.SHARED_FOLDERS)]
        self._import_paths = import_paths
        self._readable_paths = (*paths.required_paths(), *import_paths)
        self._toolkits: tuple[str, ...] = ()
        if store is not None:
            private.append(store.root)  # a candidate must not read another's results
            self._toolkits = (str(store.toolkits),)
        self.hide = paths.hidden_paths(private)

    def confinement(
        self, folder: Path, *, trusted: bool, arch: str = "", toolkit: str = ""
    ) -> Confinement:
        """Return the confinement of a child whose scratch is `folder`.

        With a `toolkit` it uses fast builds and may read the toolkits.
        """
        cuda = self.kind == "cuda"
        data = int(self.limits.memory_gib * 2**30) + TASK_COPIES * self.task_bytes
        if cuda:
            data = max(data, int(CUDA_ADDRESS_SPACE_GIB * 2**30))
        extra = {TOOLKITS_VARIABLE: self._toolkits[0]} if toolkit else {}
        if self._import_paths:
            extra[IMPORT_PATHS_VARIABLE] = os.pathsep.join(self._import_paths)
        return Confinement(
            folder=str(folder),
            hide=self.hide,
            keep=(*self._readable_paths, *(self._toolkits if toolkit else ())),
            environment=self._environment(folder, arch, extra),
            data_bytes=None if trusted else data,
            file_bytes=None if trusted else MAX_FILE_GIB * 2**30,
            processes=MAX_PROCESSES,
            open_files=None if trusted else self._open_files,
            memory_bytes=None if trusted else self._memory_limit(),
        )

    def toolkit_confinement(self, store: BuildStore, arch: str) -> Confinement:
        """Return the confinement of the child that makes toolkits; it may write to their folder."""
        return Confinement(
            folder=str(store.toolkits),
            hide=self.hide,
            keep=self._readable_paths,
            environment=self._environment(store.toolkits, arch, {}),
            processes=MAX_PROCESSES,
        )

    def _environment(self, folder: Path, arch: str, extra: Mapping[str, str]) -> dict[str, str]:
        jobs = {"MAX_JOBS": str(min(BUILD_JOBS, os.cpu_count() or 1))}
        archs = {"TORCH_CUDA_ARCH_LIST": arch} if arch else {}
        return sandbox.environment(dict(os.environ), str(folder), **jobs, **archs, **extra)

    def _memory_limit(self) -> int:
        """Return the memory limit of a candidate's processes together, shared pages included."""
        whole = int(2 * self.limits.memory_gib * 2**30) + TASK_COPIES * self.task_bytes
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(whole, ram // 2) if self.kind == "cuda" else whole
