"""One call first, so that a server has the shared prefix cached before the other calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from agent_fakes import make_plan
from messages_server import Answer, MessagesServer, answer

from actors.agents.models.claude import ClaudeModel
from actors.agents.models.model import ModelBusyError
from actors.agents.models.prompt_cache import PromptCacheGate
from actors.agents.requests.prompting import plan_request

LIMIT_S = 20.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def until(condition: Callable[[], bool]) -> None:
    """Wait until other threads make the condition true; a test that waits for ever times out."""
    turn = threading.Event()
    while not condition():
        turn.wait(0.005)


class Entry:
    """A call in a thread of its own, and the state that it has reached."""

    def __init__(self, cache_gate: PromptCacheGate, key: str = "prefix") -> None:
        self.inside = threading.Event()
        self.begin = threading.Event()
        self.end = threading.Event()
        self.begun = threading.Event()
        self.cached = True
        self._thread = threading.Thread(target=self._run, args=(cache_gate, key), daemon=True)
        self._thread.start()

    def _run(self, cache_gate: PromptCacheGate, key: str) -> None:
        with cache_gate.wait_turn(key) as begun:
            self.inside.set()
            self.begin.wait(LIMIT_S)
            if not self.end.is_set():
                begun(self.cached)
                self.begun.set()
            self.end.wait(LIMIT_S)

    def fail(self) -> None:
        self.end.set()
        self.begin.set()
        self._thread.join(LIMIT_S)


def test_the_others_wait_until_the_first_reply_begins() -> None:
    """Of three calls with one prefix, one is inside until its reply begins; then all are."""
    cache_gate = PromptCacheGate(Clock())
    calls = [Entry(cache_gate) for _ in range(3)]
    until(lambda: any(call.inside.is_set() for call in calls))
    (first,) = [call for call in calls if call.inside.is_set()]
    others = [call for call in calls if call is not first]
    assert not any(call.inside.wait(0.05) for call in others)
    first.begin.set()

    assert all(call.inside.wait(LIMIT_S) for call in others)


def test_when_the_first_fails_the_next_goes_first() -> None:
    """Only one goes: there is still nothing in the cache."""
    cache_gate = PromptCacheGate(Clock())
    calls = [Entry(cache_gate) for _ in range(3)]
    until(lambda: any(call.inside.is_set() for call in calls))
    next(call for call in calls if call.inside.is_set()).fail()

    until(lambda: sum(call.inside.is_set() for call in calls) == 2)
    assert not next(call for call in calls if not call.inside.is_set()).inside.wait(0.05)


def test_another_prefix_does_not_wait() -> None:
    """Another task has another prefix."""
    cache_gate = PromptCacheGate(Clock())
    one, other = Entry(cache_gate, "a"), Entry(cache_gate, "b")

    assert one.inside.wait(LIMIT_S)
    assert other.inside.wait(LIMIT_S)


def test_after_five_idle_minutes_one_goes_first_again() -> None:
    """The server has dropped the entry by then; every call before that renews it."""
    clock = Clock()
    cache_gate = PromptCacheGate(clock)
    first = Entry(cache_gate)
    first.begin.set()
    assert first.begun.wait(LIMIT_S)
    clock.now = 299.0
    second = Entry(cache_gate)
    second.begin.set()
    assert second.begun.wait(LIMIT_S)
    clock.now = 598.0
    third, fourth = Entry(cache_gate), Entry(cache_gate)
    assert third.inside.wait(LIMIT_S)
    assert fourth.inside.wait(LIMIT_S)
    clock.now = 1000.0
    late = [Entry(cache_gate), Entry(cache_gate)]
    until(lambda: any(call.inside.is_set() for call in late))
    assert not all(call.inside.wait(0.05) for call in late)


def test_a_server_that_does_not_cache_delays_no_call_twice() -> None:
    """The first reply shows that nothing was cached: from then on no call waits."""
    clock = Clock()
    cache_gate = PromptCacheGate(clock)
    first = Entry(cache_gate)
    first.cached = False
    first.begin.set()
    assert first.begun.wait(LIMIT_S)
    clock.now = 10_000.0

    assert all(Entry(cache_gate).inside.wait(LIMIT_S) for _ in range(3))


def test_over_http_one_call_writes_the_cache_and_the_others_read_it() -> None:
    """Of five identical calls the server gets one, and the others when that reply has begun."""
    gate, end = threading.Event(), threading.Event()
    request_count = 0

    def choose(_: dict[str, object]) -> Answer:
        nonlocal request_count
        request_count += 1
        if request_count == 1:
            return answer(text="one", cache_write_tokens=5000, gate=gate, half_gate=end)
        return answer(text="more", cache_read_tokens=5000)

    request = plan_request(make_plan(), 1000)
    with MessagesServer(choose=choose) as server, ThreadPoolExecutor(5) as pool:
        model = ClaudeModel("claude-opus-4-8", api_key="k", base_url=server.url, at_once=5)
        calls = [pool.submit(model.reply, request) for _ in range(5)]
        until(lambda: len(server.requests) == 1)
        assert not end.wait(0.1)
        alone = len(server.requests)
        gate.set()  # its reply begins, and has not ended when the others come
        until(lambda: len(server.requests) == 5)
        end.set()
        cached = sorted(call.result(LIMIT_S).cached_tokens for call in calls)

    assert 1 == alone
    assert [0, 5000, 5000, 5000, 5000] == cached


def test_over_http_a_failed_first_call_lets_the_next_go() -> None:
    """The first gets a 529: its caller sees that, and the others still come one by one."""
    gate = threading.Event()
    answers = [answer(status=529, gate=gate), answer(text="x", cache_write_tokens=5000)]
    request = plan_request(make_plan(), 1000)
    with MessagesServer(*answers) as server, ThreadPoolExecutor(3) as pool:
        model = ClaudeModel("claude-opus-4-8", api_key="k", base_url=server.url)
        calls = [pool.submit(model.reply, request) for _ in range(3)]
        until(lambda: len(server.requests) == 1)
        gate.set()
        failed = [call for call in calls if call.exception(LIMIT_S)]
        assert len(server.requests) == 3

    assert 1 == len(failed)
    with pytest.raises(ModelBusyError, match="529"):
        failed[0].result()


def test_plain_servers_are_asked_all_at_once() -> None:
    """Without cache marks there is nothing to wait for."""
    gate = threading.Event()
    request = plan_request(make_plan(), 1000)
    with (
        MessagesServer(answer(text="x", gate=gate)) as server,
        ThreadPoolExecutor(3) as pool,
    ):
        model = ClaudeModel("qwen3-coder", api_key="", base_url=server.url)
        calls = [pool.submit(model.reply, request) for _ in range(3)]
        until(lambda: len(server.requests) == 3)
        gate.set()
        assert ["x"] * 3 == [call.result(LIMIT_S).reply for call in calls]
