"""The messages: one tagged union for each socket and direction.

Requests are imperative (`Write`), facts are past tense (`Written`).  A lease names one piece of
work; whoever holds it lists it in every heartbeat and keeps its result until it is acknowledged.
"""

from __future__ import annotations

from protocol.values import (
    AttemptView,
    Call,
    Candidate,
    Device,
    GiveUpScope,
    Plan,
    Reference,
    Role,
    Task,
    Value,
    Verdict,
)

MAJOR = 2
MINOR = 0


class Message(Value, tag=True, frozen=True, kw_only=True):
    """Anything that crosses a wire."""


class Lease(Value, frozen=True, kw_only=True):
    """The right to do one piece of work, fenced by an epoch that only ever grows."""

    work: str  # "TASK/ATTEMPT/STAGE": "gelu/7/write"
    epoch: int


# --- worker -> coordinator -------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """First words on every connection, and again whenever the coordinator asks `Identify`."""

    role: Role
    slot: str  # the supervised place, "evaluator-0@host"; stays when the process is replaced
    incarnation: str  # fresh for every process
    pid: int
    major: int = MAJOR
    minor: int = MINOR
    credit: int = 1  # leases it is willing to hold at once; 0 while draining
    held_leases: tuple[Lease, ...] = ()
    device: Device | None = None


class Heartbeat(Message, frozen=True, kw_only=True):
    """I live; I hold these; I am willing to hold so many."""

    held_leases: tuple[Lease, ...] = ()
    credit: int = 1
    activity: str = ""  # for people: "asking claude-…", "building gelu/7"
    sent_at: float = 0.0  # the sender's own clock, answered with `HeartbeatAck`; 0: wants no answer
    rtt_ms: float | None = None  # of the last beat that was answered


class CallCompleted(Message, frozen=True, kw_only=True):
    """A model replied.  Stored and acknowledged (`CallStored`) before the reply is used."""

    lease: Lease
    call: Call


class ReserveBudget(Message, frozen=True, kw_only=True):
    """May I spend so much on my next call?  Said before each; it waits for `BudgetReserved`."""

    lease: Lease
    call_number: int  # of the call, in this process
    model: str
    request_key: str  # the key of its request's text
    usd: float | None = None  # the most that it can cost; None: no price is known
    lost_call_number: int = (
        0  # an earlier call under this lease that failed and may have been paid for
    )
    lost_call: Call | None = None  # what it came to at most; None: as much as was reserved


class Planned(Message, frozen=True, kw_only=True):
    lease: Lease
    plan: Plan


class Written(Message, frozen=True, kw_only=True):
    lease: Lease
    candidate: Candidate
    plan: Plan | None = None  # a single agent's own words on it; a coder was given its plan


class Repaired(Message, frozen=True, kw_only=True):
    lease: Lease
    candidate: Candidate


class ReplyUnusable(Message, frozen=True, kw_only=True):
    """The model gave nothing that can be tried: a refusal, no code, anchors out of bounds."""

    lease: Lease
    reason: str
    reply: str = ""
    gives_up_on: GiveUpScope = (
        "attempt"  # more than this attempt: the answer will always be the same
    )


class CallsBlocked(Message, frozen=True, kw_only=True):
    """No call can succeed until a person acts: wrong key, spend used up.  The run pauses."""

    lease: Lease
    reason: str


class CandidateRunning(Message, frozen=True, kw_only=True):
    """From here on candidate code runs: if I am lost now, the candidate is charged."""

    lease: Lease


class ReferenceMeasured(Message, frozen=True, kw_only=True):
    """The reference's own figures, or why it can't be measured."""

    lease: Lease
    reference: Reference | None = None
    problem: str = ""


class Evaluated(Message, frozen=True, kw_only=True):
    lease: Lease
    verdict: Verdict


class HandedBack(Message, frozen=True, kw_only=True):
    """Handed back undone and uncharged: draining, or a device that fails its canary."""

    lease: Lease
    reason: str = ""
    quarantined: bool = False  # nothing can be judged on this device until it is well again
    lost_call_number: int = 0  # as in `ReserveBudget`
    lost_call: Call | None = None
    reference_failed: bool = False  # the task's own module failed: it will not do better elsewhere


