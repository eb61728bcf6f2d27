"""What engineers found wrong, misleading or said twice in requests of real runs on a host."""

from __future__ import annotations

import re

import pytest
from agent_fakes import CANDIDATE, REFERENCE, TASK, make_plan, repair, solve
from msgspec.structs import replace

from actors.agents.requests.ledger import comparisons
from actors.agents.requests.styles import make_request
from protocol.cases import CaseReference, CaseResult, TaskCase
from protocol.facts import (
    OWN_CODE,
    DeviceRates,
    KernelFacts,
    OperationTime,
    ReferenceFacts,
    TaskCost,
    TaskFloor,
    VerdictFacts,
)
from protocol.messages import AgentWork
from protocol.values import AttemptView, Backend, LedgerEntry, Outcome, Plan, VariantResult, Verdict
from protocol.variant_lines import raced_line

VERDICT = Verdict(verdict=Outcome.CORRECT, median_us=6_609.0, reference_us=15_645.0, speedup=2.38)
PARENT = AttemptView(
    node=1, parent=0, advice="Tile.", source=CANDIDATE, verdict=VERDICT, score_us=9_708.0
)
NODE = replace(PARENT, node=2, parent=1, source=f"{CANDIDATE}# more\n", score_us=8_493.0)
LEDGER = tuple(
    LedgerEntry(number=view.node, parent=view.parent or 0, idea=view.advice,
                outcome=Outcome.CORRECT, score_us=view.score_us)
    for view in (PARENT, NODE)
)  # fmt: skip

PLAN = Plan(advice="Fuse both lines.", scaffold=CANDIDATE)


def text_of(work: AgentWork) -> str:
    return make_request(work, 1000, "compact").render()


def test_what_a_node_came_from_is_shown_only_where_it_was_faster() -> None:
    """The change of a slower parent, read backwards, is what the node's idea says already."""
    for kind in (solve, make_plan):
        late = kind(node=NODE, window=(PARENT,), ledger=LEDGER)
        assert "```diff" not in text_of(late)
        worse = text_of(kind(node=replace(NODE, score_us=9_900.0), window=(PARENT,), ledger=LEDGER))
        assert "node 1, the parent of the source above" in worse
        assert "-# more" in worse


def test_a_single_case_is_not_told_beside_its_own_figures() -> None:
    """Shapes and times stand there already; what it changes in the module is told."""
    case = CaseReference(
        name="cpu", weight=1.0, eager_us=23_140.0, inputs="float32[4]", outputs="f"
    )
    known = replace(REFERENCE, cases=(case,))
    task = replace(TASK, cases=(TaskCase(name="cpu", constants={"batch_size": "4"}),))
    result = CaseResult(name="cpu", weight=1.0, median_us=6_609.0, reference_us=1e4, speedup=2.38)
    node = replace(NODE, verdict=replace(VERDICT, cases=(result,)))
    text = text_of(replace(solve(node=node, reference=known), task=task))
    assert "The judge sets batch_size = 4 in the module." in text
    assert "weight" not in text
    both = replace(known, cases=(case, replace(case, name="large")))
    node = replace(node, verdict=replace(VERDICT, cases=(result, replace(result, name="large"))))
    text = text_of(replace(solve(node=node, reference=both), task=task))
    assert "large (weight 1): float32[4] → f; 23.1 ms eager" in text
    assert "case large (weight 1): 2.38×, 6.61 ms against 10 ms eager" in text


def test_operators_take_no_longer_than_the_call() -> None:
    """Beside other programs a profiler measured 17 ms of a call of 4.7 ms."""
    rows = (
        OperationTime(name="aten::cumsum", calls=1, us=10_400.0, share=0.6),
        OperationTime(name="aten::flip", calls=2, us=6_900.0, share=0.39),
        OperationTime(name="aten::to", calls=1, us=1.57, share=0.0001),
    )
    reference = replace(REFERENCE, eager_us=4_715.0, facts=ReferenceFacts(operations=rows))
    line = re.search(r"PyTorch's own call by operator.*", text_of(solve(reference=reference)))
    assert line is not None
    assert line[0].endswith("aten::cumsum 2.83 ms (60%), aten::flip x2 1.84 ms (39%), and 1 more.")
    quick = replace(reference, eager_us=20_000.0)
    assert "aten::cumsum 10.4 ms (60%)" in text_of(solve(reference=quick))


