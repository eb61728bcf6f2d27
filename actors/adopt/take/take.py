"""The second stage: tasks of the modules that are worth it, each proven before it is offered."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec
import torch

from actors.adopt.look.look import Look, each_step, opened_model, rounds_of, steps_of
from actors.adopt.look.site_groups import SiteGroup, chosen_paths
from actors.adopt.model.call_layouts import unsupported
from actors.adopt.model.call_recorder import ModuleCalls, recorded_calls
from actors.adopt.model.model_file import Batch, ModelFile, device_of
from actors.adopt.model.model_state import KeptState, repeatable
from actors.adopt.model.step_results import has_backward
from actors.adopt.regions.forward_splitter import Split
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.stage.time_limit import UNLIMITED, TimeLimit
from actors.adopt.take.capture_shares import capture_shares
from actors.adopt.take.captures import FOLDER, CaptureSet, CaptureWriter, capturing
from actors.adopt.take.region_taking import InsertedSplits, RegionSearch, not_split
from actors.adopt.take.taken_tasks import NotTaken, Options, Take, TakenTask
from actors.adopt.take.task_making import ModelSteps, TaskMaker, costly_kinds
from actors.adopt.tasks.operation_text import UntranslatableError

NO_TIME = "the time for `take` was over (--max-minutes)"
LATER_FILES = ("report.md", "check.json", "fit.json")  # the last one first


def take(
    folder: StageFolder,
    options: Options,
    say: Callable[[str], None],
    limit: TimeLimit = UNLIMITED,
) -> Take:
    """Write the tasks, their cases and take.json."""
    file, record = opened_model(folder)
    found = folder.read("look.json", Look, "adopt.py look")
    model = file.build()
    batches = file.batches(record.batches)
    folder.remove(*LATER_FILES, "take.json")
    for name in ("tasks", FOLDER):
        shutil.rmtree(folder.path / name, ignore_errors=True)
    stage = _TakeStage(folder, options, limit, found, model_steps(file, model, batches))
    result = stage.run(say)
    folder.write("take.json", result)
    return result


def take_parts(
    folder: StageFolder,
    options: Options,
    names: Collection[str],
    say: Callable[[str], None],
    limit: TimeLimit = UNLIMITED,
) -> Take:
    """Add tasks of the parts of some tasks, for which no winner was found, to take.json."""
    file, record = opened_model(folder)
    found = folder.read("look.json", Look, "adopt.py look")
    before = folder.read("take.json", Take, "adopt.py take")
    steps = model_steps(file, file.build(), file.batches(record.batches))
    stage = _TakeStage(folder, options, limit, found, steps, before)
    result = stage.run_parts(names, say)
    folder.write("take.json", result)
    return result


def model_steps(file: ModelFile, model: torch.nn.Module, batches: Sequence[Batch]) -> ModelSteps:
    """Run the model once, and return how it is run: every step begins with the same values."""
    state = KeptState(model, batches)
    trains = has_backward(file, model, batches[0])
    steps_of(file, model, batches)()
    state.settle()
    return ModelSteps(
        model=model,
        run=repeatable(each_step(file, model, batches), state),
        count=len(batches),
        device=device_of(model, batches),
        state=state,
        trains=trains,
    )


class _TakeStage:
    """One run of the stage."""

    def __init__(
        self,
        folder: StageFolder,
        options: Options,
        limit: TimeLimit,
        look: Look,
        steps: ModelSteps,
        before: Take | None = None,
    ) -> None:
        self._options, self._limit = options, limit
        self._model = steps.model
        self._look = look
        self._steps = steps
        self._writer = CaptureWriter(folder, options.cap)
        self._rounds = rounds_of(look.step_ms, steps.count)
        self._maker = TaskMaker(folder, options, steps, self._writer, self._rounds)
        self._tasks: list[TakenTask] = list(before.tasks) if before else []
        self._not_taken: list[NotTaken] = list(before.not_taken) if before else []
        self._splits: list[Split] = list(before.splits) if before else []
        self._writer.bytes = before.captured_bytes if before else 0

    def run(self, say: Callable[[str], None]) -> Take:
        """Take regions where they are asked for, then groups, and the parts of refused ones."""
        asked_for = self._asked_for() if self._options.patterns else []
        if self._options.regions:
            self._take_regions(say)
        chosen = (group for group in self._look.groups if group.is_chosen)
        self._take(asked_for if self._options.patterns else self._ordered(chosen), say)
        self._tasks = [
            msgspec.structs.replace(task, has_parts=self._has_parts(task)) for task in self._tasks
        ]
        return self._result()

    def run_parts(self, names: Collection[str], say: Callable[[str], None]) -> Take:
        """Take the parts of some tasks."""
        losers = [task for task in self._tasks if task.name in names]
        others = [task for task in self._tasks if task.name not in names]
        self._tasks = list(others)
        inside = self._inside([site for task in losers for site in task.sites])
        self._take(self._ordered(inside), say)
        parts = [
            msgspec.structs.replace(task, part_of=tuple(sorted(names)))
            for task in self._tasks[len(others) :]
        ]
        # Modules of a loser may also be inside of another one: the new task is of all of them.
        again = {task.name for task in parts}
        losers = [task for task in losers if task.name not in again]
        self._tasks = others + losers + parts
        return self._result()

    def _result(self) -> Take:
        return Take(
            tasks=sorted(self._tasks, key=lambda task: -task.free_share),
            not_taken=self._not_taken,
            captured_bytes=self._writer.bytes,
            is_cap_reached=self._writer.is_full,
            splits=self._splits,
            options=self._options,
        )

    def _take_regions(self, say: Callable[[str], None]) -> None:
        """Take regions of the forwards that are worth it."""
        search = RegionSearch(self._model, self._look)
        parents = search.parents(self._is_asked_for, self._options.min_share)
        inserted = InsertedSplits(search, self._model, self._steps)
        try:
            for parent, reason in inserted.put_in(parents).items():
                self._not_taken.append(not_split(parent, reason))
                say(f"not taken: {self._not_taken[-1].name} (×{len(parent.sites)}): {reason}")
            groups = self._ordered(inserted.groups(self._look, self._rounds))
            self._round(groups[: self._options.top], say)
            for group in groups[self._options.top :]:
                self._refuse(group, f"{len(self._tasks)} other tasks promise more (--top)")
        finally:
            inserted.take_out()
        taken = {site for task in self._tasks for site in task.sites}
        self._splits = [split for split in inserted.splits if not taken.isdisjoint(split.paths)]

    def _take(self, waiting: list[SiteGroup], say: Callable[[str], None]) -> None:
        """Take groups, and the parts of those that can't be taken."""
        waiting = self._beside_regions(waiting)
        while waiting and not self._limit.is_over:
            room = self._options.top - len(self._tasks)
            if room <= 0:
                break
            ready, waiting = self._outermost(waiting)
            refused = self._round(ready[:room], say)
            waiting += ready[room:]
            if not self._options.patterns:
                parts = self._inside([site for group in refused for site in group.sites])
                waiting += [each for each in parts if each.name not in {w.name for w in waiting}]
                waiting = self._ordered(self._outside_of_tasks(waiting))
        for group in waiting:
            others = f"{len(self._tasks)} other tasks promise more (--top)"
            self._refuse(group, NO_TIME if self._limit.is_over else others)

    def _asked_for(self) -> list[SiteGroup]:
        """Return the groups of the modules that --at names."""
        found = []
        for group in self._look.groups:
            sites = tuple(site for site in group.sites if self._is_asked_for(site))
            if sites:
                found.append(group.of_sites(sites))
        is_forward = self._options.regions and self._is_asked_for("")  # the model's own
        if not found and not is_forward:
            raise AdoptError(
                f"--at {self._options.patterns[0]} matches no module that the model calls;"
                " look.json has their paths"
            )
        return found

    def _is_asked_for(self, site: str) -> bool:
        return not self._options.patterns or any(
            fnmatch.fnmatchcase(site, pattern) for pattern in self._options.patterns
        )

    def _outermost(self, waiting: list[SiteGroup]) -> tuple[list[SiteGroup], list[SiteGroup]]:
        """Return the groups that are decided now, and those with a module inside of one of them.

        Blocks that differ in a number are groups of their own; a part that all of them have is one
        task if none of the blocks is.
        """
        if self._options.patterns:
            return waiting, []
        outer = tuple(f"{site}." for group in waiting for site in group.sites)
        inner = [group for group in waiting if any(s.startswith(outer) for s in group.sites)]
        ready = [group for group in waiting if group not in inner]
        return (ready, inner) if ready else (waiting[:1], waiting[1:])  # each inside of another

    def _beside_regions(self, groups: list[SiteGroup]) -> list[SiteGroup]:
        """Return the groups without modules that regions leave no room for; note those.

        The parts of a module that has regions, or that is around one, may still be tasks.
        """
        found, waiting = [], list(groups)
        while self._splits and waiting:
            group = waiting.pop(0)
            around = [site for site in group.sites if any(s.is_in(site) for s in self._splits)]
            inside = [
                site for site in group.sites if any(s.has_inlined(site) for s in self._splits)
            ]
            if around:
                self._refuse(group.of_sites(tuple(around)), "regions of it are tasks")
                waiting += [] if self._options.patterns else self._ordered(self._inside(around))
            elif inside:
                self._refuse(group.of_sites(tuple(inside)), "it is in regions that are tasks")
            rest = tuple(site for site in group.sites if site not in {*around, *inside})
            found += [group.of_sites(rest)] if rest else []
        return [*found, *waiting]

    def _outside_of_tasks(self, groups: Iterable[SiteGroup]) -> Iterator[SiteGroup]:
        """Yield the groups with their modules that are not inside of a task's modules."""
        taken = tuple(f"{site}." for task in self._tasks for site in task.sites)
        for group in groups:
            sites = tuple(site for site in group.sites if not site.startswith(taken))
            if sites:
                yield group.of_sites(sites)

    def _ordered(self, groups: Iterable[SiteGroup]) -> list[SiteGroup]:
        """Return the groups with enough to win, the most promising first; note the others."""
        enough = []
        for group in groups:
            reason = self._too_little(group)
            if reason:
                self._refuse(group, reason)
            else:
                enough.append(group)
        return sorted(enough, key=lambda group: -group.value)

    def _too_little(self, group: SiteGroup | TakenTask) -> str:
        """Return why a group is not worth a task, or its task nothing; "" when it is."""
        least = self._options.min_share
        if group.share < least:
            return f"its share is {group.share:.1%}, less than {least:.1%}"
        if group.free_share < least / 3:
            return f"only {group.free_share:.1%} of a step is outside of libraries"
        return ""

    def _has_parts(self, task: TakenTask) -> bool:
        """Whether modules inside of a task's would be worth a task, too."""
        if self._options.patterns or task.place:
            return False
        return any(not self._too_little(group) for group in self._inside(task.sites))

    def _inside(self, sites: Collection[str]) -> list[SiteGroup]:
        """Return the groups chosen inside of some modules, without modules of other tasks."""
        paths = {
            path for site in sites for path in chosen_paths(self._model, site, self._look.groups)
        }
        others = [site for task in self._tasks for site in task.sites if site not in sites]
        taken = tuple(f"{site}." for site in others)
        known = {each.name for each in self._not_taken} | {task.name for task in self._tasks}
        found = []
        for group in self._look.groups:
            free = tuple(site for site in group.sites if not f"{site}.".startswith(taken))
            if group.name not in known and not paths.isdisjoint(free):
                found.append(group.of_sites(free))
        return found

    def _refuse(
        self, group: SiteGroup, reason: str, say: Callable[[str], None] | None = None
    ) -> None:
        self._not_taken.append(NotTaken(name=group.name, sites=group.sites, reason=reason))
        if say is not None:
            say(f"not taken: {group.name} ({group.class_name} ×{len(group.sites)}): {reason}")

    def _round(self, groups: Sequence[SiteGroup], say: Callable[[str], None]) -> list[SiteGroup]:
        """Record the groups' calls and make their tasks; return the groups that are refused."""
        refused: list[SiteGroup] = []
        groups = self._without_hooks(groups, refused, say)
        with recorded_calls(
            self._model, {group.name: group.sites for group in groups}, self._steps.device
        ) as calls:
            for _ in range(self._rounds):
                self._steps.run()
        wanted = {
            group.name: [
                # Whole caches would be stored with a call, which is no task whatever it records.
                each
                for each in costly_kinds(calls[group.name])
                if not unsupported(each.kind.layout)
            ]
            for group in groups
        }
        shares, is_whole = capture_shares(wanted, self._rounds, self._writer.room)
        self._writer.is_full |= not is_whole
        recorded = {group.name: (group.sites, shares[group.name]) for group in groups}
        with capturing(self._model, recorded, self._writer) as sets:
            self._steps.run()
        for group in groups:
            try:
                task = self._task(group, calls[group.name], sets[group.name])
            except UntranslatableError as error:
                self._refuse(group, str(error), say)
                refused.append(group)
                self._writer.discard(group.name, sets[group.name])  # its parts need the room
                continue
            self._tasks.append(task)
            say(taken_line(task))
        return refused

    def _without_hooks(
        self, groups: Sequence[SiteGroup], refused: list[SiteGroup], say: Callable[[str], None]
    ) -> list[SiteGroup]:
        """Return the groups without modules that have hooks, or parts that have; refuse those."""
        found = []
        for group in groups:
            free = tuple(site for site in group.sites if not self._has_hooks(site))
            hooked = group.of_sites(tuple(site for site in group.sites if site not in free))
            if hooked.sites:
                self._refuse(hooked, "it has hooks, which a kernel would skip", say)
                refused.append(hooked)
            found += [group.of_sites(free)] if free else []
        return found

    def _has_hooks(self, site: str) -> bool:
        parts = self._model.get_submodule(site).modules()
        return any(part._forward_hooks or part._forward_pre_hooks for part in parts)

    def _task(self, group: SiteGroup, calls: ModuleCalls, sets: Sequence[CaptureSet]) -> TakenTask:
        """Return a group's proven task; raise UntranslatableError with the reason."""
        if self._limit.is_over:
            raise UntranslatableError(NO_TIME)
        task = self._maker.task(group, calls, sets)
        part = task.proof.times.own_part
        reason = self._too_little(task) if part < 1.0 and not self._options.patterns else ""
        if reason:
            raise UntranslatableError(
                f"a call in the model is slower than alone, {part:.0%} of it is its own: {reason}"
            )
        return task


def taken_line(task: TakenTask) -> str:
    """Return a line about a task for people."""
    proof = task.proof
    equal = "equal bit for bit" if proof.is_equal else f"within {proof.error:.1g}"
    return (
        f"taken: {task.name} ({task.class_name} ×{len(task.sites)}), {task.free_share:.1%} of a"
        f" step outside of libraries{_cases_words(task)}; {proof.sets} recorded calls {equal};"
        f" a call takes {proof.times.task_us:.0f} µs as a task, {proof.times.module_us:.0f} µs as"
        f" the module alone, {proof.times.in_model_us:.0f} µs in the model -> {task.file}"
    )


def _cases_words(task: TakenTask) -> str:
    words = f", {len(task.cases)} layouts" if len(task.cases) > 1 else ""
    return words + (", with backward" if task.gradients else "")
