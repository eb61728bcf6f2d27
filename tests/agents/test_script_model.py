"""The scripted model: users write its files, and tests of whole runs rely on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import CANDIDATE, ROOT, FakeContext, make_plan, write
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.coder import Coder
from actors.agents.model_client import ModelClient
from actors.agents.models import script_model
from actors.agents.models.model import ModelBusyError, ModelDeniedError
from actors.agents.models.registry import UnknownModelError, make_model
from actors.agents.models.script_model import ScriptModel
from actors.agents.planner import Planner
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.prompting import plan_request
from protocol.messages import Planned, ReplyUnusable, Written
from protocol.values import AttemptView, Plan, Role


def model(tmp_path: Path, *lines: dict[str, Any]) -> ScriptModel:
    file = tmp_path / "script.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    chosen = make_model(f"script:{file}")
    assert isinstance(chosen, ScriptModel)
    return chosen


def test_the_line_that_names_the_attempt_comes_first(tmp_path: Path) -> None:
    """Named attempts get their line; the others use the rest in turn, by their number."""
    lines = [
        {"role": "planner", "reply": "one"},
        {"role": "planner", "reply": "two"},
        {"role": "planner", "attempt": 3, "reply": "third"},
        {"role": "planner", "task": "other", "reply": "not yours"},
    ]
    scripted = model(tmp_path, *lines)

    replies = [scripted.reply(plan_request(make_plan(attempt=n), 1)).reply for n in (5, 4, 3, 2, 1)]

    assert replies == ["one", "two", "third", "two", "one"]


def test_a_line_for_the_task_comes_before_one_for_all() -> None:
    """A script may serve several tasks and have lines of its own for one of them."""
    lines = (
        script_model.ScriptLine(role="coder", reply="any"),
        script_model.ScriptLine(role="coder", task="half", reply="half"),
    )
    scripted = ScriptModel("script:x", lines)

    for task, expected in (("half", "half"), ("gelu", "any")):
        line = scripted.line_for(Role.CODER, task, 2)
        assert line is not None
        assert line.reply == expected


@given(st.integers(1, 50), st.integers(1, 5))
def test_the_answer_depends_on_the_attempt_alone(attempt: int, count: int) -> None:
    """An attempt gets the same reply after any requests, in any order."""
    lines = tuple(script_model.ScriptLine(role="planner", reply=str(n)) for n in range(count))
    scripted = ScriptModel("script:x", lines)
    for other in (3, 1, 2):
        scripted.line_for(Role.PLANNER, "half", other)

    line = scripted.line_for(Role.PLANNER, "half", attempt)

    assert line is lines[(attempt - 1) % count]


@pytest.mark.parametrize("source", [ROOT.source, CANDIDATE, "not python ((", ""])
def test_short_advice_becomes_a_plan_for_any_source(tmp_path: Path, source: str) -> None:
    """A script need not know the source that will be shown."""
    scripted = model(tmp_path, {"role": "planner", "advice": "Fuse the two lines."})
    node = AttemptView(node=0, source=source, verdict=ROOT.verdict)

    result = Planner(ModelClient(scripted, ReplySpool(tmp_path / "spool")), 1).work(
        make_plan(node=node), FakeContext()
    )

    assert isinstance(result, Planned), result
    assert result.plan.advice == "Fuse the two lines."


def test_the_anchor_goes_where_the_script_says(tmp_path: Path) -> None:
    """With a text to look for, the anchors are around the first line that has it."""
    scripted = model(tmp_path, {"role": "planner", "advice": "fma", "anchor": "y[i] ="})
    node = AttemptView(node=1, parent=0, source=CANDIDATE, verdict=ROOT.verdict)

    result = Planner(ModelClient(scripted, ReplySpool(tmp_path / "spool")), 1).work(
        make_plan(node=node), FakeContext()
    )

    assert isinstance(result, Planned)
    (span,) = result.plan.spans
    assert "y[i] =" in result.plan.scaffold.split("\n")[span[0] - 1]
    assert "/* fma */" in result.plan.scaffold


def test_short_code_becomes_a_candidate(tmp_path: Path) -> None:
    """A coder's line may hold the code alone."""
    scripted = model(tmp_path, {"role": "coder", "code": CANDIDATE})

    result = Coder(ModelClient(scripted, ReplySpool(tmp_path / "spool")), 1).work(
        write(Plan(advice="", scaffold="")), FakeContext()
    )

    assert isinstance(result, Written)
    assert result.candidate.source == CANDIDATE


def test_a_role_without_lines_can_not(tmp_path: Path) -> None:
    """A script without lines for a role ends the role's attempts with a reason."""
    scripted = model(tmp_path, {"role": "coder", "code": CANDIDATE})

    result = Planner(ModelClient(scripted, ReplySpool(tmp_path / "spool")), 1).work(
        make_plan(), FakeContext()
    )

    assert isinstance(result, ReplyUnusable)
    assert result.reason == "The script has no line for the planner."


def test_scripted_faults(tmp_path: Path) -> None:
    """A failure comes once, and then the reply; a wrong key stays wrong."""
    scripted = model(
        tmp_path,
        {"role": "planner", "attempt": 1, "reply": "ok", "error": 429},
        {"role": "planner", "attempt": 2, "error": "wrong_key"},
    )
    first, second = (plan_request(make_plan(attempt=n), 1) for n in (1, 2))

    with pytest.raises(ModelBusyError, match="429"):
        scripted.reply(first)
    assert scripted.reply(first).reply == "ok"
    for _ in range(2):
        with pytest.raises(ModelDeniedError):
            scripted.reply(second)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"role": "planner", "advice": "x"}\n{"role": "plumber"}', "line 2: Invalid enum value"),
        ('{"role": "coder", "code": "x"', "line 1: "),
        ('{"role": "coder", "advice": "x"}', "line 1: a coder gives code, not advice"),
        ('{"role": "coder", "code": "x", "reply": "y"}', "line 1: give exactly one of"),
        ('{"role": "coder", "kode": "x"}', "line 1: Object contains unknown field"),
        ("\n\n", "has no lines"),
    ],
)
def test_a_bad_script_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    """The message names the file, the line and the problem."""
    file = tmp_path / "bad.jsonl"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(UnknownModelError) as caught:
        make_model(f"script:{file}")

    assert words in str(caught.value)
    assert "bad.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "gpt-9", "script:", "script:/no/such/file", "replay:x"])
def test_an_unknown_model_is_one_line(name: str) -> None:
    """The message names the unknown model and what was expected."""
    with pytest.raises(UnknownModelError) as caught:
        make_model(name)

    assert str(caught.value).startswith(f"Unknown model {name!r}:")
    assert "\n" not in str(caught.value)
