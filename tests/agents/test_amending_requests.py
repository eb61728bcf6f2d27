"""A candidate that failed is mended in the conversation that it came from."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_fakes import (
    CANDIDATE,
    TASK_SOURCE,
    FakeContext,
    RecordedModel,
    reflect,
    repair,
    solve,
    write,
)
from msgspec.structs import replace

from actors.agents.coder import Coder
from actors.agents.debugger import Debugger
from actors.agents.model_client import ModelClient
from actors.agents.models.replay_key import without_measurements
from actors.agents.recipes import answer
from actors.agents.replies.replies import fenced
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.error_line import first_error_line
from actors.agents.requests.knowledge import RequestKnowledge
from actors.agents.requests.styles import make_request
from protocol.facts import VerdictFacts
from protocol.messages import AgentWork, Repaired, ReplyUnusable, Solve, Written
from protocol.values import FailedCandidate, Outcome, Plan, Verdict

BROKEN = CANDIDATE.replace("y[i] = (x[i]", "y[i] = (xs[i]")
REPLY = f"## Candidate\n\n{fenced(BROKEN)}\n"
FAILED = FailedCandidate(
    source=BROKEN,
    reply=REPLY,
    verdict=Verdict(
        verdict=Outcome.COMPILE_FAILED,
        stage="build",
        reason="no build",
        log="half.cpp:4: error: 'xs' was not declared",
        facts=VerdictFacts(fault_location="line 4 of half"),
    ),
)
PLAN = Plan(advice="Fuse.", scaffold=TASK_SOURCE)
WORKS = {"write": write(PLAN), "repair": repair(PLAN), "solve": solve(), "reflect": reflect("Why.")}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_the_conversation_begins_with_the_same_request(work: AgentWork) -> None:
    """Up to the answer both requests are the same bytes, so that what a server has cached serves;
    then come the answer, the judge's text and the file with numbers."""
    first = make_request(work, 1000, "compact")
    second = make_request(replace(work, failed=FAILED), 1000, "compact")
    assert second.render().startswith(first.render().rstrip("\n"))
    assert (first.system, first.stable_text) == (second.system, second.stable_text)
    (turn,) = second.turns
    assert REPLY.strip() == turn.reply
    assert "compile failed" in turn.problem
    assert "'xs' was not declared" in turn.problem
    assert "5\textern" in turn.problem


def answered(tmp_path: Path, work: AgentWork, reply: str) -> object:
    client = ModelClient(RecordedModel(reply, reply), ReplySpool(tmp_path / "spool"))
    agent = (Debugger if work is WORKS["repair"] or "repair" in work.lease.work else Coder)(
        client, 1000, "compact"
    )
    return agent.work(work, FakeContext())


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_edits_belong_to_the_file_that_failed(work: AgentWork, tmp_path: Path) -> None:
    """Places are those of the listing that was shown last, and the mended file is whole."""
    line = next(n for n, text in enumerate(BROKEN.splitlines(), 1) if "xs[i]" in text)
    edit = "        y[i] = (x[i] + 1.0f) * 0.5f;"
    reply = f"## Edits\n\n### lines {line}-{line}\n{fenced(edit, 'cpp')}\n"
    result = answered(tmp_path, replace(work, failed=FAILED), reply)
    assert isinstance(result, Written | Repaired)
    assert CANDIDATE == result.candidate.source


def test_a_span_of_the_plan_is_no_place_of_the_file(tmp_path: Path) -> None:
    """Spans were marked in the source before; an edit of one is asked about, not guessed."""
    reply = f"## Edits\n\n### span 1\n{fenced('        pass')}\n"
    result = answered(tmp_path, replace(WORKS["write"], failed=FAILED), reply)
    assert isinstance(result, ReplyUnusable)


def test_logs_and_figures_are_no_part_of_the_replay_key() -> None:
    """Made again on another machine, the same failure has another log, and the reply still fits."""
    again = replace(FAILED, verdict=replace(FAILED.verdict, log="elsewhere/half.cpp:4", reason="?"))
    one, other, different = (
        without_measurements(make_request(replace(solve(), failed=f), 1000, "compact").render())
        for f in (FAILED, again, replace(FAILED, reply="another answer"))
    )
    assert one == other
    assert one != different


def test_only_facts_that_requests_may_show_are_shown() -> None:
    """`--knowledge none` hides what a profiler or a crash tool said here, too."""
    work: Solve = replace(solve(), failed=FAILED)
    shown = make_request(work, 1000, "compact").render()
    hidden = make_request(work, 1000, "compact", RequestKnowledge(kind="none")).render()
    assert "line 4 of half" in shown
    assert "line 4 of half" not in hidden


def test_the_rule_book_has_no_second_answer() -> None:
    """The same work has the same answer: it says so, and the first verdict stands."""
    assert answer(replace(write(PLAN), failed=FAILED)).startswith("## Cannot")


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("main.cpp:2:9: error: 'xs' was not declared\n    2 |   y = xs;\n      |  ^", 4),
        ("main.cpp: In function 'f':\nmain.cpp:2:9: error: no\n    2 |   y = xs;", 4),
        ("cuda.cu(2): error: no\n    y = xs;\n     ^", 4),
        ("cuda.cu(2): warning: no\n    y = xs;\n", None),  # only an error is looked for
        ("cuda.cu(3): error: no\n    x = 1;\n", None),  # which of two lines is not known
        ("cuda.cu(3): error: no\n", None),
        ("ptxas fatal : too many registers", None),
    ],
)
def test_a_compilers_line_is_named_in_the_numbered_source(log: str, line: int | None) -> None:
    """A compiler counts the lines of its own file, and an edit takes those of the listing."""
    source = 'import torch\nC = r"""\nx = 1;\n  y = xs;\nx = 1;\n"""\n'
    told = f"The compiler's first error is in line {line} of the numbered source."
    assert (told if line else "") == first_error_line(log, source)
    failed = replace(FAILED, source=source, verdict=replace(FAILED.verdict, log=log))
    text = make_request(replace(solve(), failed=failed), 1000, "compact").render()
    assert bool(line) == (told in text)