class WorkerLost(Message, frozen=True, kw_only=True):
    """From a supervisor: that incarnation is dead."""

    slot: str
    incarnation: str
    exit_description: str = ""  # "exit status 1", "signal 9"


class Drain(Message, frozen=True, kw_only=True):
    """From a supervisor: lease nothing more, end when what runs has ended."""


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
FromEvaluator = Hello | Heartbeat | CandidateRunning | ReferenceMeasured | Evaluated | HandedBack
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
    | Evaluated
    | HandedBack
    | WorkerLost
    | Drain
)
Result = Planned | Written | Repaired | ReplyUnusable | ReferenceMeasured | Evaluated

# --- coordinator -> worker -------------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True):
    epoch: int
    beat_s: float
    lease_s: float
    # The run's stark.toml, for a joined machine's supervisor.  As text: whoever does not know one
    # of its words must not judge by the others, and can say so in one line.
    settings: str = ""


class Refuse(Message, frozen=True, kw_only=True):
    """Go away, and why.  Only that peer is refused."""

    reason: str


class Identify(Message, frozen=True, kw_only=True):
    """I do not know you (I restarted): say Hello again."""


class HeartbeatAck(Message, frozen=True, kw_only=True):
    """Your `Heartbeat` arrived, and what had been said before it is durable."""

    sent_at: float  # as the beat said it
    silent_incarnations: tuple[
        str, ...
    ] = ()  # to supervisors: incarnations that say nothing any more
    coordinator_problem: str = ""  # to supervisors: why the coordinator can't go on just now


class AgentRequest(Message, frozen=True, kw_only=True):
    """What every agent is told; never sent by itself."""

    lease: Lease
    task: Task
    attempt: int
    node: AttemptView
    root: AttemptView
    window: tuple[AttemptView, ...] = ()
    reference: Reference
    seed: int = 0
    completed_calls: tuple[
        Call, ...
    ] = ()  # replies already bought for this work: use, don't ask again
    # For models that compute what they write, and shown in no prompt: keys of the candidates that
    # the task has (`source_key`), and the advice of plans under way from the same node.
    tried: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()


class MakePlan(AgentRequest, tag="Plan", frozen=True, kw_only=True):
    """Propose one optimisation.  `Plan` on the wire; that name is a value's in Python."""


class Write(AgentRequest, frozen=True, kw_only=True):
    """Realise the plan at its anchors."""

    plan: Plan


class Repair(AgentRequest, frozen=True, kw_only=True):
    """Mend the node; `plan` is what it was to realise."""

    plan: Plan


class Solve(AgentRequest, frozen=True, kw_only=True):
    """A single agent: improve the node, or mend it if it failed, plan and code in one."""


class Reflect(AgentRequest, frozen=True, kw_only=True):
    """A single agent: say what the node, its last attempt, teaches, and then write anew."""

    reflections: tuple[str, ...] = ()  # its words on the attempts before, oldest first


class MeasureReference(Message, frozen=True, kw_only=True):
    lease: Lease
    task: Task


class Evaluate(Message, frozen=True, kw_only=True):
    lease: Lease
    task: Task
    source: str
    reference: Reference
    rounds: int = 1  # judge it so often, in fresh processes, and report one verdict of all
    most_rounds: int = 0  # as long as that verdict's interval is wide, go on up to so many


class BudgetReserved(Message, frozen=True, kw_only=True):
    """The money for that call is kept, on disk: make it."""

    lease: Lease
    call_number: int


class CallStored(Message, frozen=True, kw_only=True):
    """Your `CallCompleted` is on disk."""

    lease: Lease


class ResultStored(Message, frozen=True, kw_only=True):
    """Your result is on disk, or was not wanted: forget it."""

    lease: Lease


class Revoke(Message, frozen=True, kw_only=True):
    """That lease is yours no more: stop working on it."""

    lease: Lease


class Retire(Message, frozen=True, kw_only=True):
    """Finish what you hold, take nothing more, then leave with exit status 0."""

    reason: str = ""  # for people: "finished", "stopped"


AgentWork = MakePlan | Write | Repair | Solve | Reflect
EvaluatorWork = MeasureReference | Evaluate
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
