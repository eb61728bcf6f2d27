"""Forms in which models answer: read as they are meant, or one question; no line gets lost."""

from __future__ import annotations

import pytest
from agent_fakes import CANDIDATE
from test_edit_laws import KERNELS

from actors.agents.replies.candidates import candidate_problem, read_candidate
from actors.agents.replies.edits import EditedSource, edited_source
from actors.agents.replies.places import Place, PlaceProblem, ShownLines
from actors.agents.replies.replies import ReplyProblem, fenced, parse_reply
from protocol.values import Candidate, Plan

FREE = Plan(advice="", scaffold="")
STORE = "        y[i] = 2.0f;"
EDIT = f"## Edits\n\n### line 7\n{fenced(STORE, 'cpp')}\n"
SKETCH = f"## Edits\n\n### line 6\n{fenced('    for (;;) {', 'cpp')}\n"
TRITON = """import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, 2.0, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
"""
BODY = "def scale(x, n, BLOCK: tl.constexpr):\n    tl.store(x + tl.arange(0, BLOCK), 3.0)"


def answer(text: str, source: str = CANDIDATE) -> Candidate | ReplyProblem:
    return read_candidate(parse_reply(text), FREE, ShownLines(source))


def edited(title: str, new: str, source: str = CANDIDATE) -> Candidate | ReplyProblem:
    return answer(f"## Edits\n\n### {title}\n{fenced(new)}\n", source)


def question(found: Candidate | ReplyProblem) -> str:
    assert isinstance(found, ReplyProblem), found
    return found.reason


@pytest.mark.parametrize(
    "text",
    [
        f"<think>\nPerhaps so:\n{SKETCH}\nNo.\n</think>\n{EDIT}",
        f"<Reasoning>{SKETCH}</Reasoning>\n\n{EDIT}",
        f"So:\n{SKETCH}\n</think>\n\n{EDIT}",
        f"```markdown\n{EDIT}```\n",
        f"Here it is.\n\n````md\n{EDIT}````\n",
        f"<answer>\n{EDIT}</answer>\n",
    ],
)
def test_thoughts_and_wrappers_are_no_part_of_an_answer(text: str) -> None:
    """An edit that a model only thought of is not applied; one inside of a block is."""
    assert answer(text) == answer(EDIT)


def test_an_answer_that_never_leaves_its_thoughts_is_asked_about() -> None:
    assert "no code" in question(answer(f"<think>\n{SKETCH}"))
    cut = f"<think>\n## Candidate\n\n```python\n{CANDIDATE}"
    assert "no code" in question(answer(cut))


@pytest.mark.parametrize("sketch", ["Perhaps so:\n", f"{SKETCH}\n", "## Candidate\n```\nx\n```\n"])
def test_a_whole_file_behind_thoughts_without_an_end_is_read(sketch: str) -> None:
    """The closing mark was forgotten; what stands before the last file were sketches."""
    whole = f"## Candidate\n\n{fenced(CANDIDATE)}\n"
    found = answer(f"<think>\n{sketch}{whole}")
    assert isinstance(found, Candidate), found
    assert found == answer(whole)


@pytest.mark.parametrize(
    ("title", "new"),
    [
        ("lines 3-5", "    1: 64,\n    2: 128,\n    3: 256,"),
        ("line 4", "    4: 100,"),
        ("after line 5", "    6: 1024,\n    7: 2048,"),
    ],
)
def test_entries_by_number_are_no_line_numbers(title: str, new: str) -> None:
    """The same question came at each retry."""
    table = "import torch\nSIZES = {\n    1: 128,\n    2: 256,\n    3: 512,\n}\n"
    found = edited(title, new, f"{table}{CANDIDATE}")
    assert isinstance(found, Candidate), found
    assert f"\n{new}\n" in found.source


@pytest.mark.parametrize(
    "new",
    [BODY, f"\n{BODY}", f"# faster\n{BODY}", f"\n# Two lines\n  # of comments.\n\n{BODY}"],
)
def test_decorators_that_an_answer_leaves_out_stay(new: str) -> None:
    """A kernel without `@triton.jit` is none: a function's name names what is under its marks."""
    found = edited("function scale", new, TRITON)
    assert isinstance(found, Candidate), found
    marks = TRITON.split("def scale")[0]
    assert found.source.startswith(f"{marks}{new}\n")


def test_decorators_that_an_answer_writes_replace_the_others() -> None:
    found = edited("function scale", f"# plain\n@triton.jit\n{BODY}", TRITON)
    assert isinstance(found, Candidate), found
    assert "autotune" not in found.source
    assert found.source.count("@triton.jit") == 1


def test_decorators_above_the_named_lines_do_not_stand_twice() -> None:
    marks = "\n".join(TRITON.split("\n")[5:7])
    assert "also holds line 6" in question(edited("lines 8-10", f"{marks}\n{BODY}", TRITON))


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("lines 5:8", 5, 8),
        ("lines 5~8", 5, 8),
        ("lines 5\u22128: why", 5, 8),
        ("line 5: 3 loads", 5, 5),
        ("from `return a;` to `int twice(float a) {`", 24, 26),  # it stands below that line, too
        ("method forward", 37, 38),
        ("function forward of class ModelNew", 37, 38),
        ("function `forward` in `ModelNew`", 37, 38),
    ],
)
def test_ways_to_name_lines(text: str, first: int, last: int) -> None:
    """A range after a colon was read as its first line, with a note."""
    source = KERNELS.replace("    @torch.no_grad()\n", "\n") if "forward" in text else KERNELS
    found = ShownLines(source).find(text)
    assert isinstance(found, Place), found
    assert (first, last) == (found.first, found.last)


