"""What the compact requests show of attempts beside the node, and which cards."""

from __future__ import annotations

import re
from typing import get_args

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

from actors.agents.cards.selection import choose_cards
from actors.agents.cards.techniques import techniques_in
from actors.agents.models.replay_key import without_measurements
from actors.agents.requests.attempts import (
    ALL_CODE,
    CHANGES_SHARE,
    LEAST_OTHER_CODE,
    MOST_OTHER_CODE,
)
from actors.agents.requests.facts import LABEL_WORDS, UNTOLD_LABELS
from actors.agents.requests.ledger import sentences
from actors.agents.requests.numbered_source import docstring_lines, numbered
from actors.agents.requests.request import Request, SectionKind
from actors.agents.requests.styles import make_request
from actors.evaluator.labels import labels
from protocol.facts import (
    DeviceRates,
    KernelFacts,
    ReferenceFacts,
    TaskCost,
    TaskFloor,
    VerdictFacts,
)
from protocol.messages import AgentWork
from protocol.values import (
    AttemptView,
    Device,
    LedgerEntry,
    Outcome,
    Plan,
    Reference,
    Task,
    Verdict,
)

PROFILE = tuple(f"Sentence {n}." for n in range(1, 13))
NODE = AttemptView(
    node=4,
    parent=0,
    advice="One pass. Four crossings of memory become two.",
    source=CANDIDATE + "".join(f"NUMBER_{n} = {n}\n" for n in range(40)),
    verdict=Verdict(verdict=Outcome.CORRECT, median_us=20.0, reference_us=40.0, speedup=2.0),
    score_us=20.0,
)
NEAR = replace(NODE, node=6, parent=4, source=NODE.source.replace("0.5f", "half"), score_us=30.0)
OTHER = replace(NODE, node=7, source="# another design\n" * 100, score_us=25.0)
FASTEST = replace(
    NODE,
    node=8,
    source="# the fastest\n" * 20,
    score_us=10.0,
    verdict=replace(NODE.verdict, median_us=10.0, facts=VerdictFacts(profile_sentences=PROFILE)),
)
PLAN = Plan(advice="Use wgmma with both operands in shared memory.", scaffold=NODE.source)
MATMUL = replace(TASK, backend="cuda", source=TASK_SOURCE.replace("y / 2.0", "torch.matmul(y, y)"))
ON_CARD = replace(
    REFERENCE,
    inputs="float32[4096, 4096], float32[4096, 4096]",
    outputs="float32[4096, 4096]",
    device=Device(kind="cuda", name="H100", facts={"compute capability": "9.0"}),
    facts=ReferenceFacts(floor=TaskFloor(memory_us=5.0, matrix_us=4.0)),
)


def compact(work: AgentWork) -> Request:
    return make_request(work, 1000, "compact")


def titles(work: AgentWork, task: Task = MATMUL, reference: Reference = ON_CARD) -> list[str]:
    """Return the titles of the cards that a request shows."""
    request = compact(replace(work, task=task, reference=reference))
    text = "".join(section.text for section in request.sections if section.kind == "cards")
    return re.findall(r"^(?:### |- )(.+?)(?: \([^)]*torch.*)?$", text, re.MULTILINE)


def test_an_attempt_near_the_node_is_shown_as_a_change() -> None:
    """A child that differs in one line is shown as that change."""
    text = compact(make_plan(node=NODE, window=(NEAR,))).varying_text

    assert "Its source, as changes of node 4 above" in text
    assert "+        y[i] = (x[i] + 1.0f) * half;" in text
    assert text.count("import torch.nn as nn") == 1


def test_of_another_design_the_whole_idea_is_shown_and_no_code() -> None:
    """Its code is long and is not what is changed; what it did and what that gave is enough."""
    text = compact(make_plan(node=NODE, window=(OTHER,))).varying_text

    assert "Its idea: One pass. Four crossings of memory become two.\n" in text
    assert "another design" not in text
    assert ": 25.0 µs at eager's usual speed" in text


