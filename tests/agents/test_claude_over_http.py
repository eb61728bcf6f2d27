"""Claude, asked through the SDK, against a real server that answers like the Messages API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import msgspec
import pytest
from agent_fakes import GOOD_PLAN, FakeContext, make_plan
from messages_server import MessagesServer, answer

from actors.agents.__main__ import make_worker
from actors.agents.model_client import ModelClient
from actors.agents.models.claude import ClaudeModel
from actors.agents.models.model import ModelBusyError, ModelDeniedError, RequestTooLongError
from actors.agents.models.registry import make_model
from actors.agents.planner import Planner
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.prompting import plan_request
from actors.agents.retry import RetryingCaller
from actors.supervisor.cli.run_settings import DEFAULT_CLAUDE_MODEL
from protocol import prices as pricing
from protocol.messages import CallsBlocked, Planned, ReplyUnusable
from protocol.settings import Settings
from protocol.values import Call, Role

REQUEST = plan_request(make_plan(), 4321)


def claude(server: MessagesServer, name: str = DEFAULT_CLAUDE_MODEL) -> ClaudeModel:
    price = pricing.price_of(name, pricing.listed_prices())
    model = make_model(name, base_url=server.url, api_key="sk-test", price=price)
    assert isinstance(model, ClaudeModel)
    return model


def planner(server: MessagesServer, folder: Path) -> Planner:
    caller = RetryingCaller(sleep=lambda seconds: None, clock=iter(range(10**9)).__next__)
    return Planner(ModelClient(claude(server), ReplySpool(folder / "spool"), caller), 4321)


def test_a_streamed_reply_becomes_a_call() -> None:
    """Text, stop reason, tokens of each kind and dollars to the last digit."""
    reply = answer(
        text="## Advice\n\nHalf and half.",
        input_tokens=1000,
        cache_write_tokens=2000,
        cache_read_tokens=4000,
        output_tokens=500,
    )
    with MessagesServer(reply) as server:
        call = claude(server).reply(REQUEST)

    assert call.reply == "## Advice\n\nHalf and half."
    assert (call.model, call.stop, call.temperature) == ("claude-sonnet-4-6", "end_turn", 0.8)
    assert (call.input_tokens, call.cached_tokens, call.output_tokens) == (7000, 4000, 500)
    assert call.usd == pytest.approx((1000 * 3 + 2000 * 3.75 + 4000 * 0.3 + 500 * 15) / 1e6)
    assert call.request == REQUEST.render()


def test_what_is_sent() -> None:
    """A streamed request has the bearer key, the temperature, and a cache mark that ends the part
    that a whole task shares."""
    with MessagesServer(answer(text="x")) as server:
        claude(server).reply(REQUEST)
        (asked,) = server.requests

    assert asked.path == "/v1/messages"
    assert asked.headers["Authorization"] == "Bearer sk-test"
    body = asked.body
    assert (body["stream"], body["max_tokens"], body["temperature"]) == (True, 4321, 0.8)
    assert body["system"] == REQUEST.system
    (message,) = body["messages"]
    stable, varying = message["content"]
    assert stable["text"] == REQUEST.stable_text
    assert stable["cache_control"] == {"type": "ephemeral"}
    assert varying == {"type": "text", "text": REQUEST.varying_text}


def test_a_compatible_server_gets_plain_text_only() -> None:
    """A model other than Claude is asked with system, messages, max_tokens, stream and text; its
    calls have no known price."""
    with MessagesServer(answer(text="x")) as server:
        call = claude(server, "qwen3-coder").reply(REQUEST)
        (asked,) = server.requests

    assert set(asked.body) == {
        "model", "system", "messages", "max_tokens", "stream", "temperature"
    }  # fmt: skip
    assert asked.body["messages"] == [
        {"role": "user", "content": f"{REQUEST.stable_text}\n\n{REQUEST.varying_text}"}
    ]
    assert call.usd is None


def test_the_second_try_carries_the_first() -> None:
    """The model sees its own reply and the problem with it, after the same prefix."""
    with MessagesServer(answer(text="x")) as server:
        claude(server).reply(REQUEST.with_problem("my words", "no code"))
        messages = server.requests[0].body["messages"]

    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"][0]["text"] == REQUEST.stable_text
    assert [message["content"] for message in messages[1:]] == ["my words", "no code"]


def test_a_refused_temperature_is_dropped_once_for_good() -> None:
    """After one 400 that names it, calls go without a temperature, and are recorded so."""
    refusal = answer(
        status=400,
        error="invalid_request_error",
        message="`temperature` is deprecated for this model",
    )
    with MessagesServer(refusal, answer(text="x")) as server:
        model = claude(server)
        calls = [model.reply(REQUEST), model.reply(REQUEST)]

    sent = ["temperature" in asked.body for asked in server.requests]
    assert sent == [True, False, False]
    assert [call.temperature for call in calls] == [None, None]


def test_models_known_to_refuse_a_temperature_are_not_asked() -> None:
    """A newer Claude gets no temperature, and no call fails."""
    with MessagesServer(answer(text="x")) as server:
        call = claude(server, "claude-opus-4-8").reply(REQUEST)

    assert "temperature" not in server.requests[0].body
    assert call.temperature is None


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (answer(status=401, error="authentication_error"), ModelDeniedError, "ANTHROPIC_API_KEY"),
        (answer(status=403, error="permission_error"), ModelDeniedError, "ANTHROPIC_API_KEY"),
        (
            answer(status=400, message="Your credit balance is too low"),
            ModelDeniedError,
            "no credit",
        ),
        (answer(status=402, error="billing_error"), ModelDeniedError, "no credit"),
        (
            answer(status=404, error="not_found_error"),
            ModelDeniedError,
            "knows no claude-sonnet-4-6",
        ),
        (answer(status=422, message="odd field"), ModelDeniedError, "refuses our request"),
        (answer(status=400, message="prompt is too long: 9 > 8"), RequestTooLongError, "too long"),
        (
            answer(status=400, message="input length and `max_tokens` exceed context limit: 9 > 8"),
            RequestTooLongError,
            "context limit",
        ),
        (answer(status=413, error="request_too_large"), RequestTooLongError, "413"),
        (answer(status=429, headers={"retry-after": "7"}), ModelBusyError, "429"),
        (answer(status=500), ModelBusyError, "500"),
        (answer(status=529, error="overloaded_error"), ModelBusyError, "529"),
        (
            answer(text="some words", error_in_stream="overloaded_error"),
            ModelBusyError,
            "overloaded",
        ),
        (answer(text="some words", cut=True), ModelBusyError, "cut off"),
        (answer(raw=b"<html>It works!</html>"), ModelBusyError, "--base-url"),
        (answer(raw=b"event: message_start\ndata: {nonsense\n\n"), ModelBusyError, ""),
        (answer(raw=b""), ModelBusyError, "--base-url"),
        (
            answer(raw=b"no gzip", headers={"content-encoding": "gzip"}),
            ModelBusyError,
            "--base-url",
        ),
    ],
)
def test_every_failure_has_its_meaning(reply: object, kind: type[Exception], text: str) -> None:
    """A failure that passes, one that the user must correct, one of length: each has one line, and
    the SDK asks only once."""
    with MessagesServer(reply) as server:  # type: ignore[arg-type]
        with pytest.raises(kind) as caught:
            claude(server).reply(REQUEST)

        assert len(server.requests) == 1
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_retry_after_is_read() -> None:
    """The wait that the server asks for reaches the caller."""
    with (
        MessagesServer(answer(status=429, headers={"retry-after": "7"})) as server,
        pytest.raises(ModelBusyError) as caught,
    ):
        claude(server).reply(REQUEST)

    assert caught.value.retry_after_s == 7.0


def test_retry_after_may_be_a_date() -> None:
    """Some proxies send a date; for a date in the past there is no wait."""
    for ahead, least, most in ((40, 30.0, 40.0), (-40, 0.0, 0.0)):
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True)
        reply = answer(status=429, headers={"retry-after": date})
        with MessagesServer(reply) as server, pytest.raises(ModelBusyError) as caught:
            claude(server).reply(REQUEST)

        assert least <= caught.value.retry_after_s <= most


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_a_key_or_a_token_is_sent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either is enough for the command to choose Claude, so either has to reach the server, without
    a newline that was copied with it."""
    for each in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "sk-mine\n")
    with MessagesServer(answer(text=GOOD_PLAN)) as server:
        settings = Settings(model=DEFAULT_CLAUDE_MODEL, base_url=server.url)
        make_worker(Role.PLANNER, settings, tmp_path).work(make_plan(), FakeContext())

        assert "Bearer sk-mine" == server.requests[0].headers["Authorization"]


