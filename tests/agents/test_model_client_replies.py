"""The desk: what is paid for is never lost, bought twice, or used before it is stored."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from agent_fakes import (
    CANDIDATE,
    ROOT,
    TASK_SOURCE,
    FakeContext,
    RecordedModel,
    lease,
    make_plan,
    repair,
    write,
)
from msgspec.structs import replace

from actors.agents.coder import Coder
from actors.agents.debugger import Debugger
from actors.agents.model_client import ModelClient
from actors.agents.models.model import ModelBusyError, ModelDeniedError, RequestTooLongError
from actors.agents.planner import Planner
from actors.agents.replies.replies import fenced
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.prompting import plan_request
from actors.agents.requests.request import Request
from actors.agents.retry import RetryingCaller
from protocol.messages import CallsBlocked, HandedBack, Planned, Repaired, ReplyUnusable, Written
from protocol.values import Call, Plan

SCAFFOLD = TASK_SOURCE.replace(
    "        y = x", "        # <<<IMPROVE BEGIN>>>\n        # fuse\n        y = x"
).replace("        return y", "        # <<<IMPROVE END>>>\n        return y")
GOOD_PLAN = f"## Advice\n\nFuse both lines.\n\n## Source\n\n{fenced(SCAFFOLD)}\n"
MOVED_PLAN = GOOD_PLAN.replace("import torch\n", "")
PLAN = Plan(advice="Fuse both lines.", scaffold=SCAFFOLD, spans=((14, 14),))
GOOD_CODE = f"## Candidate\n\n{fenced(CANDIDATE)}\n"


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def desk(model: RecordedModel, folder: Path, clock: Clock | None = None) -> ModelClient:
    clock = clock or Clock()
    caller = RetryingCaller(random.Random(7), clock.time, clock.sleep)
    return ModelClient(model, ReplySpool(folder / "spool"), caller)


class PaidReciter(RecordedModel):
    """One whose calls cost money."""

    def max_cost_usd(self, request: Request) -> float:
        return 0.1


def spooled(folder: Path) -> list[Path]:
    return list((folder / "spool").glob("*"))


def test_a_plan_comes_out_checked(tmp_path: Path) -> None:
    """A good reply becomes a plan with its advice, its scaffold and the lines that it marks."""
    model, port = RecordedModel(GOOD_PLAN), FakeContext()

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), port)

    assert result == Planned(lease=lease("plan"), plan=PLAN)
    assert [call.reply for call in port.calls] == [GOOD_PLAN]
    assert spooled(tmp_path) == []


def test_a_candidate_and_a_repair_come_out_looked_over(tmp_path: Path) -> None:
    """The coder's and the debugger's code arrives whole, with what changed outside the plan."""
    model, port = RecordedModel(GOOD_CODE, GOOD_CODE), FakeContext()
    one = desk(model, tmp_path)

    written = Coder(one, 1000).work(write(PLAN), port)
    repaired = Debugger(one, 1000).work(repair(PLAN), port)

    assert isinstance(written, Written)
    assert isinstance(repaired, Repaired)
    assert written.candidate.source == repaired.candidate.source == CANDIDATE
    assert any("-class Model(nn.Module):" in hunk for hunk in written.candidate.outside)


def test_an_answer_out_of_bounds_gets_one_more_try(tmp_path: Path) -> None:
    """The model is shown its reply and what is wrong with it; both calls are stored."""
    model, port = RecordedModel(MOVED_PLAN, GOOD_PLAN), FakeContext()

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), port)

    assert isinstance(result, Planned)
    assert [call.reply for call in port.calls] == [MOVED_PLAN, GOOD_PLAN]
    assert "the source was changed" in model.requests[1].turns[0].problem
    assert model.requests[1].stable_text == model.requests[0].stable_text


def test_two_answers_out_of_bounds_are_unusable(tmp_path: Path) -> None:
    """There is no third try: the attempt ends with the reason and the reply."""
    model, port = RecordedModel(MOVED_PLAN, "no idea"), FakeContext()

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), port)

    assert isinstance(result, ReplyUnusable)
    assert "'## Advice'" in result.reason
    assert result.reply == "no idea"
    assert len(port.calls) == 2


@pytest.mark.parametrize(
    ("reply", "stop", "reason"),
    [
        (
            "## Cannot\n\nThe module only sorts.\nNothing to fuse.",
            "end_turn",
            "only sorts. Nothing",
        ),
        ("I can't help with", "refusal", "refused"),
    ],
)
def test_a_no_is_taken_for_an_answer(tmp_path: Path, reply: str, stop: str, reason: str) -> None:
    """A refusal, or a model that says that it can't, is not asked again; its words are kept."""
    model, port = RecordedModel(reply, stop=stop), FakeContext()

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), port)

    assert isinstance(result, ReplyUnusable)
    assert reason in result.reason
    assert len(port.calls) == 1


