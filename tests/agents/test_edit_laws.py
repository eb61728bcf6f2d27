"""Places and edits: what a model names is changed, or the model is asked; laws as properties."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pytest
from agent_fakes import CANDIDATE, TASK_SOURCE
from hypothesis import given
from hypothesis import strategies as st
from test_anchor_laws import CPP_LINES, PYTHON_LINES, sources, spans

import prompts
from actors.agents.planner import read_plan
from actors.agents.replies.anchors import AnchorProblem, lines_of, text_of
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.definitions import definitions_of
from actors.agents.replies.edits import EditedSource, edited_source
from actors.agents.replies.placed_anchors import marked_spans, placed_scaffold
from actors.agents.replies.places import Place, PlaceProblem, ShownLines
from actors.agents.replies.replies import ReplyProblem, fenced, parse_reply
from protocol.values import Candidate, Plan

KERNELS = '''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <vector>
template <typename T>
__global__ void scale(
    const T* x, T* y) {
    if (x[0] > 0) { y[0] = x[0]; }  // scale(x) {
}

torch::Tensor scale_all(torch::Tensor x);

struct Pair {
    float a, b;
};

torch::Tensor scale_all(torch::Tensor x) {
    const char* text = "}";
    scale<float><<<1, 1>>>(nullptr, nullptr);
    return x;
}
int twice(int a) {
    return a;
}
int twice(float a) {
    return a;
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    @torch.no_grad()
    def forward(self, x):
        return x
'''


def anchors_reply(*places: str) -> str:
    return "## Advice\n\nDo it.\n\n## Anchors\n\n" + "".join(f"- {place}\n" for place in places)


def edits_reply(*edits: tuple[str, Sequence[str]]) -> str:
    blocks = [f"### {title}\n\n{fenced(text_of(list(new)), 'cpp')}\n" for title, new in edits]
    return "## Edits\n\n" + "\n".join(blocks)


@st.composite
def named(draw: st.DrawFn) -> tuple[str, int, int, str]:
    """A source, lines of one language in it, and one of the ways to name them."""
    source, first, last = draw(spans())
    lines = lines_of(source)
    quotes = f"from `{lines[first - 1]}` to `{lines[last - 1]}`"
    way = draw(st.sampled_from([f"lines {first}-{last}", f"Lines {first} to {last}: why", quotes]))
    return source, first, last, way


@given(named())
def test_named_anchors_are_placed_or_asked_about(case: tuple[str, int, int, str]) -> None:
    """A place that is named by number is marked; one that is quoted is marked, or asked about."""
    source, first, last, way = case
    found = placed_scaffold(parse_reply(anchors_reply(way)), source)

    if isinstance(found, AnchorProblem):
        assert way.startswith("from")
        lines = [line.split() for line in lines_of(source)]
        ends = lines[first - 1], lines[last - 1]
        assert not all(ends) or any(lines.count(end) > 1 for end in ends) or "`" in str(ends)
    else:
        assert found.source_spans == ((first, last),)


@given(sources().filter(lambda text: bool(lines_of(text))), st.data())
def test_edits_change_what_they_name(source: str, data: st.DataObject) -> None:
    """Any disjoint edits, named in any order and way, give the intended text, or a question."""
    lines = lines_of(source)
    shown = ShownLines(source)
    cuts = data.draw(st.lists(st.integers(0, len(lines)), min_size=2, max_size=6, unique=True))
    cuts.sort()
    edits: list[tuple[str, list[str]]] = []
    intended: list[str] = []
    position = 0
    for start, stop in zip(cuts[::2], cuts[1::2], strict=False):  # lines [start, stop), from 0
        new = data.draw(st.lists(PYTHON_LINES | CPP_LINES, max_size=3))
        new = new if any(line.strip() for line in new) else []  # a blank block deletes
        way = data.draw(st.sampled_from(["lines", "quotes", "after"]))
        intended += lines[position:start]
        if way == "after":
            edits.append((f"after line {stop}", new))
            intended += [*lines[start:stop], *new]
        else:
            quoted = f"from `{lines[start]}` to `{lines[stop - 1]}`"
            title = f"lines {start + 1}-{stop}" if way == "lines" else quoted
            edits.append((title, new))
            intended += new
        position = stop
    intended += lines[position:]
    data.draw(st.randoms(use_true_random=False)).shuffle(edits)

    found = edited_source(parse_reply(edits_reply(*edits)), shown)

    if isinstance(found, ReplyProblem):
        by_number = all(not title.startswith("from") for title, _ in edits)
        refusals = ("change nothing", "would be there twice")  # no change, or a line twice
        assert not by_number or any(reason in found.reason for reason in refusals)
    else:
        assert found.source == text_of(intended)
        assert len(edits) == len(found.edits)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("function scale", "6-10"),
        ("kernel `scale`", "6-10"),
        ("function scale_all()", "18-22"),
        ("struct Pair", "14-16"),
        ("L6-L10 (the kernel)", "6-10"),
        ("from line 6 to line 10: the kernel", "6-10"),
        ("12", "12-12"),
        ("class ModelNew", "32-38"),
        ("method ModelNew.forward", "36-38"),
        ("def forward", "36-38"),
        ("from `#include <vector>` to `template <typename T>`: both", "5-6"),
        ('line `const char* text = "}";`', "19-19"),
    ],
)
def test_a_name_is_the_whole_definition(name: str, lines: str) -> None:
    """A function goes from its template or decorator to its brace, whatever strings hold."""
    found = ShownLines(KERNELS).find(name)

    assert isinstance(found, Place), found
    assert lines == f"{found.first}-{found.last}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("function twice", "there are 2 of function twice, on lines 23-25, 26-28"),
        ("function missing", "there are: scale, scale_all, twice"),
        ("from `return a;` to `}`", "is on lines 24, 27: which one is meant?"),
        ("from `struct Pair` to `};`", "it is a part of line 14"),
        ("from `return` to `}`", "it is a part of lines "),
        ("line `return y;`", "no whole line of the source reads"),
        ("lines 30-400", "the source has lines 1-38"),
        ("lines 9-8", "lines 9-8 do not exist"),
        ("span 1", "the source has no marked spans"),
        ("somewhere in forward", "names no place"),
        ("lines 5-6 and the class", "names no place"),
        ("lines 5-6, 9", "names no place"),
        ("from `return x` to `#include <vector>`", "is on lines"),
    ],
)
def test_an_unclear_place_is_a_question(name: str, words: str) -> None:
    """A name or quote that fits twice or nowhere chooses no line, and the question says why."""
    found = ShownLines(KERNELS.replace("    return x;", "    return x")).find(name)

    assert isinstance(found, PlaceProblem), found
    assert words in found.reason


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (("lines 2-6",), "the string's own lines are 5-28, and line 4 begins it"),
        (("lines 18-29",), "lines 18-29 begin in the text of a string and end in Python"),
        (("lines 6-10", "lines 9-9"), "overlap: which of them is to change?"),
        (("class ModelNew", "function forward"), "overlap"),
        ((), "it names no place"),
    ],
)
def test_a_planner_is_asked_about_places_that_can_not_be_marked(
    places: tuple[str, ...], words: str
) -> None:
    """Nested places and a place in two languages are no plan: the reason says what is wrong."""
    found = read_plan(parse_reply(anchors_reply(*places)), KERNELS)

    assert isinstance(found, ReplyProblem)
    assert words in found.reason


def test_a_named_plan_equals_a_copied_one() -> None:
    """The stored plan is the one that a planner would have had to copy, notes included."""
    places = ("function scale: one thread an element", "function forward")
    plan = read_plan(parse_reply(anchors_reply(*places)), KERNELS)
    assert isinstance(plan, Plan)

    copied = f"## Advice\n\nDo it.\n\n## Source\n\n{fenced(plan.scaffold)}\n"

    assert read_plan(parse_reply(copied), KERNELS) == plan
    assert "/* one thread an element */" in plan.scaffold
    both = read_plan(parse_reply(copied + anchors_reply(*places)), KERNELS)
    assert both == plan
    other = read_plan(parse_reply(copied + anchors_reply("function forward")), KERNELS)
    assert isinstance(other, ReplyProblem)


def test_an_answer_of_both_forms_is_one_file_or_a_question() -> None:
    """Edits and a whole file that agree are taken; where they differ, the model is asked."""
    edits = edits_reply(("lines 7-7", ["        y[i] = 0.5f * (x[i] + 1.0f);"]))
    new = CANDIDATE.replace("(x[i] + 1.0f) * 0.5f", "0.5f * (x[i] + 1.0f)")
    plan, shown = Plan(advice="", scaffold=""), ShownLines(CANDIDATE)
    whole = f"\n## Candidate\n\n{fenced(new)}\n"

    told = ("lines 7-7: 1 line becomes 1",)
    wanted = Candidate(source=new, edits=told)
    assert read_candidate(parse_reply(edits), plan, shown) == wanted
    assert read_candidate(parse_reply(edits + whole), plan, shown) == wanted
    other = parse_reply(edits + whole.replace("0.5f * (x", "0.25f * (x"))
    found = read_candidate(other, plan, shown)
    assert isinstance(found, ReplyProblem)
    assert "both" in found.reason


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (edits_reply(("lines 1-2", ["a"]), ("line 2", ["b"])), "overlap: join them"),
        (edits_reply(("lines 7-7", ["7\ty"])), "line numbers"),
        (edits_reply(("line 7", ["        y[i] = (x[i] + 1.0f) * 0.5f;"])), "change nothing"),
        (edits_reply(("class ModelNew", ["class Other: pass"])), "defines no class ModelNew"),
        (edits_reply(("line 15", ["class ModelNew("])), "with the edits in place, the code is no"),
        ("## Edits\n\n### line 7\n", "has 0 blocks"),
        ("## Edits\n\n```cpp\nx\n```\n", "no heading that names its place"),
        ("## Edits\n\nNothing.\n", "there is no edit"),
        ("## Edits\n\n### line 7\n```cpp\na\n### line 8\n```cpp\nb\n```\n", "close each block"),
    ],
)
def test_an_edit_that_can_not_be_placed_is_a_question(reply: str, words: str) -> None:
    """Overlaps, numbered lines, missing blocks and broken files are told to the model."""
    plan, shown = Plan(advice="", scaffold=""), ShownLines(CANDIDATE)
    found = read_candidate(parse_reply(reply), plan, shown)

    assert isinstance(found, ReplyProblem), found
    assert words in found.reason


def test_a_span_may_be_replaced_across_languages() -> None:
    """Edits are lines: one that begins in Python and ends in C++ replaces exactly these."""
    new = ["import math", 'source = r"""', "// new"]
    found = edited_source(parse_reply(edits_reply(("lines 2-5", new))), ShownLines(CANDIDATE))

    lines = lines_of(CANDIDATE)
    assert isinstance(found, EditedSource)
    assert found.source == text_of([lines[0], *new, *lines[5:]])


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_line_ends_and_tabs_stay(end: str) -> None:
    """A source with CRLF and tabs keeps both; a reply's own line ends do not matter."""
    source = CANDIDATE.replace("        y[i]", "\t\ty[i]").replace("\n", end)
    reply = edits_reply(
        ("from `for (long i = 0; i < n; ++i) {` to `  y[i] = (x[i] + 1.0f) * 0.5f;`",
         ["\tfor (;;) {", "\t\tbreak;"]),
    ).replace("\n", "\r\n")  # fmt: skip

    found = edited_source(parse_reply(reply), ShownLines(source))

    assert isinstance(found, EditedSource)
    found = found.source
    assert f"{end}\tfor (;;) {{{end}\t\tbreak;{end}    }}{end}" in found
    assert found.count("\r") == (found.count("\n") if end == "\r\n" else 0)


