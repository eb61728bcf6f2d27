"""The verbs: what each directive means for this run, and why it is refused.

Every verb checks first and writes then, so that a refused directive changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from actors.coordinator.budget_service import BudgetLedger
from actors.coordinator.search import steering_rules
from actors.coordinator.search.search import Search
from actors.coordinator.search.steering_events import NodeSteered, NodeVerb
from actors.coordinator.search.tree import ROOT, Node
from actors.coordinator.storage.directive_store import DirectivePlace, DirectiveStore
from actors.coordinator.tasks import RunTasks
from protocol import questions
from protocol.directives import RUN_VERBS, Directive
from protocol.frozen_struct import Value
from protocol.prices import price_of
from protocol.settings import COMPUTED_MODELS, Settings
from protocol.values import AGENT_ROLES, Candidate, Plan

INJECTED_ADVICE = "a person's source"


class DirectiveRefusedError(Exception):
    """The directive can't be applied; one line says why."""


class NotYetError(Exception):
    """The directive has to wait: the best nodes of its task are being judged again."""


class Applied(Value, frozen=True, kw_only=True):
    """The effect of a directive."""

    detail: str = ""  # for people
    task: str = ""  # that it concerns; "": the run
    attempt: int | None = None  # that it began


class Verbs:
    """Applies directives to the parts of one run."""

    def __init__(
        self,
        run_dir: Path,
        *,
        settings: Settings,
        tasks: RunTasks,
        directives: DirectiveStore,
        budget: BudgetLedger,
    ) -> None:
        self.is_paused = directives.is_paused()
        self._run_dir = run_dir
        self._settings = settings
        self._tasks = tasks
        self._directives = directives
        self._budget = budget

    def apply(self, directive: Directive) -> Applied:
        """Apply a directive; raise `DirectiveRefusedError` or `NotYetError` where it can't be."""
        verb = directive.verb
        run_verbs: dict[str, Callable[[Directive], str]] = {
            "pause": self._pause,
            "go": self._go,
            "cap": self._cap,
            "answer": self._answer,
            "finish": self._finish,
        }
        if verb in run_verbs:
            return Applied(detail=run_verbs[verb](directive))
        if verb == "budget":
            return self._change_budget(directive)
        if verb == "advise":
            return self._advise(directive)
        task = self._task_of(directive)
        if verb == "inject":
            return self._inject(task, directive)
        return self._steer_node(task, directive)

    def named_task(self, directive: Directive) -> str:
        """Return the task that a directive concerns; "" for the run, or for no task that exists."""
        names = self._tasks.names
        if directive.task or len(names) != 1 or directive.verb in RUN_VERBS:
            return directive.task
        return names[0]

    def place_of(self, directive: Directive) -> DirectivePlace:
        """Return where a directive stands among the decisions of its task."""
        task = self.named_task(directive)
        if task not in self._tasks.names:
            return self.no_place()
        search = self._tasks.search(task)
        return DirectivePlace(
            decided=self._directives.last_decision(),
            recorded=search.recorded,
            begun=search.begun,
            confirmed=len(search.confirmed),
        )

    def no_place(self) -> DirectivePlace:
        """Return the place of a directive that concerns no task alone."""
        return DirectivePlace(decided=self._directives.last_decision())

    # --- the run -----------------------------------------------------------------------------

    def _pause(self, directive: Directive) -> str:
        if self.is_paused:
            raise DirectiveRefusedError("the run is paused already")
        self._set_paused(paused=True)
        return "pause: nothing more is leased"

    def _go(self, directive: Directive) -> str:
        if not self.is_paused:
            raise DirectiveRefusedError("the run is not paused")
        self._set_paused(paused=False)
        return "go: the run goes on"

    def _set_paused(self, *, paused: bool) -> None:
        self.is_paused = paused
        self._directives.set_paused(paused=paused)

    def _cap(self, directive: Directive) -> str:
        usd = directive.arguments.usd or 0.0
        for model in sorted({self._settings.model_of(role) for role in AGENT_ROLES}):
            priced = price_of(model, self._settings.prices) is not None
            if not (priced or model.startswith(COMPUTED_MODELS)):
                raise DirectiveRefusedError(
                    f"no price of {model} is known: resume with --prices FILE"
                )
        self._budget.set_cap(usd)
        self._directives.set_cap(usd)
        return f"cap: {usd:g} US dollars"

    def _answer(self, directive: Directive) -> str:
        name, text = directive.arguments.question, directive.arguments.text
        if not questions.has_question(self._run_dir, name):
            waiting = ", ".join(questions.open_questions(self._run_dir)[:5])
            raise DirectiveRefusedError(
                f"there is no question {name}" + (f": there are {waiting}" if waiting else "")
            )
        answered = {row.arguments.question for row in self._directives.applied("")}
        try:
            # Killed before the commit, the next coordinator finds the answer that this one gave.
            is_given = name not in answered and questions.answer(self._run_dir, name, text)
        except OSError as error:
            raise DirectiveRefusedError(f"the answer can't be written: {error.strerror}") from error
        if not is_given:
            raise DirectiveRefusedError(f"question {name} has an answer, or its time is over")
        return f"answer: {name}"

    def _finish(self, directive: Directive) -> str:
        if self._directives.is_finishing():
            raise DirectiveRefusedError("the run is finishing already")
        self._directives.set_finishing(finishing=True)
        if self.is_paused:
            self._set_paused(paused=False)
        self._tasks.finish()
        return "finish: no new attempt is begun"

    # --- tasks -------------------------------------------------------------------------------

    def _task_of(self, directive: Directive) -> str:
        """Return the task that a directive has to have."""
        task, names = self.named_task(directive), self._tasks.names
        if not task:
            raise DirectiveRefusedError(
                f"the run has {len(names)} tasks: name one of {_some(names)}"
            )
        self._check_task(task)
        return task

    def _check_task(self, task: str) -> None:
        if task not in self._tasks.names:
            raise DirectiveRefusedError(
                f"there is no task {task}: there is {_some(self._tasks.names)}"
            )

    def _change_budget(self, directive: Directive) -> Applied:
        wanted = directive.arguments.attempts or 0
        if self._directives.is_finishing():
            raise DirectiveRefusedError("the run was asked to finish")
        named = self.named_task(directive)
        if named:
            self._check_task(named)
        tasks = [named] if named else self._tasks.names
        changed = []
        for task in tasks:
            search = self._tasks.search(task)
            if search.finished and search.tree is None:
                if named:
                    raise DirectiveRefusedError(f"{task} is over: {self._tasks.problem(task)}")
            elif (begun := self._tasks.begun(task)) > wanted and (named or not search.finished):
                raise DirectiveRefusedError(
                    f"{task} has begun {begun} attempts: name that number or more"
                )
            elif search.confirming is not None:
                raise NotYetError
            elif begun <= wanted:
                changed.append(task)
        for task in changed:
            self._tasks.change_budget(task, wanted)
        return Applied(detail=f"budget: {wanted} attempts", task=named)

    def _advise(self, directive: Directive) -> Applied:
        node = directive.node
        if node is None and not directive.task:
            where, task = "the run", ""
        else:
            task = self._task_of(directive)
            where = task if node is None else f"node {node}"
            if node is not None:
                self._node(self._open_search(task), node)
                where += " alone" if directive.arguments.scope == "node" else " and below"
        text = directive.arguments.text
        verb = "advise" if text else "advise: taken back"
        return Applied(
            detail=f"{verb}, for {where}" + (f": {text[:80]}" if text else ""), task=task
        )

    # --- nodes -------------------------------------------------------------------------------

    def _open_search(self, task: str, *, may_be_over: bool = False) -> Search:
        """Return a task's search; refuse one that has no tree, or that is over."""
        search = self._tasks.search(task)
        if search.tree is None:
            problem = self._tasks.problem(task) or "its reference is not measured yet"
            raise DirectiveRefusedError(f"{task}: {problem}")
        if search.finished and not may_be_over:
            raise DirectiveRefusedError(f"{task} is over: a larger budget opens it again")
        return search

    def _node(self, search: Search, number: int) -> Node:
        node = search.tree.nodes.get(number) if search.tree is not None else None
        if node is None:
            is_begun = number in search.under_way
            raise DirectiveRefusedError(
                f"node {number} is not judged yet" if is_begun else f"there is no node {number}"
            )
        return node

    def _steer_node(self, task: str, directive: Directive) -> Applied:
        verb, number = directive.verb, directive.node or ROOT
        search = self._open_search(task, may_be_over=verb == "reject")
        reason = steering_rules.refusal_of(
            _node_verb(directive), search, self._node(search, number)
        )
        if reason:
            raise DirectiveRefusedError(reason)
        if verb in ("pin", "boost", "prune") and self._settings.requested_policy is None:
            raise DirectiveRefusedError(
                f"--strategy {self._settings.strategy} has no choice of nodes that a person could"
                " change"
            )
        count = directive.arguments.count or 1
        event = NodeSteered(
            verb=_node_verb(directive), number=number, count=count, begun=search.begun
        )
        detail = f"{verb}: node {number}"
        match verb:
            case "pin" | "unpin":
                self._directives.set_pinned(task, number, pinned=verb == "pin")
            case "prune" | "unprune":
                self._directives.change_prunes(task, number, 1 if verb == "prune" else -1)
            case "boost":
                detail += f", {count} attempts"
            case "reject":
                decided = self._directives.last_decision()
                self._directives.reject(task, number, directive.arguments.text, decided)
                detail += f": {directive.arguments.text}"
        self._tasks.steer(task, event)
        return Applied(detail=detail, task=task)

    def _inject(self, task: str, directive: Directive) -> Applied:
        parent = directive.node or ROOT
        search = self._open_search(task, may_be_over=True)
        if self._node(search, parent).rejected:
            raise DirectiveRefusedError(f"node {parent} is rejected: it can't be a parent")
        if search.begun >= search.budget:
            raise DirectiveRefusedError(
                f"the budget of {search.budget} attempts is used up: raise it first"
            )
        if search.confirming is not None:
            raise NotYetError
        note = directive.arguments.text
        advice = f"{INJECTED_ADVICE}: {note}" if note else INJECTED_ADVICE
        source = directive.arguments.source
        number = self._tasks.inject(
            task, parent, Plan(advice=advice, scaffold=source), Candidate(source=source)
        )
        return Applied(detail=f"inject: a child of node {parent}", task=task, attempt=number)


def _node_verb(directive: Directive) -> NodeVerb:
    match directive.verb:
        case "pin" | "unpin" | "boost" | "prune" | "unprune" | "reject":
            return directive.verb
    raise DirectiveRefusedError(f"{directive.verb} concerns no node")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