@pytest.mark.parametrize(
    ("heading", "scope"),
    [("Cannot", "attempt"), ("Cannot at this node", "node"), ("Cannot at this task", "task")],
)
def test_a_refusal_says_what_it_gives_up_on(tmp_path: Path, heading: str, scope: str) -> None:
    """The heading of a reply decides; so a replay of the reply ends the same run."""
    model = RecordedModel(f"## {heading}\n\nNothing is left.")

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), FakeContext())

    assert isinstance(result, ReplyUnusable)
    assert scope == result.gives_up_on


@pytest.mark.parametrize(
    ("reply", "stop", "reason"),
    [("", "end_turn", "no words"), (GOOD_CODE[:200], "max_tokens", "cut off")],
)
def test_empty_and_cut_replies_are_asked_again_once(
    tmp_path: Path, reply: str, stop: str, reason: str
) -> None:
    """Nothing at all, or half a file, gets the one more try and then a clear reason."""
    model, port = RecordedModel(reply, reply, stop=stop), FakeContext()

    result = Coder(desk(model, tmp_path), 1000).work(write(PLAN), port)

    assert isinstance(result, ReplyUnusable)
    assert reason in result.reason
    assert len(port.calls) == 2
    assert all(turn.reply for turn in model.requests[1].turns)


def test_a_cut_reply_that_is_complete_is_used(tmp_path: Path) -> None:
    """When only the small talk after the code was cut off, the code counts."""
    model, port = RecordedModel(GOOD_CODE + "This works bec", stop="max_tokens"), FakeContext()

    assert isinstance(Coder(desk(model, tmp_path), 1000).work(write(PLAN), port), Written)


def test_a_stored_reply_is_used_and_not_bought(tmp_path: Path) -> None:
    """After a restart the coordinator's stored calls answer, first try and second."""
    first = RecordedModel(MOVED_PLAN, GOOD_PLAN)
    port = FakeContext()
    Planner(desk(first, tmp_path), 1000).work(make_plan(), port)

    empty, silent = RecordedModel(), FakeContext()
    again = Planner(desk(empty, tmp_path), 1000).work(
        make_plan(completed_calls=tuple(port.calls)), silent
    )

    assert again == Planned(lease=lease("plan"), plan=PLAN)
    assert silent.calls == []


class KilledError(BaseException):
    """The process dies here."""


def test_killed_between_reply_and_store_it_is_not_bought_again(tmp_path: Path) -> None:
    """The reply is on disk before anyone hears of it; the next process finds it there."""
    model, port = RecordedModel(GOOD_PLAN), FakeContext()

    def die(call: Call) -> None:
        raise KilledError

    port.on_answered = die
    with pytest.raises(KilledError):
        Planner(desk(model, tmp_path), 1000).work(make_plan(), port)
    assert len(spooled(tmp_path)) == 1

    empty, next_port = RecordedModel(), FakeContext()
    result = Planner(desk(empty, tmp_path), 1000).work(make_plan(), next_port)

    assert isinstance(result, Planned)
    assert [call.reply for call in next_port.calls] == [GOOD_PLAN]
    assert spooled(tmp_path) == []


