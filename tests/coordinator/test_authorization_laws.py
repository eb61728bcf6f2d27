"""Messages are checked as hostile: sender, lease, size of texts, range of figures."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.coordinator.gateway import authorization, sanitize
from actors.coordinator.scheduling.workers import LOCAL_PEER, Peer, PeerIdentity
from actors.coordinator.search.search import Stage
from actors.evaluator.timing import timing_statistics
from protocol import codec, messages
from protocol.messages import Hello, Lease
from protocol.values import (
    WORKER_ROLES,
    Call,
    Candidate,
    Device,
    Outcome,
    Plan,
    Reference,
    Role,
    Seconds,
    TimedGroups,
    Verdict,
)

LEASE = Lease(work="t/1/evaluate", epoch=3)
CARD = "Card X; driver 1; torch 2"
TICKET = "5c2e1a"


def messages_as(role: Role) -> list[messages.Message]:
    """Return one message of every kind, with a Hello and a slot of `role`."""
    return [
        Hello(role=role, slot=slot_of(role), incarnation="me", pid=1),
        messages.Heartbeat(),
        messages.CallCompleted(lease=LEASE, call=Call(model="m", request="q", reply="a")),
        messages.Planned(lease=LEASE, plan=Plan(advice="a", scaffold="s")),
        messages.Written(lease=LEASE, candidate=Candidate(source="s")),
        messages.Repaired(lease=LEASE, candidate=Candidate(source="s")),
        messages.ReplyUnusable(lease=LEASE, reason="no"),
        messages.CallsBlocked(lease=LEASE, reason="key"),
        messages.CandidateRunning(lease=LEASE),
        messages.ReferenceMeasured(lease=LEASE, reference=Reference(eager_us=1.0)),
        messages.BaselinesMeasured(lease=LEASE, compile_us=2.0),
        messages.Evaluated(lease=LEASE, verdict=Verdict(verdict=Outcome.WRONG, stage="check")),
        messages.HandedBack(lease=LEASE),
        messages.WorkerLost(slot=slot_of(role), incarnation="x"),
        messages.Drain(),
    ]


def slot_of(role: Role, ticket: str = TICKET) -> str:
    number = "" if role is Role.SUPERVISOR else "-0"
    return f"{role}{number}@gpu7-1f.{ticket}"


def peer(role: Role, identity: PeerIdentity, slot: str = "") -> Peer:
    return Peer(
        incarnation="me", slot=slot or slot_of(role), role=role, credit=1, last_heard=0.0,
        connected_since=0.0,
        identity=identity,
    )  # fmt: skip


@pytest.mark.parametrize("role", list(Role))
def test_a_key_allows_the_messages_of_one_role(role: Role) -> None:
    """Under a role's key exactly that role's union is allowed, whatever the Hello claimed."""
    identity = PeerIdentity(ticket=TICKET, role=role)
    union = codec.messages_allowed_from(role)
    for claimed_role in Role:
        for message in messages_as(role):
            reason = authorization.violation(identity, "me", message, peer(claimed_role, identity))
            if not isinstance(message, union):  # type: ignore[arg-type]
                assert reason
    allowed = [
        type(message)
        for message in messages_as(role)
        if not authorization.violation(identity, "me", message, peer(role, identity))
    ]
    assert allowed == [
        type(message)
        for message in messages_as(role)
        if isinstance(message, union) and not isinstance(message, messages.Drain)  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("other", list(Role))
def test_a_hello_in_another_role_ticket_or_name_is_refused(other: Role) -> None:
    """A key is bound to a role and a ticket; other slots are refused."""
    for role in WORKER_ROLES:
        identity = PeerIdentity(ticket=TICKET, role=role)
        hello = Hello(role=other, slot=slot_of(other), incarnation="me", pid=1)
        assert bool(authorization.violation(identity, "me", hello, None)) == (role is not other)
    identity = PeerIdentity(ticket=TICKET, role=Role.EVALUATOR)
    for slot in (
        *("evaluator-0", "evaluator-0@gpu7-1f.abcdef", "planner-0@gpu7-1f.5c2e1a", ""),
        *("evaluator-0@a b.5c2e1a", "evaluator-0@x.abcdef@gpu7.5c2e1a", "evaluator-0@.5c2e1a"),
    ):
        hello = Hello(role=Role.EVALUATOR, slot=slot, incarnation="me", pid=1)
        assert authorization.violation(identity, "me", hello, None)
    good = Hello(role=Role.EVALUATOR, slot=slot_of(Role.EVALUATOR), incarnation="me", pid=1)
    assert not authorization.violation(identity, "me", good, None)
    assert authorization.violation(identity, "you", good, None)
    assert authorization.violation(identity, "me", good, peer(Role.EVALUATOR, LOCAL_PEER))
    assert authorization.violation(identity, "me", good, None, authorization.MAX_PEERS)


def test_a_joined_supervisor_reports_for_its_own_machine_only() -> None:
    """It may report losses of its own workers, not of others, and may not end the run."""
    identity = PeerIdentity(ticket=TICKET, role=Role.SUPERVISOR)
    me = peer(Role.SUPERVISOR, identity)
    own = messages.WorkerLost(slot=slot_of(Role.EVALUATOR), incarnation="x")
    for slot in ("evaluator-0", "evaluator-0@gpu8-2e.5c2e1a", "evaluator-0@gpu7-1f.abcdef"):
        assert authorization.violation(
            identity, "me", messages.WorkerLost(slot=slot, incarnation="x"), me
        )
    assert not authorization.violation(identity, "me", own, me)
    assert authorization.violation(identity, "me", messages.Drain(), me)
    here = peer(Role.SUPERVISOR, LOCAL_PEER, "supervisor")
    assert not authorization.violation(LOCAL_PEER, "me", messages.Drain(), here)


def test_every_message_under_a_void_ticket_or_another_key_is_refused() -> None:
    """A ticket is void when it has expired or was revoked; the other key is not the Hello's."""
    identity = PeerIdentity(ticket=TICKET, role=Role.EVALUATOR)
    void = PeerIdentity(ticket=TICKET, role=Role.EVALUATOR, is_revoked=True)
    other = PeerIdentity(ticket="abcdef", role=Role.EVALUATOR)
    me = peer(Role.EVALUATOR, identity)
    for message in messages_as(Role.EVALUATOR):
        assert authorization.violation(void, "me", message, me)
        assert authorization.violation(other, "me", message, me)


