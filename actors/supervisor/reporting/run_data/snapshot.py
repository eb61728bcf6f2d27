"""A run at one moment, as users see it: tasks with their trees, workers, spend.

`RunReader` makes a snapshot from `run.db`; screens, results and report read it.  Immutable.
"""

from __future__ import annotations

from collections import Counter

from protocol.directives import VERBS
from protocol.messages import STOPPED_EARLY
from protocol.values import Plan, Reference, Value, Verdict


class NodeView(Value, frozen=True, kw_only=True):
    """One node of the tree, without its source and log.

    Both can be large: see `RunReader.source_of`.
    """

    task: str
    number: int
    parent: int | None
    advice: str
    verdict: Verdict
    score_us: float | None
    at: float
    confirmed: bool = False  # it was judged again, at length, after the end of the budget
    unconfirmable: bool = False  # a second look was tried, and no evaluator could do it
    first_look: Verdict | None = None  # the verdict before it was judged again

    @property
    def first_verdict(self) -> Verdict:
        """The verdict of its first look."""
        return self.first_look or self.verdict

    @property
    def is_judged_again(self) -> bool:
        """Whether its second look is over, with or without a verdict."""
        return self.confirmed or self.unconfirmable

    @property
    def is_correct(self) -> bool:
        """Whether it is correct and has a score."""
        return self.verdict.is_correct and self.score_us is not None


class Spend(Value, frozen=True, kw_only=True):
    """The cost of the model calls for one task."""

    calls: int = 0
    lost: int = 0  # calls without a seen reply, counted at the most that they can cost
    usd: float | None = 0.0  # None: at least one call has no known price
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


class SpendRow(Value, frozen=True, kw_only=True):
    """The cost of one role's model calls for one node."""

    task: str
    node: int = 0
    role: str
    model: str
    spend: Spend


class AttemptEdit(Value, frozen=True, kw_only=True):
    """The plan of one attempt, and what it changed."""

    number: int
    parent: int
    outcome: str
    advice: str
    plan: Plan | None
    before: str  # the parent's source
    source: str
    outside: tuple[str, ...]


class AttemptUnderWay(Value, frozen=True, kw_only=True):
    """An admitted attempt that has no result yet."""

    number: int
    parent: int
    state: str
    calls: int = 0  # of models, answered or lost


class TaskState(Value, frozen=True, kw_only=True):
    """One task: its tree so far, its attempts in flight, its spend."""

    name: str
    budget: int
    status: str
    problem: str = ""
    reference: Reference | None = None
    nodes: tuple[NodeView, ...] = ()  # by number; first the root, if it is recorded
    under_way: tuple[AttemptUnderWay, ...] = ()
    spend: Spend = Spend()

    @property
    def attempts(self) -> tuple[NodeView, ...]:
        """All nodes but the root."""
        return tuple(node for node in self.nodes if node.number > 0)

    @property
    def other_devices(self) -> tuple[str, ...]:
        """The kinds of device of correct nodes, without the reference's own."""
        correct = [node for node in self.attempts if node.verdict.is_correct]
        return tuple(
            sorted({node.verdict.device for node in correct if self.is_on_other_device(node)})
        )

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent and no second look will follow."""
        return self.status == "finished"

    @property
    def best(self) -> NodeView | None:
        """The fastest node that is faster than the reference, see `Verdict.is_faster`.

        This is the one definition of the winner, for the terminal, the report, result.json, best.py
        and the exit status.  The best of many noisy figures is too good to be true.  So a confirmed
        node goes first, and only a confirmed node counts when the task is over.
        """
        faster = [
            node
            for node in self.attempts
            if node.is_correct and node.verdict.is_faster and (node.confirmed or not self.is_over)
        ]
        return min(faster, key=_confirmed_first, default=None)

    @property
    def closest(self) -> NodeView | None:
        """The best correct node, if no node is faster than the reference."""
        if self.best is not None:
            return None
        correct = [node for node in self.attempts if node.is_correct]
        others = [node for node in correct if not node.verdict.is_renamed_reference]
        return min(others or correct, key=_confirmed_first, default=None)

    @property
    def ended_early(self) -> str:
        """Why the task ended before its budget: its agents have nothing more to try."""
        refusals = [node for node in self.attempts if node.verdict.gives_up_on != "attempt"]
        final = [node for node in refusals if node.verdict.gives_up_on == "task"]
        if self.status != "finished" or len(self.attempts) >= self.budget or not refusals:
            return final[0].verdict.reason if final else ""
        return (final or refusals[::-1])[0].verdict.reason

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user must know about the figures, a sentence each."""
        measured = self.reference.notes if self.reference else ()
        if not self.ended_early:
            return measured
        count = f"{len(self.attempts)} of {self.budget} attempts"
        return (*measured, f"ended after {count}: {self.ended_early}")

    def eager_us(self, node: NodeView | None) -> float | None:
        """Return the reference's time that a node's time is shown against.

        For all nodes it is the time that was measured when the task began: at other moments the
        machine is faster or slower.  On another kind of device it is the time on that device.
        """
        if (
            node is not None
            and self.is_on_other_device(node)
            and node.verdict.reference_us is not None
        ):
            return node.verdict.reference_us
        return self.reference.eager_us if self.reference else None

    def shown_us(self, node: NodeView) -> float | None:
        """Return a node's time as it is shown: the reference's time, divided by the speed-up.

        It is not the measured median: the machine may have been slower in that minute than in
        another node's, and figures of different minutes contradict each other.
        """
        eager_us = self.eager_us(node)
        if eager_us is None or not node.verdict.speedup:
            return node.score_us
        return eager_us / node.verdict.speedup

    def is_on_other_device(self, node: NodeView) -> bool:
        """Whether a node was judged on another kind of device than the reference."""
        own = self.reference.device.fingerprint if self.reference else ""
        return node.verdict.device not in ("", own)


