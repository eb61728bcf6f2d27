"""report.md: from the model down, where its time goes, what was taken, and what it brought."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from actors.adopt.check.check_result import Check, Trial
from actors.adopt.fit.fit import Fit
from actors.adopt.look.look import Look, compile_mode, ms_text
from actors.adopt.look.site_groups import amdahl
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import ModelRecord, StageFolder
from actors.adopt.take.taken_tasks import Take, TakenTask
from actors.adopt.task_runs import run_outcome

SHOWN_GROUPS = 12
SHOWN_REFUSED = 2  # in one sentence
NOT_TRIED = (
    " The time was over before torch.compile, quality() and other winners beside it were tried"
    " (--max-minutes); the same command tries all again."
)
Stored = TypeVar("Stored")


def report_text(folder: StageFolder) -> str:
    """Return the report of a folder; stages that have not ended are left out."""
    return "\n".join(_Report(folder).lines()).rstrip() + "\n"


def verdict_line(check: Check) -> str:
    """Return the answer in one sentence."""
    if check.gain is None:
        reasons = [f"{trial.name}: {trial.reason}" for trial in check.trials]
        goes_on = " The same command goes on." if check.has_untried else ""
        return f"Nothing is kept: {'; '.join(reasons) or 'there was no winner'}.{goes_on}"
    names = ", ".join(check.kept)
    if check.regime != "eager":
        return (
            f"With {names} a pass under {regime_text(check.regime)} takes"
            f" {ms_text(check.gain.after_ms)} instead of {ms_text(check.gain.before_ms)}:"
            f" {check.gain.describe()}. Eager, the step is not faster."
        )
    if check.gain.low <= 1.0:
        return f"With {names} the step is not faster beyond noise: {check.gain.describe()}."
    return (
        f"With {names} a pass takes {ms_text(check.gain.after_ms)} instead of"
        f" {ms_text(check.gain.before_ms)}: {check.gain.describe()}."
    ) + (NOT_TRIED if check.is_partial else "")


def regime_text(name: str) -> str:
    """Return how a user runs the model in a regime."""
    mode = compile_mode(name)
    return f"torch.compile(model{f', mode={mode!r}' if mode else ''})"


def no_winner_line(folder: StageFolder) -> str:
    """Return why there is nothing to fit, in one sentence."""
    taken, found = _stored(folder, "take.json", Take), _stored(folder, "look.json", Look)
    others = "; ".join(refused_lines(taken, found)) if taken and found else ""
    if taken is None or not taken.tasks:
        return f"The model stays as it is, for no module became a task. {others}"
    outcomes = [
        f"{task.name} (at most {_ceiling(found, task):.2f}×): {run_outcome(folder, task)}"
        for task in taken.tasks
    ]
    return f"The model stays as it is, for no task has a winner: {'; '.join(outcomes)}." + (
        f" Not taken: {others}." if others else ""
    )


def refused_lines(taken: Take, look: Look) -> list[str]:
    """Return the reasons of the modules that were not taken, those with the most to win first."""
    groups = {group.name: group for group in look.groups}
    refused = sorted(
        (each for each in taken.not_taken if each.name in groups),
        key=lambda each: -groups[each.name].ceiling,
    )
    return [
        f"{each.name} (at most {groups[each.name].ceiling:.2f}×): {each.reason}"
        for each in refused[:SHOWN_REFUSED]
    ]


def _ceiling(look: Look | None, task: TakenTask) -> float:
    """Return the step's speed-up if a task's modules took no time."""
    return amdahl(min(task.share * look.busy, 1.0)) if look else 0.0


class _Report:
    """The report of one folder."""

    def __init__(self, folder: StageFolder) -> None:
        self._folder = folder
        self._record = folder.read("model.json", ModelRecord, "adopt.py look")
        self._look = folder.read("look.json", Look, "adopt.py look")
        self._taken = _stored(folder, "take.json", Take)
        self._fit = _stored(folder, "fit.json", Fit)
        self._check = _stored(folder, "check.json", Check)

    def lines(self) -> Iterator[str]:
        """Yield the report's lines."""
        yield f"# {self._record.path.rpartition('/')[2]} on {self._look.device}"
        yield ""
        if self._check is not None:
            yield verdict_line(self._check)
        else:
            yield no_winner_line(self._folder)
        yield ""
        yield from self._modules()
        yield from self._levers()
        if self._taken is not None:
            yield from self._tasks(self._taken)
        if self._check is not None and self._check.gain is not None:
            yield from ("## The whole model", "", *_whole(self._check), "")
        if self._taken is not None and self._taken.not_taken:
            yield from ("## Not taken", "")
            for each in self._taken.not_taken:
                yield f"- {each.name} (×{len(each.sites)}): {each.reason}"

    def _modules(self) -> Iterator[str]:
        """Yield the table of modules: shares as they were, times before and after."""
        times = self._check.module_ms if self._check is not None else {}
        inside = tuple(f"{site}." for site in self._kept_sites())
        yield from ("## Where a step's time goes", "")
        yield f"A step takes {ms_text(self._look.step_ms)} (eager, median)."
        yield ""
        yield "| module | sites | share | in libraries | at most | before | after |"
        yield "|---|--:|--:|--:|--:|--:|--:|"
        for group in self._look.groups[:SHOWN_GROUPS]:
            before, after = (map(ms_text, times[group.name])) if group.name in times else ("", "")
            if inside and all(site.startswith(inside) for site in group.sites):
                after = "in a kernel"
            yield (
                f"| {group.name} ({group.class_name}) | {len(group.sites)} | {group.share:.1%}"
                f" | {group.library_share:.1%} | {group.ceiling:.2f}× | {before} | {after} |"
            )
        if self._look.update_share:
            yield f"| in the optimizer | | {self._look.update_share:.1%} | | | | |"
        yield f"| in no module | | {self._look.outside_share:.1%} | | | | |"
        yield ""

    def _kept_sites(self) -> list[str]:
        kept = self._check.kept if self._check is not None else []
        tasks = self._taken.tasks if self._taken is not None else []
        return [site for task in tasks if task.name in kept for site in task.sites]

    def _levers(self) -> Iterator[str]:
        """Yield what the model gains without a new kernel, and what the winners add to that."""
        fitted = {each.name: each for each in (self._check.regimes if self._check else ())}
        for regime in self._look.regimes:
            if regime.name == "eager":
                continue
            if regime.step_ms is None:
                yield f"{regime.name}: not measured: {regime.problem}"
            else:
                speedup = self._look.step_ms / regime.step_ms
                yield (
                    f"{regime.name}, without a new kernel: {ms_text(regime.step_ms)}"
                    f" ({speedup:.2f}×)"
                )
            found = fitted.get(regime.name)
            if found is not None and found.gain is not None:
                yield f"The same with the winners: {found.gain.describe()} of that."
                if not found.engaged:
                    yield "Their kernels did not run in it: they have limits (see report())."
            elif found is not None:
                yield f"The same with the winners: not measured: {found.problem}"
            yield ""

    def _tasks(self, taken: Take) -> Iterator[str]:
        """Yield the table of tasks: what each brought in its run, in the model, and together."""
        trials = {trial.name: trial for trial in (self._check.trials if self._check else ())}
        judged = {each.name: each.speedup for each in (self._fit.winners if self._fit else ())}
        yield from ("## Tasks", "")
        yield "| task | sites | by itself | in the model | with those above | at most | calls | |"
        yield "|---|--:|--:|---|---|--:|---|---|"
        order = [*trials, *(task.name for task in taken.tasks if task.name not in trials)]
        tasks = {task.name: task for task in taken.tasks}
        for name in sorted(order, key=lambda name: name in trials and not trials[name].kept):
            own = f"{judged[name]:.2f}×" if judged.get(name) else ""
            yield self._task_row(tasks[name], own, trials.get(name))
        yield ""
        yield "by itself: the module alone, as its run judged it. in the model: whole steps with"
        yield "this winner only. with those above: whole steps, compared with the winners above."
        if any(task.place for task in taken.tasks):
            yield "Under torch.compile a forward with regions is compiled without their kernels."
        yield ""

    def _task_row(self, task: TakenTask, own: str, trial: Trial | None) -> str:
        row = f"| {task.name} ({task.class_name}) | {len(task.sites)} | {own} |"
        if trial is None:
            ceiling = _ceiling(self._look, task)
            return f"{row} | | {ceiling:.2f}× | | {run_outcome(self._folder, task)} |"
        alone = trial.alone.describe() if trial.alone else ""
        together = trial.together.describe() if trial.together else ""
        calls = f"{trial.kernel_calls} of {trial.expected_calls}" if trial.expected_calls else ""
        word = "kept" if trial.kept else f"dropped: {trial.reason}"
        most = f"{trial.ceiling or _ceiling(self._look, task):.2f}×"  # not measured if not tried
        return f"{row} {alone} | {together} | {most} | {calls} | {word} |"