@given(st.integers(), st.text(max_size=400))
def test_a_lease_that_does_not_fit_into_a_column_is_refused(epoch: int, work: str) -> None:
    """Only leases that the store can hold are looked up there."""
    reason = authorization.violation(
        LOCAL_PEER, "me",
        messages.CandidateRunning(lease=Lease(work=work, epoch=epoch)),
        peer(Role.EVALUATOR, LOCAL_PEER),
    )  # fmt: skip
    assert bool(reason) == (not 0 <= epoch < 2**62 or len(work) > authorization.WORK_CHARS)


def test_a_stage_ends_with_its_own_result_only() -> None:
    """A measurement does not end with a verdict, nor a plan with a candidate."""
    results = [m for m in messages_as(Role.PLANNER) if isinstance(m, messages.Result)]
    allowed = {
        stage: {
            type(result).__name__
            for result in results
            if authorization.is_result_allowed(stage, result)
        }
        for stage in Stage
    }
    assert allowed == {
        Stage.MEASURE: {"ReferenceMeasured"},
        Stage.BASELINES: {"BaselinesMeasured"},
        Stage.PLAN: {"Planned", "ReplyUnusable"},
        Stage.WRITE: {"Written", "ReplyUnusable"},
        Stage.REPAIR: {"Repaired", "ReplyUnusable"},
        Stage.SOLVE: {"Written", "ReplyUnusable"},
        Stage.REFLECT: {"Written", "ReplyUnusable"},
        Stage.EVALUATE: {"Evaluated"},
        Stage.AMEND_WRITE: {"Written", "ReplyUnusable"},
        Stage.AMEND_REPAIR: {"Repaired", "ReplyUnusable"},
        Stage.AMEND_SOLVE: {"Written", "ReplyUnusable"},
        Stage.AMEND_REFLECT: {"Written", "ReplyUnusable"},
        Stage.REEVALUATE: {"Evaluated"},
        Stage.CONFIRM: {"Evaluated"},
    }


