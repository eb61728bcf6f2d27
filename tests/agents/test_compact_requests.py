"""The compact requests: their size, what they show, and that answers in their form are read."""

from __future__ import annotations

import re

import pytest
from agent_fakes import (
    CANDIDATE,
    REFERENCE,
    ROOT,
    TASK,
    TASK_SOURCE,
    make_plan,
    repair,
    solve,
    write,
)
from msgspec.structs import replace

from actors.agents.models.replay_key import without_measurements
from actors.agents.planner import read_plan
from actors.agents.replies.placed_anchors import marked_spans
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import parse_reply
from actors.agents.requests.ledger import LEAST_IDEA, STANCES, fitting_stances, one_line
from actors.agents.requests.request import Request
from actors.agents.requests.styles import make_request
from actors.agents.solo_agent import read_solution
from actors.evaluator.facts.judge_rules import rule_lines
from actors.evaluator.ipc.referee_orders import OutputTolerance, TaskDescribed
from protocol.facts import (
    DeviceRates,
    OperationTime,
    ReferenceFacts,
    TaskCost,
    TaskFloor,
    UnitShare,
    VerdictFacts,
)
from protocol.layouts import Leaf, Nest
from protocol.messages import AgentWork
from protocol.release import Judged
from protocol.settings import JudgeRules
from protocol.values import (
    BACKENDS,
    AttemptView,
    Device,
    LedgerEntry,
    Outcome,
    Plan,
    Reference,
    Task,
    Verdict,
)

MAX_FIXED_BYTES = 5 * 1024  # of system, form and example of one request


def plan_for(source: str, places: str) -> Plan:
    """Return the plan that a planner's answer makes."""
    reply = parse_reply(f"## Advice\n\nFuse both lines.\n\n## Anchors\n\n- {places}\n")
    plan = read_plan(reply, source)
    assert isinstance(plan, Plan)
    return plan


PLAN = plan_for(TASK_SOURCE, "lines 12-13: fuse")
FAST = AttemptView(
    node=4,
    parent=0,
    advice="Do it in place of a copy. " + "And so on. " * 40,
    source=CANDIDATE,
    verdict=Verdict(
        verdict=Outcome.CORRECT,
        median_us=12.0,
        speedup=3.33,
        speedup_ci95=(3.3, 3.36),
        profile={"bandwidth": "412 GB/s, 12 %", "bound": "memory", "labels": "library_only"},
    ),
    score_us=12.0,
)
NEAR = replace(FAST, node=6, parent=4, source=CANDIDATE.replace("0.5f", "half"))
WRONG = replace(
    FAST, node=5, verdict=Verdict(verdict=Outcome.WRONG, stage="check", reason="Row 3 differs")
)
LEDGER = (
    LedgerEntry(number=1, parent=0, idea="Fuse.", outcome=Outcome.CORRECT, score_us=20.0),
    LedgerEntry(number=2, parent=0, idea="Tile.", outcome=Outcome.WRONG, reason="Row 3 differs"),
    LedgerEntry(number=3, parent=1, idea="Unroll.", stage="write"),
)
PLANNING = LedgerEntry(number=4, parent=1, stage="plan")


def compact(work: AgentWork) -> Request:
    return make_request(work, 1000, "compact")


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_said_to_every_model_is_short(backend: str) -> None:
    """System message and role's part of a first request are at most 5 KiB for every role."""
    task = replace(TASK, backend=backend)
    for work in (make_plan(), write(PLAN), repair(PLAN), solve()):
        request = compact(replace(work, task=task))
        fixed = [s.text for s in request.sections if s.kind == "role"]
        assert len("".join([request.system, *fixed]).encode()) <= MAX_FIXED_BYTES


def test_agents_of_a_mixed_run_choose_the_language() -> None:
    """The notes of both languages are shown, and a plan names its own."""
    task = replace(TASK, backend="cuda", other_backends=("triton",))
    text = compact(replace(make_plan(), task=task)).system

    for words in ("`cuda_sources`", "`@triton.jit`", "a plan names it"):
        assert words in text


