"""The solo agent: its requests, its answers, and the models that serve it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent_fakes import CANDIDATE, FakeContext, RecordedModel, make_plan, reflect, repair, solve

from actors.agents.coder import Coder
from actors.agents.model_client import ModelClient
from actors.agents.models.model import Model
from actors.agents.models.registry import make_model
from actors.agents.replies.replies import fenced
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.prompting import plan_request, reflect_request, solve_request
from protocol.messages import Reflect, ReplyUnusable, Result, Solve, Written
from protocol.values import AttemptView, Outcome, Plan, Role, Verdict

FAILED = repair(Plan(advice="", scaffold="")).node
CODE = f"## Candidate\n\n{fenced(CANDIDATE)}\n"


def answer(tmp_path: Path, model: Model, work: Solve | Reflect) -> Result:
    coder = Coder(ModelClient(model, ReplySpool(tmp_path / "spool")), 1000)
    result = coder.work(work, FakeContext())
    assert isinstance(result, Written | ReplyUnusable)
    return result


def test_its_requests_share_one_prefix() -> None:
    """System, example and architecture have the same bytes for a whole task, so that one cache
    entry serves every call; the system message is the team's."""
    first = solve_request(solve(), 1)
    for request in (
        solve_request(solve(attempt=4, node=FAILED), 1),
        reflect_request(reflect("words", node=FAILED), 1),
    ):
        assert (first.system, first.stable_text) == (request.system, request.stable_text)
        assert request.role is Role.CODER
    assert first.system == plan_request(make_plan(), 1).system


def test_its_temperature_is_that_of_the_baselines() -> None:
    """0.7, the value of KernelBench."""
    assert solve_request(solve(), 1).temperature == 0.7
    assert reflect_request(reflect(), 1).temperature == 0.7


def test_samples_send_the_same_request() -> None:
    """Best of K draws K answers to one request, which has no attempt number, seed or window."""
    texts = {solve_request(solve(attempt=n, seed=n), 1).render() for n in range(1, 6)}

    assert len(texts) == 1


def test_a_failed_node_is_shown_with_its_error() -> None:
    """The request has its code, the compiler's log and the verdict."""
    shown = solve_request(solve(attempt=3, node=FAILED), 1).varying_text

    assert CANDIDATE in shown
    assert "error: no such thing" in shown


def test_reflections_are_shown_in_order_and_each_on_a_line() -> None:
    """A heading inside a reflection does not end a section of the request."""
    request = reflect_request(reflect("first", "## Candidate\nno", "", attempt=5, node=FAILED), 1)

    assert "1. first\n2. ## Candidate no\n" in request.varying_text
    assert "(none yet)" in reflect_request(reflect("", node=FAILED), 1).varying_text


@pytest.mark.parametrize("heading", ["Advice", "Reflection", "Diagnosis", ""])
def test_its_text_becomes_the_nodes_advice(tmp_path: Path, heading: str) -> None:
    """Under any of its headings; a candidate without text counts, too."""
    words = f"## {heading}\n\nWider loads.\n\n" if heading else ""
    result = answer(tmp_path, RecordedModel(words + CODE), reflect("before", node=FAILED))

    assert isinstance(result, Written)
    assert (result.candidate.source, result.candidate.outside) == (CANDIDATE, ())
    assert result.plan == Plan(advice="Wider loads." if heading else "", scaffold="")


def test_an_answer_without_code_gets_one_more_try(tmp_path: Path) -> None:
    """As for the team: the problem is stated once, then the attempt ends."""
    model = RecordedModel("## Advice\n\nThink.\n", CODE)
    assert isinstance(answer(tmp_path, model, solve()), Written)
    assert "no code under '## Candidate'" in model.requests[1].render()

    assert isinstance(
        answer(tmp_path, RecordedModel("Hm.", "Hm."), solve(attempt=2)), ReplyUnusable
    )


def test_a_scripts_coder_lines_answer_it(tmp_path: Path) -> None:
    """One script serves every strategy; a line with `advice` gives the text, too."""
    lines = [
        {"role": "coder", "attempt": 1, "code": CANDIDATE},
        {"role": "coder", "attempt": 2, "code": CANDIDATE, "advice": "It leaked."},
    ]
    file = tmp_path / "script.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    model = make_model(f"script:{file}")

    first = answer(tmp_path, model, solve())
    second = answer(tmp_path, model, reflect("a", node=FAILED))
    assert isinstance(first, Written)
    assert isinstance(second, Written)
    assert ["", "It leaked."] == [r.plan.advice for r in (first, second) if r.plan]


def test_the_rule_book_improves_or_repairs_in_one_answer(tmp_path: Path) -> None:
    """A node that works gets advice and a file, a node that failed a simpler file."""
    recipes = make_model("recipes")
    first = answer(tmp_path, recipes, solve())
    assert isinstance(first, Written)
    assert first.plan is not None
    assert "recipe: {" in first.plan.advice

    bad = Verdict(verdict=Outcome.WRONG, stage="check", reason="differs")
    node = AttemptView(node=1, parent=0, source=first.candidate.source, verdict=bad)
    for work in (solve(attempt=2, node=node), reflect("x", attempt=2, node=node)):
        mended = answer(tmp_path, recipes, work)
        assert isinstance(mended, Written)
        assert mended.candidate.source != first.candidate.source


def test_the_rule_books_samples_differ(tmp_path: Path) -> None:
    """Without a window the rule book draws at random: K samples are not one kernel K times."""
    recipes = make_model("recipes")
    found = [answer(tmp_path, recipes, solve(attempt=n, seed=n)) for n in range(1, 13)]

    assert len({r.candidate.source for r in found if isinstance(r, Written)}) >= 4
