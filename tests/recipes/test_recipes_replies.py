"""The rule book's replies: format, honest refusals, and a search that makes progress."""

from __future__ import annotations

import pytest
from recipe_runner import (
    EXAMPLES,
    candidate,
    code,
    observed,
    plan_work,
    repair_work,
    section,
    task,
    write_work,
)

from actors.agents.recipes import answer
from actors.agents.recipes.schedule.knobs import (
    Knobs,
    default_knobs,
    knob_difference,
    read_change,
    read_knobs,
    with_change,
)
from actors.agents.replies.scaffolds import Scaffold, check_scaffold
from protocol.messages import MakePlan
from protocol.values import AttemptView, Outcome, source_key

SOFTMAX = task("pass", "return torch.softmax(x * 0.5, dim=-1)", "torch.randn(64, 256)")
GATE = task("self.l = nn.Linear(24, 64)", "return F.silu(self.l(x)) + 1.0", "torch.randn(256, 24)")
NOTHING = task("self.c = nn.Conv2d(3, 4, 3)", "return self.c(x)", "torch.randn(1, 3, 8, 8)")
LOOP = task("pass", "while x.sum() > 0:\n    x = x - 1\nreturn x", "torch.randn(4)")
SOURCES = [SOFTMAX, GATE, *(path.read_text() for path in EXAMPLES[:3])]


def step(source: str, node: AttemptView | None = None, **more: object) -> tuple[str, str, str]:
    """A plan's advice and scaffold, and the coder's candidate for it."""
    reply = answer(plan_work(source, node, **more))
    advice, anchored = section(reply, "Advice"), code(section(reply, "Source"))
    written = answer(write_work(source, advice, node, **more))
    return advice, anchored, code(section(written, "Candidate"))


