"""Requests: the order of `docs/method.md`, the stable prefix, what each role is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from agent_fakes import (
    CANDIDATE,
    REFERENCE,
    ROOT,
    SCAFFOLD,
    TASK,
    TASK_SOURCE,
    make_plan,
    repair,
    write,
)
from msgspec.structs import replace

import prompts
from actors.agents.planner import read_plan
from actors.agents.replies.candidates import candidate_problem
from actors.agents.replies.replies import parse_reply
from actors.agents.requests.prompting import (
    plan_request,
    problem_prompt,
    repair_request,
    write_request,
)
from protocol.values import BACKENDS, METRIC_TABLE, AttemptView, Outcome, Plan, Role, Verdict

PLAN = Plan(advice="Fuse both lines.", scaffold=SCAFFOLD)
FAST = AttemptView(
    node=4,
    parent=0,
    advice="Do it in place of a copy.",
    source=CANDIDATE,
    verdict=Verdict(verdict=Outcome.CORRECT, median_us=12.0, speedup=3.33),
    score_us=12.0,
)
BROKEN = AttemptView(
    node=5,
    parent=0,
    source=CANDIDATE,
    verdict=Verdict(verdict=Outcome.COMPILE_FAILED, stage="build", log="error: " + "x" * 100_000),
)


def test_the_order_is_the_methods() -> None:
    """System, example, architecture, node, window, role: the order of the paper."""
    request = plan_request(make_plan(window=(FAST, BROKEN)), 1000)

    kinds = [section.kind for section in request.sections]
    assert kinds == ["example", "architecture", "node", "window", "attempt", "attempt", "role"]
    text = request.render()
    places = [
        text.index(words)
        for words in (
            "team of performance engineers",
            "# An example",
            "# The task: half",
            "# Where we stand",
            "# Earlier attempts",
            "Attempt 1: node 4, a child",
            "Attempt 2: node 5, a child",
            "# Your part: planner",
        )
    ]
    assert places == sorted(places)


def test_the_prefix_is_the_same_for_a_whole_task() -> None:
    """Another role, attempt, node, window or plan changes no byte before the node, so that the
    prefix is in a server's cache after one call."""
    requests = [
        plan_request(make_plan(), 1000),
        plan_request(make_plan(attempt=9, node=FAST, window=(BROKEN,)), 1000),
        write_request(write(PLAN, attempt=3), 1000),
        repair_request(repair(PLAN), 1000),
    ]

    assert {(request.system, request.stable_text) for request in requests} == {
        (requests[0].system, requests[0].stable_text)
    }
    assert all(request.render().count(requests[0].stable_text) == 1 for request in requests)
    assert len({request.varying_text for request in requests}) == len(requests)


def test_temperatures_are_the_methods() -> None:
    """0.8 to plan, 0.1 to code and to debug."""
    assert plan_request(make_plan(), 1).temperature == 0.8
    assert write_request(write(PLAN), 1).temperature == 0.1
    assert repair_request(repair(PLAN), 1).temperature == 0.1


def test_each_role_sees_what_it_works_on() -> None:
    """The planner sees the bare source, the coder the scaffold, the debugger code and error."""
    assert TASK_SOURCE in plan_request(make_plan(), 1).varying_text
    assert SCAFFOLD in write_request(write(PLAN), 1).varying_text
    debug = repair_request(repair(PLAN), 1).varying_text
    assert CANDIDATE in debug
    assert "error: no such thing" in debug
    assert "Fuse both lines." in debug


def test_a_window_entry_has_source_observation_and_result() -> None:
    """Every earlier attempt has these three; of a huge log the beginning is shown."""
    text = plan_request(make_plan(window=(FAST, BROKEN)), 1).varying_text

    assert "Correct: 12 µs a call, 3.33 times as fast as PyTorch" in text
    assert "It did not compile." in text
    assert "characters left out" in text
    assert len(text) < 30_000


def test_braces_in_sources_are_not_filled() -> None:
    """A source with {{advice}} or a backslash in it arrives unchanged."""
    odd = TASK_SOURCE + "X = '{{advice}} \\g<1> $x'\n"
    node = AttemptView(node=3, parent=0, source=odd, verdict=FAST.verdict)

    assert odd in plan_request(make_plan(node=node), 1).varying_text


def test_a_node_without_code_is_shown_by_its_plan() -> None:
    """If the coder gave no code, the debugger is shown the source that the coder was given."""
    nothing = AttemptView(
        node=1, parent=0, verdict=Verdict(verdict=Outcome.NO_CANDIDATE, reason="the model refused")
    )

    text = repair_request(repair(PLAN, node=nothing), 1).varying_text

    assert TASK_SOURCE.replace("        y = x", "        # fuse\n        y = x") in text
    assert "the model refused" in text.lower()


