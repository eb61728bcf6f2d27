"""The values that a page shows of a run, as JSON: the names of the fields are the page's contract.

`RunFeed` makes them from `run.db`.  A figure that was not measured is null; msgspec writes NaN and
infinity as null, too.
"""

from __future__ import annotations

import textwrap

import msgspec

from actors.supervisor.reporting.run_data.snapshot import NodeView, TaskState
from protocol.values import Value

AttemptKey = tuple[str, int]  # task, number
BY_PERSON = "inject"  # the kind of an attempt whose source is a person's
IDEA_CHARS = 200  # of the one line about a node
REASON_CHARS = 300


class NodeSpend(Value, frozen=True, kw_only=True):
    """The cost of the calls for one attempt."""

    usd: float | None = 0.0  # None: at least one call has no known price
    tokens: int = 0  # read and written


class FeedNode(Value, frozen=True, kw_only=True):
    """A recorded node, what kind of attempt it was, and what a person asked for at it."""

    view: NodeView
    kind: str
    is_pinned: bool = False
    is_pruned: bool = False  # it, or a node above it

    @property
    def key(self) -> AttemptKey:
        """The task and the number."""
        return self.view.task, self.view.number


class NodeSummary(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One node in a list or a tree."""

    task: str
    number: int
    parent: int | None
    kind: str  # root, improve, repair, inject
    idea: str  # the advice, one line
    verdict: str | None  # the outcome; null while the attempt is under way
    reason: str = ""  # of a failure, one line
    speedup: float | None = None
    low: float | None = None  # of the speed-up's 95 % interval
    high: float | None = None
    us: float | None = None  # a call, on the clock of the task's reference
    first_speedup: float | None = None  # before it was judged again
    confirmed: bool = False
    renamed: bool = False  # the task's own module under another name: never faster
    labels: tuple[str, ...] = ()
    pinned: bool = False
    pruned: bool = False
    by_person: bool = False
    at: float | None = None
    usd: float | None = None
    tokens: int = 0
    build_s: float | None = None
    check_s: float | None = None
    timing_s: float | None = None


class TaskSummary(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One task's figures."""

    name: str
    status: str
    budget: int
    attempts: int
    eager_us: float | None
    compile_us: float | None
    max_autotune_us: float | None
    floor_us: float | None
    best: int | None
    device: str
    problem: str


class UnderWay(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One attempt that has no verdict yet."""

    task: str
    number: int
    parent: int
    kind: str
    stage: str
    slot: str | None = None  # null: no worker holds it
    since: float | None = None  # when the lease was granted


class WorkerRow(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One worker of the fleet."""

    slot: str
    role: str
    state: str
    doing: str
    since: float
    starts: int
    how: str
    leases: int = 0
    rtt_ms: float | None = None
    quarantine: str = ""
    host: str = ""  # "": the run's own machine
    device: str = ""


class EventRow(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One event of the run."""

    id: int
    at: float
    what: str
    subject: str
    detail: str


class FeedDirective(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One directive, and what became of it."""

    key: str
    verb: str
    task: str
    node: int | None
    arguments: msgspec.Raw  # JSON
    by: str
    wanted_at: float
    state: str  # wanted: no coordinator has taken it yet; applied, refused
    reason: str = ""
    applied_at: float | None = None
    attempt: int | None = None  # that inject began


class RunSummary(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The run itself."""

    id: str  # opaque, never a path
    name: str
    run_id: str = ""
    status: str = "waiting"  # waiting: there is no run.db yet
    reason: str = ""
    paused: bool = False
    finishing: bool = False  # it was asked to end with what is under way
    is_served: bool = False  # whether a coordinator has written lately
    trouble: str = ""  # why run.db can't be read just now
    seconds: float = 0.0
    started: float | None = None
    budget: int = 0  # attempts of all tasks
    usd: float | None = 0.0
    cap_usd: float | None = None
    minutes: float | None = None
    strategy: str = ""
    policy: str | None = None
    model: str = ""
    person: dict[str, int] = msgspec.field(default_factory=dict)  # applied directives by verb
    questions: tuple[str, ...] = ()  # of agents, that a person may answer


class Changes(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The answer to `since`: the run, and all that changed after a number."""

    seq: int
    now: float
    whole: bool  # whether the lists hold everything there is
    run: RunSummary
    tasks: list[msgspec.Raw]
    nodes: list[msgspec.Raw]
    attempts: list[UnderWay]
    workers: list[msgspec.Raw]
    events: list[msgspec.Raw]
    directives: list[msgspec.Raw]


def node_summary(task: TaskState, row: FeedNode, spend: NodeSpend) -> NodeSummary:
    """Return the summary of a recorded node; `task` need not hold its nodes."""
    node = row.view
    verdict, first = node.verdict, node.first_look
    low, high = verdict.speedup_ci95 or (None, None)
    is_root = node.number == 0
    return NodeSummary(
        task=task.name,
        number=node.number,
        parent=node.parent,
        kind="root" if is_root else row.kind,
        idea=one_line(node.advice, IDEA_CHARS),
        verdict=verdict.verdict,
        reason="" if verdict.is_correct else one_line(verdict.reason, REASON_CHARS),
        speedup=verdict.speedup,
        low=low,
        high=high,
        us=task.shown_us(node) if node.is_correct else None,
        first_speedup=first.speedup if first is not None else None,
        confirmed=node.confirmed,
        renamed=verdict.is_renamed_reference,
        labels=verdict.labels,
        pinned=row.is_pinned,
        pruned=row.is_pruned,
        by_person=row.kind == BY_PERSON,
        at=node.at,
        usd=spend.usd,
        tokens=spend.tokens,
        build_s=None if is_root else verdict.seconds.build,
        check_s=None if is_root else verdict.seconds.check,
        timing_s=None if is_root else verdict.seconds.time,
    )


def task_summary(task: TaskState, attempts: int) -> TaskSummary:
    """Return a task's figures; its nodes need only hold those that may be the best."""
    reference, best = task.reference, task.best
    return TaskSummary(
        name=task.name,
        status=task.status,
        budget=task.budget,
        attempts=attempts,
        eager_us=reference.eager_us if reference else None,
        compile_us=reference.compile_us if reference else None,
        max_autotune_us=reference.max_autotune_us if reference else None,
        floor_us=reference.floor_us if reference else None,
        best=best.number if best else None,
        device=reference.device.name if reference else "",
        problem=task.problem,
    )


def one_line(text: str, most: int) -> str:
    """Return a text on one line, cut at a word; a text without spaces is cut anywhere."""
    beginning = " ".join(text[: 4 * most].split())
    if len(beginning) <= most:
        return beginning
    shortened = textwrap.shorten(beginning, most, placeholder="…")
    return shortened if len(shortened) > 1 else beginning[: most - 1] + "…"
