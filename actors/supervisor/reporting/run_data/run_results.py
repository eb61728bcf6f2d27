"""The results of a run: result.json, best.py, and the exit status.

All of them come from a snapshot of `run.db`.  A figure that was not measured is null, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from actors.exit_status import ExitStatus
from actors.release.composition import drop_in_source
from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.case_rows import CaseRow, case_rows
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.run_tables import AttemptRecord
from actors.supervisor.reporting.run_data.snapshot import NodeView, Snapshot, TaskState
from actors.supervisor.reporting.run_data.unit_costs import usd_per_percent
from protocol.atomic_file import write_atomically
from protocol.directives import REJECTED_BY_PERSON
from protocol.layouts import describe
from protocol.release import LIMITS, Release
from protocol.settings import Settings
from protocol.values import Outcome, Seconds, Value

RESULT_FILE = "result.json"


class ReleaseResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The release checks of the winner as a drop-in module."""

    passed: tuple[str, ...]
    plain_forward: tuple[str, ...]  # uses in which the kernels were not right and do not run
    failed: dict[str, str]  # check -> what was seen
    not_run: dict[str, str]  # check -> why


class BestResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One candidate's figures; `median_us` is on the clock of the reference's `eager_us`."""

    node: int
    median_us: float | None
    speedup_eager: float | None
    speedup_eager_ci95: tuple[float, float] | None
    speedup_compile: float | None
    speedup_max_autotune: float | None
    confirmed: bool = False  # measured again at length; otherwise a first look's figures
    release: ReleaseResult | None = None  # null until it was checked as a drop-in


class ReferenceResult(Value, frozen=True, kw_only=True):
    """The times that the winner is compared with."""

    eager_us: float | None
    compile_us: float | None
    max_autotune_us: float | None


class AttemptResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One recorded attempt; `us` is on the clock of the reference's `eager_us`."""

    number: int
    parent: int
    kind: str  # improve, repair, inject: its source is a person's
    idea: str
    verdict: str
    reason: str
    failed_in: str
    speedup: float | None
    low: float | None
    high: float | None
    us: float | None
    confirmed: bool
    build_s: float | None
    check_s: float | None
    timing_s: float | None
    usd: float | None
    input_tokens: int
    output_tokens: int


class TaskResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One object under `tasks` in result.json; its keys are fixed, new ones come last."""

    task: str
    status: Literal["finished", "stopped"]
    device: str
    hardware: str | None
    model: str
    strategy: str
    policy: str | None  # null: the strategy uses none
    seed: int
    budget: int
    attempts: int
    compiled: int
    correct: int
    best: BestResult | None  # null: nothing faster was found (yet)
    reference: ReferenceResult
    usd: float | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    seconds: float
    sandbox_level: int | None  # the weakest of all attempts
    closest: BestResult | None = None  # the best correct candidate where `best` is null
    notes: tuple[str, ...] = ()  # why the task ended before its budget, what could not be checked
    nodes: tuple[AttemptResult, ...] = ()  # every attempt that has a verdict, by number
    cases: tuple[CaseRow, ...] | UnsetType = UNSET  # only of a task that has cases
    usd_per_percent: float | None = None  # for each 1 % of eager's time that the best saves

    @property
    def is_won(self) -> bool:
        """Whether a candidate was confirmed to be faster."""
        return self.best is not None and self.best.confirmed


class RunResults(Value, frozen=True, kw_only=True):
    """The whole of result.json."""

    tasks: tuple[TaskResult, ...]
    # Only in a run that a person steered.
    person: dict[str, int] = msgspec.field(default_factory=dict)  # applied directives, by verb
    paused: bool = False


def run_results(
    snapshot: Snapshot, settings: Settings, attempts: Sequence[AttemptRecord] = ()
) -> RunResults:
    """Return the present results of all tasks; `attempts` are those that are listed."""
    nodes: dict[str, list[AttemptResult]] = {}
    for row in attempts:
        if row.verdict is not None:
            nodes.setdefault(row.task, []).append(_attempt_result(row))
    return RunResults(
        tasks=tuple(
            _task_result(task, snapshot, settings, tuple(nodes.get(task.name, ())))
            for task in snapshot.tasks
        ),
        person=snapshot.person,
        paused=snapshot.is_paused,
    )


def _attempt_result(row: AttemptRecord) -> AttemptResult:
    figures = {name: getattr(row, name) for name in AttemptResult.__struct_fields__}
    texts = {name: figures[name] or "" for name in ("idea", "reason", "failed_in")}
    return msgspec.convert({**figures, **texts}, AttemptResult)


def exit_status_of(results: RunResults) -> ExitStatus:
    """Return STOPPED while a task is unfinished, DONE if every task has a winner, else NEGATIVE."""
    if not results.tasks or any(task.status == "stopped" for task in results.tasks):
        return ExitStatus.STOPPED
    return ExitStatus.DONE if all(task.is_won for task in results.tasks) else ExitStatus.NEGATIVE


def to_json(results: RunResults) -> str:
    """Return result.json's text."""
    return msgspec.json.format(msgspec.json.encode(results), indent=2).decode() + "\n"