def test_a_spooled_reply_answers_its_own_request_only(tmp_path: Path) -> None:
    """Another attempt, or another window for the same attempt, does not get it."""
    spool = ReplySpool(tmp_path)
    text = plan_request(make_plan(), 1000).render()
    spool.store("half/1/plan", Call(model="m", request=text, reply="r"))

    assert spool.find("half/2/plan", text) is None
    assert spool.find("half/1/plan", text + " ") is None
    assert spool.find("half/1/plan", text) is not None


def test_a_broken_spool_file_is_no_reply(tmp_path: Path) -> None:
    """Half a file, or one of another version, is asked anew instead of crashing the agent."""
    spool = ReplySpool(tmp_path)
    spool.store("half/1/plan", Call(model="m", request="q", reply="r"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:10])

    assert spool.find("half/1/plan", "q") is None


def test_a_full_disk_does_not_lose_the_reply(tmp_path: Path) -> None:
    """Where the spool can't be written the reply still goes to the coordinator."""
    (tmp_path / "spool").write_text("a file where the folder should be")
    model, port = RecordedModel(GOOD_PLAN), FakeContext()

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), port)

    assert isinstance(result, Planned)
    assert len(port.calls) == 1
    assert any("no spool" in words for words in port.words)


def test_an_unacknowledged_reply_stays_in_the_spool(tmp_path: Path) -> None:
    """When the lease goes away while the reply is handed over, the next holder finds it."""
    model, port = RecordedModel(GOOD_PLAN), FakeContext()
    port.on_answered = lambda call: setattr(port, "stop", lambda: True)

    Planner(desk(model, tmp_path), 1000).work(make_plan(), port)

    assert len(spooled(tmp_path)) == 1


def test_a_busy_model_is_waited_for(tmp_path: Path) -> None:
    """The attempt does not fail: it waits longer each time, at most a minute, and says so."""
    clock, port = Clock(), FakeContext()
    model = RecordedModel(*[ModelBusyError("429")] * 12, GOOD_PLAN)

    result = Planner(desk(model, tmp_path, clock), 1000).work(make_plan(), port)

    assert isinstance(result, Planned)
    waits = [words for words in port.words if words.startswith("waiting")]
    assert len(waits) == 12
    assert waits[0].startswith("waiting for the model: 429, next try in 1 s")
    assert waits[-1].endswith("60 s")
    assert clock.now < 12 * 60


def test_the_servers_own_wish_is_heard(tmp_path: Path) -> None:
    """Retry-After is obeyed, also beyond our own minute, and said; a nonsense of days is not."""
    clock, port = Clock(), FakeContext()
    wishes = (20.0, 300.0, 1e12)
    model = RecordedModel(
        *[ModelBusyError("429", retry_after_s=wish) for wish in wishes], GOOD_PLAN
    )

    Planner(desk(model, tmp_path, clock), 1000).work(make_plan(), port)

    assert clock.now == pytest.approx(20.0 + 300.0 + 3600.0)
    assert "waiting for the model: 429, next try in 300 s, as the server asks" in port.words


def test_a_revoked_lease_ends_the_wait(tmp_path: Path) -> None:
    """Nobody waits an hour for an answer that is not wanted any more."""
    clock, port = Clock(), FakeContext()
    port.stop = lambda: clock.now > 5.0
    model = RecordedModel(*[ModelBusyError("529")] * 50)

    result = Planner(desk(model, tmp_path, clock), 1000).work(make_plan(), port)

    assert isinstance(result, HandedBack)
    assert clock.now < 6.0


def test_a_wrong_key_blocks_with_its_reason(tmp_path: Path) -> None:
    """A person must act: the run pauses with that line, the attempt is not charged."""
    model = RecordedModel(ModelDeniedError("the key was refused: set ANTHROPIC_API_KEY"))

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), FakeContext())

    assert result == CallsBlocked(
        lease=lease("plan"), reason="the key was refused: set ANTHROPIC_API_KEY"
    )


