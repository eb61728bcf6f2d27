"""The model client: no paid reply is lost, bought twice, or used before it is stored."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from agent_fakes import (
    CANDIDATE,
    GOOD_PLAN,
    ROOT,
    SCAFFOLD,
    TASK_SOURCE,
    Clock,
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
from actors.agents.requests.request_version import request_version
from actors.agents.retry import RetryingCaller
from protocol.messages import CallsBlocked, HandedBack, Planned, Repaired, ReplyUnusable, Written
from protocol.values import Call, Plan

MOVED_PLAN = GOOD_PLAN.replace("import torch\n", "")
PLAN = Plan(advice="Fuse both lines.", scaffold=SCAFFOLD, spans=((14, 14),))
GOOD_CODE = f"## Candidate\n\n{fenced(CANDIDATE)}\n"


def client_of(model: RecordedModel, folder: Path, clock: Clock | None = None) -> ModelClient:
    clock = clock or Clock()
    caller = RetryingCaller(random.Random(7), clock.time, clock.sleep)
    return ModelClient(model, ReplySpool(folder / "spool"), caller)


class PaidRecordedModel(RecordedModel):
    """A recorded model whose calls cost money."""

    def max_cost_usd(self, request: Request) -> float:
        return 0.1


def spooled(folder: Path) -> list[Path]:
    return list((folder / "spool").glob("*"))


def test_a_plan_comes_out_checked(tmp_path: Path) -> None:
    """A good reply becomes a plan with its advice, its scaffold and the lines that it marks."""
    model, context = RecordedModel(GOOD_PLAN), FakeContext()

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)

    assert result == Planned(lease=lease("plan"), plan=PLAN)
    assert [call.reply for call in context.calls] == [GOOD_PLAN]
    assert [call.request_version for call in context.calls] == [request_version()]
    assert spooled(tmp_path) == []


def test_a_candidate_and_a_repair_come_out_checked(tmp_path: Path) -> None:
    """The coder's and the debugger's code arrives whole, with the edits outside the anchors."""
    model, context = RecordedModel(GOOD_CODE, GOOD_CODE), FakeContext()
    one = client_of(model, tmp_path)

    written = Coder(one, 1000).work(write(PLAN), context)
    repaired = Debugger(one, 1000).work(repair(PLAN), context)

    assert isinstance(written, Written)
    assert isinstance(repaired, Repaired)
    assert written.candidate.source == repaired.candidate.source == CANDIDATE
    assert any("-class Model(nn.Module):" in hunk for hunk in written.candidate.outside)


def test_an_answer_out_of_bounds_gets_one_more_try(tmp_path: Path) -> None:
    """The model is shown its reply and the problem with it; both calls are stored."""
    model, context = RecordedModel(MOVED_PLAN, GOOD_PLAN), FakeContext()

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)

    assert isinstance(result, Planned)
    assert [call.reply for call in context.calls] == [MOVED_PLAN, GOOD_PLAN]
    assert "the source was changed" in model.requests[1].turns[0].problem
    assert model.requests[1].stable_text == model.requests[0].stable_text


def test_two_answers_out_of_bounds_are_unusable(tmp_path: Path) -> None:
    """There is no third try: the attempt ends with the reason and the reply."""
    model, context = RecordedModel(MOVED_PLAN, "no idea"), FakeContext()

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)

    assert isinstance(result, ReplyUnusable)
    assert "'## Advice'" in result.reason
    assert result.reply == "no idea"
    assert len(context.calls) == 2


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
def test_a_refusal_is_final(tmp_path: Path, reply: str, stop: str, reason: str) -> None:
    """A model that refuses, or says that it can't, is not asked again; its reason is stored."""
    model, context = RecordedModel(reply, stop=stop), FakeContext()

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)

    assert isinstance(result, ReplyUnusable)
    assert reason in result.reason
    assert len(context.calls) == 1


@pytest.mark.parametrize(
    ("heading", "scope"),
    [("Cannot", "attempt"), ("Cannot at this node", "node"), ("Cannot at this task", "task")],
)
def test_a_refusal_says_what_it_gives_up_on(tmp_path: Path, heading: str, scope: str) -> None:
    """The heading of a reply decides; so a replay of the reply ends the same run."""
    model = RecordedModel(f"## {heading}\n\nNothing is left.")

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), FakeContext())

    assert isinstance(result, ReplyUnusable)
    assert scope == result.gives_up_on


@pytest.mark.parametrize(
    ("reply", "stop", "reason"),
    [
        ("", "end_turn", "no words"),
        (GOOD_CODE[:200], "max_tokens", "cut off"),
        (GOOD_CODE.removesuffix("```\n"), "max_tokens", "cut off"),  # parses, may not be all
        ("## Edits\n\n### line 7\n```cpp\n        break;\n```\n", "max_tokens", "cut off"),
    ],
)
def test_empty_and_cut_replies_are_asked_again_once(
    tmp_path: Path, reply: str, stop: str, reason: str
) -> None:
    """An empty reply, or half of one, gets one more try and then a clear reason."""
    model, context = RecordedModel(reply, reply, stop=stop), FakeContext()

    result = Coder(client_of(model, tmp_path), 1000, "compact").work(write(PLAN), context)

    assert isinstance(result, ReplyUnusable)
    assert reason in result.reason
    assert len(context.calls) == 2
    assert all(turn.reply for turn in model.requests[1].turns)