def test_the_module_is_shown_once() -> None:
    """Its source is in the task's part alone, with line numbers, also where it is the node."""
    for work in (make_plan(), write(PLAN), solve()):
        assert compact(work).render().count("y = x + 1.0") == 1
    assert "12\t        y = x + 1.0" in compact(make_plan()).stable_text
    assert "span 1 = lines 12-13" in compact(write(PLAN)).varying_text


def test_the_prefix_is_the_same_for_a_whole_task() -> None:
    """Another role, strategy, attempt, node, window or ledger changes no byte before the node."""
    later = {"attempt": 9, "node": FAST, "window": (WRONG,), "ledger": LEDGER, "best": NEAR}
    works = (make_plan(), make_plan(**later), write(PLAN), repair(PLAN), solve(), solve(**later))
    requests = [compact(work) for work in works]
    assert 1 == len({(request.system, request.stable_text) for request in requests})
    assert all("{{" not in request.render() for request in requests)


def test_a_coder_sees_its_spans_in_the_nodes_source() -> None:
    """Line numbers are the source's own; the marks are lines without a number."""
    plan = plan_for(CANDIDATE, "lines 6-8")
    text = compact(write(plan, node=FAST)).varying_text

    first = '5\textern "C" void half(const float* x, float* y, long n) {\n--- span 1\n6\t    for'
    assert first in text
    assert "8\t    }\n--- end of span 1\n9\t}" in text
    assert ((6, 8),) == marked_spans(plan, CANDIDATE)


def test_a_coder_reads_what_the_plan_says_at_each_place() -> None:
    """Planners are asked for a note at each place; in Python and inside a string alike."""
    at_root = plan_for(TASK_SOURCE, "lines 12-13: halve once, after the sum")
    assert "span 1 = lines 12-13 (halve once, after the sum)" in (
        compact(write(at_root)).varying_text
    )
    in_string = plan_for(CANDIDATE, "lines 6-8: four floats a thread")
    text = compact(write(in_string, node=FAST)).varying_text
    assert "Marked: span 1 = lines 6-8 (four floats a thread)." in text


def test_a_plan_is_one_line_where_its_code_is_shown() -> None:
    """The code says what the plan became; of the plan its first sentence is left."""
    text = compact(make_plan(node=FAST)).varying_text

    assert "Its idea: Do it in place of a copy.\n" in text
    assert "And so on" not in text


def test_a_result_compares_with_every_baseline_and_names_no_guessed_bound() -> None:
    """Times are multiples of eager and of torch.compile; shares of made-up peaks are left out."""
    work = make_plan(node=FAST)
    work = replace(work, reference=replace(work.reference, compile_us=15.0))
    text = compact(work).varying_text

    assert "Correct: 12.0 µs a call, 3.33 × eager, 1.25 × torch.compile" in text
    assert "- Remark on its text, library_only: it has no kernel of its own." in text
    assert "not sure" not in text
    rough = replace(FAST.verdict, speedup=3.3, speedup_ci95=(2.1, 4.9))
    unsure = compact(make_plan(node=replace(FAST, verdict=rough))).varying_text
    assert "not sure: with 95 % between 2.1 and 4.9 × eager" in unsure
    lost = replace(FAST.verdict, speedup=3.3, speedup_ci95=(0.6, 544.0))
    unsure = compact(make_plan(node=replace(FAST, verdict=lost))).varying_text
    assert "not sure: other programs took the machine" in unsure
    assert "412" not in text
    assert "bound" not in text
    assert "Wrong: Row 3 differs" in compact(make_plan(node=WRONG)).varying_text