figures = st.none() | st.floats() | st.floats(0.1, 1e4)
texts = st.text(max_size=20) | st.just("x" * 300_000) | st.just("\x1b[2J\x00")
verdicts = st.builds(
    Verdict,
    verdict=st.sampled_from(list(Outcome)),
    reason=texts,
    stage=st.sampled_from(["", "build", "import", "check", "time"]),
    median_us=figures,
    reference_us=figures,
    speedup=figures,
    speedup_ci95=st.none() | st.tuples(st.floats(), st.floats()),
    max_error=figures,
    log=texts,
    profile=st.none() | st.dictionaries(texts, texts, max_size=3),
    seconds=st.builds(Seconds, build=st.floats(), check=st.floats(), time=st.floats()),
    sandbox_level=st.integers(-(2**63), 2**63),
    device=texts,
    groups=st.none()
    | st.builds(
        TimedGroups,
        reference_us=st.lists(st.floats(), max_size=4).map(tuple),
        candidate_us=st.lists(st.floats(), max_size=4).map(tuple),
    ),
)


def test_too_many_groups_are_left_out() -> None:
    """A verdict that shows a million groups is as good as one without them."""
    many = TimedGroups(reference_us=(1.0,) * 1000, candidate_us=(1.0,) * 1000)
    received = messages.Evaluated(lease=LEASE, verdict=replace(HONEST, groups=many))
    sanitized = sanitize.sanitized(received, CARD)
    assert isinstance(sanitized, messages.Evaluated)
    assert HONEST == sanitized.verdict


def test_figures_of_a_very_busy_machine_are_plausible() -> None:
    """Contention slows blocks by factors of hundreds, and the judge's interval is as wide.

    The same figures with a narrow interval are not plausible.
    """
    rng = Random(1)

    def block() -> float:
        return 30.0 * (rng.uniform(150, 450) if rng.random() < 0.3 else 1.0)

    implausible = 0
    for groups in (3, 5, 8) * 200:
        found = timing_statistics.timing_of(
            [
                timing_statistics.TimedGroup(
                    reference=(block(), block()), candidate=(block(), block())
                )
                for _ in range(groups)
            ]
        )
        verdict = Verdict(
            verdict=Outcome.CORRECT,
            median_us=found.median_us,
            reference_us=found.reference_us,
            speedup=found.speedup,
            speedup_ci95=found.ci95,
        )
        assert sanitize.is_plausible(verdict)
        narrow = replace(verdict, speedup_ci95=(found.speedup, found.speedup))
        implausible += not sanitize.is_plausible(narrow)
    assert implausible > 30


@given(verdicts)
def test_a_sanitized_verdict_is_plausible_and_bounded(verdict: Verdict) -> None:
    """Figures are positive and finite, intervals ordered, outcome and stage fit together.

    The device is the sender's own, and no text is longer than its bound.
    """
    received = messages.Evaluated(lease=LEASE, verdict=verdict)
    sanitized = sanitize.sanitized(received, CARD)
    assert isinstance(sanitized, messages.Evaluated)
    found = sanitized.verdict
    assert sanitized.lease == LEASE
    assert found.device == CARD
    assert sanitize.is_plausible(found)
    for figure in (found.median_us, found.reference_us, found.speedup):
        assert figure is None or (0 < figure < math.inf)
    if found.speedup_ci95 is not None:
        low, high = found.speedup_ci95
        assert 0 < low <= high < math.inf
    if found.verdict is Outcome.CORRECT:
        assert found.speedup is not None
        assert found.speedup <= sanitize.MAX_SPEEDUP
    if found.groups is not None:
        assert len(found.groups.reference_us) == len(found.groups.candidate_us)
        assert all(0 < us < math.inf for us in found.groups.reference_us)
        assert all(0 < us < math.inf for us in found.groups.candidate_us)
    assert len(found.reason) <= sanitize.LINE_CHARS
    assert found.reason.isprintable()
    assert len(found.log) <= sanitize.LOG_CHARS
    assert min(found.seconds.build, found.seconds.check, found.seconds.time) >= 0
    assert sanitize.sanitized(sanitized, CARD) == sanitized


HONEST = Verdict(
    verdict=Outcome.CORRECT, median_us=412.0, reference_us=1000.0, speedup=2.43,
    speedup_ci95=(2.4, 2.46), max_error=0.1, log="two\nlines\n", profile={"kernels": "a\nb"},
    seconds=Seconds(build=1.0), sandbox_level=3, device=CARD,
)  # fmt: skip


