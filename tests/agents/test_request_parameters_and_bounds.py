"""Optional parameters of a request, and how much of an answer is read, over real HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent_fakes import FakeContext, make_plan, write
from messages_server import MessagesServer, answer
from msgspec.structs import replace

from actors.agents.__main__ import make_worker
from actors.agents.coder import Coder
from actors.agents.model_client import ModelClient
from actors.agents.models.claude import ClaudeModel
from actors.agents.models.model import ModelBusyError, ModelDeniedError, ReplyBounds
from actors.agents.planner import Planner
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.prompting import plan_request
from actors.agents.retry import RetryingCaller
from protocol import prices
from protocol.messages import CallsBlocked, ReplyUnusable
from protocol.prices import Price
from protocol.settings import Settings
from protocol.values import Plan, Role

REQUEST = plan_request(make_plan(), 4321)
EFFORT = replace(REQUEST, effort="low")
PRICE = Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)


def claude(server: MessagesServer, name: str = "claude-sonnet-4-6", **more: object) -> ClaudeModel:
    return ClaudeModel(name, api_key="sk-test", base_url=server.url, price=PRICE, **more)  # type: ignore[arg-type]


def client_of(model: ClaudeModel, folder: Path, **wishes: object) -> ModelClient:
    caller = RetryingCaller(sleep=lambda seconds: None, clock=iter(range(10**9)).__next__)
    return ModelClient(model, ReplySpool(folder / "spool"), caller, **wishes)  # type: ignore[arg-type]


def test_an_effort_goes_out_as_the_api_has_it_and_is_recorded() -> None:
    """It is sent in `output_config`, next to the temperature; without an effort it is absent."""
    with MessagesServer(answer(text="x")) as server:
        model = claude(server)
        asked, plain = model.reply(EFFORT), model.reply(REQUEST)
        bodies = [one.body for one in server.requests]

    assert {"effort": "low"} == bodies[0]["output_config"]
    assert "output_config" not in bodies[1]
    assert ("low", "") == (asked.effort, plain.effort)


@pytest.mark.parametrize(
    "message",
    ["This model does not support the effort parameter.", "output_config: Extra inputs are not"],
)
def test_a_refused_effort_is_dropped_once_for_good(message: str) -> None:
    """After one 400 that names it the temperature stays, and the calls record what was sent."""
    with MessagesServer(answer(status=400, message=message), answer(text="x")) as server:
        model = claude(server)
        calls = [model.reply(EFFORT), model.reply(EFFORT)]
        sent = [("output_config" in one.body, "temperature" in one.body) for one in server.requests]

    assert [(True, True), (False, True), (False, True)] == sent
    assert ["", ""] == [call.effort for call in calls]


def test_the_roles_parameters_reach_the_server(tmp_path: Path) -> None:
    """Effort and temperature of a role come from its settings, and replace the method's."""
    with MessagesServer(answer(text="## Cannot\n\nNo.")) as server:
        one = client_of(claude(server), tmp_path, effort="max", temperature=0.5)
        Planner(one, 1000).work(make_plan(), FakeContext())
        (body,) = [one.body for one in server.requests]

    assert (0.5, {"effort": "max"}) == (body["temperature"], body["output_config"])


def test_each_role_has_its_own_parameters_in_the_settings(tmp_path: Path) -> None:
    """`planner_effort` is the planner's alone; a role without one gets the run's."""
    with MessagesServer(answer(text="## Cannot\n\nNo.")) as server:
        wanted = Settings(
            model="m",
            base_url=server.url,
            effort="low",
            planner_effort="high",
            coder_temperature=0.4,
            at_once=7,
        )
        planner = make_worker(Role.PLANNER, wanted, tmp_path)
        planner.work(make_plan(), FakeContext())
        make_worker(Role.CODER, wanted, tmp_path).work(
            write(Plan(advice="", scaffold="")), FakeContext()
        )
        sent = [
            (one.body["temperature"], one.body["output_config"]["effort"])
            for one in server.requests
        ]

    assert [(0.8, "high"), (0.4, "low")] == sent
    assert 7 == planner.credit


PLAIN = {"model", "system", "messages", "max_tokens", "stream"}


def test_a_server_that_takes_text_only_is_detected_once() -> None:
    """It refuses other parameters with an error of its own; from then on it gets text alone."""

    def choose(body: dict[str, object]) -> object:
        if set(body) - PLAIN:
            return answer(status=422, message="1 validation error for Request")
        return answer(text="yes")

    with MessagesServer(choose=choose) as server:  # type: ignore[arg-type]
        model = claude(server, "qwen3-coder")
        calls = [model.reply(EFFORT), model.reply(EFFORT)]
        sent = [set(one.body) for one in server.requests]

    assert ["yes", "yes"] == [call.reply for call in calls]
    assert [PLAIN | {"temperature", "output_config"}, PLAIN, PLAIN] == sent
    assert [(None, "")] * 2 == [(call.temperature, call.effort) for call in calls]


