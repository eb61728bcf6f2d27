"""`replay:RUN`: a stored request is answered as it was, and no other request is answered."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from agent_fakes import (
    CANDIDATE,
    REFERENCE,
    FakeContext,
    RecordedModel,
    make_plan,
    repair,
    solve,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.model_client import ModelClient
from actors.agents.models.model import Model, ModelDeniedError, RequestTooLongError
from actors.agents.models.registry import UnknownModelError, make_model
from actors.agents.models.replay_key import without_measurements
from actors.agents.planner import Planner
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.prompting import (
    plan_request,
    repair_request,
    solve_request,
    write_request,
)
from actors.agents.requests.request import Request
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.database import Database
from protocol.values import AttemptView, Call, Outcome, Plan, Verdict

PLAN = Plan(advice="Fuse.", scaffold=CANDIDATE)


def stored(folder: Path, *asked: tuple[Request, str], stop: str = "end_turn") -> Model:
    """Return the replay of a run in which these requests got these replies, in this order."""
    database = Database(folder / "run")
    for request, reply in asked:
        call = Call(
            model="claude", request=request.render(), reply=reply, stop=stop, usd=0.5,
            input_tokens=70, output_tokens=7,
        )  # fmt: skip
        ActivityStore(database).add_call(request.work.lease.work, request.role, call, 1.0)
    database.commit()
    database.close()
    return make_model(f"replay:{folder / 'run'}")


def attempt(node: int, us: float, log: str = "", *, source: str = CANDIDATE) -> AttemptView:
    """Return an earlier attempt: correct with a time, or failed with a log."""
    good = Verdict(
        verdict=Outcome.CORRECT, median_us=us, speedup=40 / us, profile={"clock": str(us)}
    )
    bad = Verdict(verdict=Outcome.WRONG, stage="check", reason=f"off by {us}", log=log)
    return AttemptView(
        node=node, parent=0, source=source, advice="a", verdict=bad if log else good, score_us=us
    )


def test_the_same_question_is_answered_in_stored_order(tmp_path: Path) -> None:
    """K samples of one request come back in their order, for any agent; then there are no more."""
    samples = [solve_request(solve(attempt=n), 1) for n in (1, 2, 3)]
    model = stored(tmp_path, *((one, f"reply {n}") for n, one in enumerate(samples, start=1)))
    other = [solve_request(solve(attempt=n), 1) for n in (11, 12, 13)]

    assert ["reply 1", "reply 2", "reply 3"] == [model.reply(one).reply for one in other]
    with pytest.raises(
        ModelDeniedError, match="3 stored calls asked before it: there is no reply left"
    ):
        model.reply(other[0])


def test_the_reply_to_the_same_work_comes_first(tmp_path: Path) -> None:
    """If several agents ask in another order, each attempt still gets its own answer."""
    samples = [solve_request(solve(attempt=n), 1) for n in (1, 2, 3)]
    model = stored(tmp_path, *((one, f"reply {n}") for n, one in enumerate(samples, start=1)))

    assert ["reply 3", "reply 1", "reply 2"] == [model.reply(samples[n]).reply for n in (2, 0, 1)]


def test_a_replayed_reply_costs_nothing_and_ends_as_it_did(tmp_path: Path) -> None:
    """It costs 0 dollars, and has the stored stop reason: that decides how a reply is read."""
    request = plan_request(make_plan(), 1)
    call = stored(tmp_path, (request, "half a pl"), stop="max_tokens").reply(request)

    assert (call.usd, call.stop, call.output_tokens) == (0.0, "max_tokens", 7)
    assert call.request == request.render()


def test_figures_may_differ(tmp_path: Path) -> None:
    """A run on a slower machine has other times, profiles and logs, and the same question."""
    window = (attempt(4, 12.0), attempt(5, 3.0, log="at 0x7ffc: off"))
    request = plan_request(make_plan(attempt=3, window=window), 1)
    model = stored(tmp_path, (request, "words"))
    device = msgspec.structs.replace(REFERENCE.device, facts={"Clock": "2 GHz"})
    later = plan_request(
        make_plan(
            attempt=3,
            window=(attempt(4, 19.5), attempt(5, 3.1, log="at 0x1234: off\n# Your luck")),
        ),
        1,
    )
    slower = msgspec.structs.replace(REFERENCE, eager_us=77.0, device=device)
    work = msgspec.structs.replace(later.work, reference=slower)

    assert later.render() != request.render()
    assert model.reply(later).reply == "words"
    again = stored(tmp_path / "b", (request, "words"))
    assert again.reply(plan_request(work, 1)).reply == "words"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "window",
    [(attempt(4, 12.0, source=CANDIDATE + "#"),), (attempt(4, 12.0, log="broke"),), ()],
)
def test_nothing_else_may_differ(tmp_path: Path, window: tuple[AttemptView, ...]) -> None:
    """Another source, outcome or window is refused, with the line that differs."""
    model = stored(tmp_path, (plan_request(make_plan(window=(attempt(4, 12.0),)), 1), "words"))

    with pytest.raises(
        ModelDeniedError, match=r"asked otherwise for half/1/plan: from line \d+ on, '"
    ):
        model.reply(plan_request(make_plan(window=window), 1))


def test_a_new_request_is_not_answered(tmp_path: Path) -> None:
    """A run that is longer than the stored one pauses where the stored one ended."""
    model = stored(tmp_path, (plan_request(make_plan(), 1), "words"))

    with pytest.raises(ModelDeniedError, match="never asked for half/2/repair: it ended before"):
        model.reply(repair_request(repair(PLAN), 1))


def test_a_window_that_was_too_long_is_shrunk_again(tmp_path: Path) -> None:
    """The stored run had to leave the largest attempt out; so does the replay."""
    window = (attempt(4, 12.0), attempt(5, 9.0, source=CANDIDATE * 3))
    whole = write_request(write(PLAN, window=window), 1)
    smaller = whole.without_largest_attempt()
    assert smaller is not None
    model = stored(tmp_path, (smaller, f"## Candidate\n\n```python\n{CANDIDATE}```\n"))

    with pytest.raises(RequestTooLongError):
        model.reply(whole)
    model_client = ModelClient(model, ReplySpool(tmp_path / "spool"))
    context = FakeContext()
    model_client.ask(whole, context, lambda reply: reply, lambda reply: reply)  # type: ignore[arg-type,return-value]
    assert [smaller.render()] == [call.request for call in context.calls]


def test_a_second_try_is_replayed_like_the_first(tmp_path: Path) -> None:
    """An answer out of bounds and the answer after it are both replayed."""
    live, context = RecordedModel("nonsense", "## Cannot\n\nNothing left.\n"), FakeContext()
    first = Planner(ModelClient(live, ReplySpool(tmp_path / "s1")), 1).work(make_plan(), context)
    model = stored(
        tmp_path, *((r, c.reply) for r, c in zip(live.requests, context.calls, strict=True))
    )

    assert first == Planner(ModelClient(model, ReplySpool(tmp_path / "s2")), 1).work(
        make_plan(), FakeContext()
    )


@pytest.mark.parametrize("content", [None, b"", b"no database at all, but long enough to look"])
def test_a_folder_that_is_not_a_run_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    """A missing folder, an empty file and garbage are named, and nothing is written."""
    if content is not None:
        (tmp_path / "run.db").write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnknownModelError) as caught:
        make_model(f"replay:{tmp_path}")

    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert before == sorted(tmp_path.iterdir())


@given(
    st.lists(st.tuples(st.floats(0.1, 1e6), st.text(max_size=40)), min_size=1, max_size=4),
    st.lists(st.tuples(st.floats(0.1, 1e6), st.text(max_size=40)), min_size=4, max_size=4),
)
def test_no_figure_and_no_log_reaches_the_key(
    first: list[tuple[float, str]], second: list[tuple[float, str]]
) -> None:
    """Two requests that differ in times and logs alone have one key."""
    one = tuple(attempt(n, us, f"!{log}") for n, (us, log) in enumerate(first, start=1))
    two = tuple(
        attempt(n, us, f"!{log}") for n, (us, log) in enumerate(second[: len(first)], start=1)
    )
    keys = [without_measurements(plan_request(make_plan(window=w), 1).render()) for w in (one, two)]

    assert keys[0] == keys[1]
