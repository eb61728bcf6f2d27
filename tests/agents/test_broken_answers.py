"""Answers that were cut off, wrapped in other markdown, or spread over files: right, or asked."""

from __future__ import annotations

import pytest
from agent_fakes import CANDIDATE, TASK_SOURCE
from hypothesis import given
from hypothesis import strategies as st
from test_edit_laws import KERNELS, anchors_reply, edits_reply

from actors.agents.planner import read_plan
from actors.agents.replies.anchors import lines_of, text_of
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.edits import EditedSource, edited_source
from actors.agents.replies.places import Place, ShownLines
from actors.agents.replies.replies import ReplyProblem, fenced, is_open_ended, parse_reply
from protocol.values import Candidate, Plan

STORE = "        y[i] = 2.0f;"
FREE = Plan(advice="", scaffold="")
# Lines of KERNELS, and what replaces them: (place, first, last, new lines).
EDITS = (
    ("line 5", 5, 5, ["#include <array>"]),
    ("lines 14-16", 14, 16, ["struct Pair {", "    double a, b;", "};"]),
    ("function ModelNew.forward", 37, 38, ["    def forward(self, x):", "        return x + 1"]),
)


def applied(count: int) -> str:
    """KERNELS with the first edits in it."""
    lines = lines_of(KERNELS)
    for _, first, last, new in reversed(EDITS[:count]):
        lines[first - 1 : last] = new
    return text_of(lines)


def answer(text: str, source: str = CANDIDATE) -> Candidate | ReplyProblem:
    return read_candidate(parse_reply(text), FREE, ShownLines(source))


@given(st.data())
def test_an_answer_that_was_cut_off_is_asked_about(data: st.DataObject) -> None:
    """Wherever it ends, it is a question or holds whole edits alone; and it may go on."""
    whole = edits_reply(*((place, new) for place, _, _, new in EDITS))
    text = whole[: data.draw(st.integers(0, len(whole)))]
    reply = parse_reply(text)
    found = edited_source(reply, ShownLines(KERNELS))
    if isinstance(found, EditedSource):
        assert found.source in [applied(count) for count in (1, 2, 3)]
        assert is_open_ended(reply)


@given(st.data())
def test_markdown_around_an_edit_does_not_matter(data: st.DataObject) -> None:
    """Lists, emphasis, sizes of headings, languages, line ends: the same lines are replaced."""
    parts = ["## Edits\n"]
    for place, _, _, new in EDITS:
        mark, indent = data.draw(st.sampled_from([("", ""), ("- ", "  "), ("2. ", "   ")]))
        emphasis = data.draw(st.sampled_from(["", "**", "`", "*"]))
        heading = data.draw(st.sampled_from(["##", "###", "####"]))
        language = data.draw(st.sampled_from(["", "cpp", "python", "cuda title=x.cu"]))
        end = data.draw(st.sampled_from(["", ": why", " (the second)"]))
        fence = data.draw(st.sampled_from(["```", "~~~", "````"]))
        title = f"{emphasis}{place}{emphasis}{end}"
        body = [f"{indent}{line}" for line in new]
        block = [f"{mark}{fence}{language}", *body, f"{indent}{fence}"]
        parts += [f"{heading} {title}", "", *block, ""]
    text = data.draw(st.sampled_from(["\n", "\r\n"])).join(parts)
    found = edited_source(parse_reply(text), ShownLines(KERNELS))
    assert isinstance(found, EditedSource), (found, text)
    assert applied(3) == found.source


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"## Edits\n\n### line 7\n```cpp\n{STORE}", "was never closed"),
        ("## Edits\n\n### line 7\n```cpp", "was never closed"),  # an empty block would delete it
        (f"## Edits\n\n### line 7 (and 6)\n```cpp\n{STORE}\n```\n", "names further lines"),
        (f"## Edits\n\n### line 7: and line 9\n```cpp\n{STORE}\n```\n", "names further lines"),
        (f"## Edits\n\n### line 7\n> ```cpp\n> {STORE}\n> ```\n", "has 0 blocks"),
        (f"## Edits\n\n### lines 6\u22c57\n```cpp\n{STORE}\n```\n", "names no place"),
        (f"## Edits\n\n### l\u0456ne 7\n```cpp\n{STORE}\n```\n", "names no place"),
        (f"## Edits\n\n### line\u200b 7\n```cpp\n{STORE}\n```\n", "names no place"),
        (f"## Edits\n\n### line 7\n```cpp\n{STORE}\n```\n```cpp\n//\n```\n", "has 2 blocks"),
        ("## Advice\n```python\nclass ModelNew: pass\n```\n## Candidate\n\nAs above.\n", "no code"),
        (
            "## Candidate\n```python\nfrom .k import f\nclass ModelNew: pass\n```\n",
            "from its own folder",
        ),
        (
            "## Candidate\n### kernels.py\n```python\nX = 1\n```\n### model.py\n"
            "```python\nfrom kernels import X\nclass ModelNew: pass\n```\n",
            "another file, kernels.py",
        ),
        (
            "## Candidate\n`k.cu`:\n```cuda\nint x;\n```\n"
            "```python\nF = ['k.cu']\nclass ModelNew: pass\n```\n",
            "another file, k.cu",
        ),
    ],
)
def test_what_is_not_one_whole_answer_is_asked_about(text: str, words: str) -> None:
    """Open blocks, second places in a note, look-alikes, quotations, sketches, further files."""
    found = answer(text)
    assert isinstance(found, ReplyProblem), found
    assert words in found.reason