def test_changes_have_a_bound_together() -> None:
    """However many near copies there are, a request grows by some kilobytes at most."""
    lines = [f"x_{n} = {n}\n" for n in range(400)]
    node = replace(NODE, source="".join(lines))
    more = ["y\n"] * 30
    near = [
        replace(node, node=10 + k, source="".join([*lines[: k * 80], *more, *lines[k * 80 :]]))
        for k in range(5)
    ]
    far = replace(node, node=9, source="".join(f"z_{n} = {n}\n" for n in range(400)))
    text = compact(make_plan(node=node, window=(*near * 4, far))).varying_text
    shown = "".join(part.partition("\n```")[0] for part in text.split("```diff\n")[1:])

    assert 0 < len(shown) <= CHANGES_SHARE * MOST_OTHER_CODE
    assert "z_399" not in text


def test_the_fastest_is_shown_with_its_code_and_its_profile_once() -> None:
    """It is what others grow towards, in the window or not; of its profile the begin."""
    for work in (make_plan(node=NODE, best=FASTEST), solve(node=NODE, window=(OTHER, FASTEST))):
        text = compact(work).varying_text
        assert text.count("# the fastest\n" * 20) == 1
        assert "## The fastest so far: node 8" in text
        assert "- Sentence 1.\n- Sentence 2.\n" in text
        assert "Sentence 3." not in text
        assert text.count("Its idea: One pass. Four crossings of memory become two.\n") >= 1
    own = compact(make_plan(node=FASTEST, window=(OTHER,))).varying_text
    assert "The fastest so far" not in own
    assert "- Sentence 10.\n" in own
    assert "Sentence 11." not in own


def test_the_fastest_of_the_window_has_its_figures_once() -> None:
    """Its idea and its change stand in the window, its result where it is the fastest."""
    best = replace(NEAR, score_us=9.0, verdict=FASTEST.verdict)
    text = compact(make_plan(node=NODE, window=(best, OTHER))).varying_text
    assert text.count(": 9.0 µs at eager's usual speed") == 1
    assert "Correct: its figures are below, as those of the fastest so far." in text
    assert text.count("Its change of the node is above.") == 1
    assert text.count(": 25.0 µs at eager's usual speed") == 1


