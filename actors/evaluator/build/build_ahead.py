"""The judge's builds: in turn with its measurements, or ahead of them with a zygote of their own.

On a GPU, candidates are built while another one is measured.  On a CPU a build would disturb the
measurement, so builds and timing take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from actors.evaluator.build.build_stage import NO_MODULES, BuildResult, BuildStage
from actors.evaluator.build.toolkits import ToolkitProvider
from actors.evaluator.fastbuild import may_compile, slots_here
from actors.evaluator.sandbox import clock_priority
from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.disk_space import DiskSpace
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError, ZygoteClient
from protocol.settings import Limits
from protocol.values import DeviceKind

MIN_STORE_LEVEL = 2  # from this sandbox level on, no child can write to the store
MAX_AHEAD = 4
SLOTS_FOR_BOTH = 4  # from so many build slots on, headers are prepared beside builds
RESERVED_CORES = 2  # cores for judge and runner, which are on the clock


def builds_ahead(device: DeviceKind) -> int:
    """Return how many builds may run ahead of the measurements of `device`."""
    if device == "cpu":
        return 0
    return min(MAX_AHEAD, slots_here(RESERVED_CORES))


class Builder:
    """The builds of one judge: where, and with which toolkit."""

    def __init__(
        self, confinements: ConfinementFactory, limits: Limits, log_line: Callable[[str], None]
    ) -> None:
        self._confinements = confinements
        self._limits = limits
        self._toolkits = ToolkitProvider(log_line)

    def toolkit(
        self,
        source: str,
        zygote: ZygoteClient,
        arch: str,
        is_cancelled: Callable[[], bool],
        is_background_over: Callable[[], bool] | None = None,
    ) -> str:
        """Return the key of the toolkit to build `source` with, prepared now; "" for none.

        `is_background_over`: as for `ToolkitProvider.toolkit_for`.
        """
        store = self._confinements.store
        if store is None or not may_compile(source):
            return ""
        zygote.ensure_started()
        if zygote.ready.level < MIN_STORE_LEVEL:
            return ""
        return self._toolkits.toolkit_for(
            source,
            zygote,
            lambda: self._confinements.toolkit_confinement(store, arch),
            is_cancelled,
            cuda=self._confinements.kind == "cuda",
            is_background_over=is_background_over,
        )

    def build_stage(
        self,
        source: str,
        zygote: ZygoteClient,
        folder: Path,
        arch: str,
        is_cancelled: Callable[[], bool],
        modules: Mapping[str, str] = NO_MODULES,
        is_background_over: Callable[[], bool] | None = None,
    ) -> BuildStage:
        """Return the build of `source` in `folder`, once its toolkit is prepared."""
        toolkit = self.toolkit(source, zygote, arch, is_cancelled, is_background_over)
        return BuildStage(
            zygote,
            self._confinements.confinement(folder, trusted=False, arch=arch, toolkit=toolkit),
            source,
            device=self._confinements.kind,
            store=self._confinements.store,
            toolkit=toolkit,
            is_cancelled=is_cancelled,
            modules=modules,
        )


class BuildAhead:
    """Builds ahead of their turn, with a zygote of their own: no measurement ends or freezes them.

    The freezer knows a runner's processes by their zygote, and a judge that starts afresh ends its
    zygote with all children.  Children of this zygote have no GPU.
    """

    def __init__(
        self, builder: Builder, limits: Limits, root: Path, min_level: int, hide: tuple[str, ...]
    ) -> None:
        self._builder = builder
        self._limits = limits
        self._scratch = Scratch(root)
        self._disk = DiskSpace(self._scratch.root.parent)
        self._zygote = ZygoteClient(
            "cpu",
            self._scratch.root,
            limits.output_kib * 1024,
            min_level=min_level,
            hide=hide,
            stays_off=clock_priority.measuring_processors(),
        )
        self._closed = threading.Event()

    def prepare(self, sources: list[str], arch: str) -> None:
        """Prepare in the background the toolkit that `sources` will be built with."""
        threading.Thread(target=self._prepare, args=(sources, arch), daemon=True).start()

    def _prepare(self, sources: list[str], arch: str) -> None:
        try:
            for source in sources:
                self._builder.toolkit(source, self._zygote, arch, self._closed.is_set)
        except (JudgeUnavailableError, EvaluationCancelledError):
            return  # the first build that needs it tries again, and says so

    def build(
        self,
        source: str,
        arch: str,
        is_cancelled: Callable[[], bool],
        modules: Mapping[str, str] = NO_MODULES,
    ) -> BuildResult | None:
        """Build `source` now; None if the machine failed, and the judge must build it in turn."""
        folder = self._scratch.fresh("candidate")

        def is_stopped() -> bool:
            return self._closed.is_set() or is_cancelled()

        try:
            stage = self._builder.build_stage(
                source, self._zygote, folder, arch, is_stopped, modules, self._end_of_background()
            )
            built = stage.run(self._limits.build_s)
            if built.fault is not None:
                self._disk.require_for(
                    built.fault.outcome, f"{built.fault.reason} {built.fault.log}"
                )
            return built
        except JudgeUnavailableError:
            self._scratch.remove(folder)
            return None
        except BaseException:
            self._scratch.remove(folder)
            raise

    def _end_of_background(self) -> Callable[[], bool] | None:
        """Return what ends the preparation of headers beside builds; None: there is none."""
        return self._closed.is_set if slots_here(RESERVED_CORES) >= SLOTS_FOR_BOTH else None

    def remove(self, built: BuildResult) -> None:
        """Remove a candidate's folder."""
        self._scratch.remove(Path(built.confinement.folder))

    def close(self) -> None:
        """End all builds and remove their folders."""
        self._closed.set()
        self._zygote.end()
        self._scratch.close()