def test_five_thousand_lines() -> None:
    """In a long source a name is found, and a place by number is exact."""
    functions = [f"int f{n}(int a) {{\n    return a + {n};\n}}" for n in range(1700)]
    source = CANDIDATE.replace('extern "C"', "\n".join([*functions, 'extern "C"']))
    assert len(lines_of(source)) > 5000

    plan = read_plan(parse_reply(anchors_reply("function f1650")), source)
    new = ["int f1650(int a) {", "    return a;", "}"]
    found = edited_source(parse_reply(edits_reply(("function f1650", new))), ShownLines(source))

    assert isinstance(plan, Plan)
    assert isinstance(found, EditedSource)
    assert found.source == source.replace("    return a + 1650;", "    return a;")


def test_an_edit_of_the_module_makes_model_new() -> None:
    """Edits of the task's own source rename its class, and nothing else that is called so;
    the functions that make inputs go."""
    source = TASK_SOURCE.replace('"""Adds', '"""Model adds')
    found = edited_source(
        parse_reply(edits_reply(("line 12", ["        y = x + 1.0  # Model"]))), ShownLines(source)
    )

    assert isinstance(found, EditedSource)
    found = found.source
    assert "class ModelNew(nn.Module):" in found
    assert '"""Model adds' in found
    assert "y = x + 1.0  # Model\n" in found
    assert found.endswith("        return y / 2.0\n")
    compile(found, "candidate", "exec")


