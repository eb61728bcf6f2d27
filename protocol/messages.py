"""The messages: one tagged union for each socket and direction.

Requests are imperative (`Write`), facts are past tense (`Written`).  A lease names one piece of
work; its holder lists it in every heartbeat and keeps the result until it is acknowledged.
"""

from __future__ import annotations

from protocol.values import (
    AttemptView,
    Call,
    Candidate,
    Device,
    FailedCandidate,
    GiveUpScope,
    LedgerEntry,
    Plan,
    Reference,
    Role,
    Task,
    Value,
    Verdict,
)

MAJOR = 2
MINOR = 2


class Message(Value, tag=True, frozen=True, kw_only=True):
    """The base of all messages."""


class Lease(Value, frozen=True, kw_only=True):
    """The right to do one piece of work, fenced by an epoch that only grows."""

    work: str  # "TASK/ATTEMPT/STAGE": "gelu/7/write"
    epoch: int


# --- worker -> coordinator -------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """The first message on every connection, and the answer to `Identify`."""

    role: Role
    slot: str  # the supervised place, "evaluator-0@host"; a replacement process has the same
    incarnation: str  # fresh for every process
    pid: int
    major: int = MAJOR
    minor: int = MINOR
    credit: int = 1  # leases that it accepts at once; 0 while draining
    held_leases: tuple[Lease, ...] = ()
    device: Device | None = None


class Heartbeat(Message, frozen=True, kw_only=True):
    """The sender is alive, holds these leases, and accepts `credit` of them."""

    held_leases: tuple[Lease, ...] = ()
    credit: int = 1
    activity: str = ""  # for people: "asking claude-…", "building gelu/7"
    sent_at: float = 0.0  # the sender's own clock, repeated in `HeartbeatAck`; 0: no answer wanted
    rtt_ms: float | None = None  # of the last heartbeat that was answered


class CallCompleted(Message, frozen=True, kw_only=True):
    """A model replied.  Stored and acknowledged (`CallStored`) before the reply is used."""

    lease: Lease
    call: Call


class ReserveBudget(Message, frozen=True, kw_only=True):
    """A request for the money for the next call, which waits for `BudgetReserved`."""

    lease: Lease
    call_number: int  # of the call, in this process
    model: str
    request_key: str  # the key of its request's text
    usd: float | None = None  # the most that it can cost; None: no price is known
    # An earlier call under this lease that failed and may have been paid for; 0: none.
    lost_call_number: int = 0
    lost_call: Call | None = None  # its most by what the server said; None: all that was reserved


class Planned(Message, frozen=True, kw_only=True):
    lease: Lease
    plan: Plan


class Written(Message, frozen=True, kw_only=True):
    lease: Lease
    candidate: Candidate
    plan: Plan | None = None  # a single agent's own; a coder gets its plan with the request


class Repaired(Message, frozen=True, kw_only=True):
    lease: Lease
    candidate: Candidate


class ReplyUnusable(Message, frozen=True, kw_only=True):
    """The model's reply has no usable candidate or plan: a refusal, no code, wrong anchors."""

    lease: Lease
    reason: str
    reply: str = ""
    gives_up_on: GiveUpScope = "attempt"  # "node", "task": the answer will always be the same


class CallsBlocked(Message, frozen=True, kw_only=True):
    """No call can succeed until a person acts: wrong key, credit used up.  The run stops."""

    lease: Lease
    reason: str


class CandidateRunning(Message, frozen=True, kw_only=True):
    """Candidate code runs from now on: a loss of the sender is charged to the candidate."""

    lease: Lease


class ReferenceMeasured(Message, frozen=True, kw_only=True):
    """The reference's figures, or why it can't be measured."""

    lease: Lease
    reference: Reference | None = None
    problem: str = ""


class BaselinesMeasured(Message, frozen=True, kw_only=True):
    """The reference's times under torch.compile; None where there is none, and why."""

    lease: Lease
    compile_us: float | None = None
    max_autotune_us: float | None = None
    note: str = ""


class Evaluated(Message, frozen=True, kw_only=True):
    lease: Lease
    verdict: Verdict


STOPPED_EARLY = "stopped before it ended"  # a reason: the worker left, or its lease was revoked


class HandedBack(Message, frozen=True, kw_only=True):
    """Work comes back undone and uncharged: the worker drains, or its device check failed."""

    lease: Lease
    reason: str = ""
    quarantined: bool = False  # the device is quarantined until a device check passes
    lost_call_number: int = 0  # as in `ReserveBudget`
    lost_call: Call | None = None
    reference_failed: bool = False  # the task's own module failed, as it will on other devices


class WorkerLost(Message, frozen=True, kw_only=True):
    """From a supervisor: an incarnation is dead."""

    slot: str
    incarnation: str
    exit_description: str = ""  # "exit status 1", "signal 9"


class Drain(Message, frozen=True, kw_only=True):
    """From a supervisor: lease no more work, and end the run when no lease is held."""


FromAgent = (
    Hello
    | Heartbeat
    | ReserveBudget
    | CallCompleted
    | Planned
    | Written
    | Repaired
    | ReplyUnusable
    | CallsBlocked
    | HandedBack
)
FromEvaluator = (
    Hello
    | Heartbeat
    | CandidateRunning
    | ReferenceMeasured
    | BaselinesMeasured
    | Evaluated
    | HandedBack
)
FromSupervisor = Hello | Heartbeat | WorkerLost | Drain
ToCoordinator = (
    Hello
    | Heartbeat
    | ReserveBudget
    | CallCompleted
    | Planned
    | Written
    | Repaired
    | ReplyUnusable
    | CallsBlocked
    | CandidateRunning
    | ReferenceMeasured
    | BaselinesMeasured
    | Evaluated
    | HandedBack
    | WorkerLost
    | Drain
)
Result = (
    Planned | Written | Repaired | ReplyUnusable | ReferenceMeasured | BaselinesMeasured | Evaluated
)