def test_a_request_shrinks_by_its_largest_attempt() -> None:
    """The window is dropped entry by entry; the task, the node and the role stay."""
    request = plan_request(make_plan(window=(FAST, BROKEN)), 1)

    once = request.without_largest_attempt()
    assert once is not None
    assert "node 4" in once.varying_text
    assert "node 5" not in once.varying_text
    twice = once.without_largest_attempt()
    assert twice is not None
    assert TASK_SOURCE in twice.varying_text
    assert twice.without_largest_attempt() is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_has_notes_and_examples(backend: str) -> None:
    """Each backend has notes and an example pair: Python texts that define Model and ModelNew."""
    work = make_plan()
    work = replace(work, task=replace(TASK, backend=backend))

    request = plan_request(work, 1)

    assert "Target of this task" in request.system
    assert "class ModelNew" in request.stable_text
    for name, wanted in (("before", "class Model("), ("after", "class ModelNew(")):
        source = prompts.read(f"examples/{backend}-{name}.py")
        compile(source, name, "exec")
        assert wanted in source


def test_no_placeholder_is_left() -> None:
    """Every {{word}} in the prompt files has a filler."""
    requests = [
        plan_request(make_plan(window=(FAST,)), 1),
        write_request(write(PLAN), 1),
        repair_request(repair(PLAN), 1),
    ]

    for request in requests:
        assert not re.search(r"\{\{\w+\}\}", request.render())
    assert "{{" not in problem_prompt(Role.PLANNER, "x")


def test_the_hardware_and_the_reference_are_shown() -> None:
    """A model is told the device that it writes for and the time that it has to beat."""
    stable = plan_request(make_plan(), 1).stable_text

    for words in ("a CPU, 2 cores", "L2: 2 MiB", "40 µs eager", "float32[8]"):
        assert words in stable
    assert ROOT.score_us == REFERENCE.eager_us


def test_prompt_files_name_no_paths() -> None:
    """No prompt names a path of the machine that it was written on."""
    folder = Path(prompts.__file__).parent
    for file in sorted(folder.rglob("*.md")):
        assert not re.search(r"/(home|root|work|tmp)/", file.read_text(encoding="utf-8")), file


def test_planners_of_one_source_get_different_requests() -> None:
    """The seed makes two plans for one source differ, also if the model takes no temperature."""
    ways = {plan_request(make_plan(seed=seed), 1).varying_text for seed in range(6)}

    assert 3 == len(ways)
    assert all("directions that are not among those shown" in text for text in ways)
    one, again = (plan_request(make_plan(seed=5), 1).render() for _ in range(2))
    assert one == again  # and the same work always asks the same


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_examples_answers_pass_our_checks(backend: str) -> None:
    """The answers that models are shown pass our own checks: anchors, sources, ModelNew."""
    before, first, after = (
        prompts.read(f"examples/{backend}-{name}.py") for name in ("before", "first", "after")
    )
    for number, source, answer in ((1, before, first), (2, first, after)):
        reply = parse_reply(prompts.read(f"examples/{backend}-plan-{number}.md"))
        plan = read_plan(reply, source)
        assert isinstance(plan, Plan), plan
        assert number == len(plan.spans)
        assert "" == candidate_problem(answer)
    shown = plan_request(replace(make_plan(), task=replace(TASK, backend=backend)), 1).stable_text
    assert 2 == shown.count("## Source")
    assert 2 == shown.count("## Candidate")


@pytest.mark.parametrize("backend", ["cpp", "cuda"])
def test_the_shared_prefix_is_long_enough_to_be_cached(backend: str) -> None:
    """Servers cache no prefix below 4,096 tokens; code has about 3 bytes a token."""
    request = plan_request(replace(make_plan(), task=replace(TASK, backend=backend)), 1)

    assert len(request.system) + len(request.stable_text) > 4096 * 3


def test_of_equals_the_oldest_goes_first() -> None:
    """Of two attempts of one size, the earlier one tells less and is dropped first."""
    twin = replace(FAST, node=2)
    once = plan_request(make_plan(window=(FAST, twin)), 1).without_largest_attempt()

    assert once is not None
    assert "node 4" in once.varying_text
    assert "node 2" not in once.varying_text


def test_the_roots_source_is_in_every_request_however_small() -> None:
    """The architecture is the root's source: it stays in the smallest request, as the node does."""
    request = plan_request(make_plan(node=FAST, window=(BROKEN, ROOT)), 1)
    while (smaller := request.without_largest_attempt()) is not None:
        request = smaller

    assert TASK_SOURCE in request.stable_text
    assert CANDIDATE in request.varying_text
    assert "Earlier attempts" not in request.varying_text


def test_a_shrunk_request_is_a_quarter_shorter() -> None:
    """A model that ran out of room gets a request a quarter shorter, or one without a window."""
    wide = tuple(replace(FAST, node=n, source=CANDIDATE * 30) for n in range(2, 8))
    request = plan_request(make_plan(window=wide), 1)
    smaller = request.shrunk_by_quarter()

    assert smaller is not None
    assert len(smaller.render()) <= len(request.render()) * 3 // 4
    assert plan_request(make_plan(), 1).shrunk_by_quarter() is None


def test_a_profile_reaches_the_planner() -> None:
    """The evaluator's profile of a candidate is shown with its result, without raw tables."""
    figures = {"bandwidth": "412 GB/s, 12 %", METRIC_TABLE: "dram__bytes_read.sum 134217728"}
    seen = replace(FAST, verdict=replace(FAST.verdict, profile=figures))
    shown = plan_request(make_plan(node=seen), 1).varying_text

    assert "- bandwidth: 412 GB/s, 12 %" in shown
    assert "dram__" not in shown
