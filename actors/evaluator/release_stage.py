"""The release stage: a winner becomes a drop-in file, which is then tried in its uses.

The judge's side of `children/release_checks/`.  A use in which the kernels are wrong becomes a
limit: the file then runs the plain forward in that use, and is checked again.  A failure that no
limit prevents is reported with the winner.  A failed essential check makes the verdict `wrong`: no
other check is made then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

import msgspec

from actors.evaluator.build.build_stage import BuildStage
from actors.evaluator.fastbuild import TOOLKITS_VARIABLE
from actors.evaluator.ipc import logs
from actors.evaluator.ipc.orders import CandidateRaised, Confinement, ImportSource
from actors.evaluator.ipc.runner_orders import CheckRelease, FromRunner, ReleaseChecked
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.release.composition import UnreleasableError, drop_in_source
from actors.work_context import EvaluationContext
from protocol.release import LIMITS, Judged, Release

MODULE_STATE_CHECK = "module state"  # of modules whose calls change an attribute
FIXED_INPUTS_CHECK = "fixed inputs"  # of tasks with inputs that are equal in each draw
CHECKS = (
    "fresh process",
    MODULE_STATE_CHECK,
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
    FIXED_INPUTS_CHECK,  # the last in its process: kernels may be anything on such values
)
NO_COMPILER_CHECK = "no compiler"
ESSENTIAL_CHECKS = ("fresh process", MODULE_STATE_CHECK, "state dict", "gradients")
CHECK_S = 90.0  # for one check in addition to the module's own calls: torch.compile is slow
SLOWEST_FACTOR = 3.0  # a check may take so many times as long as the slowest that has passed
ALL_CHECKS_S = 300.0  # a check that would begin later is skipped


class FreshBuilds(Protocol):
    """Makes builds, each in a new folder."""

    def stage(self, name: str, source: str) -> BuildStage:
        """Return the stage that builds `source` in a new folder of this name."""
        ...


class ReleaseStage:
    """The release checks of one winner."""

    def __init__(
        self, fixture: ReferenceFixture, builds: FreshBuilds, context: EvaluationContext
    ) -> None:
        """`context` gets the name of each check when it begins."""
        self._fixture = fixture
        self._limits = fixture.limits
        self._builds = builds
        self._context = context

    def run(self, candidate: str, more_judged: tuple[Judged, ...] = ()) -> Release:
        """Return the winner's limits and the checks that it passed, failed and skipped.

        The checks are made in the fixture's case; `more_judged`: the other cases of the task.
        """
        begun = Release(judged=self._fixture.judged, more_judged=more_judged)
        checks = [*CHECKS, NO_COMPILER_CHECK]
        if begun.judged.carried is None:
            checks.remove(MODULE_STATE_CHECK)
        if not self._fixture.facts.fixed_inputs:
            checks.remove(FIXED_INPUTS_CHECK)
        release = self._check(begun, candidate, checks)
        limits = tuple(limit for limit in LIMITS if limit in release.failed)
        if not limits or essential_failure(release):
            return release
        return self._check(
            msgspec.structs.replace(release, limits=limits), candidate, ("fresh process", *limits)
        )

    def _check(self, release: Release, candidate: str, names: Iterable[str]) -> Release:
        """Run these checks with the release's limits; return the release with their results."""
        passed = [name for name in release.passed if name not in names]
        failed = {name: reason for name, reason in release.failed.items() if name not in names}
        skipped = dict(release.skipped)
        try:
            source = drop_in_source(self._fixture.task.source, candidate, release)
        except UnreleasableError as error:
            return msgspec.structs.replace(release, failed={"fresh process": str(error)})
        modules = self._fixture.task.modules
        order = ImportSource(source=source, class_name="ModelNew", modules=modules)
        process = _CheckProcess(self._fixture, self._builds, order)
        until = time.monotonic() + ALL_CHECKS_S
        limit_s = CHECK_S + self._limits.check_s
        slowest_s = 0.0  # a busy machine is not a fault of the winner's
        for name in names:
            if "second instance" in release.limits:  # the kernels run in one instance a process
                process.close()
            if name not in ESSENTIAL_CHECKS and not failed.keys().isdisjoint(ESSENTIAL_CHECKS):
                skipped[name] = "an essential check has failed"
                continue
            self._context.set_activity(f"checking {name} of")
            if time.monotonic() > until:
                skipped[name] = f"the checks before it took {ALL_CHECKS_S:g} s"
                continue
            began = time.monotonic()
            longer_s = max(limit_s, SLOWEST_FACTOR * slowest_s)
            outcome = process.outcome(name, min(longer_s, SLOWEST_FACTOR * limit_s))
            if outcome.passed:
                passed.append(name)
                slowest_s = max(slowest_s, time.monotonic() - began)
            else:
                (skipped if outcome.skipped else failed)[name] = outcome.reason
        process.close()
        return msgspec.structs.replace(
            release, passed=tuple(passed), failed=failed, skipped=skipped
        )


class _CheckProcess:
    """The child with one drop-in file; a new child replaces one that a check has ended."""

    def __init__(
        self,
        fixture: ReferenceFixture,
        builds: FreshBuilds,
        order: ImportSource,
    ) -> None:
        """`order` imports the drop-in file; the checks are made in the fixture's case."""
        self._fixture = fixture
        self._zygote = fixture.zygote
        self._build_s = fixture.limits.build_s
        self._order = order
        self._builds = builds
        stage = builds.stage("release", order.source)
        stage.run(self._build_s)
        self._confinement = stage.confinement
        self._child: ChildClient[FromRunner] | None = None

    def outcome(self, name: str, limit_s: float) -> ReleaseChecked:
        """Run one check; a child that does not answer within `limit_s` has failed it."""
        if name == NO_COMPILER_CHECK:
            self.close()
            self._confinement = _without_compiler(
                self._builds.stage(NO_COMPILER_CHECK, "").confinement
            )
        child = self._child or self._start()
        if isinstance(child, ReleaseChecked):
            return child
        self._child = child
        check = CheckRelease(
            name=name,
            case=self._fixture.task.case,
            fills_on_card=self._fixture.facts.fills_on_card,
        )
        answer = child.ask(check, limit_s)
        if isinstance(answer, ChildFailure):
            self._child = None
            return _failure(answer.readable(), self._confinement)
        checked = answer[0]
        if not isinstance(checked, ReleaseChecked):
            return _failure(str(checked)[:300], self._confinement)
        return msgspec.structs.replace(checked, reason=_clean(checked.reason, self._confinement))

    def _start(self) -> ChildClient[FromRunner] | ReleaseChecked:
        child: ChildClient[FromRunner] = self._zygote.spawn(
            "runner", self._confinement, FromRunner, trusted=False
        )
        answer = child.ask(self._order, self._build_s)
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            child.kill()
            error = answer.readable() if isinstance(answer, ChildFailure) else str(answer[0])[:300]
            return _failure(f"the file can't be imported: {error}", self._confinement)
        return child

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child = None


def essential_failure(release: Release) -> str:
    """Return why the winner is not a drop-in module; "" when it is one."""
    for name in ESSENTIAL_CHECKS:
        if name in release.failed:
            return f"not a drop-in module: {name}: {release.failed[name]}"
    if release.judged.carried is not None and MODULE_STATE_CHECK in release.skipped:
        untried = release.skipped[MODULE_STATE_CHECK]
        return f"not a drop-in module: {MODULE_STATE_CHECK} can't be checked: {untried}"
    return ""


def _without_compiler(confinement: Confinement) -> Confinement:
    """Return the confinement without a compiler on PATH and without toolkits."""
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