# --- coordinator -> worker -------------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True):
    epoch: int
    beat_s: float
    lease_s: float
    # The run's stark.toml, for a joined machine's supervisor.  It is text, so that a supervisor
    # of another version reports an unknown setting in one line and uses none of the others.
    settings: str = ""


class Refuse(Message, frozen=True, kw_only=True):
    """The receiver is refused, and why; other peers are not."""

    reason: str


class Identify(Message, frozen=True, kw_only=True):
    """The coordinator does not know the receiver, for example after a restart: say Hello again."""


class HeartbeatAck(Message, frozen=True, kw_only=True):
    """A `Heartbeat` arrived, and the messages that were sent before it are durable."""

    sent_at: float  # from the heartbeat
    # To supervisors:
    silent_incarnations: tuple[str, ...] = ()  # processes that send no message any more
    coordinator_problem: str = ""  # why the coordinator can't go on at present


class AgentRequest(Message, frozen=True, kw_only=True):
    """The fields of every agent's work; never sent by itself."""

    lease: Lease
    task: Task
    attempt: int
    node: AttemptView
    root: AttemptView
    window: tuple[AttemptView, ...] = ()
    reference: Reference
    seed: int = 0
    completed_calls: tuple[Call, ...] = ()  # stored replies for this work, used instead of a call
    # For computed models only, never in a prompt: keys of the task's candidates (`source_key`), and
    # the advice of plans under way for the same node.
    tried: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    person_advice: tuple[str, ...] = ()  # a person's, for the agents that plan; part of the prompt
    # What was known when the work was decided on; () where the strategy or the prompts have none.
    ledger: tuple[LedgerEntry, ...] = ()
    ledger_left_out: int = 0  # older attempts that are not in it
    best: AttemptView | None = None  # the fastest then, unless node or window show it
    # The candidate that this agent wrote for this work and is to mend: the same conversation goes
    # on.  None: it has written none yet.
    failed: FailedCandidate | None = None


class MakePlan(AgentRequest, tag="Plan", frozen=True, kw_only=True):
    """Propose one optimisation.  The wire tag is `Plan`; in Python that name is a value's."""


class Write(AgentRequest, frozen=True, kw_only=True):
    """Implement the plan at its anchors."""

    plan: Plan


class Repair(AgentRequest, frozen=True, kw_only=True):
    """Repair the node, which was to implement `plan`."""

    plan: Plan


class Solve(AgentRequest, frozen=True, kw_only=True):
    """A single agent: improve the node, or repair it if it failed; plan and code in one call."""


class Reflect(AgentRequest, frozen=True, kw_only=True):
    """A single agent: reflect on the node, which is its last attempt, and write a new candidate."""

    reflections: tuple[str, ...] = ()  # on the attempts before that one, oldest first


class MeasureReference(Message, frozen=True, kw_only=True):
    lease: Lease
    task: Task
    # Leave out torch.compile's times, which take up to minutes: `MeasureBaselines` asks for them
    # when the device has nothing else to do.
    defer_baselines: bool = False


class MeasureBaselines(Message, frozen=True, kw_only=True):
    """Measure the reference under torch.compile, on a device like that of `reference`."""

    lease: Lease
    task: Task
    reference: Reference


class Evaluate(Message, frozen=True, kw_only=True):
    lease: Lease
    task: Task
    source: str
    reference: Reference
    rounds: int = 1  # judgements in fresh processes, combined into one verdict
    most_rounds: int = 0  # further rounds up to this number while the interval is wide
    # Whether a round comes before the release checks, which a slower candidate does not need.
    is_doubtful: bool = False
    # Of the task's best node: a clearly slower candidate is timed roughly.  0: there is none.
    best_speedup: float = 0.0
    # Whether a correct candidate is profiled even if it is not the best: the search stagnates.
    profile: bool = False


class BudgetReserved(Message, frozen=True, kw_only=True):
    """The money for a call is reserved, on disk: the call may be made."""

    lease: Lease
    call_number: int


class CallStored(Message, frozen=True, kw_only=True):
    """A `CallCompleted` is on disk."""

    lease: Lease
    # Of that call: work may make several, and a repeated message is acknowledged again, late.
    request_key: str = ""  # "": all calls so far, from a coordinator of an older version


class ResultStored(Message, frozen=True, kw_only=True):
    """A result is on disk, or was not wanted: the sender may forget it."""

    lease: Lease


class Revoke(Message, frozen=True, kw_only=True):
    """The receiver does not hold a lease any more: stop working on it."""

    lease: Lease


class Retire(Message, frozen=True, kw_only=True):
    """Finish the leases held, take no more work, then exit with status 0."""

    reason: str = ""  # for people: "finished", "stopped"


AgentWork = MakePlan | Write | Repair | Solve | Reflect
EvaluatorWork = MeasureReference | MeasureBaselines | Evaluate
Work = AgentWork | EvaluatorWork
ToWorker = (
    Welcome
    | Refuse
    | Identify
    | HeartbeatAck
    | Work
    | BudgetReserved
    | CallStored
    | ResultStored
    | Revoke
    | Retire
)
