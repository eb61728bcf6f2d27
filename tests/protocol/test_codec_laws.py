"""The codec: every message arrives unchanged, and all other input is refused."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import codec, messages
from protocol.codec import MAGIC, FrameError
from protocol.messages import (
    BudgetReserved,
    Evaluate,
    Evaluated,
    Heartbeat,
    Hello,
    Lease,
    MakePlan,
    ReserveBudget,
    ResultStored,
    Welcome,
    Written,
)
from protocol.values import (
    AttemptView,
    Candidate,
    Outcome,
    Plan,
    Reference,
    Role,
    Seconds,
    Task,
    Verdict,
)

TEXT = st.text(max_size=40)
FIGURE = st.none() | st.floats(allow_nan=False)
LEASES = st.builds(Lease, work=TEXT, epoch=st.integers(0, 2**53))
VERDICTS = st.builds(
    Verdict,
    verdict=st.sampled_from(Outcome),
    reason=TEXT,
    median_us=FIGURE,
    speedup=FIGURE,
    speedup_ci95=st.none() | st.tuples(st.floats(0, 9), st.floats(0, 9)),
    log=TEXT,
    profile=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
    seconds=st.builds(Seconds, build=st.floats(0, 9)),
)
ATTEMPT_VIEWS = st.builds(
    AttemptView, node=st.integers(0, 99), source=TEXT, verdict=VERDICTS, score_us=FIGURE
)
TASKS = st.builds(Task, name=TEXT, source=TEXT)
REFERENCES = st.builds(Reference, eager_us=st.floats(0.1, 1e9), inputs=TEXT)
TO_COORDINATOR = st.one_of(
    st.builds(
        Hello,
        role=st.sampled_from(Role),
        slot=TEXT,
        incarnation=TEXT,
        pid=st.integers(1, 2**22),
        held_leases=st.lists(LEASES, max_size=3).map(tuple),
    ),
    st.builds(Heartbeat, held_leases=st.lists(LEASES, max_size=3).map(tuple), activity=TEXT),
    st.builds(
        ReserveBudget,
        lease=LEASES,
        call_number=st.integers(1, 2**31),
        model=TEXT,
        request_key=TEXT,
        usd=st.none() | st.floats(0, 1e4),
        lost_call_number=st.integers(0, 9),
    ),
    st.builds(Written, lease=LEASES, candidate=st.builds(Candidate, source=TEXT)),
    st.builds(Evaluated, lease=LEASES, verdict=VERDICTS),
)
TO_WORKER = st.one_of(
    st.builds(Welcome, epoch=st.integers(0), beat_s=st.just(5.0), lease_s=st.just(15.0)).filter(
        lambda message: message.epoch < 2**63
    ),
    st.builds(ResultStored, lease=LEASES),
    st.builds(BudgetReserved, lease=LEASES, call_number=st.integers(1, 2**31)),
    st.builds(Evaluate, lease=LEASES, task=TASKS, source=TEXT, reference=REFERENCES),
    st.builds(
        MakePlan,
        lease=LEASES,
        task=TASKS,
        attempt=st.integers(1, 99),
        node=ATTEMPT_VIEWS,
        root=ATTEMPT_VIEWS,
        window=st.lists(ATTEMPT_VIEWS, max_size=2).map(tuple),
        reference=REFERENCES,
    ),
)


@given(TO_COORDINATOR)
def test_messages_of_workers_arrive_unchanged(message: messages.ToCoordinator) -> None:
    """Decoding an encoded message gives the same message."""
    wire = codec.coordinator_codec()

    assert message == wire.decode(wire.encode(message))


@given(TO_WORKER)
def test_messages_of_the_coordinator_arrive_unchanged(message: messages.ToWorker) -> None:
    """Decoding an encoded message gives the same message."""
    wire = codec.worker_codec()

    assert message == wire.decode(wire.encode(message))


@given(st.lists(st.binary(max_size=200), max_size=4))
@settings(max_examples=100)
def test_random_frames_are_refused(frames: list[bytes]) -> None:
    """Random frames of any number and size raise FrameError and no other error."""
    with pytest.raises(FrameError):
        codec.coordinator_codec().decode(frames)


@given(TO_COORDINATOR, st.data())
def test_a_flipped_byte_is_another_message_or_refused(
    message: messages.ToCoordinator, data: st.DataObject
) -> None:
    """One wrong byte raises FrameError or gives another message, and raises no other error."""
    wire = codec.coordinator_codec()
    magic, body = wire.encode(message)
    place = data.draw(st.integers(0, len(body) - 1))
    broken = (
        body[:place] + bytes([body[place] ^ data.draw(st.integers(1, 255))]) + body[place + 1 :]
    )
    with contextlib.suppress(FrameError):  # anything else that is raised fails the test
        assert isinstance(wire.decode([magic, broken]), messages.ToCoordinator)


def test_another_major_is_named() -> None:
    """The error for a peer of another major version names both versions."""
    wire = codec.coordinator_codec()
    _, body = wire.encode(Heartbeat())

    with pytest.raises(FrameError, match="protocol major 9, expected 2"):
        wire.decode([MAGIC[:-1] + bytes([9]), body])


def test_a_newer_minor_is_understood() -> None:
    """An unknown field is skipped, so that peers of different minor versions work together."""
    body = msgspec.msgpack.encode(
        {"type": "Heartbeat", "held_leases": [], "activity": "x", "mood": "good"}
    )

    assert codec.coordinator_codec().decode([MAGIC, body]) == Heartbeat(activity="x")


def test_plan_is_the_wire_tag_of_the_request() -> None:
    """Requests are imperative: the tag `Plan` is the planner's work."""
    assert MakePlan.__struct_config__.tag == "Plan"
    assert Plan.__struct_config__.tag is None


@pytest.mark.parametrize("role", sorted(Role))
def test_a_role_may_send_only_its_own_messages(role: Role) -> None:
    """Only an evaluator may send verdicts, and only a supervisor may drain."""
    allowed = codec.messages_allowed_from(role)
    lease = Lease(work="t/1/evaluate", epoch=1)
    judged = Evaluated(lease=lease, verdict=Verdict(verdict=Outcome.CORRECT))

    assert isinstance(judged, allowed) == (role is Role.EVALUATOR)
    assert isinstance(messages.Drain(), allowed) == (role is Role.SUPERVISOR)