def test_the_longer_the_nodes_source_the_less_other_code_is_shown() -> None:
    """All code of a request stays near one size; a change of the node is shorter than a file."""
    source = "".join(f"line_{n} = {n}\n" for n in range(250))
    best = replace(FASTEST, source=source)
    shown = compact(make_plan(node=NODE, best=best)).varying_text
    assert source in shown
    long = replace(NODE, source="# long\n" * (ALL_CODE // 7))
    assert len(source) > (1 - CHANGES_SHARE) * LEAST_OTHER_CODE
    assert source not in compact(make_plan(node=long, best=best)).varying_text
    near = replace(best, source=long.source + "last = 1\n")
    assert "+last = 1" in compact(make_plan(node=long, best=near)).varying_text


def test_of_a_long_fastest_source_its_longest_kernel_is_shown() -> None:
    """A file of many kilobytes is mostly launchers and rare kernels."""
    kernel = "__global__ void squares(float* x) {\n  x[0] = 1;\n}\n"
    source = f'import torch\nC = r"""\n{kernel}{"// more" * MOST_OTHER_CODE}\n"""\n'
    slow = KernelFacts(name="void squares(float*)", launches=1, us=9.0, share=0.81)
    verdict = replace(FASTEST.verdict, facts=VerdictFacts(kernels=(slow,)))
    best = replace(FASTEST, source=source, verdict=verdict)
    text = compact(make_plan(node=NODE, best=best)).varying_text

    assert f"the longest kernel, 81% of its device time:\n\n```cuda\n{kernel}```" in text
    unknown = replace(best, verdict=NODE.verdict)
    assert "// more" not in compact(make_plan(node=NODE, best=unknown)).varying_text


def test_a_repair_is_made_without_the_code_of_another_design() -> None:
    """It changes little: the fastest would only be read.  Its plan is quoted once."""
    broken = Verdict(verdict=Outcome.COMPILE_FAILED, stage="build", reason="no ;", log="no ;")
    work = repair(PLAN, node=replace(NODE, verdict=broken, score_us=None), window=(FASTEST,))
    assert "The fastest so far" not in compact(work).varying_text
    wrong = replace(broken, verdict=Outcome.WRONG, stage="check")
    work = repair(PLAN, node=replace(NODE, verdict=wrong, score_us=None), window=(FASTEST,))
    assert "The fastest so far" not in compact(work).varying_text
    assert "Where we stand: node" in compact(work).varying_text
    assert "Its idea: " not in compact(replace(work, window=())).varying_text


def test_a_failure_is_told_once() -> None:
    """A compiler's first error stands in its log; of another attempt it is all that is told."""
    error = 'cuda.cu(41): error: identifier "slots" is undefined'
    log = f"{error}\n  use(slots);\n\n1 error detected."
    verdict = Verdict(
        verdict=Outcome.COMPILE_FAILED, reason=f"the compiler says: {error}", stage="build", log=log
    )
    broken = replace(NODE, verdict=verdict, score_us=None)
    ledger = (LedgerEntry(number=4, parent=0, outcome=Outcome.COMPILE_FAILED, reason=error),)
    text = compact(repair(PLAN, node=broken, ledger=ledger)).varying_text
    assert text.count(error) == 1
    assert f"Compile failed\n\n```text\n{error}\n  use(slots);" in text
    assert "All attempts so far" not in text
    other = compact(make_plan(node=NODE, window=(replace(broken, node=5),))).varying_text
    assert f"Compile failed: the compiler says: {error}\n" in other
    assert "use(slots)" not in other
    crashed = replace(verdict, verdict=Outcome.CRASHED, reason="a signal", log="no words")
    text = compact(repair(PLAN, node=replace(broken, verdict=crashed))).varying_text
    assert "Crashed: a signal\n\n```text\nno words" in text


def test_a_replay_does_not_ask_which_attempt_was_the_fastest() -> None:
    """Whose code is shown depends on times, which differ when a run is made again."""
    keys = {
        without_measurements(compact(make_plan(node=NODE, window=window)).render())
        for window in (
            (OTHER, FASTEST),
            (replace(OTHER, score_us=5.0), FASTEST),
            (OTHER, replace(FASTEST, score_us=50.0)),
        )
    }
    assert len(keys) == 1


def test_every_label_of_the_judge_has_words() -> None:
    """A label stands in a request with what it means."""
    table = (labels.__doc__ or "").rpartition("\n\n")[2]
    assert {*LABEL_WORDS, *UNTOLD_LABELS} == {line.split()[0] for line in table.splitlines()}


def test_a_time_that_its_clock_did_not_show_is_explained() -> None:
    """A score is a ratio times eager's time; where the clock read another time, it says so."""
    slow = replace(NODE, verdict=replace(NODE.verdict, median_us=30.0, reference_us=60.0))
    text = compact(make_plan(node=slow)).varying_text
    assert "Correct: 30.0 µs a call, eager beside it 60.0 µs: " in text
    assert "usual speed" not in compact(make_plan(node=NODE)).varying_text


def test_facts_that_no_kernel_needs_are_left_out() -> None:
    """The device is one line, and where rates were measured its maker's are left out."""
    named = {"memory clock": "2 MHz", "float32, by its maker": "67 TFLOP/s", "L2 cache": "50 MiB"}
    reference = replace(
        ON_CARD,
        device=replace(ON_CARD.device, facts=named),
        facts=ReferenceFacts(rates=DeviceRates(copy_gb_s=3000.0)),
    )
    text = compact(make_plan(reference=reference)).stable_text
    assert "- Device: H100: L2 cache 50 MiB\n" in text
    bare = replace(reference, facts=None)
    assert "float32, by its maker 67" in compact(make_plan(reference=bare)).stable_text


@pytest.mark.parametrize("score_us", [8.0, 20.0])
def test_a_source_near_its_least_time_has_no_card(score_us: float) -> None:
    """Far from it the first card is shown, behind those that it needs, if its technique is new.

    The module as it was given is a source like any other.
    """
    chosen = choose_cards(MATMUL, ON_CARD)
    first = chosen[: [bool(card.needs) for card in chosen].index(True) + 1]
    wanted = [card.title for card in first if score_us > 10.0]
    node = replace(NODE, score_us=score_us)
    module = replace(ROOT, score_us=score_us)
    for work in (make_plan(node=node), solve(node=node), make_plan(node=module, root=module)):
        assert wanted == titles(work)
    using = replace(node, source=f"{node.source}# {first[-1].whole_code}")
    assert titles(make_plan(node=using)) == []
    unknown = replace(ON_CARD, facts=None)
    assert titles(make_plan(node=node), reference=unknown) == []


def test_a_product_is_far_from_what_its_split_takes() -> None:
    """Split products take a part of a float32 product's time: beside them eager is slow."""
    cost = TaskCost(flops={"float32": 1e9})
    rates = DeviceRates(tflops={"float32": 50.0, "bfloat16": 800.0})
    facts = ReferenceFacts(floor=TaskFloor(memory_us=4.0, matrix_us=20.0), cost=cost, rates=rates)
    reference = replace(ON_CARD, facts=facts)
    assert titles(solve(node=replace(NODE, score_us=21.0)), reference=reference)
    assert not titles(solve(node=replace(NODE, score_us=7.9)), reference=reference)
    assert not titles(
        solve(node=replace(NODE, score_us=21.0)),
        reference=replace(reference, facts=replace(facts, rates=DeviceRates())),
    )


def test_a_planner_reads_of_a_card_all_but_its_code() -> None:
    """It writes no code; the coder sees that of the cards which its advice names."""
    node = replace(NODE, score_us=20.0)
    (section,) = [
        one
        for one in compact(replace(make_plan(node=node), task=MATMUL, reference=ON_CARD)).sections
        if one.kind == "cards"
    ]
    first = choose_cards(MATMUL, ON_CARD)[0]
    assert f"- {first.title} ({first.effect}). {first.words[:40]}" in section.text
    assert "```" not in section.text
    assert first.code.splitlines()[0] not in section.text
    blocks = [card for card in choose_cards(MATMUL, ON_CARD) if not techniques_in(card.code)]
    assert blocks
    for card in blocks:
        named = replace(PLAN, advice=f"Take '{card.title}' for this.")
        assert card.title in titles(write(named, node=NODE))


def test_a_coder_has_the_cards_that_its_plan_is_about() -> None:
    """Fragments of wgmma for a plan with wgmma, whatever the first card of the task is."""
    shown = titles(write(PLAN, node=NODE))
    assert any("wgmma" in title for title in shown)
    assert titles(write(replace(PLAN, advice="Fuse both loops."), node=NODE)) == []


def test_a_repair_has_the_cards_that_its_source_is_about() -> None:
    """A wrong fragment is found by a right one."""
    wrong = Verdict(verdict=Outcome.WRONG, stage="check", reason="Row 3 differs")
    node = replace(NODE, verdict=wrong, score_us=None)
    assert titles(repair(PLAN, node=node)) == []
    using = replace(node, source=f"{node.source}# wgmma.mma_async")
    assert any("wgmma" in title for title in titles(repair(PLAN, node=using)))


def test_whole_sentences_are_left_of_a_long_idea() -> None:
    """No sentence is cut in the middle where one fits."""
    assert sentences("One. Two three. Four five six.", 20) == "One. Two three."
    assert sentences("One. Two.", 20) == "One. Two."
    assert "cards" in get_args(SectionKind)


def test_lines_keep_their_numbers_where_blank_ones_and_docstrings_are_left_out() -> None:
    """An edit names the lines of the whole file."""
    source = 'import torch\n\nclass Model:\n    """Halves."""\n    def forward(self, x):\n'
    source += '        """x / 2"""\n        return x / 2\n'
    shown = numbered(source, left_out=docstring_lines(source))
    assert "1\timport torch\n3\tclass Model:\n5\t    def forward(self, x):\n" in shown
    assert shown.endswith("\n7\t        return x / 2\n")
    assert "Halves" not in shown
    only = 'def f():\n    """All there is."""\n'
    assert not docstring_lines(only)
    assert not docstring_lines("not python (")
