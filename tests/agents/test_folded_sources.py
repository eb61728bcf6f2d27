"""Bodies that a request leaves out: they stay, come back by their mark, and are not guessed at."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_fakes import ROOT, TASK, make_plan, repair, solve, write
from msgspec.structs import replace

from actors.agents.planner import read_plan
from actors.agents.replies.anchors import insert_anchors
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.placed_anchors import marked_spans
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import ReplyProblem, fenced, parse_reply
from actors.agents.requests.folded import SHORT_SOURCE, editable_folds, shown_folds
from actors.agents.requests.styles import make_request
from protocol.messages import AgentWork
from protocol.settings import PromptStyle
from protocol.values import AttemptView, Candidate, FailedCandidate, Outcome, Plan, Verdict

WINNERS = sorted((Path(__file__).parents[2] / "docs/results").glob("level*.py"))
SOURCE = f'''import torch

CUDA = r"""
__device__ __forceinline__ void wait(unsigned bar, unsigned parity) {{
  asm volatile("mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;" :: "r"(bar), "r"(parity));
}}
__device__ float twice(float a) {{
  for (int i = 0; i < 2; ++i) a += a;
  return a * 0.123456789f + 0.123456789f * a;
}}
__global__ void first(float* x) {{
  wait(0, 0);
  x[threadIdx.x] = twice(x[threadIdx.x]);
}}
__global__ void second(float* x) {{
  wait(0, 1);
  x[threadIdx.x] += 1.0f;  {"// a long line" * 40}
}}
void run_first(float* x) {{
  first<<<1, 32>>>(x);  // launched with one block of a warp, which is enough
}}
void run_second(float* x) {{
  second<<<1, 32>>>(x);  // launched with one block of a warp, which is enough
}}
"""
{"# text" * (SHORT_SOURCE // 6)}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
'''
NODE = AttemptView(
    node=4, parent=0, source=SOURCE, verdict=Verdict(verdict=Outcome.CORRECT), score_us=20.0
)
FREE = Plan(advice="", scaffold="")
SOLVE = solve(node=NODE)
(WAIT,) = shown_folds(SOLVE)


def coder(advice: str = "Make it faster.") -> AgentWork:
    plan = Plan(advice=advice, scaffold=insert_anchors(SOURCE, 11, 14, ""))
    return write(plan, node=NODE)


def shown(work: AgentWork, style: PromptStyle = "compact") -> str:
    return make_request(work, 1000, style).render()


def answer(below: str) -> Candidate | ReplyProblem:
    return read_candidate(parse_reply(below), FREE, ShownLines(SOURCE, (), (WAIT,)))


def edit(title: str, new: str) -> Candidate | ReplyProblem:
    return answer(f"## Edits\n\n### {title}\n{fenced(new)}\n")


def placed(found: Candidate | ReplyProblem) -> str:
    assert isinstance(found, Candidate), found
    return found.source


def test_a_wrapper_is_shown_by_its_head() -> None:
    """What lies behind it is not sent; all else is."""
    for work in (SOLVE, make_plan(node=NODE)):
        text = shown(work)
        assert "4\t__device__ __forceinline__ void wait(unsigned bar, unsigned parity) {" in text
        assert "{ /* lines 5-6 */\n7\t__device__ float twice(float a) {\n" in text
        assert "mbarrier" not in text
        assert "x[threadIdx.x] += 1.0f" in text
    assert "mbarrier" in shown(SOLVE, "paper")


def test_a_coder_is_shown_what_its_plan_is_near_to() -> None:
    """The marked function, what it calls and what launches it; others by their heads."""
    assert [fold.name for fold in shown_folds(coder())] == ["wait", "second", "run_second"]
    named = shown_folds(coder("As in second, with two waits."))
    assert [fold.name for fold in named] == ["wait", "run_second"]


@pytest.mark.parametrize(
    "work",
    [
        repair(FREE, node=replace(NODE, verdict=Verdict(verdict=Outcome.WRONG))),
        solve(node=replace(NODE, verdict=Verdict(verdict=Outcome.CRASHED))),
        solve(node=replace(NODE, source=SOURCE.replace("# text", ""))),
        solve(node=ROOT, task=replace(TASK, source=SOURCE)),
        replace(coder(), node=replace(NODE, verdict=Verdict(verdict=Outcome.WRONG))),
        replace(SOLVE, node=replace(NODE, verdict=Verdict(verdict=Outcome.TIMED_OUT))),
    ],
)
def test_a_repair_and_a_short_source_are_shown_whole(work: AgentWork) -> None:
    """A fault may lie in any line."""
    assert shown_folds(work) == ()


def test_what_is_not_shown_stays_whatever_is_changed() -> None:
    text = placed(edit("line 12", "  wait(1, 0);"))
    assert text == SOURCE.replace("  wait(0, 0);", "  wait(1, 0);")
    after = placed(edit("after line 4", "__device__ int other() { return 1; }"))
    assert "parity));\n}\n__device__ int other()" in after


def test_a_mark_brings_the_body_back() -> None:
    """In a block whose place holds it, under another head, and in a whole file."""
    head = "__device__ void wait(unsigned bar, unsigned parity) {"
    new = placed(edit("line 4", f"{head} {WAIT.mark}"))
    assert new == SOURCE.replace("__device__ __forceinline__ void wait", "__device__ void wait")
    same = placed(edit("function wait", f"// waits\n{head}  /* lines 5–6 */ }}"))
    assert same == new.replace(head, f"// waits\n{head}")
    lines = SOURCE.split("\n")
    listing = "\n".join([*lines[:3], f"{lines[3]} {WAIT.mark}", *lines[6:]])
    whole = placed(answer(f"## Candidate\n\n{fenced(listing.replace('twice', 'doubled'))}"))
    assert whole == SOURCE.replace("twice", "doubled")


@pytest.mark.parametrize(
    ("title", "new", "words"),
    [
        ("line 5", "  ;", "were not shown"),
        ("lines 5-6", "}", "were not shown"),
        ("lines 2-5", "x", "were not shown"),
        ("line 12", f"  wait(0, 0); {WAIT.mark}", "stands for lines that stay"),
        ("after line 10", f"void other() {{ {WAIT.mark}", "stands for lines that stay"),
        ("line 4", "__device__ void wait(unsigned bar, unsigned parity) {", "no longer match"),
        ("line 4", "void wait(unsigned b) { /* lines 5-7 */", "no lines with these numbers"),
    ],
)
def test_lines_that_were_not_shown_are_asked_about(title: str, new: str, words: str) -> None:
    found = edit(title, new)
    assert isinstance(found, ReplyProblem)
    assert words in found.reason


def test_a_whole_file_without_a_function_that_it_calls_is_asked_about() -> None:
    lines = SOURCE.split("\n")
    found = answer(f"## Candidate\n\n{fenced(chr(10).join([*lines[:3], *lines[6:]]))}")
    assert isinstance(found, ReplyProblem)
    assert "calls wait, whose body was not shown" in found.reason
    listing = "\n".join([*lines[:3], f"{lines[3]} /* lines 6-7 */", *lines[6:]])
    found = answer(f"## Candidate\n\n{fenced(listing)}")
    assert isinstance(found, ReplyProblem)
    assert "no lines with these numbers" in found.reason
    unused = "\n".join([*lines[:3], *lines[6:]]).replace("wait(", "__syncthreads(")
    assert "void wait" not in placed(answer(f"## Candidate\n\n{fenced(unused)}"))


def test_a_planner_marks_a_function_with_its_body() -> None:
    for place in ("line 4", "function wait"):
        reply = parse_reply(f"## Advice\n\nx\n\n## Anchors\n\n- {place}: why\n")
        plan = read_plan(reply, SOURCE, folds=(WAIT,))
        assert isinstance(plan, Plan)
        assert marked_spans(plan, SOURCE) == ((4, 6),)
    inside = parse_reply("## Advice\n\nx\n\n## Anchors\n\n- line 5: why\n")
    assert isinstance(read_plan(inside, SOURCE, folds=(WAIT,)), ReplyProblem)


def test_what_an_answer_did_not_change_is_not_shown_to_it_again() -> None:
    """The first turn stays as it was; what the answer wrote is shown, and takes edits."""
    new = SOURCE.replace("x[threadIdx.x] += 1.0f;", "x[threadIdx.x] += 1.0f  // no semicolon")
    verdict = Verdict(verdict=Outcome.COMPILE_FAILED, reason="no ;", log="no ;")
    failed = FailedCandidate(source=new, reply="## Edits", verdict=verdict)
    work = replace(SOLVE, failed=failed)
    request = make_request(work, 1000, "compact")
    first, _, again = request.render().partition("[assistant]")
    assert first.strip() == shown(SOLVE).strip()
    assert "float twice(float a) { /* lines 8-10 */\n11\t__global__ void first" in again
    assert "// no semicolon" in again
    assert "mbarrier" not in again
    assert "mbarrier" in make_request(work, 1000, "paper").render().partition("[assistant]")[2]
    plan = ShownLines(new, (), editable_folds(work))
    line = "  x[threadIdx.x] += 1.0f;"
    found = read_candidate(parse_reply(f"## Edits\n\n### line 17\n{fenced(line)}"), FREE, plan)
    assert "+= 1.0f;\n}" in placed(found)
    assert placed(found).count("mbarrier") == 1


@pytest.mark.parametrize("winner", WINNERS, ids=lambda path: path.stem)
def test_published_winners_come_back_from_what_is_shown(winner: Path) -> None:
    """A model that copies the listing as its file changes nothing."""
    source = winner.read_text(encoding="utf-8")
    work = solve(node=replace(NODE, source=source))
    folds, lines = shown_folds(work), source.split("\n")
    marks = {fold.first - 1: f" {fold.mark}" for fold in folds}
    hidden = {n for fold in folds for n in range(fold.first, fold.last + 1)}
    listing = [
        f"{line}{marks.get(n, '')}" for n, line in enumerate(lines, start=1) if n not in hidden
    ]
    reply = parse_reply(f"## Candidate\n\n{fenced(chr(10).join(listing))}")
    assert placed(read_candidate(reply, FREE, ShownLines(source, (), folds))) == source