def _confirmed_first(node: NodeView) -> tuple[bool, float, int]:
    return not node.confirmed, node.score_us or 0.0, node.number


class WorkerState(Value, frozen=True, kw_only=True):
    """A worker as the coordinator knows it."""

    slot: str
    role: str
    state: str
    doing: str
    since: float  # wall clock
    incarnation: str = ""  # of the process that these fields are about
    starts: int = 1
    how: str = ""  # how the last process in this slot ended
    leases: int = 0
    rtt_ms: float | None = None  # from a heartbeat to its answer
    quarantine: str = ""  # why nothing is judged on its device


class DirectiveState(Value, frozen=True, kw_only=True):
    """What a person asked of the run, applied or refused."""

    id: int
    verb: str
    task: str
    node: int | None
    by: str
    state: str
    reason: str
    attempt: int | None  # that it began

    @property
    def line(self) -> str:
        """The directive and what became of it, as one line."""
        node = "" if self.node is None else f"node {self.node}"
        by = f" by {self.by}" if self.by else ""
        made = "" if self.attempt is None else f", attempt {self.attempt}"
        reason = f": {self.reason}" if self.reason else ""
        what = " ".join(word for word in (self.verb, self.task, node) if word)
        return f"{what}{by}: {self.state}{made}{reason}"


class ReturnedWork(Value, frozen=True, kw_only=True):
    """Work that was handed back again and again."""

    work: str
    times: int
    longest_s: float  # that a worker had it
    reason: str = ""  # of the last time

    @property
    def line(self) -> str:
        """The work, and why no result comes of it, as one line."""
        line = f"{self.work}: handed back {self.times} times, after up to {self.longest_s:.0f} s"
        line += f": {self.reason}" if self.reason else ""
        if self.reason == STOPPED_EARLY:
            line += "; its machines have to stay for longer (the wall time of a batch job)"
        return line


class Snapshot(Value, frozen=True, kw_only=True):
    """The whole run at one moment."""

    run_id: str = ""
    status: str = ""  # "" before there is a database
    reason: str = ""
    seconds: float = 0.0  # active seconds, over all starts
    is_paused: bool = False  # by a person
    is_finishing: bool = False  # it was asked to end with what is under way
    cap_usd: float | None = None  # the cap in force; None: --max-cost, if there is one
    directives: tuple[DirectiveState, ...] = ()  # in order
    answered: int = 0  # model calls that a person answered
    tasks: tuple[TaskState, ...] = ()
    workers: tuple[WorkerState, ...] = ()
    returned: tuple[ReturnedWork, ...] = ()

    @property
    def person(self) -> dict[str, int]:
        """What a person did to the run, by verb; empty for a run without directives."""
        counts = Counter(one.verb for one in self.directives if one.state == "applied")
        counts["answer"] = max(counts["answer"], self.answered)
        return {verb: counts[verb] for verb in VERBS if counts[verb]}

    @property
    def recorded(self) -> int:
        """The number of attempts with a result."""
        return sum(len(task.attempts) for task in self.tasks)

    def is_finished(self, task: TaskState) -> bool:
        """Whether `task` is over: its best is confirmed, or the task was refused."""
        return "finished" in (self.status, task.status) or bool(task.problem)