def write_result(run_dir: Path, results: RunResults) -> None:
    """Write result.json."""
    write_atomically(run_dir / RESULT_FILE, to_json(results))


def is_run_over(run_dir: Path) -> bool:
    """Whether a folder holds the results of a run whose tasks are all finished."""
    results = _last_results(run_dir)
    return bool(results.tasks) and all(task.status == "finished" for task in results.tasks)


def _last_results(run_dir: Path) -> RunResults:
    """Return the content of result.json; no tasks where it can't be read."""
    try:
        return msgspec.json.decode((run_dir / RESULT_FILE).read_bytes(), type=RunResults)
    except (OSError, ValueError):
        return RunResults(tasks=())


def best_file(run_dir: Path, task: str, tasks: int) -> Path:
    """Return the file for the winner of `task` in a run with that number of tasks."""
    return run_dir / ("best.py" if tasks == 1 else f"best-{task}.py")


def write_best(
    run_dir: Path, reader: RunReader, settings: Settings, task: TaskState
) -> Path | None:
    """Write the winner of one task, if there is one; return its path."""
    best = task.best
    if best is None:
        return None
    path = best_file(run_dir, task.name, len(settings.tasks))
    author = "a person" if reader.is_from_person(task.name, best.number) else ""
    write_atomically(
        path,
        best_file_header(task, best, settings, author) + winner_source(reader, task, best),
    )
    for name, text in reader.task_modules(task.name).items():
        module = run_dir / name  # the winner imports it as the task did
        if not module.exists():
            module.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(module, text)
    return path


def winner_source(reader: RunReader, task: TaskState, best: NodeView) -> str:
    """Return a winner as a drop-in file; for runs of older versions the candidate itself."""
    source = reader.source_of(task.name, best.number)
    release = release_of(task, best)
    return drop_in_source(reader.task_source(task.name), source, release) if release else source


def release_of(task: TaskState, best: NodeView) -> Release | None:
    """Return a winner's release; before its check with every limit, None in older runs."""
    reference = task.reference
    if best.verdict.release is None and reference and reference.judged:
        # What is correct is so in every case; the header and the limits are of the first one.
        others = tuple(case.judged for case in reference.cases[1:] if case.judged)
        return Release(judged=reference.judged, limits=LIMITS, more_judged=others)
    return best.verdict.release


def remove_unconfirmed(run_dir: Path, snapshot: Snapshot, task: TaskState) -> None:
    """Remove the best so far of a task that is over without a winner.

    The file was written during the run, and the second look did not confirm its candidate.  A file
    from an earlier end of the same search is the user's and stays, also under another rule.
    """
    judged_again = any(node.is_judged_again for node in task.attempts)
    known = {
        old.task: old.attempts for old in _last_results(run_dir).tasks if old.status == "finished"
    }
    ended_before = known.get(task.name) == len(task.attempts)
    if task.is_over and ((judged_again and not ended_before) or _was_rejected(run_dir, task)):
        best_file(run_dir, task.name, len(snapshot.tasks)).unlink(missing_ok=True)


def _was_rejected(run_dir: Path, task: TaskState) -> bool:
    """Whether a person has rejected the node that the last results name as the best."""
    named = {old.task: old.best.node for old in _last_results(run_dir).tasks if old.best}
    return any(
        node.verdict.reason.startswith(REJECTED_BY_PERSON)
        for node in task.attempts
        if node.number == named.get(task.name)
    )


def best_file_header(task: TaskState, best: NodeView, settings: Settings, author: str = "") -> str:
    """Return the comment that a winner carries; `author`: where it is not the run's model."""
    release = release_of(task, best)
    lines = [
        f"{task.name}: ModelNew, a drop-in for the task's Model; it needs torch alone.",
        f"{formatting.duration(task.shown_us(best))} a call; eager PyTorch: "
        f"{formatting.duration(task.eager_us(best))}, {formatting.speedup(best.verdict)} "
        f"({formatting.measurement_label(best)}).",
        f"Measured on {_hardware(task) or settings.device}; node {best.number}, "
        f"by {author or settings.model}.",
        *release_lines(release, checked=best.verdict.release is not None),
    ]
    return "".join(f"# {' '.join(line.split())}\n" for line in lines) + "\n"