def test_a_profile_of_the_call_alone_is_left_out() -> None:
    """A host's profiler sees torch's operators; the rest is the time that stands above."""
    own = KernelFacts(name=OWN_CODE, us=27_200.0, share=0.99)
    other = KernelFacts(name="aten::copy_", us=900.0, share=0.1)
    for kernels, is_told in (((own,), False), ((own, other), True)):
        facts = VerdictFacts(kernels=kernels, more_kernels=1, median_us=5_500.0)
        node = replace(NODE, verdict=replace(VERDICT, facts=facts))
        assert is_told == (OWN_CODE in text_of(solve(node=node)))


def test_a_time_is_compared_with_bytes_that_may_bound_it() -> None:
    """138 times its bytes says nothing of a product that beats the library's rate."""
    for bytes_us, words in ((61.6, "below the reference's floor"), (2_000.0, "× its bytes")):
        floor = TaskFloor(memory_us=bytes_us, matrix_us=11_400.0)
        reference = replace(REFERENCE, facts=ReferenceFacts(floor=floor))
        assert words in comparisons(8_493.0, reference)[-1]


def test_variants_say_which_of_them_was_timed_in_full() -> None:
    """A rough time of 12 ms beside a full one of 1.2 ms reads as a factor of ten."""
    kept = VariantResult(values={"UNROLL": 4}, verdict=Outcome.CORRECT, median_us=1222.0, speedup=3)
    other = replace(kept, values={"UNROLL": 2}, median_us=12_090.0, speedup=0.3)
    line = raced_line(replace(VERDICT, variants=(kept, other), variant=0))
    expected = "Variants, timed roughly: UNROLL=4 1.22 ms (kept, timed in full); UNROLL=2 12.1 ms"
    assert line == [expected]


def test_a_busy_host_has_one_clock() -> None:
    """The time of a call is that beside PyTorch's own; rates and shares are of the same one."""
    floor = TaskFloor(memory_us=4_000.0)
    cost = TaskCost(input_bytes=1 << 20)
    reference = replace(REFERENCE, facts=ReferenceFacts(floor=floor, cost=cost))
    facts = VerdictFacts(median_us=10_500.0)
    node = replace(NODE, verdict=replace(VERDICT, facts=facts))
    text = text_of(solve(node=node, reference=reference))
    assert "Of its 8.49 ms a call the reference's floor is 4 ms, 47%" in text


def test_a_debugger_reads_no_idea_of_another_design_that_worked() -> None:
    """Without its code it helps nothing; one that failed likewise may show the same obstacle."""
    broken = replace(
        NODE, score_us=None, verdict=Verdict(verdict=Outcome.WRONG, reason="rows 128-255 differ")
    )
    other = replace(PARENT, node=3, parent=1, source="import os\n" * 40, advice="Another design.")
    words = ("Another design.", "Other tries close to this one")
    text = text_of(repair(PLAN, node=broken, window=(other,)))
    assert not any(each in text for each in words)
    text = text_of(repair(PLAN, node=broken, window=(replace(broken, node=3, advice=words[0]),)))
    assert all(each in text for each in words)


@pytest.mark.parametrize(
    ("backend", "others", "has_flag", "has_argument"),
    [
        ("cpp", (), True, False),
        ("cuda", (), True, False),
        ("triton", (), False, True),
        ("cuda", ("triton",), True, True),
    ],
)
def test_variants_and_rates_are_those_of_the_language(
    backend: Backend, others: tuple[Backend, ...], has_flag: bool, has_argument: bool
) -> None:
    """Triton takes no compiler's flags, and launches no clusters."""
    rates = DeviceRates(empty_call_us=0.5, clusters={2: 66})
    reference = replace(REFERENCE, facts=ReferenceFacts(rates=rates))
    task = replace(TASK, backend=backend, other_backends=others)
    text = text_of(replace(solve(reference=reference), task=task))
    assert has_flag == ("-DDEPTH=" in text) == ("of one letter" in text)
    assert has_argument == ('`DEPTH=TUNE["DEPTH"]`' in text)
    assert has_flag == ("blocks in clusters" in text)
    assert ("cuda" == backend) == ("`#pragma unroll` can't name a macro" in text)