@pytest.mark.parametrize(
    "text",
    [
        "#if X\nint f(int a) {\n#else\nint f(long a) {\n#endif\n}",
        'int f(int a) {\n    g(R"(}\n)");\n}',
        "Pair::f(int a) : x(a), y{2} {\n}",
        "int f(int a);",
        "if (f(1)) {\n}",
    ],
)
def test_what_is_not_surely_a_definition_is_none(text: str) -> None:
    """Unbalanced braces, raw strings, constructors and calls: no lines rather than wrong ones."""
    found = ShownLines(f'code = r"""\n{text}\n"""\n').find("function f")

    assert isinstance(found, PlaceProblem)


def test_edits_without_their_first_heading_are_edits() -> None:
    """A class under a heading that names its place is no whole file, with or without '## Edits'."""
    new = ["class ModelNew(nn.Module):", "    def forward(self, x):", "        return x"]
    reply = edits_reply(("class ModelNew", new)).removeprefix("## Edits\n")
    shown = ShownLines(CANDIDATE)

    found = read_candidate(parse_reply(reply), Plan(advice="", scaffold=""), shown)

    assert isinstance(found, Candidate)
    assert found.source.startswith("import torch\n")
    assert found.source.endswith("        return x\n")


@given(st.lists(st.sampled_from(["int f(int a) {", "}", "{", '"', "/*", "*/", "f(1);", "x"])))
def test_definitions_of_broken_text_do_not_fail(lines: list[str]) -> None:
    """Whatever a string holds, looking for definitions returns lines of the source."""
    source = 'code = r"""\n' + "\n".join(lines).replace('"""', "") + '\n """\n'

    for one in definitions_of(source):
        assert 1 <= one.first <= one.last <= len(lines_of(source))


