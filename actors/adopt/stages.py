"""The command line's stages, each from its arguments to its exit status."""

from __future__ import annotations

import argparse
import io
import math
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from actors.adopt.check.check import check
from actors.adopt.check.check_process import check_apart, dropped_before
from actors.adopt.fit.fit import PACKAGE, NoWinnerError, fit, has_winner
from actors.adopt.look.look import Look, is_unchanged, look, look_lines, refuse_outside
from actors.adopt.model.model_file import ModelFile, explained, is_raised_by
from actors.adopt.model_report import (
    no_winner_line,
    refused_lines,
    report_text,
    verdict_line,
)
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import ModelRecord, StageFolder, check_text
from actors.adopt.stage.time_limit import TimeLimit, clock_text, process_limit
from actors.adopt.take.take import take, take_parts
from actors.adopt.take.taken_tasks import Options, Take, TakenTask
from actors.adopt.task_runs import (
    CONFIRM_S,
    LEAST_RUN_S,
    attempts_by_value,
    has_begun,
    has_results,
    judged_attempts,
    run_of,
    run_tasks,
    thread_variables,
    unfinished,
)
from actors.commands import typed_command
from actors.exit_status import ExitStatus

TAKE_PART = 0.3  # of the time that is left is for `take` at most
RUNS_PART = 0.6  # of what is left then is for the runs of the tasks
CHECK_S = 20.0  # besides building the model and the comparisons
COMPARED_STEPS, CHECK_PASSES = 24, 8  # of a trial at least: A B B A six times; the rest of it


def run(arguments: argparse.Namespace) -> int:
    """Run the stage that was asked for; raise AdoptError with one line."""
    file = _model_file(arguments)
    try:
        with _held(arguments):
            return int(STAGES[arguments.stage](arguments))
    except AdoptError:
        raise
    except Exception as error:  # the user's model may raise in any step, and anything
        if file is None or not is_raised_by(error, file):
            raise
        raise AdoptError(f"a step raised {explained(error, file)}") from error