def test_facts_are_shown_where_they_are_known() -> None:
    """The judge's lines about task and attempt are in the request, and times are compared with
    the floor of the reference's own work."""
    reference = replace(
        make_plan().reference,
        facts=ReferenceFacts(floor=TaskFloor(memory_us=4.0), rule_lines=("precision: float32",)),
    )
    sentences = ("88 % of the stalls wait for memory", "- loads of float2")
    seen = VerdictFacts(profile_sentences=sentences)
    node = replace(FAST, verdict=replace(FAST.verdict, facts=seen))
    request = compact(make_plan(node=node, reference=reference, ledger=LEDGER))

    assert "- precision: float32" in request.stable_text
    assert "\n- 88 % of the stalls wait for memory\n  - loads of float2" in request.varying_text
    assert "3.33 × eager, 3 × the reference's floor" in request.varying_text
    assert "Fuse. | 20.0 µs, 5 × floor, 2 × parent" in request.varying_text
    split = ReferenceFacts(floor=TaskFloor(memory_us=4.0, matrix_us=90.0))
    faster = replace(reference, facts=split)  # by products of a lower precision
    text = compact(make_plan(node=node, reference=faster, ledger=LEDGER)).varying_text
    assert "3.33 × eager, below the reference's floor, 3 × its bytes" in text
    cost = TaskCost(flops={"float32": 2e9})
    rates = DeviceRates(tflops={"float32": 20.0, "bfloat16": 600.0})
    near = replace(faster, facts=replace(split, cost=cost, rates=rates))
    text = compact(make_plan(node=node, reference=near, ledger=LEDGER)).varying_text
    assert "below the reference's floor, 1.2 × its split products" in text


def test_rules_are_stated_once() -> None:
    """Of the judge's lines those stay that are the task's own; the others are in the system
    message."""
    described = TaskDescribed(
        tolerances=(OutputTolerance(dtype="float32", allowed=1e-4, error_factor=8.0),)
    )
    for rules, words in ((JudgeRules(), ""), (JudgeRules(precision="tf32"), "--precision tf32")):
        lines = rule_lines(described, "cuda", ("shifted",), 3, rules)
        facts = ReferenceFacts(rule_lines=lines)
        reference = replace(make_plan().reference, facts=facts)
        text = compact(make_plan(reference=reference)).stable_text

        assert "- Tolerance of the output, float32" in text
        assert "TF32 in the reference" not in text  # an addition has no products
        product = replace(TASK, source=TASK_SOURCE.replace("y / 2.0", "y @ y"))
        of_product = compact(replace(make_plan(reference=reference), task=product)).stable_text
        assert "- TF32 in the reference" in of_product
        assert "Timed:" not in text
        assert "Checks:" not in text
        assert words in text
        assert ("Precision is judged" in text) == bool(words)


def test_rules_follow_from_the_task_and_its_device() -> None:
    """Of products for float32 tasks with some; of float8 and wgmma for cards that have them."""
    module = replace(TASK, backend="cuda", device="cuda")
    product = replace(module, source=TASK_SOURCE.replace("y / 2.0", "y @ y"))

    def request(
        task: Task,
        capability: str,
        inputs: str = "float32[8, 8]",
        facts: ReferenceFacts | None = None,
    ) -> str:
        device = Device(kind="cuda", name="a card", facts={"compute capability": capability})
        reference = replace(REFERENCE, device=device, inputs=inputs, facts=facts)
        root = replace(ROOT, source=task.source)
        work = solve(reference=reference, node=root, root=root)
        return compact(replace(work, task=task)).render()

    coarse = ReferenceFacts(cost=TaskCost(flops={"tf32": 1e9}))
    for text, told in (
        (request(product, "9.0"), (True, True, True)),
        (request(product, "8.9"), (True, True, False)),
        (request(product, "8.0"), (True, False, False)),
        (request(product, "9.0", "float16[8, 8]"), (False, False, True)),
        (request(module, "9.0"), (False, False, False)),
        (request(product, "9.0", facts=coarse), (True, False, True)),
    ):
        words = ("in bfloat16; three products", "in e4m3, at twice", "with setmaxnreg")
        assert told == tuple(one in text for one in words)
    using = replace(FAST, source=f"{CANDIDATE}# wgmma.mma_async")
    late = solve(node=using, reference=replace(REFERENCE, device=Device(
        kind="cuda", name="a card", facts={"compute capability": "9.0"})))  # fmt: skip
    assert "with setmaxnreg" in compact(replace(late, task=module)).render()