def test_a_cut_reply_that_is_complete_is_used(tmp_path: Path) -> None:
    """If only the text after the code was cut off, the code counts."""
    model, context = RecordedModel(GOOD_CODE + "This works bec", stop="max_tokens"), FakeContext()

    assert isinstance(Coder(client_of(model, tmp_path), 1000).work(write(PLAN), context), Written)


def test_a_stored_reply_is_used_and_not_bought(tmp_path: Path) -> None:
    """After a restart the coordinator's stored calls answer, first try and second."""
    first = RecordedModel(MOVED_PLAN, GOOD_PLAN)
    context = FakeContext()
    Planner(client_of(first, tmp_path), 1000).work(make_plan(), context)

    empty, silent = RecordedModel(), FakeContext()
    again = Planner(client_of(empty, tmp_path), 1000).work(
        make_plan(completed_calls=tuple(context.calls)), silent
    )

    assert again == Planned(lease=lease("plan"), plan=PLAN)
    assert silent.calls == []


class KilledError(BaseException):
    """Ends the process at this point."""


def test_killed_between_reply_and_store_it_is_not_bought_again(tmp_path: Path) -> None:
    """The reply is on disk before it is reported; the next process finds it there."""
    model, context = RecordedModel(GOOD_PLAN), FakeContext()

    def die(call: Call) -> None:
        raise KilledError

    context.on_answered = die
    with pytest.raises(KilledError):
        Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)
    assert len(spooled(tmp_path)) == 1

    empty, next_port = RecordedModel(), FakeContext()
    result = Planner(client_of(empty, tmp_path), 1000).work(make_plan(), next_port)

    assert isinstance(result, Planned)
    assert [call.reply for call in next_port.calls] == [GOOD_PLAN]
    assert spooled(tmp_path) == []


def test_a_spooled_reply_answers_its_own_request_only(tmp_path: Path) -> None:
    """Another attempt, and the same attempt with another window, does not get it."""
    spool = ReplySpool(tmp_path)
    text = plan_request(make_plan(), 1000).render()
    spool.store("half/1/plan", Call(model="m", request=text, reply="r"))

    assert spool.find("half/2/plan", text) is None
    assert spool.find("half/1/plan", text + " ") is None
    assert spool.find("half/1/plan", text) is not None


def test_a_broken_spool_file_is_ignored(tmp_path: Path) -> None:
    """With half a file, or one of another version, the model is asked; the agent does not crash."""
    spool = ReplySpool(tmp_path)
    spool.store("half/1/plan", Call(model="m", request="q", reply="r"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:10])

    assert spool.find("half/1/plan", "q") is None


def test_a_full_disk_does_not_lose_the_reply(tmp_path: Path) -> None:
    """If the spool can't be written, the reply still goes to the coordinator."""
    (tmp_path / "spool").write_text("a file where the folder should be")
    model, context = RecordedModel(GOOD_PLAN), FakeContext()

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)

    assert isinstance(result, Planned)
    assert len(context.calls) == 1
    assert any("no spool" in text for text in context.activities)


def test_an_unacknowledged_reply_stays_in_the_spool(tmp_path: Path) -> None:
    """If the lease is revoked while the reply is handed over, the next holder finds the reply."""
    model, context = RecordedModel(GOOD_PLAN), FakeContext()
    context.on_answered = lambda call: setattr(context, "stop", lambda: True)

    Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)

    assert len(spooled(tmp_path)) == 1


def test_a_busy_model_is_waited_for(tmp_path: Path) -> None:
    """The attempt does not fail: it waits longer each time, at most a minute, and reports it."""
    clock, context = Clock(), FakeContext()
    model = RecordedModel(*[ModelBusyError("429")] * 12, GOOD_PLAN)

    result = Planner(client_of(model, tmp_path, clock), 1000).work(make_plan(), context)

    assert isinstance(result, Planned)
    waits = [text for text in context.activities if text.startswith("waiting")]
    assert len(waits) == 12
    assert waits[0].startswith("waiting for the model: 429, next try in 1 s")
    assert waits[-1].endswith("60 s")
    assert clock.now < 12 * 60


def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    """Also beyond our own minute, and reported; a value of days is not obeyed."""
    clock, context = Clock(), FakeContext()
    wishes = (20.0, 300.0, 1e12)
    model = RecordedModel(
        *[ModelBusyError("429", retry_after_s=wish) for wish in wishes], GOOD_PLAN
    )

    Planner(client_of(model, tmp_path, clock), 1000).work(make_plan(), context)

    assert clock.now == pytest.approx(20.0 + 300.0 + 3600.0)
    assert "waiting for the model: 429, next try in 300 s, as the server asks" in context.activities


