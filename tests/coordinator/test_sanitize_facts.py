"""Laws of the facts in a message: honest facts pass unchanged, odd ones are dropped."""

from __future__ import annotations

import math

import pytest

from actors.coordinator.gateway.sanitize_facts import sanitized_facts
from protocol.facts import DeviceRates, KernelFacts, ReferenceFacts, TaskCost, VerdictFacts

HONEST = VerdictFacts(
    kernels=(
        KernelFacts(name="row_sum", us=3.2, grid=(132, 1, 1), block=(256, 1, 1), registers=32),
    ),
    median_us=4.5,
    difference=("7 of 1024 elements differ",),
)


def test_honest_facts_pass_unchanged() -> None:
    """An evaluator's facts reach prompts and pages as it sent them."""
    task = ReferenceFacts(
        rates=DeviceRates(copy_gb_s=2900.0, tflops={"tf32": 400.0}),
        cost=TaskCost(input_bytes=1 << 20, flops={"float32": 2e9}),
        rule_lines=("a rule",),
    )

    assert sanitized_facts(HONEST) == HONEST
    assert sanitized_facts(task) == task
    assert sanitized_facts(None) is None


@pytest.mark.parametrize("figure", [math.nan, math.inf, -1.0, 1e40])
def test_a_figure_that_cannot_be_is_no_fact(figure: float) -> None:
    """A NaN, infinite or negative figure never reaches a prompt."""
    assert sanitized_facts(VerdictFacts(median_us=figure)) is None


def test_lines_are_printable_and_bounded() -> None:
    """No escape sequence reaches a terminal, and no megabyte reaches a model."""
    assert sanitized_facts(VerdictFacts(fault_location="a\x1b[2Jb")) == VerdictFacts(
        fault_location="a [2Jb"
    )
    assert sanitized_facts(VerdictFacts(difference=("x" * 100_000,))) is None