@pytest.mark.parametrize("backend", ["cpp", "cuda"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_scaffold_is_the_shown_source_and_anchors(source: str, backend: str) -> None:
    """Without anchors and advice it is the shown source byte for byte, for a chain of nodes."""
    node, shown = None, source
    for depth in range(1, 7):
        advice, anchored, made = step(source, node, backend=backend, seed=depth)
        assert isinstance(check_scaffold(anchored, shown), Scaffold)
        assert read_change(advice)
        assert "IMPROVE" not in made
        node, shown = observed(made, depth), made


def test_the_first_kernel_for_short_rows_on_a_card_gives_each_a_warp() -> None:
    """A norm of heads has 64 numbers: of a block of 256 threads, 240 were idle."""

    def first(inputs: str) -> Knobs | None:
        norm = "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)"
        _, _, made = step(task("pass", norm, inputs), backend="cuda")
        return read_knobs(made)

    sizes = ("4096, 64", "8, 64", "4096, 4096", "8, 65536")
    short, few, long, longest = (first(f"torch.randn({size})") for size in sizes)
    assert short == with_change(default_knobs("cuda"), {"threads": 32, "passes": "buffer"})
    assert few == long == with_change(default_knobs("cuda"), {"passes": "buffer"})
    assert longest == default_knobs("cuda")


def test_a_plan_changes_one_knob_and_the_coder_the_same_one() -> None:
    """The candidate has the change that the advice names, and no other."""
    _, _, made = step(SOFTMAX)
    assert default_knobs("cpp") == read_knobs(made)
    for seed in range(5):
        advice, _, next_made = step(SOFTMAX, observed(made), seed=seed)
        old, new = read_knobs(made), read_knobs(next_made)
        assert old is not None
        assert new is not None
        assert read_change(advice) == knob_difference(old, new)
        assert 1 == len(knob_difference(old, new))
        made = next_made


def test_no_plan_repeats_what_the_window_shows() -> None:
    """Children of one node are all different kernels, until the rule book gives the node up."""
    _, _, first = step(SOFTMAX)
    node = observed(first)
    window: tuple[AttemptView, ...] = ()
    seen = {source_key(first)}
    for number in range(2, 40):
        reply = answer(plan_work(SOFTMAX, node, window=window))
        if section(reply, "Cannot at this node"):
            break
        written = answer(write_work(SOFTMAX, section(reply, "Advice"), node, window=window))
        made = code(section(written, "Candidate"))
        assert source_key(made) not in seen
        seen.add(source_key(made))
        window = (*window, observed(made, number))
    else:
        pytest.fail("the rule book never runs out of changes")
    assert len(seen) > 8


def test_a_faster_leader_s_setting_is_taken_over() -> None:
    """A knob that makes a leader fast is tried on a slower node next."""
    slow = candidate(GATE, {})
    leader = observed(candidate(GATE, {"schedule": "dynamic"}), 9, score_us=10.0)
    advice, _, _ = step(GATE, observed(slow), window=(leader,))
    # The change alone would give the leader's own kernel, which is known: it is not offered.
    assert {"schedule": "dynamic"} != read_change(advice)
    slower = candidate(GATE, {"vector": 4})
    advice, _, _ = step(GATE, observed(slower), window=(leader,))
    assert read_change(advice) in ({"schedule": "dynamic"}, {"vector": 8})


def test_replies_are_a_pure_function_of_the_work() -> None:
    """A second request gets the same reply; only the seed breaks ties."""
    made = candidate(SOFTMAX, {})
    for seed in (0, 7):
        work = plan_work(SOFTMAX, observed(made), seed=seed)
        assert answer(work) == answer(work)


@pytest.mark.parametrize(
    ("source", "word"),
    [(NOTHING, "self.c"), (LOOP, "line 12"), ("class Nope: pass", "Model"), ("def (", "line 1")],
)
def test_a_refusal_is_a_sentence(source: str, word: str) -> None:
    """`## Cannot` names the obstacle, and the reply has no code that could pass for a plan."""
    reply = answer(plan_work(source))
    assert word in section(reply, "Cannot at this task")
    assert "```" not in reply


@pytest.mark.parametrize(
    "word", [Outcome.WRONG, Outcome.CRASHED, Outcome.COMPILE_FAILED, Outcome.TIMED_OUT]
)
def test_repairs_get_simpler_and_end_in_plain_pytorch(word: Outcome) -> None:
    """Each repair differs from all that failed; the last one is the reference in plain PyTorch."""
    failed = candidate(GATE, {"vector": 16, "maths": "quick", "memory": "reuse", "unroll": 4})
    siblings: tuple[AttemptView, ...] = ()
    seen = {source_key(failed)}
    node = observed(failed, verdict=word, reason="it went wrong")
    for number in range(2, 20):
        reply = answer(repair_work(GATE, node, window=siblings))
        assert str(word) in section(reply, "Diagnosis")
        made = code(section(reply, "Candidate"))
        assert source_key(made) not in seen
        seen.add(source_key(made))
        siblings = (*siblings, observed(made, number, verdict=word))
        if "extern" not in made:
            break
    assert "class ModelNew(nn.Module)" in made
    assert "extern" not in made
    assert number > 3


def test_without_a_compiler_the_repair_is_plain_at_once() -> None:
    """No attempt is spent on kernels that can't be built."""
    node = observed(
        candidate(SOFTMAX, {}), verdict=Outcome.COMPILE_FAILED, log="c++: command not found"
    )
    reply = answer(repair_work(SOFTMAX, node))
    assert "extern" not in code(section(reply, "Candidate"))


def test_a_plan_without_a_recipe_line_gets_the_rule_book_s_choice() -> None:
    """A language model's plan names no knob; then the rule book chooses a change."""
    written = answer(write_work(SOFTMAX, "Use shared memory and be quick about it."))
    assert default_knobs("cpp") == read_knobs(code(section(written, "Candidate")))


def test_another_backend_is_refused() -> None:
    """The rule book writes C++ and CUDA, not Triton."""
    work = plan_work(SOFTMAX, backend="triton")
    assert isinstance(work, MakePlan)
    assert "triton" in section(answer(work), "Cannot at this task")


def test_a_candidate_says_that_a_rule_book_wrote_it() -> None:
    """A reader must not take a rule for a language model's idea."""
    made = candidate(SOFTMAX, {})
    assert "rule book" in made
    assert "not a language model" in made
