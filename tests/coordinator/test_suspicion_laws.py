"""What is said is checked as hostile: who may say it, of which lease, how much, in which range."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.coordinator import bounds, suspicion
from actors.coordinator.origin import LOCAL, Origin
from actors.coordinator.peers import Peer
from actors.coordinator.search import Stage
from actors.evaluator import timing
from protocol import codec, messages
from protocol.messages import Hello, Lease
from protocol.values import (
    WORKERS,
    Call,
    Candidate,
    Device,
    Plan,
    Reference,
    Role,
    Seconds,
    Verdict,
    Word,
)

LEASE = Lease(work="t/1/evaluate", epoch=3)
CARD = "Card X; driver 1; torch 2"
TICKET = "5c2e1a"


def said_by(role: Role) -> list[messages.Message]:
    """Return one message of every kind that some role may send."""
    everything: list[messages.Message] = [
        Hello(role=role, slot=slot_of(role), incarnation="me", pid=1),
        messages.Beat(),
        messages.Answered(lease=LEASE, call=Call(model="m", request="q", reply="a")),
        messages.Planned(lease=LEASE, plan=Plan(advice="a", scaffold="s")),
        messages.Written(lease=LEASE, candidate=Candidate(source="s")),
        messages.Repaired(lease=LEASE, candidate=Candidate(source="s")),
        messages.Unusable(lease=LEASE, reason="no"),
        messages.Blocked(lease=LEASE, reason="key"),
        messages.Running(lease=LEASE),
        messages.Measured(lease=LEASE, reference=Reference(eager_us=1.0)),
        messages.Evaluated(lease=LEASE, verdict=Verdict(verdict=Word.WRONG, stage="check")),
        messages.Returned(lease=LEASE),
        messages.Lost(slot=slot_of(role), incarnation="x"),
        messages.Drain(),
    ]
    return everything


def slot_of(role: Role, ticket: str = TICKET) -> str:
    number = "" if role is Role.SUPERVISOR else "-0"
    return f"{role}{number}@gpu7-1f.{ticket}"


def peer(role: Role, origin: Origin, slot: str = "") -> Peer:
    return Peer(
        incarnation="me", slot=slot or slot_of(role), role=role, credit=1, heard=0.0, since=0.0,
        origin=origin,
    )  # fmt: skip


@pytest.mark.parametrize("role", list(Role))
def test_a_key_opens_one_roles_mouth(role: Role) -> None:
    """Under a role's key exactly that role's union is heard; a planner's word under an
    evaluator's key is not, whatever its sender said in its Hello."""
    origin = Origin(ticket=TICKET, role=role)
    may = codec.allowed(role)
    for sitting in Role:
        for message in said_by(role):
            wrong = suspicion.complaint(origin, "me", message, peer(sitting, origin))
            if not isinstance(message, may):  # type: ignore[arg-type]
                assert wrong
    heard = [
        type(message)
        for message in said_by(role)
        if not suspicion.complaint(origin, "me", message, peer(role, origin))
    ]
    assert heard == [
        type(message)
        for message in said_by(role)
        if isinstance(message, may) and not isinstance(message, messages.Drain)  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("other", list(Role))
def test_nobody_says_hello_in_another_role_ticket_or_name(other: Role) -> None:
    """A key is bound to a role and a ticket; slots of other tickets and this machine are closed."""
    for role in WORKERS:
        origin = Origin(ticket=TICKET, role=role)
        hello = Hello(role=other, slot=slot_of(other), incarnation="me", pid=1)
        assert bool(suspicion.complaint(origin, "me", hello, None)) == (role is not other)
    origin = Origin(ticket=TICKET, role=Role.EVALUATOR)
    for slot in (
        *("evaluator-0", "evaluator-0@gpu7-1f.abcdef", "planner-0@gpu7-1f.5c2e1a", ""),
        *("evaluator-0@a b.5c2e1a", "evaluator-0@x.abcdef@gpu7.5c2e1a", "evaluator-0@.5c2e1a"),
    ):
        hello = Hello(role=Role.EVALUATOR, slot=slot, incarnation="me", pid=1)
        assert suspicion.complaint(origin, "me", hello, None)
    good = Hello(role=Role.EVALUATOR, slot=slot_of(Role.EVALUATOR), incarnation="me", pid=1)
    assert not suspicion.complaint(origin, "me", good, None)
    assert suspicion.complaint(origin, "you", good, None)
    assert suspicion.complaint(origin, "me", good, peer(Role.EVALUATOR, LOCAL))
    assert suspicion.complaint(origin, "me", good, None, suspicion.MOST_PEERS)


def test_a_joined_supervisor_speaks_for_its_own_machine_only() -> None:
    """It may bury its own, not others' and not the run."""
    origin = Origin(ticket=TICKET, role=Role.SUPERVISOR)
    me = peer(Role.SUPERVISOR, origin)
    own = messages.Lost(slot=slot_of(Role.EVALUATOR), incarnation="x")
    for slot in ("evaluator-0", "evaluator-0@gpu8-2e.5c2e1a", "evaluator-0@gpu7-1f.abcdef"):
        assert suspicion.complaint(origin, "me", messages.Lost(slot=slot, incarnation="x"), me)
    assert not suspicion.complaint(origin, "me", own, me)
    assert suspicion.complaint(origin, "me", messages.Drain(), me)
    here = peer(Role.SUPERVISOR, LOCAL, "supervisor")
    assert not suspicion.complaint(LOCAL, "me", messages.Drain(), here)


def test_a_void_ticket_and_a_changed_key_say_nothing_more() -> None:
    """Expired, revoked, or under another key than the Hello's: every message is refused."""
    origin = Origin(ticket=TICKET, role=Role.EVALUATOR)
    void = Origin(ticket=TICKET, role=Role.EVALUATOR, void=True)
    other = Origin(ticket="abcdef", role=Role.EVALUATOR)
    me = peer(Role.EVALUATOR, origin)
    for message in said_by(Role.EVALUATOR):
        assert suspicion.complaint(void, "me", message, me)
        assert suspicion.complaint(other, "me", message, me)


@given(st.integers(), st.text(max_size=400))
def test_a_lease_that_no_column_holds_is_refused(epoch: int, work: str) -> None:
    """Whatever is looked up in the books fits into them."""
    wrong = suspicion.complaint(
        LOCAL, "me",
        messages.Running(lease=Lease(work=work, epoch=epoch)),
        peer(Role.EVALUATOR, LOCAL),
    )  # fmt: skip
    assert bool(wrong) == (not 0 <= epoch < 2**62 or len(work) > suspicion.WORK_CHARS)


def test_a_stage_ends_with_its_own_result_only() -> None:
    """A reference does not end with a verdict, a plan not with a candidate."""
    results = [m for m in said_by(Role.PLANNER) if isinstance(m, messages.Result)]
    fitting = {
        stage: {type(result).__name__ for result in results if suspicion.fits(stage, result)}
        for stage in Stage
    }
    assert fitting == {
        Stage.MEASURE: {"Measured"},
        Stage.PLAN: {"Planned", "Unusable"},
        Stage.WRITE: {"Written", "Unusable"},
        Stage.REPAIR: {"Repaired", "Unusable"},
        Stage.SOLVE: {"Written", "Unusable"},
        Stage.REFLECT: {"Written", "Unusable"},
        Stage.EVALUATE: {"Evaluated"},
        Stage.CONFIRM: {"Evaluated"},
    }


figures = st.none() | st.floats() | st.floats(0.1, 1e4)
texts = st.text(max_size=20) | st.just("x" * 300_000) | st.just("\x1b[2J\x00")
verdicts = st.builds(
    Verdict,
    verdict=st.sampled_from(list(Word)),
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
        found = timing.summary(
            [
                timing.Group(reference=(block(), block()), candidate=(block(), block()))
                for _ in range(groups)
            ]
        )
        said = Verdict(
            verdict=Word.CORRECT,
            median_us=found.median_us,
            reference_us=found.reference_us,
            speedup=found.speedup,
            speedup_ci95=found.ci95,
        )
        assert bounds.plausible(said)
        narrow = replace(said, speedup_ci95=(found.speedup, found.speedup))
        apart += not bounds.plausible(narrow)
    assert apart > 30


@given(verdicts)
def test_a_verdict_is_believable_or_a_rejection_and_always_small(verdict: Verdict) -> None:
    """Whatever is said: figures are positive and finite, intervals in order, words and stages fit,
    the device is the sender's own, and nothing is longer than its bound."""
    said = messages.Evaluated(lease=LEASE, verdict=verdict)
    heard = bounds.bounded(said, CARD)
    assert isinstance(heard, messages.Evaluated)
    found = heard.verdict
    assert heard.lease == LEASE
    assert found.device == CARD
    assert bounds.plausible(found)
    for figure in (found.median_us, found.reference_us, found.speedup):
        assert figure is None or (0 < figure < math.inf)
    if found.speedup_ci95 is not None:
        low, high = found.speedup_ci95
        assert 0 < low <= high < math.inf
    if found.verdict is Word.CORRECT:
        assert found.speedup is not None
        assert found.speedup <= bounds.MOST_SPEEDUP
    assert len(found.reason) <= bounds.LINE_CHARS
    assert found.reason.isprintable()
    assert len(found.log) <= bounds.LOG_CHARS
    assert min(found.seconds.build, found.seconds.check, found.seconds.time) >= 0
    assert bounds.bounded(heard, CARD) == heard


HONEST = Verdict(
    verdict=Word.CORRECT, median_us=412.0, reference_us=1000.0, speedup=2.43,
    speedup_ci95=(2.4, 2.46), max_error=0.1, log="two\nlines\n", profile={"kernels": "a\nb"},
    seconds=Seconds(build=1.0), sandbox_level=3, device=CARD,
)  # fmt: skip


def test_an_honest_word_comes_through_as_it_was() -> None:
    """Bounds are for liars: what honest actors say is not touched."""
    device = Device(kind="cuda", name="Card X", fingerprint=CARD, facts={"memory": "80 GiB"})
    for role in Role:
        for message in said_by(role):
            if not isinstance(message, messages.Evaluated | messages.Measured):
                assert bounds.bounded(message, CARD) == message
    for message in (
        messages.Evaluated(lease=LEASE, verdict=HONEST),
        messages.Measured(lease=LEASE, reference=Reference(eager_us=3.5, device=device)),
        messages.Measured(lease=LEASE, problem="t.py: Model raises"),
        messages.Hello(role=Role.EVALUATOR, slot="e", incarnation="i", pid=7, device=device),
    ):
        assert bounds.bounded(message, CARD) == message


@pytest.mark.parametrize(
    "lie",
    [
        {"speedup": 2e6, "reference_us": 8.24e8},
        {"speedup": 243.0},  # its own medians say 2.43
        {"stage": "check"},
        {"speedup_ci95": (3.0, 2.0)},
        {"median_us": -1.0},
        {"verdict": Word.NO_CANDIDATE},
        {"median_us": None},
        {"verdict": Word.COMPILE_FAILED, "stage": "time"},
    ],
    ids=str,
)
def test_impossible_figures_are_a_rejection(lie: dict[str, object]) -> None:
    """A speed-up that its own times deny, or words that exclude each other, win nothing."""
    from msgspec.structs import replace

    said = messages.Evaluated(lease=LEASE, verdict=replace(HONEST, **lie))
    heard = bounds.bounded(said, CARD)
    assert isinstance(heard, messages.Evaluated)
    assert heard.verdict.verdict is Word.REJECTED


@given(st.floats(), st.integers(-10, 2**63), st.floats())
def test_a_call_counts_in_figures_that_can_be_added(usd: float, tokens: int, rest: float) -> None:
    """No negative price makes room under --max-cost, and nothing is too large for its column."""
    call = Call(
        model="m", request="q", reply="a", usd=usd, input_tokens=tokens, cached_tokens=tokens,
        output_tokens=tokens, seconds=rest, temperature=rest,
    )  # fmt: skip
    heard = bounds.bounded(messages.Answered(lease=LEASE, call=call), "")
    assert isinstance(heard, messages.Answered)
    found = heard.call
    assert found.usd is None or 0 <= found.usd <= bounds.MOST_USD
    assert 0 <= found.input_tokens <= bounds.MOST_TOKENS
    assert 0 <= found.seconds < math.inf


@given(st.integers(), st.integers(), texts)
def test_a_peer_is_bounded_from_its_first_word_on(credit: int, pid: int, name: str) -> None:
    """Nobody takes all the work by asking for it, and a name is a name."""
    device = Device(name=name, fingerprint=name, facts={name: name})
    said = Hello(
        role=Role.EVALUATOR, slot="e", incarnation="i", pid=pid, credit=credit, device=device
    )
    heard = bounds.bounded(said, "")
    assert isinstance(heard, Hello)
    assert 0 <= heard.credit <= bounds.MOST_CREDIT
    assert 0 <= heard.pid < 2**31
    assert heard.device is not None
    assert len(heard.device.fingerprint) <= bounds.NAME_CHARS


def test_what_is_too_large_is_an_attempt_without_a_candidate() -> None:
    """It ends the attempt; asking again would bring the same again."""
    huge = "x" * (bounds.SOURCE_CHARS + 1)
    for said in (
        messages.Written(lease=LEASE, candidate=Candidate(source=huge)),
        messages.Repaired(lease=LEASE, candidate=Candidate(source=huge)),
        messages.Planned(lease=LEASE, plan=Plan(advice="a", scaffold=huge)),
        messages.Planned(lease=LEASE, plan=Plan(advice="a", scaffold="", spans=((1, 2**40),))),
    ):
        heard = bounds.bounded(said, "")
        assert isinstance(heard, messages.Unusable)
        assert heard.lease == LEASE
