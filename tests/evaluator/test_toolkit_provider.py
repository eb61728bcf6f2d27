"""When a build waits for headers, and when they are prepared beside it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from actors.evaluator.build.toolkits import ToolkitProvider
from actors.evaluator.fastbuild import FlagSet
from actors.evaluator.ipc.orders import Confinement, PrepareToolkit, ToolkitPrepared
from actors.evaluator.sandbox.child_client import EvaluationCancelledError

PLAIN = 'load_inline(cpp_sources="")'
OTHER = 'load_inline(cpp_sources="", extra_cflags=["-O3"])'


class FakeBuilders:
    """Children that prepare headers once `may_end` is set; what each was asked for."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.may_end.set()
        self.asked: list[tuple[FlagSet, ...]] = []
        self.begun = threading.Semaphore(0)
        self.done = threading.Semaphore(0)

    def spawn(self, *_given: object, **_named: object) -> Any:
        return self

    def ask(self, order: PrepareToolkit, _limit_s: float) -> tuple[ToolkitPrepared, list[int]]:
        self.asked.append(order.families)
        self.begun.release()
        assert self.may_end.wait(20.0)
        return ToolkitPrepared(toolkit="key"), []

    def kill(self) -> None:
        self.done.release()


def provide(
    provider: ToolkitProvider, builders: FakeBuilders, source: str, *, beside: bool = True
) -> str:
    zygote: Any = builders
    return provider.toolkit_for(
        source,
        zygote,
        lambda: Confinement(folder="/x", environment={}),
        lambda: False,
        cuda=False,
        is_background_over=(lambda: False) if beside else None,
    )


@pytest.fixture
def builders() -> FakeBuilders:
    return FakeBuilders()


@pytest.fixture
def provider() -> ToolkitProvider:
    return ToolkitProvider(lambda _line: None)


def test_the_first_build_waits_for_a_toolkit(
    provider: ToolkitProvider, builders: FakeBuilders
) -> None:
    """Without one, torch's own build takes longer than toolkit and build together."""
    assert "key" == provide(provider, builders, PLAIN)
    assert [(FlagSet(),)] == builders.asked
    assert "key" == provide(provider, builders, PLAIN)
    assert 1 == len(builders.asked)


def test_other_flags_are_prepared_beside_the_build(
    provider: ToolkitProvider, builders: FakeBuilders
) -> None:
    """The build does not wait, and a second one with these flags does not ask again."""
    provide(provider, builders, PLAIN)
    builders.may_end.clear()
    assert "key" == provide(provider, builders, OTHER)
    assert "key" == provide(provider, builders, OTHER)
    assert all(builders.begun.acquire(timeout=20.0) for _ in range(2))
    builders.may_end.set()
    assert all(builders.done.acquire(timeout=20.0) for _ in range(2))
    assert [(FlagSet(),), (FlagSet(cflags=("-O3",)),)] == builders.asked


def test_without_cores_for_both_the_build_waits(
    provider: ToolkitProvider, builders: FakeBuilders
) -> None:
    """On two cores the headers would take the build's own time."""
    provide(provider, builders, PLAIN)
    assert "key" == provide(provider, builders, OTHER, beside=False)
    assert [(FlagSet(),), (FlagSet(cflags=("-O3",)),)] == builders.asked


def test_a_closing_judge_waits_for_no_headers(provider: ToolkitProvider) -> None:
    """The child ends with its zygote; the thread that waits for it says nothing."""

    class EndedBuilders(FakeBuilders):
        def ask(self, order: PrepareToolkit, _limit_s: float) -> tuple[ToolkitPrepared, list[int]]:
            self.asked.append(order.families)
            if len(self.asked) > 1:
                raise EvaluationCancelledError
            return ToolkitPrepared(toolkit="key"), []

    builders = EndedBuilders()
    provide(provider, builders, PLAIN)
    assert "key" == provide(provider, builders, OTHER)
    assert all(builders.done.acquire(timeout=20.0) for _ in range(2))