def test_products_are_known_by_what_was_counted() -> None:
    """A task whose names show none may have products, and the other way round.

    On a host, lower precisions are told of where it has units for them.
    """
    encoder = replace(TASK, source=TASK_SOURCE.replace("y / 2.0", "torch.cdist(y, y)"))
    product = replace(TASK, source=TASK_SOURCE.replace("y / 2.0", "y @ y"))
    words = "three products"
    for task, cost, is_told in (
        (encoder, TaskCost(flops={"float32": 1e9}), True),
        (encoder, TaskCost(uncounted=("aten::_thnn_fused_lstm_cell",)), True),
        (TASK, TaskCost(), False),
        (product, TaskCost(), False),
        (product, None, True),
    ):
        reference = replace(REFERENCE, inputs="float32[8, 8]", facts=ReferenceFacts(cost=cost))
        for vector, has_units in (("512 bits, avx512f", False), ("avx512f amx_tile", True)):
            facts = {"vector": vector}
            device = replace(REFERENCE.device, facts=facts)
            work = solve(reference=replace(reference, device=device))
            told = words in compact(replace(work, task=task)).system
            assert (is_told and has_units) == told


def test_a_planner_on_hopper_is_told_of_the_limits_of_wgmma() -> None:
    """It chooses tiles and threads."""
    device = Device(kind="cuda", name="a card", facts={"compute capability": "9.0"})
    source = TASK_SOURCE.replace("y / 2.0", "y @ y")
    task = replace(TASK, backend="cuda", device="cuda", source=source)
    root = replace(ROOT, source=source)
    work = make_plan(reference=replace(REFERENCE, device=device), node=root, root=root)
    assert "at most 384 threads a block" in compact(replace(work, task=task)).render()


def test_a_debugger_of_an_unrolled_loop_is_told_of_macros() -> None:
    """Coders read it with the variants."""
    words, plan = "`#pragma unroll` can't name a macro", plan_for(CANDIDATE, "line 7")
    for source in (CANDIDATE, CANDIDATE.replace("    for", "#pragma unroll\n    for")):
        node = replace(WRONG, source=source)
        assert (source != CANDIDATE) == (words in compact(repair(plan, node=node)).render())


def test_the_first_attempt_is_told_of_no_others() -> None:
    """Nothing to repeat, to take over or to mend."""
    for work in (make_plan(), solve()):
        text = compact(work).varying_text
        assert not any(words in text for words in ("no idea of the ledger", "take over", "failed"))
    correct = tuple(one for one in LEDGER if one.score_us is not None)
    assert "was at fault" not in compact(solve(node=FAST, ledger=correct)).varying_text
    assert "take over" not in compact(solve(node=FAST, ledger=LEDGER)).varying_text
    fastest = replace(NEAR, score_us=11.0)
    later = compact(solve(node=WRONG, ledger=LEDGER, best=fastest)).varying_text
    for words in ("was at fault", "may take over from the fastest", "It failed as shown there"):
        assert words in later


def test_operators_of_the_module_are_for_those_that_plan_from_it() -> None:
    """A coder has its plan, and from a node on its own kernels are what takes the time."""
    known = (OperationTime(name="aten::mm", calls=1, us=9.0, share=1.0),)
    reference = replace(REFERENCE, facts=ReferenceFacts(operations=known))
    words = "PyTorch's own call by operator"
    for work in (make_plan(reference=reference), solve(reference=reference)):
        assert words in compact(work).varying_text
        assert words not in compact(work).stable_text
    for work in (write(PLAN, reference=reference), make_plan(node=FAST, reference=reference)):
        assert words not in compact(work).render()


def test_an_attempt_that_ended_without_an_idea_has_none() -> None:
    """A model that gave up is not one whose idea is still to come."""
    gave_up = LedgerEntry(number=2, parent=0, outcome=Outcome.NO_CANDIDATE, reason="Nothing.")
    text = compact(make_plan(attempt=3, ledger=(gave_up,))).varying_text
    assert "2 (0) | no candidate | (no idea) | Nothing.\n" in text