def test_a_refusal_of_plain_text_is_not_retried_for_ever() -> None:
    """If plain text is refused as well, the server's own error reaches the user."""
    with MessagesServer(answer(status=400, message="max_tokens is too large")) as server:
        with pytest.raises(ModelDeniedError, match="max_tokens is too large"):
            claude(server, "qwen3-coder").reply(EFFORT)
        assert len(server.requests) == 2


def test_endless_text_is_cut_and_counted_in_full(tmp_path: Path) -> None:
    """It ends the attempt after one call, in bounded memory, with a reason and the most tokens."""
    context = FakeContext()
    with MessagesServer(answer(flood=True, text="## Advice")) as server:
        model = claude(server, bounds=ReplyBounds(characters=100_000))
        result = Planner(client_of(model, tmp_path), 4321).work(make_plan(), context)
        assert len(server.requests) == 1

    assert isinstance(result, ReplyUnusable)
    assert "characters long" in result.reason
    (call,) = context.calls
    assert ("too_long", 4321) == (call.stop, call.output_tokens)
    assert len(call.reply) <= 100_001
    assert call.usd == pytest.approx((100 * 3 + 4321 * 15) / 1e6)


def test_endless_bytes_without_text_are_not_an_answer() -> None:
    """A server that sends 2 MB of other data is a wrong address, and does not fill the memory."""
    with (
        MessagesServer(answer(raw=b"<p>" + b"x" * 2_000_000)) as server,
        pytest.raises(ModelBusyError, match="--base-url") as caught,
    ):
        claude(server, bounds=ReplyBounds(wire_bytes=1_000_000)).reply(REQUEST)

    assert not caught.value.may_be_paid


def test_an_endless_error_page_is_not_an_answer() -> None:
    """A broken proxy's page is read within the bounds of a reply."""
    page = answer(status=500, message="x" * 50_000)
    with MessagesServer(page) as server, pytest.raises(ModelBusyError):
        claude(server, bounds=ReplyBounds(wire_bytes=10_000)).reply(REQUEST)


def test_a_very_slow_reply_ends_the_attempt(tmp_path: Path) -> None:
    """A letter at long intervals, past the bound on time: one recorded call, and no second one."""
    context = FakeContext()
    with MessagesServer(answer(text="z" * 400, pause_s=0.02)) as server:
        model = claude(server, bounds=ReplyBounds(seconds=0.1))
        result = Coder(client_of(model, tmp_path), 99).work(
            write(Plan(advice="", scaffold="")), context
        )
        assert len(server.requests) == 1

    assert isinstance(result, ReplyUnusable)
    assert "to answer" in result.reason
    assert ["too_slow"] == [call.stop for call in context.calls]


@pytest.mark.parametrize(
    ("reply", "paid"),
    [
        (answer(status=429), False),
        (answer(status=500), False),
        (answer(status=529), False),
        (answer(raw=b"<html>It works!</html>"), False),
        (answer(raw=b'{"content": []}', headers={"content-type": "application/json"}), True),
        (answer(text="some words", cut=True), True),
        (answer(text="some words", error_in_stream="overloaded_error"), True),
    ],
)
def test_what_failed_after_it_began_may_have_been_paid_for(reply: object, paid: bool) -> None:
    """A reply that broke off counts, and a reply that was not streamed; an error page does not."""
    with MessagesServer(reply) as server, pytest.raises(ModelBusyError) as caught:  # type: ignore[arg-type]
        claude(server).reply(REQUEST)

    assert paid == caught.value.may_be_paid


@pytest.mark.parametrize(
    "accident", [{"cut": True}, {"error_in_stream": "overloaded_error"}], ids=["cut", "error"]
)
def test_a_broken_call_costs_the_prompt_that_was_counted(
    tmp_path: Path, accident: dict[str, object]
) -> None:
    """It costs the prompt as the server counted it, and all of max_tokens: far less than a token
    for each byte, and never less than the bill."""
    context = FakeContext()
    counts = {"input_tokens": 700, "cache_read_tokens": 2000, "cache_write_tokens": 100}
    broken = answer(text="some words", **counts, **accident)
    with MessagesServer(broken, answer(text="## Cannot\n\nNo.")) as server:
        Planner(client_of(claude(server), tmp_path), 4321).work(make_plan(), context)

    (lost,) = context.lost_calls
    assert lost is not None
    counted = (lost.input_tokens, lost.cached_tokens, lost.cache_write_tokens, lost.output_tokens)
    assert (2800, 2000, 100, 4321) == counted
    assert lost.usd == pytest.approx((700 * 3 + 2000 * 0.3 + 100 * 3.75 + 4321 * 15) / 1e6)
    assert ("", "", "lost") == (lost.request, lost.reply, lost.stop)