def test_an_honest_message_is_unchanged() -> None:
    """Bounds change only messages that an honest actor does not send."""
    device = Device(kind="cuda", name="Card X", fingerprint=CARD, facts={"memory": "80 GiB"})
    for role in Role:
        for message in messages_as(role):
            if not isinstance(message, messages.Evaluated | messages.ReferenceMeasured):
                assert sanitize.sanitized(message, CARD) == message
    for message in (
        messages.Evaluated(lease=LEASE, verdict=HONEST),
        messages.ReferenceMeasured(lease=LEASE, reference=Reference(eager_us=3.5, device=device)),
        messages.ReferenceMeasured(lease=LEASE, problem="t.py: Model raises"),
        messages.Hello(role=Role.EVALUATOR, slot="e", incarnation="i", pid=7, device=device),
    ):
        assert sanitize.sanitized(message, CARD) == message


@pytest.mark.parametrize(
    "false_values",
    [
        {"speedup": 2e6, "reference_us": 8.24e8},
        {"speedup": 243.0},  # its own medians say 2.43
        {"stage": "check"},
        {"speedup_ci95": (3.0, 2.0)},
        {"median_us": -1.0},
        {"verdict": Outcome.NO_CANDIDATE},
        {"median_us": None},
        {"verdict": Outcome.COMPILE_FAILED, "stage": "time"},
    ],
    ids=str,
)
def test_impossible_figures_are_a_rejection(false_values: dict[str, object]) -> None:
    """A speed-up that contradicts its own times, or values that exclude each other, win nothing."""
    received = messages.Evaluated(lease=LEASE, verdict=replace(HONEST, **false_values))
    sanitized = sanitize.sanitized(received, CARD)
    assert isinstance(sanitized, messages.Evaluated)
    assert sanitized.verdict.verdict is Outcome.REJECTED


@given(st.floats(), st.integers(-10, 2**63), st.floats())
def test_the_figures_of_a_call_are_bounded(usd: float, tokens: int, rest: float) -> None:
    """A negative price can't raise the budget, and every figure fits into its column."""
    call = Call(
        model="m", request="q", reply="a", usd=usd, input_tokens=tokens, cached_tokens=tokens,
        output_tokens=tokens, seconds=rest, temperature=rest,
    )  # fmt: skip
    sanitized = sanitize.sanitized(messages.CallCompleted(lease=LEASE, call=call), "")
    assert isinstance(sanitized, messages.CallCompleted)
    found = sanitized.call
    assert found.usd is None or 0 <= found.usd <= sanitize.MAX_USD
    assert 0 <= found.input_tokens <= sanitize.MAX_TOKENS
    assert 0 <= found.seconds < math.inf


@given(st.integers(), st.integers(), texts)
def test_the_values_of_a_hello_are_bounded(credit: int, pid: int, name: str) -> None:
    """A peer can't get all work by a large credit, and the length of its names is limited."""
    device = Device(name=name, fingerprint=name, facts={name: name})
    received = Hello(
        role=Role.EVALUATOR, slot="e", incarnation="i", pid=pid, credit=credit, device=device
    )
    sanitized = sanitize.sanitized(received, "")
    assert isinstance(sanitized, Hello)
    assert 0 <= sanitized.credit <= sanitize.MAX_CREDIT
    assert 0 <= sanitized.pid < 2**31
    assert sanitized.device is not None
    assert len(sanitized.device.fingerprint) <= sanitize.NAME_CHARS


def test_a_result_that_is_too_large_ends_the_attempt_without_a_candidate() -> None:
    """The work is not leased again: the agent would give the same result."""
    huge = "x" * (sanitize.SOURCE_CHARS + 1)
    for received in (
        messages.Written(lease=LEASE, candidate=Candidate(source=huge)),
        messages.Repaired(lease=LEASE, candidate=Candidate(source=huge)),
        messages.Planned(lease=LEASE, plan=Plan(advice="a", scaffold=huge)),
        messages.Planned(lease=LEASE, plan=Plan(advice="a", scaffold="", spans=((1, 2**40),))),
    ):
        sanitized = sanitize.sanitized(received, "")
        assert isinstance(sanitized, messages.ReplyUnusable)
        assert sanitized.lease == LEASE
