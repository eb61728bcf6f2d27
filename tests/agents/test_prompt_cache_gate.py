"""One call first, so that a server has the shared beginning cached before the others ask."""

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
    """Wait for what other threads bring about; a test that never sees it fails by its timeout."""
    turn = threading.Event()
    while not condition():
        turn.wait(0.005)


class Entry:
    """A call in a thread of its own, as far as it has come."""

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
    """Three calls with one beginning: one is inside, until it begins; then all are."""
    cache_gate = PromptCacheGate(Clock())
    calls = [Entry(cache_gate) for _ in range(3)]
    until(lambda: any(call.inside.is_set() for call in calls))
    (first,) = [call for call in calls if call.inside.is_set()]
    others = [call for call in calls if call is not first]
    assert not any(call.inside.wait(0.05) for call in others)
    first.begin.set()

    assert all(call.inside.wait(LIMIT_S) for call in others)


def test_when_the_first_fails_the_next_goes_first() -> None:
    """Not all at once: there is still nothing in the cache."""
    cache_gate = PromptCacheGate(Clock())
    calls = [Entry(cache_gate) for _ in range(3)]
    until(lambda: any(call.inside.is_set() for call in calls))
    next(call for call in calls if call.inside.is_set()).fail()

    until(lambda: sum(call.inside.is_set() for call in calls) == 2)
    assert not next(call for call in calls if not call.inside.is_set()).inside.wait(0.05)


def test_another_prefix_does_not_wait() -> None:
    """Another task has another beginning."""
    cache_gate = PromptCacheGate(Clock())
    one, other = Entry(cache_gate, "a"), Entry(cache_gate, "b")

    assert one.inside.wait(LIMIT_S)
    assert other.inside.wait(LIMIT_S)


def test_after_five_silent_minutes_one_goes_first_again() -> None:
    """The entry is gone by then; every call before that keeps it."""
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
    """The first reply says that nothing was cached: from then on all go at once."""
    clock = Clock()
    cache_gate = PromptCacheGate(clock)
    first = Entry(cache_gate)
    first.cached = False
    first.begin.set()
    assert first.begun.wait(LIMIT_S)
    clock.now = 10_000.0

    assert all(Entry(cache_gate).inside.wait(LIMIT_S) for _ in range(3))


def test_over_http_one_call_writes_the_cache_and_the_others_read_it() -> None:
    """Five identical calls at once: the server hears of one, and of the rest once that began."""
    gate, end = threading.Event(), threading.Event()
    heard = 0

    def choose(_: dict[str, object]) -> Answer:
        nonlocal heard
        heard += 1
        if heard == 1:
            return answer(text="one", cache_write_tokens=5000, gate=gate, half_gate=end)
        return answer(text="more", cache_read_tokens=5000)

    request = plan_request(make_plan(), 1000)
    with MessagesServer(choose=choose) as server, ThreadPoolExecutor(5) as pool:
        model = ClaudeModel("claude-opus-4-8", api_key="k", base_url=server.url, at_once=5)
        calls = [pool.submit(model.reply, request) for _ in range(5)]
        until(lambda: len(server.requests) == 1)
        assert not end.wait(0.1)
        alone = len(server.requests)
        gate.set()  # its reply begins, and is not over when the others come
        until(lambda: len(server.requests) == 5)
        end.set()
        cached = sorted(call.result(LIMIT_S).cached_tokens for call in calls)

    assert 1 == alone
    assert [0, 5000, 5000, 5000, 5000] == cached


def test_over_http_a_failed_first_call_lets_the_next_go() -> None:
    """A 529 to the first: its own caller hears of it, the others still come one by one."""
    gate = threading.Event()
    said = [answer(status=529, gate=gate), answer(text="x", cache_write_tokens=5000)]
    request = plan_request(make_plan(), 1000)
    with MessagesServer(*said) as server, ThreadPoolExecutor(3) as pool:
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