def test_places_in_advice_are_no_edits() -> None:
    """A heading that speaks of lines, without a block, does not make a whole file ambiguous."""
    new = CANDIDATE.replace("0.5f", "0.25f")
    prose = "## Advice\n\n### Lines 5-7 are slow\n\nThey are.\n\n### Line 7\n\nHere.\n\n"
    found = answer(f"{prose}## Candidate\n\n{fenced(new)}\n")
    assert isinstance(found, Candidate)
    assert new == found.source
    found = answer(f"{prose}{edits_reply(('line 7', [STORE]))}")
    assert isinstance(found, Candidate)
    assert STORE in found.source
    sub = answer(f"## Candidate\n\n### The whole file\n\n{fenced(new)}\n")
    assert isinstance(sub, Candidate)
    assert new == sub.source


@pytest.mark.parametrize("macro", ["DEFINE_OP(add)", "LAUNCH_BOUNDS (256, 2)"])
def test_a_macro_above_a_function_is_not_replaced_with_it(macro: str) -> None:
    """A call on a line of its own registers something, or belongs to the head: it is asked."""
    source = KERNELS.replace("template <typename T>", f"{macro}\ntemplate <typename T>")
    edit = edits_reply(("function scale", ["void scale() {", "}"]))
    found = edited_source(parse_reply(edit), ShownLines(source))
    assert isinstance(found, ReplyProblem)
    bounds = source.replace(macro, "__launch_bounds__(256)")
    assert isinstance(edited_source(parse_reply(edit), ShownLines(bounds)), EditedSource)


def test_a_planner_may_name_the_whole_file() -> None:
    """Where most of it will be new there is no line to choose."""
    plan = read_plan(parse_reply(anchors_reply("whole file: a new design")), TASK_SOURCE)
    assert isinstance(plan, Plan)
    lines = lines_of(TASK_SOURCE)
    assert len(lines) == plan.spans[0][1] - plan.spans[0][0] + 1
    found = ShownLines(KERNELS).find("the whole source")
    assert isinstance(found, Place)
    assert (found.first, found.last) == (1, len(lines_of(KERNELS)))


def test_a_sketch_is_no_whole_file() -> None:
    """A comment in place of code is asked about; where another block is whole, that one counts."""
    store = next(line for line in lines_of(CANDIDATE) if "y[i] =" in line)
    sketch = CANDIDATE.replace(store, "        // ... as before ...")
    shown = ShownLines(CANDIDATE)
    reply = f"## Candidate\n\n{fenced(sketch)}\n"
    found = read_candidate(parse_reply(reply), Plan(advice="", scaffold=""), shown)
    assert isinstance(found, ReplyProblem)
    assert "leaves lines out ('// ... as before ...')" in found.reason
    both = f"## Candidate\n\n{fenced(CANDIDATE)}\n\nIn short:\n\n{fenced(sketch)}\n"
    found = read_candidate(parse_reply(both), Plan(advice="", scaffold=""), shown)
    assert found == Candidate(source=CANDIDATE)
