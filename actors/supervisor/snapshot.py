"""A run at one moment, as people are shown it: tasks with their trees, workers, spend.

Made by the ledger from `run.db`; read by view, outcome and report.  Immutable.
"""

from __future__ import annotations

from protocol.values import Plan, Reference, Value, Verdict


class Node(Value, frozen=True, kw_only=True):
    """One node of the tree, without its source and log (they can be large: see `Ledger.source`)."""

    task: str
    number: int
    parent: int | None
    advice: str
    verdict: Verdict
    score_us: float | None
    at: float
    confirmed: bool = False  # it was judged again, at length, when the budget had ended


class Spend(Value, frozen=True, kw_only=True):
    """What the calls for one task took."""

    calls: int = 0
    lost: int = 0  # of these: nobody saw the reply, counted at the most that it can cost
    usd: float | None = 0.0  # None: at least one call has no known price
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


class SpendRow(Value, frozen=True, kw_only=True):
    """What the calls of one role for one node took."""

    task: str
    node: int = 0
    role: str
    model: str
    spend: Spend


class Edit(Value, frozen=True, kw_only=True):
    """What one attempt was to change, and what it changed."""

    number: int
    parent: int
    word: str
    advice: str
    plan: Plan | None
    before: str  # the parent's source
    source: str
    outside: tuple[str, ...]


class UnderWay(Value, frozen=True, kw_only=True):
    """An admitted attempt that has no result yet."""

    number: int
    parent: int
    state: str


class TaskState(Value, frozen=True, kw_only=True):
    """One task: its tree so far, what is under way, what it cost."""

    name: str
    budget: int
    status: str
    problem: str = ""
    reference: Reference | None = None
    nodes: tuple[Node, ...] = ()  # by number; the root, where it is recorded, first
    under_way: tuple[UnderWay, ...] = ()
    spend: Spend = Spend()

    @property
    def attempts(self) -> tuple[Node, ...]:
        """The nodes but the root."""
        return tuple(node for node in self.nodes if node.number > 0)

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """The kinds of device that correct nodes were measured on, but the reference's own."""
        own = self.reference.device.fingerprint if self.reference else ""
        kinds = {node.verdict.device for node in self.attempts if node.verdict.correct}
        return tuple(sorted(kinds - {own, ""}))

    @property
    def best(self) -> Node | None:
        """The fastest correct node but the reference itself; a confirmed one goes first.

        The best of many noisy figures is too good to be true, so at the end those that were
        judged a second time are compared among themselves.
        """
        ranked = [
            (not node.confirmed, node.score_us, node.number, node)
            for node in self.attempts
            if node.verdict.correct and node.score_us is not None
        ]
        return min(ranked)[3] if ranked else None

    @property
    def ended_early(self) -> str:
        """Why the task is over before its budget: its agents have nothing more to try."""
        refusals = [n for n in self.attempts if n.verdict.gives_up_on != "attempt"]
        final = [n for n in refusals if n.verdict.gives_up_on == "task"]
        if self.status != "finished" or len(self.attempts) >= self.budget or not refusals:
            return final[0].verdict.reason if final else ""
        return (final or refusals[::-1])[0].verdict.reason

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures has to know, a sentence each."""
        measured = self.reference.notes if self.reference else ()
        if not self.ended_early:
            return measured
        count = f"{len(self.attempts)} of {self.budget} attempts"
        return (*measured, f"ended after {count}: {self.ended_early}")

    @property
    def eager_us(self) -> float | None:
        """The reference's time as it was measured in turn with the winner, where there is one.

        The first measurement may be hours older, from a machine that was busier or hotter.
        """
        if self.best is not None and self.best.verdict.reference_us is not None:
            return self.best.verdict.reference_us
        return self.reference.eager_us if self.reference else None


class WorkerState(Value, frozen=True, kw_only=True):
    """A worker as the coordinator knows it."""

    slot: str
    role: str
    state: str
    doing: str
    since: float  # wall clock
    starts: int = 1
    how: str = ""  # how the last one in this slot ended
    leases: int = 0
    rtt_ms: float | None = None  # from a heartbeat to its answer
    quarantine: str = ""  # why nothing is judged on its device


class Snapshot(Value, frozen=True, kw_only=True):
    """The whole run at one moment."""

    run_id: str = ""
    status: str = ""  # "" while there is no database
    reason: str = ""
    seconds: float = 0.0  # active seconds, over all starts
    tasks: tuple[TaskState, ...] = ()
    workers: tuple[WorkerState, ...] = ()

    @property
    def recorded(self) -> int:
        """How many attempts have a result."""
        return sum(len(task.attempts) for task in self.tasks)

    def is_finished(self, task: TaskState) -> bool:
        """Whether nothing more will come for `task`: its best is confirmed, or it was refused."""
        return "finished" in (self.status, task.status) or bool(task.problem)