def release_lines(release: Release | None, *, checked: bool = True) -> list[str]:
    """Describe what a winner was judged on and which checks it passed, a sentence a line."""
    if release is None:
        return ["It was not release-checked: gradients and torch.compile may be wrong."]
    judged = release.judged
    gradients = "without" if judged.gradients is None else "with and without"
    mode = f"{gradients} gradients, in the mode that the module is constructed in"
    lines = [
        f"Kernels run for {describe(judged.inputs)} on {judged.device}, constructed with "
        f"({describe(judged.init)}), {mode};",
        *(f"also for {describe(each.inputs)};" for each in release.more_judged),
        "for anything else the plain forward runs, a warning says so once for each reason, and "
        "module.kernel_stats() counts it.",
    ]
    if not checked:
        return [*lines, "Not release-checked yet: " + ", ".join(release.limits) + " run plainly."]
    lines.append(f"Release checks passed: {', '.join(release.passed) or 'none'}.")
    if release.limits:
        lines.append(f"The kernels were not right in: {', '.join(release.limits)}; plain there.")
    lines += [f"FAILED: {name}: {why}" for name, why in release.failed.items()]
    lines += [f"Not run: {name}: {why}" for name, why in release.skipped.items()]
    return lines


def _task_result(
    task: TaskState, snapshot: Snapshot, settings: Settings, nodes: tuple[AttemptResult, ...]
) -> TaskResult:
    attempts = task.attempts
    reference = task.reference
    return TaskResult(
        task=task.name,
        status="finished" if snapshot.is_finished(task) else "stopped",
        device=settings.device,
        hardware=_hardware(task) or None,
        model=settings.model,
        strategy=settings.strategy,
        policy=settings.requested_policy,
        seed=settings.seed,
        budget=task.budget,
        attempts=len(attempts),
        compiled=sum(node.verdict.is_compiled for node in attempts),
        correct=sum(node.verdict.is_correct for node in attempts),
        best=_candidate_result(task, task.best),
        reference=ReferenceResult(
            eager_us=task.eager_us(task.best or task.closest),
            compile_us=reference.compile_us if reference else None,
            max_autotune_us=reference.max_autotune_us if reference else None,
        ),
        usd=None if task.spend.usd is None else round(task.spend.usd, 6),
        input_tokens=task.spend.input_tokens,
        cached_tokens=task.spend.cached_tokens,
        output_tokens=task.spend.output_tokens,
        seconds=round(snapshot.seconds, 3),
        sandbox_level=min(
            (node.verdict.sandbox_level for node in attempts if _is_judged(node)), default=None
        ),
        closest=_candidate_result(task, task.closest),
        notes=task.notes,
        nodes=nodes,
        cases=case_rows(task) or UNSET,
        usd_per_percent=usd_per_percent(
            task.spend.usd, task.best.verdict.speedup if task.best else None
        ),
    )


def _hardware(task: TaskState) -> str:
    """Return the device of the figures: the winner's, else the reference's."""
    best = task.best or task.closest
    if best is not None and task.is_on_other_device(best):
        return best.verdict.device
    return task.reference.device.name if task.reference else ""


def _is_judged(node: NodeView) -> bool:
    """Whether an evaluator made the verdict: only then its sandbox level has a meaning."""
    verdict = node.verdict
    return verdict.verdict is not Outcome.NO_CANDIDATE and (
        bool(verdict.device) or verdict.seconds != Seconds()
    )


def _candidate_result(task: TaskState, node: NodeView | None) -> BestResult | None:
    if node is None:
        return None
    # Compiled references were timed on the reference's device: no ratio across two devices.
    reference = None if task.is_on_other_device(node) else task.reference
    us = task.shown_us(node)
    return BestResult(
        node=node.number,
        median_us=us,
        speedup_eager=node.verdict.speedup,
        speedup_eager_ci95=node.verdict.speedup_ci95,
        speedup_compile=_ratio(reference.compile_us if reference else None, us),
        speedup_max_autotune=_ratio(reference.max_autotune_us if reference else None, us),
        confirmed=node.confirmed,
        release=_release_result(node.verdict.release),
    )


def _release_result(release: Release | None) -> ReleaseResult | None:
    if release is None:
        return None
    return ReleaseResult(
        passed=release.passed,
        plain_forward=release.limits,
        failed=release.failed,
        not_run=release.skipped,
    )


def _ratio(other_us: float | None, median_us: float | None) -> float | None:
    return other_us / median_us if other_us and median_us else None