def test_the_ledger_has_a_line_for_every_attempt() -> None:
    """Finished ones with time or reason, those under way with their stage, and the fastest."""
    best = replace(NEAR, score_us=11.0)
    work = make_plan(node=FAST, ledger=(*LEDGER, PLANNING), ledger_left_out=7, best=best)
    text = compact(work).varying_text

    for line in (
        "(7 earlier attempts are left out)",
        "1 (0) | correct | Fuse. | 20.0 µs, 2 × parent\n",
        "2 (0) | wrong | Tile. | Row 3 differs\n",
        "3 (1) | under way, is being written | Unroll.\n",
        "4 (1) | under way, is being planned | (its idea is not known yet)\n",
        "The fastest so far: node 6",
    ):
        assert line in text
    with_best = LedgerEntry(number=6, parent=4, outcome=Outcome.CORRECT, score_us=12.0)
    assert "12.0 µs, 1 × parent, the fastest" in (
        compact(make_plan(node=FAST, ledger=(*LEDGER, with_best))).varying_text
    )


def test_an_idea_is_told_once_and_never_cut_within_a_word() -> None:
    """The ledger has it whole where there is room, unless the request has it above."""
    idea = (
        "One launch with a ring of bulk copies feeds rows into shared memory, " + "and so on " * 12
    )
    shown = LedgerEntry(number=4, parent=1, idea=FAST.advice, outcome=Outcome.CORRECT, score_us=12)
    other = LedgerEntry(number=5, parent=1, idea=idea.strip(), outcome=Outcome.CORRECT, score_us=9)
    longer = replace(other, number=6, idea=idea + "unbroken" * 40)
    text = compact(make_plan(node=FAST, ledger=(shown, other, longer))).varying_text
    assert "4 (1) | correct | (above) | " in text
    assert f"5 (1) | correct | {idea.strip()} | " in text
    assert f"6 (1) | correct | {idea.strip()}… | " in text


def test_ideas_under_way_are_shown_whole_while_there_is_room() -> None:
    """Two plans of one moment are alike where one does not see all of the other."""
    idea = " ".join(f"Sentence {n} of an idea that is under way." for n in range(12))
    entry = LedgerEntry(number=7, parent=1, idea=idea, stage="write")
    assert idea in compact(make_plan(node=FAST, ledger=(entry,))).varying_text
    many = [replace(entry, number=n) for n in range(7, 47)]
    text = compact(make_plan(node=FAST, ledger=(*many,))).varying_text
    ledger = text.partition("# All attempts so far")[2].partition("# Your part")[0]
    assert len(ledger) < 40 * (2 * LEAST_IDEA + 60)
    assert "\n46 (1) | under way, is being written | Sentence 0 of an idea" in ledger


def test_the_ledger_tells_how_busy_the_units_of_profiled_attempts_were() -> None:
    """What bounds an attempt that the request does not show; nothing where none was profiled."""
    units = (UnitShare(unit="DRAM", share=0.981), UnitShare(unit="tensor cores", share=0.43))
    profiled = replace(LEDGER[0], units=units)
    text = compact(make_plan(node=FAST, ledger=(profiled, *LEDGER[1:]))).varying_text
    assert "1 (0) | correct | Fuse. | 20.0 µs, 2 × parent, DRAM 98%, tensor cores 43%\n" in text
    assert "how busy DRAM" in text
    assert "how busy DRAM" not in compact(make_plan(node=FAST, ledger=LEDGER)).varying_text


def test_a_result_says_how_much_of_the_tolerance_is_left() -> None:
    """Where a lower precision is in reach, this decides; next to no error is not told."""
    near = replace(FAST, verdict=replace(FAST.verdict, max_error=0.54))
    assert "largest error 0.54 of the tolerance" in compact(make_plan(node=near)).varying_text
    exact = replace(FAST, verdict=replace(FAST.verdict, max_error=0.001))
    assert "of the tolerance" not in compact(make_plan(node=exact)).varying_text