def test_a_revoked_lease_ends_the_wait(tmp_path: Path) -> None:
    """An agent does not wait an hour for an answer that is not needed any more."""
    clock, context = Clock(), FakeContext()
    context.stop = lambda: clock.now > 5.0
    model = RecordedModel(*[ModelBusyError("529")] * 50)

    result = Planner(client_of(model, tmp_path, clock), 1000).work(make_plan(), context)

    assert isinstance(result, HandedBack)
    assert clock.now < 6.0


def test_a_wrong_key_blocks_with_its_reason(tmp_path: Path) -> None:
    """The user must act: the run pauses with that line, and the attempt is not charged."""
    model = RecordedModel(ModelDeniedError("the key was refused: set ANTHROPIC_API_KEY"))

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), FakeContext())

    assert result == CallsBlocked(
        lease=lease("plan"), reason="the key was refused: set ANTHROPIC_API_KEY"
    )


def test_a_server_that_only_answers_garbage_blocks(tmp_path: Path) -> None:
    """A failure that does not pass by itself is not retried for ever."""
    model = RecordedModel(*[ModelBusyError("no Messages stream", tries=5)] * 5)

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), FakeContext())

    assert isinstance(result, CallsBlocked)
    assert "5 times in a row" in result.reason


def test_garbage_between_rate_limits_is_waited_for(tmp_path: Path) -> None:
    """Five in a row mean a wrong address; one bad page in a busy hour does not."""
    bad = ModelBusyError("no Messages stream", tries=5)
    model = RecordedModel(
        *[ModelBusyError("429")] * 6, bad, *[ModelBusyError("529")] * 2, *[bad] * 4, GOOD_PLAN
    )

    assert isinstance(
        Planner(client_of(model, tmp_path), 1000).work(make_plan(), FakeContext()), Planned
    )


def test_calls_that_break_off_end_in_a_pause(tmp_path: Path) -> None:
    """A proxy that cuts every reply costs ten calls, then the run pauses, with or without a cap."""
    model, context = (
        PaidRecordedModel(*[ModelBusyError("cut off", may_be_paid=True)] * 50),
        FakeContext(),
    )

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)

    assert isinstance(result, CallsBlocked)
    assert "broke off" in result.reason
    assert 10 == len(model.requests) == context.lost


def test_a_request_that_does_not_fit_loses_its_window(tmp_path: Path) -> None:
    """Earlier attempts are left out until the request fits; if none is left, the attempt ends."""
    model = RecordedModel(
        RequestTooLongError("400: too long"), GOOD_PLAN, RequestTooLongError("400: too long")
    )
    planner = Planner(client_of(model, tmp_path), 1000)

    assert isinstance(planner.work(make_plan(window=(ROOT,)), FakeContext()), Planned)
    assert len(model.requests[1].render()) < len(model.requests[0].render())
    result = planner.work(make_plan(attempt=2), FakeContext())
    assert isinstance(result, ReplyUnusable)
    assert "does not fit" in result.reason


def test_a_full_context_shows_less_and_not_more(tmp_path: Path) -> None:
    """The second try has less of the window, and not the half reply."""
    model, context = (
        RecordedModel("## Advice\n\nFu", GOOD_PLAN, stop="model_context_window_exceeded"),
        FakeContext(),
    )
    wide = tuple(replace(ROOT, node=n, source=TASK_SOURCE * 20) for n in range(2, 6))

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(window=wide), context)

    assert isinstance(result, Planned)
    assert () == model.requests[1].turns
    assert len(model.requests[1].render()) < len(model.requests[0].render()) * 3 / 4
    assert len(context.calls) == 2


def test_a_full_context_without_a_window_ends_the_attempt(tmp_path: Path) -> None:
    """Nothing can be left out: one call, one clear reason."""
    model, context = (
        RecordedModel("## Advice\n\nFu", stop="model_context_window_exceeded"),
        FakeContext(),
    )

    result = Planner(client_of(model, tmp_path), 1000).work(make_plan(), context)

    assert isinstance(result, ReplyUnusable)
    assert "cut off" in result.reason
    assert len(context.calls) == 1


def test_a_reply_without_text_names_the_token_limit(tmp_path: Path) -> None:
    """A model spent its tokens before its first word: the reason names the limit."""
    model, context = RecordedModel("", "", stop="max_tokens"), FakeContext()

    result = Coder(client_of(model, tmp_path), 1000).work(write(PLAN), context)

    assert isinstance(result, ReplyUnusable)
    assert "no words before it was cut off" in result.reason


def test_a_long_half_reply_is_shown_in_part(tmp_path: Path) -> None:
    """The second request must not cost more than the first reply."""
    model, context = RecordedModel("x" * 300_000, GOOD_CODE, stop="max_tokens"), FakeContext()

    assert isinstance(Coder(client_of(model, tmp_path), 1000).work(write(PLAN), context), Written)
    assert len(model.requests[1].turns[0].reply) < 70_000
