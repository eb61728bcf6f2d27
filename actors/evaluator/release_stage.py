"""The release stage: a winner becomes a drop-in file, and is used as its users will use it.

The judge's side of `children/release_checks/`.  A use in which the kernels turn out wrong becomes
a limit: the file then runs the plain forward there, and that is checked again.  What a limit can't
mend is said with the winner; what makes it no drop-in at all makes its verdict `wrong`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from actors.evaluator.build.stage import BuildStage
from actors.evaluator.fastbuild.build_store import TOOLKITS_VARIABLE
from actors.evaluator.ipc import logs
from actors.evaluator.ipc.orders import CandidateRaised, Confinement, ImportSource
from actors.evaluator.ipc.runner_orders import CheckRelease, FromRunner, ReleaseChecked
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.zygote_client import ZygoteClient
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
NO_COMPILER_CHECK = "no compiler"
ESSENTIAL_CHECKS = ("fresh process", "state dict", "gradients")
CHECK_S = 90.0  # of one check beside the module's own calls: torch.compile takes its time
ALL_S = 300.0  # a check that would begin later is not run


class ReleaseStage:
    """The release checks of one winner."""

    def __init__(
        self,
        zygote: ZygoteClient,
        fixture: ReferenceFixture,
        building: Callable[[str, str], BuildStage],
        doing: Callable[[str], None],
        checks: tuple[str, ...] = (*CHECKS, NO_COMPILER_CHECK),
    ) -> None:
        """`building` returns, for a name and a source, what builds it in a fresh folder."""
        self._checks = checks
        self._zygote = zygote
        self._fixture = fixture
        self._limits = fixture.limits
        self._building = building
        self._doing = doing

    def run(self, candidate: str) -> Release:
        """Return what the winner passed, and its limits."""
        release = self._check(Release(judged=self._fixture.judged), candidate, self._checks)
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
            source = drop_in_source(self._fixture.task.source, candidate, release)
        except UnreleasableError as error:
            return msgspec.structs.replace(release, failed={"fresh process": str(error)})
        modules = self._fixture.task.modules
        order = ImportSource(source=source, class_name="ModelNew", modules=modules)
        battery = _CheckProcess(self._zygote, self._building, self._limits.build_s, order)
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


class _CheckProcess:
    """One drop-in file in a child of its own, replaced when a check ends it."""

    def __init__(
        self,
        zygote: ZygoteClient,
        building: Callable[[str, str], BuildStage],
        build_s: float,
        order: ImportSource,
    ) -> None:
        """`order` imports the drop-in file."""
        self._zygote = zygote
        self._build_s = build_s
        self._order = order
        self._building = building
        built = building("release", order.source)
        built.run(build_s)
        self._confinement = built.confinement
        self._child: ChildClient[FromRunner] | None = None

    def outcome(self, name: str, seconds: float) -> ReleaseChecked:
        """Run one check; a child that does not answer has failed it."""
        if name == NO_COMPILER_CHECK:
            self.close()
            self._confinement = _without_compiler(self._building(NO_COMPILER_CHECK, "").confinement)
        child = self._child or self._start()
        if isinstance(child, ReleaseChecked):
            return child
        self._child = child
        answer = child.ask(CheckRelease(name=name), seconds)
        if isinstance(answer, ChildFailure):
            self._child = None
            return _failure(answer.readable(), self._confinement)
        said = answer[0]
        if not isinstance(said, ReleaseChecked):
            return _failure(str(said)[:300], self._confinement)
        return msgspec.structs.replace(said, reason=_clean(said.reason, self._confinement))

    def _start(self) -> ChildClient[FromRunner] | ReleaseChecked:
        child: ChildClient[FromRunner] = self._zygote.spawn(
            "runner", self._confinement, FromRunner, trusted=False
        )
        answer = child.ask(self._order, self._build_s)
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            child.kill()
            said = answer.readable() if isinstance(answer, ChildFailure) else str(answer[0])[:300]
            return _failure(f"the file can't be imported: {said}", self._confinement)
        return child

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child = None


def essential_failure(release: Release) -> str:
    """Return why the winner is no drop-in at all; "" when it is one."""
    for name in ESSENTIAL_CHECKS:
        if name in release.failed:
            return f"not a drop-in module: {name}: {release.failed[name]}"
    return ""


def _without_compiler(confinement: Confinement) -> Confinement:
    """Return surroundings in which nothing can be built and nothing was."""
    environment = {
        **{
            name: value
            for name, value in confinement.environment.items()
            if name != TOOLKITS_VARIABLE
        },
        "PATH": confinement.folder,
    }
    return msgspec.structs.replace(confinement, environment=environment)


def _failure(reason: str, confinement: Confinement) -> ReleaseChecked:
    return ReleaseChecked(passed=False, reason=_clean(reason, confinement))


def _clean(reason: str, confinement: Confinement) -> str:
    return logs.one_line(logs.clean_log(reason, [confinement.folder]))[:300]