@pytest.mark.parametrize("backend", BACKENDS)
def test_planners_of_one_moment_get_different_stances(backend: str) -> None:
    """Each planner but the first begins elsewhere; a planner without others is free.

    None with fusion, which is what the module itself suggests first.
    """
    product = TASK_SOURCE.replace("y / 2.0", "torch.matmul(y, y)")
    task = replace(TASK, backend=backend, source=product)
    known = STANCES["cpp" if backend == "cpp" else "cuda"]
    found = []
    for attempt in range(2, 7):
        others = tuple(replace(PLANNING, number=n) for n in range(1, attempt))
        work = replace(make_plan(attempt=attempt, ledger=others), task=task)
        text = compact(work).varying_text
        found += [stance for stance in known if f"first: {stance};" in text]

    assert sorted(one for one in known if not one.startswith("fusion")) == sorted(found)
    assert "Others plan" not in compact(make_plan(attempt=4, ledger=LEDGER)).varying_text
    assert "Others plan" not in compact(write(PLAN, ledger=(PLANNING,))).varying_text


def test_a_request_says_how_the_inputs_lie_in_memory() -> None:
    """Contiguous or with which strides; nothing where a run of an older version did not say."""
    dense = Leaf(dtype="float32", shape=(4, 8))
    turned = Leaf(dtype="float32", shape=(8, 4), stride=(1, 8))

    def line(*inputs: Leaf) -> str:
        judged = Judged(device="cuda", init=Nest(kind="list", items=()), outputs=dense, state=dense,
                        inputs=Nest(kind="list", items=inputs))  # fmt: skip
        work = make_plan(reference=replace(REFERENCE, judged=judged))
        return next(x for x in compact(work).stable_text.splitlines() if x.startswith("Inputs:"))

    assert line(dense, dense).endswith(" (contiguous)")
    assert line(dense, turned).endswith(" (contiguous, but input 1 has strides [1, 8])")
    assert line(turned).endswith(" (input 0 has strides [1, 8])")
    assert "Inputs: float32[8]\n" in compact(make_plan()).stable_text


def test_a_stance_fits_what_is_known_of_the_task() -> None:
    """No tensor cores where nothing is multiplied; no fusion of one launch, nor of the module.

    Every planner's first design of a module is fewer kernels anyway.
    """
    norm = replace(TASK, backend="cuda", source=TASK_SOURCE.replace("y / 2.0", "y.mean(1)"))
    product = replace(norm, source=TASK_SOURCE.replace("y / 2.0", "torch.matmul(y, y)"))

    def names(task: Task, reference: Reference = REFERENCE, node: AttemptView = ROOT) -> set[str]:
        work = replace(make_plan(node=node), task=task, reference=reference)
        return {stance.partition(":")[0] for stance in fitting_stances(work)}

    assert names(product) - names(norm) == {"tensor cores"}
    beside = (
        OperationTime(name="aten::native_layer_norm", calls=1, us=9.0, share=0.9),
        OperationTime(name="aten::mm", calls=1, us=1, share=0.1),
    )
    dear = replace(REFERENCE, facts=ReferenceFacts(launches=2, operations=beside))
    both = replace(
        norm, source=product.source.replace("torch.matmul(y, y)", "F.layer_norm(y @ y, (8,))")
    )
    assert "tensor cores" not in names(both, dear)  # the product is not where the time goes
    assert "tensor cores" in names(both, replace(REFERENCE, facts=None))
    for task in (norm, product):
        assert "fusion" not in names(task)
        assert "fusion" in names(task, node=FAST)
    fused = replace(FAST, verdict=replace(FAST.verdict, facts=VerdictFacts(launches=1)))
    assert "fusion" not in names(product, node=fused)


def test_a_replay_finds_the_reply_whatever_the_ledger_says() -> None:
    """Times, the ledger, the fastest source and the stance may differ when a run is made again."""
    first = make_plan(attempt=5, node=FAST, window=(NEAR,), ledger=LEDGER, best=NEAR)
    slower = replace(FAST, score_us=13.5)
    again = make_plan(attempt=5, node=slower, window=(NEAR,), ledger=(*LEDGER, PLANNING))
    other = make_plan(attempt=5, node=replace(FAST, source=NEAR.source), window=(NEAR,))

    key, same, different = (
        without_measurements(compact(work).render()) for work in (first, again, other)
    )
    assert key == same
    assert key != different
    assert "Fuse." not in key
    assert "Your part: planner" in key


def test_a_repair_is_told_of_no_variants() -> None:
    """It mends a cause: values that a race decides are for those that write a design."""
    assert "TUNE" not in compact(repair(PLAN)).varying_text
    assert all("TUNE" in compact(work).varying_text for work in (solve(), write(PLAN)))