def test_halves_of_a_character_are_joined_and_kept(tmp_path: Path) -> None:
    """A server may cut a character between two events: the paid reply can still be stored."""
    context = FakeContext()
    with MessagesServer(answer(text=f"\ud83d\ude00 \udcff\n\n{GOOD_PLAN}")) as server:
        result = planner(server, tmp_path).work(make_plan(), context)

    assert isinstance(result, Planned)
    assert context.calls[0].reply.startswith("\U0001f600 \ufffd\n")


def test_invalid_counts_do_not_lower_the_bill() -> None:
    """A careless server's usage neither lowers the bill nor makes a call that can't be stored: a
    prompt with 0 tokens was not counted, and costs its maximum."""
    odd = answer(text="x", stop=5, input_tokens=-900, output_tokens=-70)
    with MessagesServer(odd) as server:
        call = claude(server).reply(REQUEST)

    price = pricing.price_of(DEFAULT_CLAUDE_MODEL, pricing.listed_prices())
    assert price is not None
    assert ("5", 0, 0) == (call.stop, call.input_tokens, call.output_tokens)
    assert call.usd == price.max_cost_usd(len(REQUEST.render().encode()), 0)
    assert call == msgspec.msgpack.decode(msgspec.msgpack.encode(call), type=Call)


def test_an_absent_server_is_busy() -> None:
    """A server that is down, or not up yet, is waited for."""
    with MessagesServer(answer()) as server:
        model = claude(server)

    with pytest.raises(ModelBusyError, match="no connection"):
        model.reply(REQUEST)