@pytest.mark.parametrize("text", ["lines 5: 8", "lines 5, 6", "lines 5 (8)"])
def test_two_numbers_that_may_be_a_range_are_asked_about(text: str) -> None:
    assert isinstance(ShownLines(KERNELS).find(text), PlaceProblem)


@pytest.mark.parametrize(
    ("title", "new", "words"),
    [
        ("lines 6-7", "6: for (;;) {\n7:   y[0] = 1.0f;", "line numbers"),
        ("lines 6-7", "6|    for (;;) {\n7|      y[0] = 1.0f;", "line numbers"),
        ("lines 6-7", "L6:   for (;;) {\nL7:     y[0] = 1.0f;", "line numbers"),
        ("lines 6-7", "6      for (;;) {\n7        y[0] = 1.0f;", "line numbers"),
        ("lines 6-7", "1. for (;;) {\n2. y[0] = 1.0f;", "line numbers"),
        ("line 7", "+        y[i] = 2.0f;", "is a diff"),
        ("lines 6-7", "+    for (;;) {\n+        y[i] = 2.0f;", "is a diff"),
        ("lines 5-8", "void half() {\n    // same as original\n}", "leaves lines out"),
        ("lines 5-8", "void half() {\n    // body as before\n}", "leaves lines out"),
        ("lines 5-8", "void half() {\n    // lines 6-7 unchanged\n}", "leaves lines out"),
        ("lines 5-8", "void half() {\n    // <rest of the kernel>\n}", "leaves lines out"),
        ("lines 5-8", "void half() {\n    // etc.\n}", "leaves lines out"),
        ("line 7", "(deleted)", "holds words"),
    ],
)
def test_text_that_is_no_code_is_asked_about(title: str, new: str, words: str) -> None:
    """Numbers and marks that only a compiler would notice, and comments in place of code."""
    assert words in question(edited(title, new))


@pytest.mark.parametrize(
    ("title", "new"),
    [
        ("line 7", "        // same as before, for a vector\n        y[i] = 2.0f;"),
        ("line 7", "        y[i] = 1.0f\n            + 2.0f;"),
        (
            "line 7",
            "        static const int table[] = {\n7, 8,\n9, 10};\n        y[i] = table[0];",
        ),
        ("after line 7", "        // the rest of the row\n        y[i] += 1.0f;"),
    ],
)
def test_code_that_looks_like_such_text_is_put_in_place(title: str, new: str) -> None:
    found = edited(title, new)
    assert isinstance(found, Candidate), found
    assert new in found.source


def test_a_whole_file_that_uses_what_it_leaves_out_is_asked_about() -> None:
    """Imports and kernels "as before": the names that only the shown source defines tell it."""
    text = TRITON.replace("return x", "return scale[(1,)](x, 1)")
    class_alone = f"import torch\n\n# kernels as before\n{text[text.index('class ModelNew') :]}"
    found = answer(f"## Candidate\n\n{fenced(class_alone)}\n", text)
    assert "uses 'scale'" in question(found)
    block = CANDIDATE.replace(
        "        y[i] = (x[i] + 1.0f) * 0.5f;", "        // same body as above"
    )
    assert "leaves lines out" in question(answer(f"## Candidate\n\n{fenced(block)}\n"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('TUNE = {"TILE": [(128, 64), (64, 64)]}', "must be a literal"),
        ('TUNE = {"TILE": range(4)}', "must be a literal"),
        ("TUNE = dict(TILE=[1, 2])", "must be a dict literal"),
        ('TUNE = {"R": [4, 8]}\nflags = [f"-DR={TUNE[\'R\']}"]', "-DR= breaks torch's headers"),
        ('flags = ["-O3", "-DN=4"]', "-DN= breaks torch's headers"),
        ('flags = "-O3 -DN -lineinfo".split()', "-DN breaks torch's headers"),
    ],
)
def test_variants_that_cannot_be_built_are_asked_about(line: str, words: str) -> None:
    """Before a builder's time is spent on them."""
    assert words in candidate_problem(f"{line}\n{CANDIDATE}")


@pytest.mark.parametrize(
    "line",
    [
        "# was -DN=4, or '-DN=4', before",
        'SOURCE = """\n// nvcc -DK=3 gives the same\n"""',
        'flags = ["-DROWS=4", "-DNDEBUG"]',
    ],
)
def test_flags_that_only_comments_tell_of_are_no_flags(line: str) -> None:
    assert not candidate_problem(f"{line}\n{CANDIDATE}")


def test_edits_beside_each_other_are_both_applied() -> None:
    """The second's numbers are those of the shown source, whatever the first one's length."""
    text = f"### line 6\n{fenced('    long i = 0;', 'cpp')}\n### line 7\n{fenced(STORE, 'cpp')}\n"
    found = edited_source(parse_reply(f"## Edits\n\n{text}"), ShownLines(CANDIDATE))
    assert isinstance(found, EditedSource)
    lines = CANDIDATE.split("\n")
    assert found.source == "\n".join([*lines[:5], "    long i = 0;", STORE, *lines[7:]])


@pytest.mark.parametrize("line", ["// " + "=" * 200_000, "/" * 200_000, "//" + " " * 200_000 + "x"])
def test_a_long_comment_stands_for_no_code(line: str) -> None:
    """It is text, and looking at it takes no time that grows with its square."""
    found = edited("lines 5-8", f'extern "C" void half() {{\n{line}\n}}')
    assert isinstance(found, Candidate), found
    assert line in found.source