def test_docstrings_of_a_node_are_left_out_too() -> None:
    """What edits of the module left of its docstrings tells nothing; numbers stay."""
    source = 'class ModelNew:\n    """Halves."""\n\n    def forward(self, x):\n        return x\n'
    text = compact(make_plan(node=replace(FAST, source=source))).varying_text
    assert "1\tclass ModelNew:\n4\t    def forward(self, x):\n" in text


def test_only_a_coder_is_told_of_spans() -> None:
    """Spans exist where a plan marked them: the others name lines, functions and classes."""
    assert "`### span N`" in compact(write(PLAN)).varying_text
    for work in (solve(), repair(PLAN)):
        assert "`### span N`" not in compact(work).varying_text
        assert "`### lines A-B`" in compact(work).varying_text


def test_a_request_shrinks_by_its_largest_attempt() -> None:
    """The window is dropped entry by entry; task, node, ledger and role stay."""
    request = compact(make_plan(node=FAST, window=(NEAR, WRONG), ledger=LEDGER))
    while (smaller := request.without_largest_attempt()) is not None:
        request = smaller

    assert {"architecture", "node", "ledger", "role"} == {
        section.kind for section in request.sections
    }


def test_places_are_named_in_forms_that_are_read() -> None:
    """What a request says of places is accepted: the code's headings, a planner's list."""
    places = {
        "span N": "span 1",
        "lines A-B": "lines 12-13",
        "function NAME": "function forward",
        "after line N": "after line 13",
    }
    headings = re.findall(r"`### ([^`]*)`", compact(write(PLAN)).varying_text)
    assert [*places] == headings
    shown = ShownLines(TASK_SOURCE, ((12, 13),))
    for place in places.values():
        code = ["    def forward(self, x):"] * ("forward" in place) + ["        return x"]
        block = "\n".join(["```python", *code, "```"])
        reply = parse_reply(f"## Advice\n\nReturn.\n\n## Edits\n\n### {place}\n{block}\n")
        assert isinstance(read_solution(reply, shown), tuple)
    listed = re.findall(r"`(lines A-B|function NAME)`", compact(make_plan()).varying_text)
    assert ["lines A-B", "function NAME"] == listed


def test_a_solo_agent_answers_with_edits() -> None:
    """Plan and code in one answer: advice, and edits of the source that was shown."""
    reply = (
        "## Advice\n\nHalve first.\n\n## Edits\n\n### lines 12-13\n```python\n        return 1\n```"
    )
    found = read_solution(parse_reply(reply), ShownLines(TASK_SOURCE))

    assert isinstance(found, tuple)
    assert found[0].source.endswith("        return 1\n")
    assert "class ModelNew" in found[0].source
    assert "Halve first." == found[1].advice


def test_an_idea_is_cut_behind_its_first_sentence() -> None:
    """A product that is written with a dot ends no sentence."""
    algebra = "Algebra: y = x . colsum(W) + sum(b), since max and mean of one element are the same"
    assert one_line(f"{algebra}. One launch, then another.", 100) == f"{algebra}."
    assert one_line(f"{algebra}.", 60) == f"{algebra[:59].rstrip()}…"
    assert all(len(one_line("One. Two three. " * 20, most)) <= most for most in range(10, 90))


@pytest.mark.parametrize(
    "note",
    [
        "one call (split x, product, norm); modules and parameters of lines 9-11 stay",
        "this runs after the change, and also line 9 is read there",
    ],
)
def test_what_a_plan_explains_behind_a_place_may_mention_other_lines(note: str) -> None:
    """Before: "names no place", and a plan of twelve lines was asked for once more."""
    plan = plan_for(TASK_SOURCE, f"lines 12-13: {note}")
    assert marked_spans(plan, TASK_SOURCE) == ((12, 13),)
    second = read_plan(
        parse_reply("## Advice\n\nFuse.\n\n## Anchors\n\n- line 12: and line 13\n"), TASK_SOURCE
    )
    assert "names further lines" in getattr(second, "reason", "")
