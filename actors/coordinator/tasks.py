"""The run's tasks: their searches, the work that these ask for, and its results.

The dispatcher hands in results; the instructions of the searches go to the store and to the
scheduler, in the same transaction.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container

from actors.coordinator.amendments import Amendments
from actors.coordinator.baseline_work import BaselineWork
from actors.coordinator.chosen_variant import keep_variant
from actors.coordinator.gateway.work_messages import ROLE_OF, WorkMessages, parse_work, work_id
from actors.coordinator.replay.replay_strategy import search_of_task
from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.scheduling.work_queue import Placement
from actors.coordinator.search.attempt_stages import WRITING_STAGE, Stage
from actors.coordinator.search.confirmation import BestConfirmed
from actors.coordinator.search.scoring import kernel_of, score_us
from actors.coordinator.search.search import FinishTask, Instruction, OfferWork, SaveAttempt, Search
from actors.coordinator.search.search_events import (
    AttemptEnded,
    ReferenceReady,
    ReferenceRefused,
    StageEnded,
)
from actors.coordinator.search.steering_events import BudgetChanged, SourceInjected, SteeringEvent
from actors.coordinator.search.tree import FAILED_SCORE
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.directive_store import DirectiveStore
from actors.coordinator.storage.store import Store
from protocol import messages
from protocol.messages import Lease
from protocol.settings import Settings
from protocol.values import Candidate, Outcome, Plan, Reference, Role, Task, Verdict


class RunTasks:
    """All tasks of a run, in their order; only some are open at once."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        activity: ActivityStore,
        decisions: DecisionStore,
        directives: DirectiveStore,
        scheduler: Scheduler,
        record_event: Callable[[str, str, str], None],
    ) -> None:
        """`record_event` takes (what, subject, detail)."""
        self._settings = settings
        self._store = store
        self._activity = activity
        self._decisions = decisions
        self._directives = directives
        self._scheduler = scheduler
        self._event = record_event
        self._baselines = BaselineWork(store, directives, scheduler, record_event)
        self._offers: dict[str, OfferWork] = {}
        self._unopened: deque[tuple[Task, int, str]] = deque()
        stored = store.tasks()
        self._searches = {task.name: search_of_task(task.name, settings) for task, _, _ in stored}
        self._work_messages = WorkMessages(
            store,
            activity,
            directives,
            {task.name: task for task, _, _ in stored},
            decisions,
            has_ledger=settings.has_ledger,
        )
        self._amendments = Amendments(store, activity, decisions, is_on=settings.precheck == "on")

    # --- which tasks are open ----------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The names of all tasks, in their order."""
        return list(self._searches)

    def search(self, task: str) -> Search:
        """Return the search of one task, to be read."""
        return self._searches[task]

    def begun(self, task: str) -> int:
        """Return the number of attempts that a task has begun, also before it is opened."""
        return self._searches[task].begun or self._store.attempt_count(task)

    def problem(self, task: str) -> str:
        """Return why a task can't be measured; "" where it can."""
        return next(
            (text for text in self._store.refused_tasks() if text.startswith(f"{task}: ")), ""
        ).removeprefix(f"{task}: ")

    @property
    def not_begun(self) -> list[str]:
        """The tasks that a person's `finish` left without an attempt."""
        return [name for name, search in self._searches.items() if search.abandoned]

    @property
    def is_finished(self) -> bool:
        """Whether all searches are over and no baseline is to be measured."""
        return self._baselines.is_done and all(one.finished for one in self._searches.values())

    def refused_reasons(self) -> list[str]:
        """Return why the tasks can't be measured, if none can; otherwise an empty list."""
        problems = self._store.refused_tasks()
        return problems if len(problems) == len(self._searches) else []

    def restore(self, leased: Container[str]) -> None:
        """Restore tasks from the store: those in `leased` at once, the others in their order.

        Leased work can end at any moment, so its task is open even above `tasks_at_once`.
        """
        is_finishing = self._directives.is_finishing()
        for task, budget, status in self._store.tasks():
            if is_finishing and not self._store.attempt_count(task.name):
                self._abandon(task.name)
            elif task.name in leased:
                self._perform(task.name, self._restored_search(task, budget, status))
            else:
                self._unopened.append((task, budget, status))
        self.begin_tasks()

    def begin_tasks(self) -> None:
        """Begin tasks in their order, at most `tasks_at_once` at a time."""
        limit = self._settings.tasks_at_once or len(self._searches)
        while self._unopened:
            closed = {task.name for task, _, _ in self._unopened}
            under_way = sum(
                search.is_growing for name, search in self._searches.items() if name not in closed
            )
            if under_way >= limit:
                return
            self.begin_next()

    def begin_next(self) -> bool:
        """Begin the next task, even above `tasks_at_once`; return False when all have begun.

        In a phase of `--until-idle` the open tasks may wait for roles that run elsewhere, and must
        not keep the others from what can be done here.
        """
        if not self._unopened:
            return False
        task, budget, status = self._unopened.popleft()
        self._perform(task.name, self._restored_search(task, budget, status))
        return True

    def _restored_search(self, task: Task, budget: int, status: str) -> list[Instruction]:
        search = self._searches[task.name]
        search.budget = budget
        reference = self._store.reference(task.name)
        if status == "refused":
            search.finished = True
            return []
        if reference is None:
            return search.begin()
        self._baselines.offer(task.name)
        attempts = self._store.attempts_under_way(task.name)
        offers = [self._decisions.decision_for(task.name, attempt) for attempt in attempts]
        rows = self._directives.before_rejection(task.name, self._store.nodes(task.name))
        scores = [FAILED_SCORE if row.score_us is None else row.score_us for row in rows]
        return search.restore(
            reference.eager_us,
            [
                (row.number, row.parent, score, kernel_of(row.source, row.verdict))
                for row, score in zip(rows, scores, strict=True)
            ],
            attempts,
            [
                BestConfirmed(row.number, score, row.is_confirmed_faster)
                for row, score in zip(rows, scores, strict=True)
                if row.confirmed
            ],
            self._decisions.second_looks(task.name, recorded=len(rows)),
            {
                attempt.number: offer
                for attempt, offer in zip(attempts, offers, strict=True)
                if offer
            },
            {row.number: row.gives_up_on for row in rows},
            self._directives.search_events(task.name),
        )

    # --- a person's directives ---------------------------------------------------------------

    def steer(self, task: str, event: SteeringEvent) -> None:
        """Hand a directive to a task's search; a search that is over may go on.

        A search that is over is restored first, as the next start would do: a later attempt then
        selects its node by the confirmed figures, now and in a replay.
        """
        search, was_over = self._searches[task], self._searches[task].finished
        if was_over:
            stored = next(one for one, _, _ in self._store.tasks() if one.name == task)
            budget = search.budget
            search = self._searches[task] = search_of_task(task, self._settings)
            self._restored_search(stored, budget, "measured")  # it is over again: nothing follows
        instructions = search.handle(event)
        if was_over and not search.finished:
            self._directives.reopen_task(task)
        if not (was_over and search.finished):
            self._perform(task, instructions)

    def change_budget(self, task: str, budget: int) -> None:
        """Give a task another number of attempts."""
        self._directives.set_budget(task, budget)
        for place, (unopened, _, status) in enumerate(self._unopened):
            if unopened.name == task:
                self._unopened[place] = (unopened, budget, status)
                return
        self.steer(task, BudgetChanged(budget))

    def inject(self, task: str, parent: int, plan: Plan, candidate: Candidate) -> int:
        """Begin an attempt with a person's candidate; return its number."""
        number = self._searches[task].begun + 1
        self.steer(task, SourceInjected(number, parent))
        self._store.save_plan(task, number, plan)
        self._store.save_candidate(task, number, candidate)
        return number

    def finish(self) -> None:
        """Begin no further attempt: tasks end with what is under way, others are not begun."""
        for task, search in self._searches.items():
            begun = self.begun(task)
            if search.finished:
                continue
            if not begun:
                self._abandon(task)
            elif begun < search.budget:
                self.change_budget(task, begun)
        self._unopened = deque(one for one in self._unopened if self.begun(one[0].name))

    def _abandon(self, task: str) -> None:
        search = self._searches[task]
        search.finished = search.abandoned = True
        self._baselines.forget(task)

    # --- work and results --------------------------------------------------------------------

    def message_for(self, lease: Lease) -> messages.Work:
        """Return the message for a granted lease."""
        task, _number, stage = parse_work(lease.work)
        if stage is Stage.BASELINES:
            return self._work_messages.baselines_message(lease)
        search = self._searches[task]
        return self._work_messages.message_for(
            lease,
            self._offers[lease.work],
            tuple(search.under_way.values()),
            search.best_speedup,
            search.tree is not None and search.tree.is_stagnant,
        )

    def fail_work(self, work: str, reason: str) -> None:
        """End work that is exhausted: too many workers were lost or tries failed."""
        task, number, stage = parse_work(work)
        if self._searches[task].abandoned:
            return
        if stage is Stage.BASELINES:
            self._baselines.fail(task, reason)
            return
        del self._offers[work]
        if stage is Stage.CONFIRM:
            self._confirm(task, number, None)
            return
        if stage is Stage.MEASURE:
            self._refuse(task, f"the reference can't be measured: {reason}")
            return
        verdict = Verdict(verdict=Outcome.CRASHED, reason=reason, stage="check")
        self._record(task, number, stage, verdict)

    def record_result(self, result: messages.Result) -> None:
        """Take in the result of a lease that has just been settled."""
        task, number, stage = parse_work(result.lease.work)
        if self._searches[task].abandoned:
            return
        if isinstance(result, messages.BaselinesMeasured):
            self._baselines.record(task, result)
            return
        del self._offers[result.lease.work]
        match result:
            case messages.Planned():
                self._store.save_plan(task, number, result.plan)
                self._perform(task, self._searches[task].handle(StageEnded(number)))
            case messages.Written() | messages.Repaired():
                self._written(task, number, stage, result)
            case messages.ReplyUnusable():
                unusable = Verdict(
                    verdict=Outcome.NO_CANDIDATE,
                    reason=result.reason,
                    log=result.reply,
                    gives_up_on=result.gives_up_on,
                )
                first = self._amendments.first_verdict(task, number, stage)
                self._record(task, number, stage, first or unusable)
            case messages.Evaluated() if stage is Stage.CONFIRM:
                self._confirm(task, number, result.verdict)
            case messages.Evaluated():
                self._judged(task, number, stage, result.verdict)
            case messages.ReferenceMeasured():
                self._measured(task, result.reference, result.problem)

    def _written(
        self, task: str, number: int, stage: Stage, result: messages.Written | messages.Repaired
    ) -> None:
        plan = result.plan if isinstance(result, messages.Written) else None
        if plan is not None and stage not in WRITING_STAGE:  # a mended candidate keeps its plan
            self._store.save_plan(task, number, plan)
        self._store.save_candidate(task, number, result.candidate)
        self._perform(task, self._searches[task].handle(StageEnded(number)))

    def _judged(self, task: str, number: int, stage: Stage, verdict: Verdict) -> None:
        failed = self._amendments.begin(task, number, stage, verdict)
        if failed is not None:
            self._perform(task, self._searches[task].handle(failed))
            return
        keep_variant(self._store, task, number, verdict)
        self._record(task, number, stage, verdict)

    def _measured(self, task: str, reference: Reference | None, problem: str) -> None:
        if reference is None:
            self._refuse(task, problem)
            return
        self._store.set_reference(task, reference, time.time())
        self._baselines.offer(task)
        self._perform(task, self._searches[task].handle(ReferenceReady(reference.eager_us)))

    def _refuse(self, task: str, problem: str) -> None:
        self._perform(task, self._searches[task].handle(ReferenceRefused(problem)))

    def _record(self, task: str, number: int, stage: Stage, verdict: Verdict) -> None:
        """Add the node, in one transaction with the end of its lease and the next attempt."""
        verdict = self._amendments.with_first_failure(task, number, stage, verdict)
        reference = self._store.reference(task)
        score = FAILED_SCORE if reference is None else score_us(verdict, reference)
        candidate = self._store.candidate(task, number)
        self._store.add_node(
            task, number, verdict, None if score == FAILED_SCORE else score, time.time()
        )
        kernel = kernel_of(candidate.source if candidate else "", verdict)
        self._perform(
            task,
            self._searches[task].handle(AttemptEnded(number, score, kernel, verdict.gives_up_on)),
        )

    def _confirm(self, task: str, number: int, verdict: Verdict | None) -> None:
        """Replace a node's verdict by its confirmation; None: it could not be confirmed."""
        if number in self._directives.rejections(task):
            verdict = None  # a person's verdict stays
        reference = self._store.reference(task)
        score = self._searches[task].score(number)
        if verdict is not None and reference is not None:
            score = score_us(verdict, reference)
        self._decisions.keep_unconfirmed_verdict(task, number)
        self._store.confirm_node(task, number, verdict, None if score == FAILED_SCORE else score)
        self._work_messages.node_confirmed()
        faster = verdict is not None and verdict.is_faster
        self._perform(task, self._searches[task].handle(BestConfirmed(number, score, faster)))

    # --- carrying out instructions -----------------------------------------------------------

    def _perform(self, task: str, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SaveAttempt(attempt):
                    self._store.save_attempt(task, attempt)
                    if attempt.stage in (Stage.PLAN, Stage.REPAIR):
                        detail = f"node {attempt.parent} to {attempt.stage}"
                        self._activity.add_event(
                            time.time(), "selected", f"{task}/{attempt.number}", detail
                        )
                case OfferWork(stage, attempt):
                    work = work_id(task, attempt.number, stage)
                    self._offers[work] = instruction
                    self._decisions.add(task, instruction, self._searches[task].recorded)
                    self._scheduler.enqueue(work, ROLE_OF[stage], self._placement(task, stage))
                case FinishTask(problem):
                    self._store.end_task(task, problem)
                    self._event("task over", task, problem)

    def _placement(self, task: str, stage: Stage) -> Placement:
        """Return a stage's placement: candidates go to the kind of device of their reference."""
        if ROLE_OF[stage] is not Role.EVALUATOR:
            return Placement()
        reference = self._store.reference(task)
        kind = reference.device.fingerprint if reference else ""
        # The confirmation decides the winner: this machine does it where it can, not a guest.  It
        # takes as long as many first looks, so those of other tasks go first.
        is_last = stage is Stage.CONFIRM
        return Placement(kind=kind, trusted=is_last, is_background=is_last)