def test_a_server_that_only_answers_garbage_blocks(tmp_path: Path) -> None:
    """What does not pass by itself is not tried for ever."""
    model = RecordedModel(*[ModelBusyError("no Messages stream", tries=5)] * 5)

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), FakeContext())

    assert isinstance(result, CallsBlocked)
    assert "5 times in a row" in result.reason


def test_garbage_between_rate_limits_is_waited_for(tmp_path: Path) -> None:
    """Five in a row mean a wrong address: one bad page in a busy hour does not."""
    bad = ModelBusyError("no Messages stream", tries=5)
    model = RecordedModel(
        *[ModelBusyError("429")] * 6, bad, *[ModelBusyError("529")] * 2, *[bad] * 4, GOOD_PLAN
    )

    assert isinstance(
        Planner(desk(model, tmp_path), 1000).work(make_plan(), FakeContext()), Planned
    )


def test_replies_that_always_break_off_are_not_paid_for_all_night(tmp_path: Path) -> None:
    """A proxy that cuts every reply costs ten calls and then a pause, with or without a cap."""
    model, port = PaidReciter(*[ModelBusyError("cut off", may_be_paid=True)] * 50), FakeContext()

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), port)

    assert isinstance(result, CallsBlocked)
    assert "broke off" in result.reason
    assert 10 == len(model.requests) == port.lost


def test_a_request_that_does_not_fit_loses_its_window(tmp_path: Path) -> None:
    """Earlier attempts are left out until it fits; without any left the attempt ends."""
    model = RecordedModel(
        RequestTooLongError("400: too long"), GOOD_PLAN, RequestTooLongError("400: too long")
    )
    planner = Planner(desk(model, tmp_path), 1000)

    assert isinstance(planner.work(make_plan(window=(ROOT,)), FakeContext()), Planned)
    assert len(model.requests[1].render()) < len(model.requests[0].render())
    result = planner.work(make_plan(attempt=2), FakeContext())
    assert isinstance(result, ReplyUnusable)
    assert "does not fit" in result.reason


def test_a_full_context_shows_less_and_not_more(tmp_path: Path) -> None:
    """The one more try goes without most of the window, and without the half reply."""
    model, port = (
        RecordedModel("## Advice\n\nFu", GOOD_PLAN, stop="model_context_window_exceeded"),
        FakeContext(),
    )
    wide = tuple(replace(ROOT, node=n, source=TASK_SOURCE * 20) for n in range(2, 6))

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(window=wide), port)

    assert isinstance(result, Planned)
    assert () == model.requests[1].turns
    assert len(model.requests[1].render()) < len(model.requests[0].render()) * 3 / 4
    assert len(port.calls) == 2


def test_a_full_context_without_a_window_ends_the_attempt(tmp_path: Path) -> None:
    """Nothing is left to leave out: one call, one clear reason."""
    model, port = (
        RecordedModel("## Advice\n\nFu", stop="model_context_window_exceeded"),
        FakeContext(),
    )

    result = Planner(desk(model, tmp_path), 1000).work(make_plan(), port)

    assert isinstance(result, ReplyUnusable)
    assert "cut off" in result.reason
    assert len(port.calls) == 1


def test_all_thought_and_no_words_says_so(tmp_path: Path) -> None:
    """A model that spent its tokens before the first word: the reason names the limit."""
    model, port = RecordedModel("", "", stop="max_tokens"), FakeContext()

    result = Coder(desk(model, tmp_path), 1000).work(write(PLAN), port)

    assert isinstance(result, ReplyUnusable)
    assert "no words before it was cut off" in result.reason


def test_a_long_half_reply_is_shown_in_part(tmp_path: Path) -> None:
    """The second try must not cost more to ask than the first to answer."""
    model, port = RecordedModel("x" * 300_000, GOOD_CODE, stop="max_tokens"), FakeContext()

    assert isinstance(Coder(desk(model, tmp_path), 1000).work(write(PLAN), port), Written)
    assert len(model.requests[1].turns[0].reply) < 70_000
