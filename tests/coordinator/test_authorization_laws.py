"""What is said is checked as hostile: who may say it, of which lease, how much, in which range."""

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
    Verdict,
)

LEASE = Lease(work="t/1/evaluate", epoch=3)
CARD = "Card X; driver 1; torch 2"
TICKET = "5c2e1a"


def said_by(role: Role) -> list[messages.Message]:
    """Return one message of every kind that some role may send."""
    everything: list[messages.Message] = [
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
        messages.Evaluated(lease=LEASE, verdict=Verdict(verdict=Outcome.WRONG, stage="check")),
        messages.HandedBack(lease=LEASE),
        messages.WorkerLost(slot=slot_of(role), incarnation="x"),
        messages.Drain(),
    ]
    return everything


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
def test_a_key_opens_one_roles_mouth(role: Role) -> None:
    """Under a role's key exactly that role's union is heard; a planner's word under an
    evaluator's key is not, whatever its sender said in its Hello."""
    identity = PeerIdentity(ticket=TICKET, role=role)
    may = codec.messages_allowed_from(role)
    for sitting in Role:
        for message in said_by(role):
            wrong = authorization.violation(identity, "me", message, peer(sitting, identity))
            if not isinstance(message, may):  # type: ignore[arg-type]
                assert wrong
    heard = [
        type(message)
        for message in said_by(role)
        if not authorization.violation(identity, "me", message, peer(role, identity))
    ]
    assert heard == [
        type(message)
        for message in said_by(role)
        if isinstance(message, may) and not isinstance(message, messages.Drain)  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("other", list(Role))
def test_a_hello_in_another_role_ticket_or_name_is_refused(other: Role) -> None:
    """A key is bound to a role and a ticket; slots of other tickets and this machine are closed."""
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


def test_a_joined_supervisor_speaks_for_its_own_machine_only() -> None:
    """It may bury its own, not others' and not the run."""
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


def test_a_void_ticket_and_a_changed_key_say_nothing_more() -> None:
    """Expired, revoked, or under another key than the Hello's: every message is refused."""
    identity = PeerIdentity(ticket=TICKET, role=Role.EVALUATOR)
    void = PeerIdentity(ticket=TICKET, role=Role.EVALUATOR, is_revoked=True)
    other = PeerIdentity(ticket="abcdef", role=Role.EVALUATOR)
    me = peer(Role.EVALUATOR, identity)
    for message in said_by(Role.EVALUATOR):
        assert authorization.violation(void, "me", message, me)
        assert authorization.violation(other, "me", message, me)


@given(st.integers(), st.text(max_size=400))
def test_a_lease_that_no_column_holds_is_refused(epoch: int, work: str) -> None:
    """Whatever is looked up in the books fits into them."""
    wrong = authorization.violation(
        LOCAL_PEER, "me",
        messages.CandidateRunning(lease=Lease(work=work, epoch=epoch)),
        peer(Role.EVALUATOR, LOCAL_PEER),
    )  # fmt: skip
    assert bool(wrong) == (not 0 <= epoch < 2**62 or len(work) > authorization.WORK_CHARS)


def test_a_stage_ends_with_its_own_result_only() -> None:
    """A reference does not end with a verdict, a plan not with a candidate."""
    results = [m for m in said_by(Role.PLANNER) if isinstance(m, messages.Result)]
    fitting = {
        stage: {
            type(result).__name__
            for result in results
            if authorization.is_result_allowed(stage, result)
        }
        for stage in Stage
    }
    assert fitting == {
        Stage.MEASURE: {"ReferenceMeasured"},
        Stage.PLAN: {"Planned", "ReplyUnusable"},
        Stage.WRITE: {"Written", "ReplyUnusable"},
        Stage.REPAIR: {"Repaired", "ReplyUnusable"},
        Stage.SOLVE: {"Written", "ReplyUnusable"},
        Stage.REFLECT: {"Written", "ReplyUnusable"},
        Stage.EVALUATE: {"Evaluated"},
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
)


def test_a_very_busy_machine_makes_no_liar() -> None:
    """Blocks that others disturb by factors of hundreds: what the judge makes of them is believed,
    since its interval is as wide; the same figures with a narrow one are not."""
    rng = Random(1)

    def block() -> float:
        return 30.0 * (rng.uniform(150, 450) if rng.random() < 0.3 else 1.0)

    apart = 0
    for groups in (3, 5, 8) * 200:
        found = timing_statistics.timing_of(
            [
                timing_statistics.TimedGroup(
                    reference=(block(), block()), candidate=(block(), block())
                )
                for _ in range(groups)
            ]
        )
        said = Verdict(
            verdict=Outcome.CORRECT,
            median_us=found.median_us,
            reference_us=found.reference_us,
            speedup=found.speedup,
            speedup_ci95=found.ci95,
        )
        assert sanitize.is_plausible(said)
        narrow = replace(said, speedup_ci95=(found.speedup, found.speedup))
        apart += not sanitize.is_plausible(narrow)
    assert apart > 30


@given(verdicts)
def test_a_verdict_is_believable_or_a_rejection_and_always_small(verdict: Verdict) -> None:
    """Whatever is said: figures are positive and finite, intervals in order, words and stages fit,
    the device is the sender's own, and nothing is longer than its bound."""
    said = messages.Evaluated(lease=LEASE, verdict=verdict)
    heard = sanitize.sanitized(said, CARD)
    assert isinstance(heard, messages.Evaluated)
    found = heard.verdict
    assert heard.lease == LEASE
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
    assert len(found.reason) <= sanitize.LINE_CHARS
    assert found.reason.isprintable()
    assert len(found.log) <= sanitize.LOG_CHARS
    assert min(found.seconds.build, found.seconds.check, found.seconds.time) >= 0
    assert sanitize.sanitized(heard, CARD) == heard


HONEST = Verdict(
    verdict=Outcome.CORRECT, median_us=412.0, reference_us=1000.0, speedup=2.43,
    speedup_ci95=(2.4, 2.46), max_error=0.1, log="two\nlines\n", profile={"kernels": "a\nb"},
    seconds=Seconds(build=1.0), sandbox_level=3, device=CARD,
)  # fmt: skip


def test_an_honest_word_comes_through_as_it_was() -> None:
    """Bounds are for liars: what honest actors say is not touched."""
    device = Device(kind="cuda", name="Card X", fingerprint=CARD, facts={"memory": "80 GiB"})
    for role in Role:
        for message in said_by(role):
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
    "lie",
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
def test_impossible_figures_are_a_rejection(lie: dict[str, object]) -> None:
    """A speed-up that its own times deny, or words that exclude each other, win nothing."""
    from msgspec.structs import replace

    said = messages.Evaluated(lease=LEASE, verdict=replace(HONEST, **lie))
    heard = sanitize.sanitized(said, CARD)
    assert isinstance(heard, messages.Evaluated)
    assert heard.verdict.verdict is Outcome.REJECTED


@given(st.floats(), st.integers(-10, 2**63), st.floats())
def test_a_call_counts_in_figures_that_can_be_added(usd: float, tokens: int, rest: float) -> None:
    """No negative price makes room under --max-cost, and nothing is too large for its column."""
    call = Call(
        model="m", request="q", reply="a", usd=usd, input_tokens=tokens, cached_tokens=tokens,
        output_tokens=tokens, seconds=rest, temperature=rest,
    )  # fmt: skip
    heard = sanitize.sanitized(messages.CallCompleted(lease=LEASE, call=call), "")
    assert isinstance(heard, messages.CallCompleted)
    found = heard.call
    assert found.usd is None or 0 <= found.usd <= sanitize.MAX_USD
    assert 0 <= found.input_tokens <= sanitize.MAX_TOKENS
    assert 0 <= found.seconds < math.inf


@given(st.integers(), st.integers(), texts)
def test_a_peer_is_bounded_from_its_first_word_on(credit: int, pid: int, name: str) -> None:
    """Nobody takes all the work by asking for it, and a name is a name."""
    device = Device(name=name, fingerprint=name, facts={name: name})
    said = Hello(
        role=Role.EVALUATOR, slot="e", incarnation="i", pid=pid, credit=credit, device=device
    )
    heard = sanitize.sanitized(said, "")
    assert isinstance(heard, Hello)
    assert 0 <= heard.credit <= sanitize.MAX_CREDIT
    assert 0 <= heard.pid < 2**31
    assert heard.device is not None
    assert len(heard.device.fingerprint) <= sanitize.NAME_CHARS


def test_what_is_too_large_is_an_attempt_without_a_candidate() -> None:
    """It ends the attempt; asking again would bring the same again."""
    huge = "x" * (sanitize.SOURCE_CHARS + 1)
    for said in (
        messages.Written(lease=LEASE, candidate=Candidate(source=huge)),
        messages.Repaired(lease=LEASE, candidate=Candidate(source=huge)),
        messages.Planned(lease=LEASE, plan=Plan(advice="a", scaffold=huge)),
        messages.Planned(lease=LEASE, plan=Plan(advice="a", scaffold="", spans=((1, 2**40),))),
    ):
        heard = sanitize.sanitized(said, "")
        assert isinstance(heard, messages.ReplyUnusable)
        assert heard.lease == LEASE