def test_without_a_key_nothing_is_asked() -> None:
    """One line names the variable to set; no request leaves the machine."""
    with pytest.raises(ModelDeniedError, match="ANTHROPIC_API_KEY is not set"):
        make_model(DEFAULT_CLAUDE_MODEL).reply(REQUEST)


def test_rate_limit_then_answer(tmp_path: Path) -> None:
    """The whole agent: after two failures the plan arrives, and one call is stored."""
    context = FakeContext()
    with MessagesServer(answer(status=429), answer(status=529), answer(text=GOOD_PLAN)) as server:
        result = planner(server, tmp_path).work(make_plan(), context)

    assert isinstance(result, Planned)
    assert len(context.calls) == 1
    assert sum(text.startswith("waiting for the model") for text in context.activities) == 2


def test_a_refusal_is_a_value(tmp_path: Path) -> None:
    """The attempt ends with the reason, the call is stored and paid for."""
    context = FakeContext()
    with MessagesServer(answer(text="", stop="refusal")) as server:
        result = planner(server, tmp_path).work(make_plan(), context)

    assert isinstance(result, ReplyUnusable)
    assert result.reason == "the model refused to answer"
    assert [call.stop for call in context.calls] == ["refusal"]


def test_a_cut_reply_is_asked_again(tmp_path: Path) -> None:
    """max_tokens in the middle of a plan costs one more call."""
    context = FakeContext()
    cut = answer(text=GOOD_PLAN[:60], stop="max_tokens", output_tokens=4321)
    with MessagesServer(cut, answer(text=GOOD_PLAN)) as server:
        result = planner(server, tmp_path).work(make_plan(), context)
        second = server.requests[1].body["messages"][2]["content"]

    assert isinstance(result, Planned)
    assert "cut off after 4321 tokens" in second
    assert [call.stop for call in context.calls] == ["max_tokens", "end_turn"]


def test_a_wrong_key_blocks(tmp_path: Path) -> None:
    """The run pauses with one line for the user."""
    with MessagesServer(answer(status=401, error="authentication_error")) as server:
        result = planner(server, tmp_path).work(make_plan(), FakeContext())

    assert isinstance(result, CallsBlocked)
    assert "401" in result.reason


def test_five_megabytes_of_prose_end_the_attempt(tmp_path: Path) -> None:
    """They are stored and refused, and not sent back to the model at a cost."""
    context = FakeContext()
    with MessagesServer(answer(text="Let us think. " * 360_000)) as server:
        result = planner(server, tmp_path).work(make_plan(), context)

        assert len(server.requests) == 1
    assert isinstance(result, ReplyUnusable)
    assert "characters long" in result.reason
    assert len(result.reply) <= 20_000


def test_prices_know_dates_and_long_prompts() -> None:
    """A dated name has the undated price; a long prompt has its own price where one is listed."""
    prices = pricing.listed_prices()
    assert pricing.price_of("claude-haiku-4-5-20251001", prices) == prices["claude-haiku-4-5"]
    assert pricing.price_of("qwen3-coder", prices) is None
    haiku = prices["claude-haiku-5-5"]
    assert haiku.cost_usd(pricing.TokenCounts(read=100_000)) == pytest.approx(0.01)
    assert haiku.cost_usd(pricing.TokenCounts(read=60_000, cache_read=60_000)) == pytest.approx(
        0.033
    )


def test_a_typo_in_prices_is_named() -> None:
    """A misspelt key is an error that names it, not a price of 0."""
    with pytest.raises(ValueError, match="ouput"):
        pricing.parse("[m]\ninput = 1.0\nouput = 2.0\ncache_read = 0.1\ncache_write = 1.0\n")


@pytest.mark.parametrize(
    "row", ["long_tokens = 9\n", "[m.long]\ninput = 2.0\noutput = 2.0\n", "long_tokens = 0\n"]
)
def test_a_price_of_long_prompts_is_whole(row: str) -> None:
    """Half of it would charge every prompt as a long one, or none."""
    with pytest.raises(ValueError, match="long_tokens"):
        pricing.parse(f"[m]\ninput = 1.0\noutput = 2.0\n{row}")