@pytest.mark.parametrize("backend", ["cpp", "cuda", "triton"])
def test_edits_of_the_same_work_are_at_most_half_as_long(backend: str) -> None:
    """The example's second attempt, answered as named places and edits: the same plan and the same
    candidate, in half of the characters of its copied form."""
    first = prompts.read(f"examples/{backend}-first.py")
    after = prompts.read(f"examples/{backend}-after.py")
    copied_plan = prompts.read(f"examples/{backend}-plan-2.md")
    copied_code = f"## Candidate\n\n{fenced(after)}\n"
    plan = read_plan(parse_reply(copied_plan), first)
    assert isinstance(plan, Plan)
    spans = marked_spans(plan, first)
    named_plan = f"## Advice\n\n{plan.advice}\n\n## Anchors\n\n" + "".join(
        f"- lines {start}-{stop}\n" for start, stop in spans
    )
    old, new = lines_of(first), lines_of(after)
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    edits = edits_reply(
        *(
            (f"lines {i1 + 1}-{i2}" if i2 > i1 else f"after line {i1}", new[j1:j2])
            for tag, i1, i2, j1, j2 in changes
            if tag != "equal"
        )
    )

    named = read_plan(parse_reply(named_plan), first)
    found = read_candidate(parse_reply(edits), plan, ShownLines(first, spans))

    assert isinstance(named, Plan)
    assert spans == marked_spans(named, first)
    assert isinstance(found, Candidate)
    assert after == found.source
    assert len(named_plan) + len(edits) <= (len(copied_plan) + len(copied_code)) / 2