def _held(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """Keep other commands out of the folder of one stage; `all` does it for each of its own."""
    if arguments.stage == "all" or getattr(arguments, "in_process", False):
        return nullcontext()  # the check in a process of its own: its parent holds the folder
    return _folder(arguments).held()


def _folder(arguments: argparse.Namespace) -> StageFolder:
    """Return the folder of the stages."""
    if "model" in arguments:
        return StageFolder(arguments.out or Path("adopt") / arguments.model.stem)
    return StageFolder(arguments.folder)


def _model_file(arguments: argparse.Namespace) -> Path | None:
    """Return the user's file; None where it is not known."""
    if "model" in arguments:
        return Path(arguments.model).absolute()
    try:
        record = StageFolder(arguments.folder).read("model.json", ModelRecord, "adopt.py look")
    except AdoptError:
        return None
    return Path(record.path)


def say(line: str) -> None:
    """Print a line at once; without a reader (`| head`) the stage goes on: the files have it."""
    try:
        print(line, flush=True)  # noqa: T201  # the command talks to a person on stdout
    except BrokenPipeError:
        sys.stdout = io.StringIO()


def run_look(arguments: argparse.Namespace) -> int:
    """Look at a model."""
    folder = _folder(arguments)
    check_text(arguments.model.absolute())
    folder.check_own()
    file = ModelFile(arguments.model)
    result = look(file, folder, arguments.batches, arguments.regime, say)
    for line in look_lines(result):
        say(line)
    refuse_outside(result, arguments.max_outside)
    say(f"-> {folder.path}/look.json")
    return ExitStatus.DONE


def run_take(arguments: argparse.Namespace) -> int:
    """Take tasks."""
    folder = StageFolder(arguments.folder)
    result = _taken(folder, _options(arguments), _limit(arguments))
    look_result = folder.read("look.json", Look, "adopt.py look")
    if not result.tasks:
        say(f"no task: {'; '.join(refused_lines(result, look_result)) or 'nothing is worth one'}")
        return ExitStatus.NEGATIVE
    files = [shlex.quote(str(arguments.folder / task.file)) for task in result.tasks]
    words = " ".join(f"--task {file}" for file in files)
    variables = "".join(f"{key}={text} " for key, text in thread_variables(look_result).items())
    say(f"next: {variables}{typed_command()} {words}")
    return ExitStatus.DONE


def _taken(folder: StageFolder, options: Options, limit: TimeLimit) -> Take:
    result = take(folder, options, say, limit)
    if result.is_cap_reached:
        say(f"--cap {options.cap:,} bytes is reached: some calls were not recorded")
    return result


def run_fit(arguments: argparse.Namespace) -> int:
    """Make the package of the winners."""
    folder = StageFolder(arguments.folder)
    runs = [run.absolute() for run in arguments.run]  # build() may change the working directory
    winners = {name: file.absolute() for name, file in arguments.winner}
    fit(folder, runs, winners, say)
    say(f"-> {folder.path}/{PACKAGE}: import {PACKAGE}; {PACKAGE}.fit(model)")
    return ExitStatus.DONE


def run_check(arguments: argparse.Namespace, limit: TimeLimit | None = None) -> int:
    """Check the whole model."""
    folder = StageFolder(arguments.folder)
    if arguments.in_process:
        check(folder, arguments.seconds, dropped_before(folder), say, limit or _limit(arguments))
        return ExitStatus.DONE
    result = check_apart(folder, arguments.seconds, say, limit or _limit(arguments))
    folder.write_text("report.md", report_text(folder))
    say(verdict_line(result))
    say(f"-> {folder.path}/report.md")
    if result.is_faster:
        return ExitStatus.DONE
    return ExitStatus.STOPPED if result.has_untried else ExitStatus.NEGATIVE


def run_all(arguments: argparse.Namespace) -> int:
    """Run the stages that are not done yet, and end within --max-minutes."""
    return _AllStages(arguments).run()


class _AllStages:
    """All stages of one model, one after the other, and the time that each has."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._folder = _folder(arguments)
        self._began = time.monotonic()
        self._limit = _limit(arguments)
        self._stage = ""
        self._look_s = CHECK_S  # how long it takes to import, build and run the model

    def run(self) -> int:
        """Run them; return the exit status."""
        ended = process_limit(self._limit, self._line_at_the_end)
        with self._folder.held(), ended:  # there may be no folder yet
            self._look()
        with self._folder.held():
            return self._after_look()

    def _after_look(self) -> int:
        with process_limit(self._limit, self._line_at_the_end):
            taken = self._take()
            if not taken.tasks:
                return _nothing_to_fit(self._folder)
            self._run_tasks(taken)
            self._begin("fit")
            try:
                fit(self._folder, [], {}, say)
            except NoWinnerError:
                return _nothing_to_fit(self._folder, taken.tasks)
            self._begin("check")
        return run_check(self._arguments, self._limit)

    def _look(self) -> None:
        self._begin("look")
        if self._folder.has("look.json") and is_unchanged(self._folder, self._arguments.model):
            found = self._folder.read("look.json", Look, "adopt.py look")
            refuse_outside(found, self._arguments.max_outside)
        else:
            run_look(self._arguments)
            self._look_s = time.monotonic() - self._began
        self._arguments.folder = self._folder.path

    def _take(self) -> Take:
        options = _options(self._arguments)
        changed: list[str] = []
        if self._folder.has("take.json"):
            found = self._folder.read("take.json", Take, "adopt.py take")
            changed = options.changed_flags(found.options or options)
            if not changed:
                return found
        self._begin("take")
        if changed:
            say(f"{', '.join(changed)}: other than before, so the tasks are taken again")
        return _taken(self._folder, options, self._limit.part(TAKE_PART))

    def _run_tasks(self, taken: Take) -> None:
        """Run the tasks, then those of the parts of tasks without a winner."""
        self._begin("runs")
        arguments = self._arguments
        flags = shlex.split(arguments.supervisor)
        flags += ["--model", arguments.run_model] if arguments.run_model else []
        first = [task for task in taken.tasks if not task.part_of]
        kept_back = arguments.budget // 3 if any(task.has_parts for task in first) else 0
        budget = arguments.budget - kept_back
        limit = self._limit.part(RUNS_PART)  # the rest is the check's
        own = limit.part(1 - kept_back / arguments.budget)
        run_tasks(self._folder, first, budget, flags, say, own)
        self._run_late(first, budget, flags, limit)
        parts = [task for task in taken.tasks if task.part_of]
        losers = [
            task.name
            for task in first
            if task.has_parts
            and has_begun(self._folder, task)
            and not has_winner(self._folder, task)
        ]
        if losers and not parts:
            say(f"no winner for {', '.join(losers)}: the parts are tried")
            found = take_parts(
                self._folder, _options(arguments), losers, say, limit.part(TAKE_PART)
            )
            parts = [task for task in found.tasks if task.part_of]
        run_tasks(self._folder, parts, kept_back, flags, say, limit)
        self._run_rest(((first, budget), (parts, kept_back)), flags)
        self._run_late(first, budget, flags, self._spare([*first, *parts]), is_last=True)

    def _run_late(
        self,
        tasks: Sequence[TakenTask],
        budget: int,
        flags: Sequence[str],
        limit: TimeLimit,
        *,
        is_last: bool = False,
    ) -> None:
        """Run tasks that there was no time for: they promise more than parts of the others.

        `is_last`: also runs that were stopped before their best was confirmed, if that has time.
        """
        attempts = zip(tasks, attempts_by_value(tasks, budget), strict=True)
        has_time = is_last and limit.left_s >= CONFIRM_S
        is_over = self._has_results if has_time else self._has_begun
        late = [(t, n) for t, n in attempts if n and not is_over(t)]
        if late and limit.left_s >= LEAST_RUN_S:
            waiting = [task for task, _ in late]
            run_tasks(self._folder, waiting, sum(n for _, n in late), flags, say, limit)

    def _has_begun(self, task: TakenTask) -> bool:
        return has_begun(self._folder, task)

    def _has_results(self, task: TakenTask) -> bool:
        return has_results(run_of(self._folder, task))

    def _spare(self, tasks: Sequence[TakenTask]) -> TimeLimit:
        """Return the time that the check of the winners so far, and one more, can spare."""
        winners = sum(has_winner(self._folder, task) for task in tasks)
        look = self._folder.read("look.json", Look, "adopt.py look")
        # Comparisons of narrow intervals, twice; accuracy, calls and memory of all batches.
        passes = COMPARED_STEPS + CHECK_PASSES * look.batches
        trial_s = 2 * self._arguments.seconds + passes * look.step_ms / 1e3
        check_s = self._look_s + CHECK_S + trial_s * (winners + 1)
        return TimeLimit(max(self._limit.left_s - check_s, 0.0) if winners else 0.0)

    def _run_rest(
        self, groups: Sequence[tuple[Sequence[TakenTask], int]], flags: Sequence[str]
    ) -> None:
        """Without a winner there is nothing to check: its time is for runs that had too little."""
        limit = self._limit.part(RUNS_PART)
        if math.isinf(limit.left_s) or limit.left_s < LEAST_RUN_S:
            return
        if any(has_winner(self._folder, task) for tasks, _ in groups for task in tasks):
            return
        if any(unfinished(self._folder, tasks, budget) for tasks, budget in groups):
            say("no winner so far: runs that had too little time get that of the check")
            for tasks, budget in groups:
                run_tasks(self._folder, tasks, budget, flags, say, limit)

    def _begin(self, stage: str) -> None:
        self._stage = stage
        left_s = self._limit.left_s
        of = "" if math.isinf(left_s) else f", {clock_text(left_s)} left (--max-minutes)"
        say(f"-- {stage}, after {clock_text(time.monotonic() - self._began)}{of}")

    def _line_at_the_end(self) -> str:
        return (
            f"the time was over in `{self._stage}` (--max-minutes"
            f" {self._arguments.max_minutes:g}); the same command goes on"
        )


def _limit(arguments: argparse.Namespace) -> TimeLimit:
    minutes = arguments.max_minutes
    return TimeLimit() if minutes is None else TimeLimit(minutes * 60)


def _options(arguments: argparse.Namespace) -> Options:
    return Options(
        top=arguments.top,
        min_share=arguments.min_share,
        patterns=tuple(arguments.at),
        cap=arguments.cap,
        max_gap=arguments.max_gap,
        regions=arguments.regions,
    )


def _nothing_to_fit(folder: StageFolder, tasks: Sequence[TakenTask] = ()) -> int:
    """Say why the model stays as it is, also in the report."""
    folder.write_text("report.md", report_text(folder))
    say(no_winner_line(folder))
    say(f"-> {folder.path}/report.md")
    if not tasks or any(judged_attempts(folder, task) for task in tasks):
        return ExitStatus.NEGATIVE
    if not all(has_results(run_of(folder, task)) for task in tasks):
        say("no kernel was judged within --max-minutes; the same command goes on")
        return ExitStatus.STOPPED
    return ExitStatus.NEGATIVE


STAGES = {
    "look": run_look,
    "take": run_take,
    "fit": run_fit,
    "check": run_check,
    "all": run_all,
}