def test_an_uncounted_prompt_costs_its_maximum(tmp_path: Path) -> None:
    """Proxies that count at the end only send 0 at the beginning: that is not a count."""
    context = FakeContext()
    broken = answer(text="some words", input_tokens=0, cut=True)
    with MessagesServer(broken, answer(text="## Cannot\n\nNo.")) as server:
        Planner(client_of(claude(server), tmp_path), 4321).work(make_plan(), context)

    assert [None] == context.lost_calls


def test_counts_only_grow() -> None:
    """A server that ends with zeros for a prompt that it had counted does not lower the bill."""
    reply = answer(text="x", input_tokens=700, output_tokens=9, last_usage={"input_tokens": 0})
    late = answer(text="x", input_tokens=0, output_tokens=9, last_usage={"input_tokens": 800})
    with MessagesServer(reply, late) as server:
        calls = [claude(server).reply(REQUEST) for _ in range(2)]

    assert [(700, 9), (800, 9)] == [(call.input_tokens, call.output_tokens) for call in calls]


@pytest.mark.parametrize("usage", [None, "absent"])
def test_a_server_that_counts_nothing_is_understood_and_costs_its_most(usage: object) -> None:
    """A compatible server may leave the usage out: its reply counts, at the reserved cost."""
    start: dict[str, object] = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
    start |= {"content": [], "stop_reason": None} | ({} if usage else {"usage": usage})
    delta = {"type": "text_delta", "text": "words"}  # and it announced no block for them
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    raw = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    with MessagesServer(answer(raw=raw.encode())) as server:
        model = claude(server, "qwen3-coder")
        call = model.reply(REQUEST)

    assert ("words", "end_turn") == (call.reply, call.stop)
    assert call.usd == model.max_cost_usd(REQUEST)


def test_money_is_reserved_before_each_call(tmp_path: Path) -> None:
    """A 429 keeps its reservation; a broken reply is a lost call, and the next call reserves."""
    context = FakeContext()
    reply = [answer(status=429), answer(text="so", cut=True), answer(text="## Cannot\n\nNo.")]
    with MessagesServer(*reply) as server:
        model = claude(server)
        Planner(client_of(model, tmp_path), 4321).work(make_plan(), context)
        assert len(server.requests) == 3

    assert [model.max_cost_usd(REQUEST)] * 2 == context.reserved
    assert 1 == context.lost


def test_without_a_reservation_no_call_is_made(tmp_path: Path) -> None:
    """If the money is refused, the server gets no request."""
    context = FakeContext()
    context.reserve_budget = lambda model, request, usd: False  # type: ignore[method-assign]
    with MessagesServer(answer(text="x")) as server:
        Planner(client_of(claude(server), tmp_path), 4321).work(make_plan(), context)
        assert [] == server.requests
    assert [] == context.calls


def test_the_reserved_cost_covers_any_count() -> None:
    """No tokenizer makes more tokens than bytes; the most expensive kind of input is assumed."""
    with MessagesServer(answer(text="x")) as server:
        most = claude(server).max_cost_usd(REQUEST)

    size = len(REQUEST.render().encode())
    worst = prices.TokenCounts(cache_write=size, output=4321)
    assert most is not None
    assert PRICE.cost_usd(worst) <= most <= PRICE.cost_usd(worst) + 0.01


def test_a_wrong_key_blocks_and_nothing_is_lost(tmp_path: Path) -> None:
    """A refused key costs nothing, so no call counts as lost."""
    context = FakeContext()
    with MessagesServer(answer(status=401, error="authentication_error")) as server:
        result = Planner(client_of(claude(server), tmp_path), 4321).work(make_plan(), context)

    assert isinstance(result, CallsBlocked)
    assert (1, 0) == (len(context.reserved), context.lost)


def test_an_hours_cache_write_costs_twice_the_input() -> None:
    """Cache writes for five minutes and for an hour are separate in the usage and in price."""
    tokens = prices.TokenCounts(read=10, cache_write=1000, cache_write_hour=2000, cache_read=300)

    assert 3310 == tokens.prompt
    assert PRICE.cost_usd(tokens) == pytest.approx(
        (10 * 3 + 1000 * 3.75 + 2000 * 6 + 300 * 0.3) / 1e6
    )


def test_a_whole_message_needs_no_stop_reason() -> None:
    """A compatible server that sends `message_stop` without a stop reason is not asked again."""
    with MessagesServer(answer(text="all of it", stop=None)) as server:
        call = claude(server, "qwen3-coder").reply(REQUEST)

    assert ("all of it", "end_turn") == (call.reply, call.stop)
