"""The release stage: a winner becomes a drop-in file, and is used as its users will use it.

The judge's side of `children/release_checks.py`.  A use in which the kernels turn out wrong becomes
a limit: the file then runs the plain forward there, and that is checked again.  What a limit can't
mend is said with the winner; what makes it no drop-in at all makes its verdict `wrong`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from actors.evaluator import evidence
from actors.evaluator.build import Building
from actors.evaluator.fastbuild.store import TOOLKITS
from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.isolation.nursery import Nursery
from actors.evaluator.standard import Standard
from actors.evaluator.wire.orders import Confinement, Import, Raised
from actors.evaluator.wire.runner_orders import CheckRelease, FromRunner, ReleaseChecked
from actors.release.composition import UnreleasableError, drop_in_source
from protocol.release import LIMITS, Release

CHECKS = (
    "fresh process",
    "gradients",
    "state dict",
    "deepcopy",
    "pickle",
    "other batch",
    "non contiguous",
    "autocast",
    "other mode",
    "second instance",
    "threads",
    "compile",
    "export",
    "jit trace",
    "vmap",
    "side stream",
    "CUDA graph",
    "second device",
)
NO_COMPILER = "no compiler"
ESSENTIAL = ("fresh process", "state dict", "gradients")
CHECK_S = 90.0  # of one check beside the module's own calls: torch.compile takes its time
ALL_S = 300.0  # a check that would begin later is not run


class ReleaseStage:
    """The release checks of one winner."""

    def __init__(
        self,
        nursery: Nursery,
        standard: Standard,
        building: Callable[[str, str], Building],
        doing: Callable[[str], None],
        checks: tuple[str, ...] = (*CHECKS, NO_COMPILER),
    ) -> None:
        """`building` returns, for a name and a source, what builds it in a fresh folder."""
        self._checks = checks
        self._nursery = nursery
        self._standard = standard
        self._limits = standard.limits
        self._building = building
        self._doing = doing

    def run(self, candidate: str) -> Release:
        """Return what the winner passed, and its limits."""
        release = self._check(Release(judged=self._standard.judged), candidate, self._checks)
        found = tuple(limit for limit in LIMITS if limit in release.failed)
        if not found or essential_failure(release):
            return release
        return self._check(
            msgspec.structs.replace(release, limits=found), candidate, ("fresh process", *found)
        )

    def _check(self, release: Release, candidate: str, names: Iterable[str]) -> Release:
        """Run these checks of the file with its present limits; return what is known then."""
        passed = [name for name in release.passed if name not in names]
        failed = {name: why for name, why in release.failed.items() if name not in names}
        skipped = dict(release.skipped)
        try:
            source = drop_in_source(self._standard.task.source, candidate, release)
        except UnreleasableError as error:
            return msgspec.structs.replace(release, failed={"fresh process": str(error)})
        modules = self._standard.task.modules
        order = Import(source=source, class_name="ModelNew", modules=modules)
        battery = _Battery(self._nursery, self._building, self._limits.build_s, order)
        until = time.monotonic() + ALL_S
        patience = CHECK_S + self._limits.check_s
        for name in names:
            self._doing(f"checking {name} of")
            if time.monotonic() > until:
                skipped[name] = f"the checks before it took {ALL_S:g} s"
                continue
            outcome = battery.outcome(name, patience)
            if outcome.passed:
                passed.append(name)
            else:
                (skipped if outcome.skipped else failed)[name] = outcome.reason
        battery.close()
        return msgspec.structs.replace(
            release, passed=tuple(passed), failed=failed, skipped=skipped
        )


class _Battery:
    """One drop-in file in a child of its own, replaced when a check ends it."""

    def __init__(
        self,
        nursery: Nursery,
        building: Callable[[str, str], Building],
        build_s: float,
        order: Import,
    ) -> None:
        """`order` imports the drop-in file."""
        self._nursery = nursery
        self._build_s = build_s
        self._order = order
        self._building = building
        built = building("release", order.source)
        built.run(build_s)
        self._confinement = built.confinement
        self._child: Child[FromRunner] | None = None

    def outcome(self, name: str, seconds: float) -> ReleaseChecked:
        """Run one check; a child that does not answer has failed it."""
        if name == NO_COMPILER:
            self.close()
            self._confinement = _without_compiler(self._building(NO_COMPILER, "").confinement)
        child = self._child or self._start()
        if isinstance(child, ReleaseChecked):
            return child
        self._child = child
        answer = child.ask(CheckRelease(name=name), seconds)
        if isinstance(answer, Gone):
            self._child = None
            return _failure(answer.said(), self._confinement)
        said = answer[0]
        if not isinstance(said, ReleaseChecked):
            return _failure(str(said)[:300], self._confinement)
        return msgspec.structs.replace(said, reason=_clean(said.reason, self._confinement))

    def _start(self) -> Child[FromRunner] | ReleaseChecked:
        child: Child[FromRunner] = self._nursery.spawn(
            "runner", self._confinement, FromRunner, trusted=False
        )
        answer = child.ask(self._order, self._build_s)
        if isinstance(answer, Gone) or isinstance(answer[0], Raised):
            child.kill()
            said = answer.said() if isinstance(answer, Gone) else str(answer[0])[:300]
            return _failure(f"the file can't be imported: {said}", self._confinement)
        return child

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child = None


def essential_failure(release: Release) -> str:
    """Return why the winner is no drop-in at all; "" when it is one."""
    for name in ESSENTIAL:
        if name in release.failed:
            return f"not a drop-in module: {name}: {release.failed[name]}"
    return ""


def _without_compiler(confinement: Confinement) -> Confinement:
    """Return surroundings in which nothing can be built and nothing was."""
    environment = {
        **{name: value for name, value in confinement.environment.items() if name != TOOLKITS},
        "PATH": confinement.folder,
    }
    return msgspec.structs.replace(confinement, environment=environment)


def _failure(reason: str, confinement: Confinement) -> ReleaseChecked:
    return ReleaseChecked(passed=False, reason=_clean(reason, confinement))


def _clean(reason: str, confinement: Confinement) -> str:
    return evidence.one_line(evidence.clean(reason, [confinement.folder]))[:300]