def _whole(check: Check) -> Iterator[str]:
    """Yield lines about time, accuracy, memory, graphs and quality of the fitted model."""
    if check.gain is not None:
        where = f" under {check.regime}" if check.regime != "eager" else ""
        most = f", at most {check.ceiling:.2f}× was possible" if check.ceiling else ""
        yield f"- Time: {check.gain.describe()}{where}{most}."
    if check.accuracy is not None:
        found = check.accuracy
        yield (
            f"- Largest error against {found.against}: original {found.original:.2g}, fitted"
            f" {found.fitted:.2g} of an output's largest value ({found.allowed:.2g} is allowed)."
        )
        if found.unequal:
            yield (
                f"- Whole numbers such as tokens: {found.unequal:.1%} differ in one output, because"
                " of near-ties: what they were chosen from is as accurate as above."
            )
        if found.rows is not None:
            yield (
                f"- As logits ({found.rows.rows} rows): the largest element is the same in"
                f" {found.rows.top_1:.2%}, the five largest in {found.rows.top_5:.2%};"
                f" KL {found.rows.kl:.2g} nats, the original's own {found.rows.own_kl:.2g}."
            )
        if found.gradient_cosine is not None:
            yield f"- Gradients: cosine {found.gradient_cosine:.6f} or more for each parameter."
    if check.accuracy_problem:
        yield f"- There is no float64 reference: {check.accuracy_problem}."
    if check.memory_after:
        yield f"- Memory: {check.memory_before >> 20} MiB before, {check.memory_after >> 20} after."
    if check.graphs_before and check.graphs_after:
        yield (
            f"- torch.compile sees {check.graphs_before.describe()} before,"
            f" {check.graphs_after.describe()} after."
        )
    for name, value in check.quality_before.items():
        after = check.quality_after.get(name)
        yield f"- quality(): {name} {value:.6g} before" + (
            f", {after:.6g} after." if after is not None else "."
        )


def _stored(folder: StageFolder, name: str, kind: type[Stored]) -> Stored | None:
    """Return the result of a stage; None where it has not ended."""
    try:
        return folder.read(name, kind, "adopt.py all")
    except AdoptError:
        return None
