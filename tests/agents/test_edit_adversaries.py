"""Edits that go wrong in practice: placed as meant, or one question back, never a wrong place."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from agent_fakes import CANDIDATE
from hypothesis import given
from hypothesis import strategies as st
from test_edit_laws import KERNELS, edits_reply

from actors.agents.replies.anchors import lines_of, text_of
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.definitions import definitions_of
from actors.agents.replies.edits import EditedSource, edited_source
from actors.agents.replies.places import Place, PlaceProblem, ShownLines
from actors.agents.replies.replies import ReplyProblem, fenced, parse_reply
from protocol.values import Candidate, Plan

# Line ends of other systems, and characters that some functions take for line ends.
ODD = ("\r\n", "\n\t", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\u00a0", "\ufeff", "é")
FUNCTION = "def f{n}(a):\n    b = '{odd}'\n    return a + b + 'value {n}'\n"


@st.composite
def odd_sources(draw: st.DrawFn) -> str:
    """A Python file of functions, tabs, C++ text and odd characters, with either line end."""
    parts = []
    for n in range(draw(st.integers(1, 6))):
        odd = draw(st.sampled_from(("", *ODD[2:])))
        parts.append(FUNCTION.format(n=n, odd=odd))
        if draw(st.booleans()):
            parts.append(
                f'cpp{n} = r"""\nint g{n}(int a) {{\n\treturn a + {n};  // {odd}\n}}\n"""\n'
            )
    text = "\n".join(parts)
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@given(odd_sources(), st.data())
def test_a_named_function_is_replaced_whole_whatever_characters_the_source_has(
    source: str, data: st.DataObject
) -> None:
    """Only its own lines change; every other line stays as it was, byte for byte."""
    known = [one for one in definitions_of(source) if one.name[0] in "fg"]
    one = data.draw(st.sampled_from(known))
    lines = lines_of(source)
    assert re.match(rf"\s*(def|int) {one.name}\(", lines[one.first - 1])
    new = [f"{one.name} = None"]
    found = edited_source(
        parse_reply(edits_reply((f"function {one.name}", new))), ShownLines(source)
    )
    assert isinstance(found, EditedSource)
    end = "\r" if "\r\n" in source else ""
    kept = [*lines[: one.first - 1], f"{new[0]}{end}", *lines[one.last :]]
    assert text_of(kept) == found.source


@given(odd_sources(), st.data())
def test_a_quoted_line_is_its_own_or_is_asked_about(source: str, data: st.DataObject) -> None:
    """A quote with other blanks still means its line; one that stands twice chooses none."""
    lines = lines_of(source)
    number = data.draw(st.integers(1, len(lines)))
    words = lines[number - 1].split()
    if not words or "`" in lines[number - 1]:
        return
    blanks = data.draw(st.sampled_from([" ", "  ", "\t"]))
    found = ShownLines(source).find(f"line `{blanks.join(words)}`")
    if isinstance(found, Place):
        assert (found.first, found.last) == (number, number)
    else:
        assert sum(line.split() == words for line in lines) > 1 or not words


def test_a_lone_carriage_return_makes_no_name_a_place() -> None:
    """Python counts it as a line end and a model sees none: names are asked about, numbers hold."""
    source = "x = '''a\rb'''\ndef f(a):\n    return a\ny = 1\n"
    assert isinstance(ShownLines(source).find("function f"), PlaceProblem)
    found = edited_source(parse_reply(edits_reply(("line 4", ["y = 2"]))), ShownLines(source))
    assert isinstance(found, EditedSource)
    assert source.replace("y = 1", "y = 2") == found.source


STORE = "        y[i] = (x[i] + 1.0f) * 0.5f;"
LOOP = "    for (long i = 0; i < n; ++i) {"


@pytest.mark.parametrize(
    ("title", "new", "words"),
    [
        ("line 7", [LOOP, "        y[i] = 2.0f;"], "also holds line 6"),
        ("lines 5-5", ["void half() {", LOOP], "also holds line 6"),
        ("line 7", [f"7\t{STORE}", "        y[0] = 1.0f;"], "line numbers"),
        ("lines 5-8", ["void half() {", "    // ... as before ...", "}"], "leaves lines out"),
        ("class ModelNew", ["class ModelNew(nn.Module):", "    # … unchanged"], "leaves lines out"),
    ],
)
def test_what_is_likely_a_slip_is_asked_about(title: str, new: list[str], words: str) -> None:
    """Lines that are one off, copied numbers, left-out code: the question says which."""
    reply = parse_reply(edits_reply((title, new)))
    found = read_candidate(reply, Plan(advice="", scaffold=""), ShownLines(CANDIDATE))
    assert isinstance(found, ReplyProblem), found
    assert words in found.reason


@pytest.mark.parametrize(
    ("title", "new"),
    [
        ("lines 6-7", [LOOP, STORE, STORE]),
        ("after line 7", [STORE]),  # an insertion may repeat the line beside it
        ("line 7", ["        y[i] = 1.0f;", "    }"]),  # a bracket tells nothing
    ],
)
def test_a_line_may_stand_twice_where_that_is_plain(title: str, new: list[str]) -> None:
    """Unrolled code repeats lines: no question where the named lines hold them."""
    found = edited_source(parse_reply(edits_reply((title, new))), ShownLines(CANDIDATE))
    assert isinstance(found, EditedSource), found


def test_a_difference_in_place_of_new_lines_is_asked_about() -> None:
    """A block of '-' and '+' lines is no text of the file."""
    change = "-        y[i] = 0.0f;\n+        y[i] = 1.0f;"
    for language, text in (("diff", change), ("patch", change), ("cpp", f"@@ -7 +7 @@\n{change}")):
        reply = parse_reply(f"## Edits\n\n### line 7\n{fenced(text, language)}\n")
        found = edited_source(reply, ShownLines(CANDIDATE))
        assert isinstance(found, ReplyProblem)
        assert "is a diff" in found.reason


def test_a_remark_between_edits_is_no_edit() -> None:
    """A heading with words alone changes nothing; a place without its block is asked about."""
    edit = edits_reply(("line 7", ["        y[i] = 1.0f;"]))
    found = edited_source(
        parse_reply(f"{edit}\n### Why this is right\n\nIt is.\n"), ShownLines(CANDIDATE)
    )
    assert isinstance(found, EditedSource)
    assert len(found.edits) == 1
    without = edited_source(parse_reply(f"{edit}\n### line 9\n\nIt is.\n"), ShownLines(CANDIDATE))
    assert isinstance(without, ReplyProblem)


def test_a_heading_inside_a_block_is_code() -> None:
    """Markdown in a docstring or comment of the new lines names no place."""
    new = [
        "        # ### line 1",
        "        # ## Candidate",
        "        return (x + 1.0) * 0.5  # same",
    ]
    last = len(lines_of(CANDIDATE))
    found = edited_source(parse_reply(edits_reply((f"line {last}", new))), ShownLines(CANDIDATE))
    assert isinstance(found, EditedSource)
    assert found.source.endswith(text_of(new))


NESTED = {"lines 6-10": (6, 10), "line 8": (8, 8), "after line 7": (7.5, 7.5),
          "function scale": (6, 10), "lines 5-6": (5, 6)}  # fmt: skip


@given(st.permutations([*NESTED]), st.data())
def test_nested_places_are_never_both_applied(titles: list[str], data: st.DataObject) -> None:
    """Of places that share lines, in any order, none is applied: the question names two of them."""
    chosen = titles[: data.draw(st.integers(2, 5))]
    ends = sorted(NESTED[title] for title in chosen)
    overlap = any(other[0] <= one[1] for one, other in pairwise(ends))
    reply = edits_reply(*((title, [f"// new {title}"]) for title in chosen))
    found = edited_source(parse_reply(reply), ShownLines(KERNELS))
    assert isinstance(found, ReplyProblem) == overlap
    if isinstance(found, ReplyProblem):
        assert "overlap: join them" in found.reason


TWO_KERNELS = '''import torch
import torch.nn as nn

source = r"""
__device__ float one_more(float a) {
  return a + 1.0f;
}

__global__ void add(const float* x, float* y, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = one_more(x[i]);
}
"""


class ModelNew(nn.Module):
    def extra_repr(self):
        return "one more"

    def forward(self, x):
        y = x + 1.0
        return y
'''
BODY = "  int i = blockIdx.x * 512 + threadIdx.x;"
MORE = "__device__ float one_more(float a) {\n  return a + 2.0f;\n}\n"


def read_two_kernels(text: str) -> Candidate | ReplyProblem:
    reply = parse_reply(f"## Advice\n\nDo it.\n\n## Edits\n\n{text}")
    return read_candidate(reply, Plan(advice="", scaffold=""), ShownLines(TWO_KERNELS))


@pytest.mark.parametrize(
    ("title", "new", "words"),
    [
        ("line 10", f"10\t{BODY}\n  // of 512 threads", "line numbers"),
        ("line 10", f"-  int i = blockIdx.x * 256 + threadIdx.x;\n+{BODY}", "is a diff"),
        (
            "line 10",
            f"<<<<<<< SEARCH\n  int i;\n=======\n{BODY}\n>>>>>>> REPLACE",
            "search-and-replace marks",
        ),
        ("lines 10-11", f"{BODY}\n  // the rest of the kernel stays unchanged", "leaves lines out"),
        ("lines 10-11", f"{BODY}\n  /* existing code */", "leaves lines out"),
        ("lines 21-22", "        ...\n        return y", "leaves lines out"),
        ("lines 10-11", f"{BODY}\n  y[i] = 1.0f;\n}}", "no longer match"),
        ("lines 9-10", BODY, "no longer match"),
        ("kernel add (and one_more)", f"{MORE}__global__ void add() {{\n}}", "defined twice"),
        ("function forward", "def forward(self, x):\n    return x + 1.0", "is outside its class"),
        ("line 10 (which also changes line 11)", BODY, "names further lines"),
        ("from `" + "a " * 2000 + "` to `b`", BODY, "can't be placed"),
    ],
)
def test_what_edits_would_break_is_asked_about(title: str, new: str, words: str) -> None:
    """What a compiler, or nothing at all, would notice: text that is none of the file, brackets
    without their pair, a definition twice or outside of its class."""
    found = read_two_kernels(f"### {title}\n```cpp\n{new}\n```\n")
    assert isinstance(found, ReplyProblem), found
    assert words in found.reason


@pytest.mark.parametrize(
    ("title", "new"),
    [
        ("line 10", f"{BODY}  // the rest of the block waits"),
        ("line 10", f"#if 1\n  {{\n#else\n  {{\n#endif\n{BODY}\n  }}"),
        ("after line 7", "template <int N>\n__device__ float one_more(double a) {\n  return N;\n}"),
        ("lines 9-12", '__global__ void add() {\n  one<<<1, 2>>>("<<<IMPROVE>>>");\n}'),
        ("lines 17-19", ""),
        ("line 11", "  y[i] -= 1.0f;\n  -x[i];"),
    ],
)
def test_unusual_code_is_put_in_place(title: str, new: str) -> None:
    """Comments about a rest, preprocessor choices, overloads, launches: no slips."""
    found = read_two_kernels(f"### {title}\n```cpp\n{new}\n```\n")
    assert isinstance(found, Candidate), found
    assert new in found.source


def test_an_edit_that_is_written_twice_counts_once() -> None:
    """The same place with the same lines; with other lines it is asked about."""
    edit, other = (f"### line 10\n```cpp\n{line}\n```\n" for line in (BODY, "  int i = 0;"))
    assert read_two_kernels(edit + edit) == read_two_kernels(edit)
    assert isinstance(read_two_kernels(edit + other), ReplyProblem)


def test_a_longer_fence_holds_shorter_ones() -> None:
    """What a question about a fence asks for is read; a fence of the block's length is not."""
    text = '        return """\n```\nx\n```\n"""'
    found = read_two_kernels(f"### line 18\n````python\n{text}\n````\n")
    assert isinstance(found, Candidate)
    assert text in found.source
    assert isinstance(read_two_kernels(f"### line 18\n```python\n{text}\n```\n"), ReplyProblem)


@pytest.mark.parametrize("line", ["### " + " #" * 20_000 + "x", "``` " + " " * 20_000 + "`"])
def test_a_long_line_takes_no_long_time(line: str) -> None:
    """It is text: patterns of headings and fences took two minutes for such a line."""
    edit = f"### line 10\n```cpp\n{BODY}\n```\n"
    before = read_two_kernels(edit)
    assert read_two_kernels(f"{edit}\n{line}\n") == before
