"""Odd but plausible forms of answers: placed as they are meant, or asked about, never elsewhere."""

from __future__ import annotations

import pytest
from agent_fakes import CANDIDATE
from test_answer_forms import BODY, TRITON, answer, edited, question
from test_edit_laws import KERNELS

from actors.agents.replies.replies import fenced
from protocol.values import Candidate

FORMAT = '''import torch

TILE = 8
SOURCE = f"""
void half(const float* x, float* y, long n) {{
    float t[{TILE}];
    for (long i = 0; i < n; ++i) {{
        y[i] = x[i] * 0.5f;
    }}
}}
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * 0.5
'''
MODULE = '''import torch
import torch.nn as nn

SOURCE = """
void half(const float* x, float* y) {
    printf("%f\\\\n", x[0]);
    y[0] = x[0];
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.call = nn.ReLU()

    def forward(self, x):
        return self.call(x)
'''
LOOP = "    y[0] = 1.0f;"
MARKS = TRITON.split("def scale")[0].split("\n\n\n")[1]


def placed(found: object) -> str:
    assert isinstance(found, Candidate), found
    return found.source


def replaced(source: str, first: int, last: int, new: str) -> str:
    lines = source.split("\n")
    return "\n".join([*lines[: first - 1], new, *lines[last:]])


@pytest.mark.parametrize(
    "line",
    ["    float t[2] = {1, 2};", "    float t[8] = {0};", "    y[0] = float{x};", "    f({n, 1});"],
)
def test_single_braces_in_an_f_string_are_asked_about(line: str) -> None:
    """`{1, 2}` became `(1, 2)` in the compiled code, without an error in Python."""
    assert "single braces are Python's" in question(edited("line 6", line, FORMAT))


@pytest.mark.parametrize("line", ["    float t[2] = {{1, 2}};", "    float t[{TILE * 2}];"])
def test_pythons_own_expressions_stay_in_an_f_string(line: str) -> None:
    assert placed(edited("line 6", line, FORMAT)) == replaced(FORMAT, 6, 6, line)


@pytest.mark.parametrize(
    "above",
    [
        "def twice(v):\n    return v * 2\n\n\n",
        "@triton.jit\ndef twice(v):\n    return v * 2\n\n\n",
        "WIDE = 4\n\n",
        "import math\n",
    ],
)
def test_decorators_stay_below_helpers_that_an_answer_adds(above: str) -> None:
    """The kernel lost its `@triton.jit` where the block began with another function."""
    text = placed(edited("function scale", above + BODY, TRITON))
    assert f"\n{above}{MARKS}{BODY}\n" in text
    commented = placed(edited("function scale", f"{above}# the kernel\n{BODY}", TRITON))
    assert f"\n{above}{MARKS}# the kernel\n{BODY}\n" in commented


def test_decorators_below_helpers_replace_the_others() -> None:
    new = f"def twice(v):\n    return v * 2\n\n\n@triton.jit\n{BODY}"
    text = placed(edited("function scale", new, TRITON))
    assert "autotune" not in text
    assert f"\n{new}\n" in text


@pytest.mark.parametrize(
    ("title", "new", "source"),
    [
        ("function half", "    y[0] = 1;", CANDIDATE),
        ("function half", "    for (;;) {\n        y[0] = 1;\n    }", CANDIDATE),
        ("function forward", "        return x", MODULE),
        ("method forward", "        def f(v):\n            return v\n        return f(x)", MODULE),
        ("class ModelNew", "        return x", MODULE),
    ],
)
def test_a_body_in_place_of_a_whole_function_is_asked_about(
    title: str, new: str, source: str
) -> None:
    """The head went away with it: a `return` outside of a function is no syntax error."""
    assert "defines nothing" in question(edited(title, new, source))


@pytest.mark.parametrize(
    ("title", "new"),
    [
        ("function half", 'extern "C" void other(long n) {\n}'),
        ("function half", "#define half(x, y, n) (void)0"),
        ("function forward", "    forward = torch.relu"),
        ("function forward", "    def forward(self, x):\n        return x"),
    ],
)
def test_another_definition_may_stand_in_place_of_one(title: str, new: str) -> None:
    assert new in placed(edited(title, new))


@pytest.mark.parametrize(
    "title",
    [
        *("lines 6…8", "lines 6...8", "lines 6..8", "L6-L8", "lines\u00a06\u20118", "lines 6–8:"),
        *("Edit 1: lines 6-8", "1. lines 6-8", "Change 2 - lines 6-8", "Lines 6 to 8 (inclusive)"),
        *("Replace lines 6-8 with:", "replace lines 6-8 by", "lines 6-8 (old numbering)"),
        *("lines 6-8: the loop, after the load", "from line 6 to line 8"),
    ],
)
def test_further_ways_to_name_lines(title: str) -> None:
    assert placed(edited(title, LOOP)) == replaced(CANDIDATE, 6, 8, LOOP)


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("lines 6-8 (new numbering)", "before any edit"),
        ("lines 6-8 (after the edit above)", "before any edit"),
        ("lines 6-8: updated line numbers", "before any edit"),
        ("lines 2-4 of the CUDA source", "names no place"),
        ("line 3 of function half", "names no place"),
        ("lines 6 and 8", "names no place"),
        ("lines 6-7, 9-9", "names no place"),
        ("line 6 (+2 lines)", "names further lines"),
        ("line “y[i] = 0;”", "names no place"),
        ("candidate.py: line 7", "names no place"),
        ("top of file", "names no place"),
        ("after line 0", "do not exist"),
        ("lines 8-6", "do not exist"),
        ("span 1", "no marked spans"),
    ],
)
def test_places_that_may_be_others_are_asked_about(title: str, words: str) -> None:
    """Numbers after an edit, or within a string, are not those that were shown."""
    assert words in question(edited(title, LOOP))


@pytest.mark.parametrize(
    ("below", "words"),
    [
        ("### line 7\nBefore:\n```\na;\n```\nAfter:\n```\nb;\n```\n", "has 2 blocks"),
        ("```diff\n@@ -7 +7 @@\n-a\n+b\n```\n", "has no heading"),
        ("### lines 6-8\n```diff\n-    for (;;) {\n```\n", "is a diff"),
        ('```json\n[{"lines": "7", "text": "y[i] = 2.0f;"}]\n```\n', "has no heading"),
        ("| place | new |\n|---|---|\n| line 7 | `y[i] = 2.0f;` |\n", "no edit"),
        ("### line 7\n`y[i] = 2.0f;`\n", "has 0 blocks"),
        ("### line 7\n<pre>\ny[i] = 2.0f;\n</pre>\n", "has 0 blocks"),
        ("```sh\nsed -i '7s/0.5f/0.25f/' candidate.py\n```\n", "has no heading"),
        ("### line 7 ```cpp\ny[i] = 2.0f;\n```\n", "names no place"),
        ("### delete line 7\n```\ny[i] = 2.0f;\n```\n", "needs no block"),
        ("### line 7\n```cpp\n        y[i] = 2.0f;", "never closed"),
        ("### lines 3-6\n```cpp\nvoid half(long n) {\n```\n", "not valid Python"),
        ("### lines 8-10\n```cpp\n    }\n}\n```\n", "not valid Python"),
        ("### line 7\n```cpp\n        a;\n```\n\n### line 7\n```cpp\n        b;\n```\n", "overlap"),
    ],
)
def test_blocks_that_are_no_new_lines_are_asked_about(below: str, words: str) -> None:
    assert words in question(answer(f"## Edits\n\n{below}"))


def test_a_whole_file_beside_edits_is_the_same_or_asked_about() -> None:
    """Under whatever heading it stands; the source that was shown may be quoted."""
    edit = "## Edits\n\n### line 7\n```cpp\n        y[i] = 2.0f;\n```\n"
    new = placed(answer(edit))
    other = CANDIDATE.replace("0.5f", "0.75f")
    for heading in ("## Result", "## Candidate", "## The whole file"):
        assert placed(answer(f"{edit}\n{heading}\n\n{fenced(new)}")) == new
        assert "not the same file" in question(answer(f"{edit}\n{heading}\n\n{fenced(other)}"))
    assert placed(answer(f"## Advice\n\n{fenced(CANDIDATE)}\n\n{edit}")) == new


@pytest.mark.parametrize("end", ["    def __init__", "    def forward"])
def test_a_file_that_was_cut_off_between_two_lines_is_asked_about(end: str) -> None:
    """What is left is Python, and has the class's name."""
    text = MODULE.replace("(nn.Module):\n", "(nn.Module):\n    EPS = 1e-5\n\n")
    cut = text[: text.index(end)]
    assert "ModelNew has no forward" in question(answer(f"## Candidate\n\n```python\n{cut}"))


def test_a_class_without_the_constructor_that_it_uses_is_asked_about() -> None:
    new = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return self.call(x) * 2"
    assert "uses self.call" in question(edited("class ModelNew", new, MODULE))
    whole = f"import torch\nimport torch.nn as nn\n\n\n{new}\n"
    assert "uses self.call" in question(answer(f"## Candidate\n\n{fenced(whole)}", MODULE))
    free = new.replace("self.call(x)", "torch.relu(x)")
    assert free in placed(edited("class ModelNew", free, MODULE))
    buffered = new.replace(
        "    def f", '    def made(self):\n        self.add("call", 1)\n\n    def f'
    )
    assert buffered in placed(edited("class ModelNew", buffered, MODULE))


def test_a_method_outside_of_its_class_is_asked_about() -> None:
    new = "\ndef other(self):\n    return 1"
    assert "in no class" in question(edited("after function forward", new, MODULE))
    given = f"{new}\n\n\nModelNew.other = other"
    assert given in placed(edited("after function forward", given, MODULE))


def test_line_ends_in_strings_of_compiled_code_are_asked_about() -> None:
    """`\\n` in a Python string that is not raw broke the compiled string."""
    right = '    printf("%g\\\\n", x[0]);'
    assert right in placed(edited("line 6", right, MODULE))
    assert "is not raw" in question(edited("line 6", right.replace("\\\\", "\\"), MODULE))


@pytest.mark.parametrize("title", ["line `return a;`", "from `return a;` to `}`", "function twice"])
def test_quotes_and_names_that_stand_twice_are_asked_about(title: str) -> None:
    question(edited(title, "    return 2 * a;", KERNELS))


def test_tabs_and_line_ends_of_windows_are_read() -> None:
    text = "## Edits\r\n\r\n### line 7\r\n```cpp\r\n\t\ty[i] = 2.0f;\r\n```\r\n"
    assert placed(answer(text)) == replaced(CANDIDATE, 7, 7, "\t\ty[i] = 2.0f;")
    windows = CANDIDATE.replace("\n", "\r\n")
    found = placed(answer(text, windows))
    assert found == replaced(CANDIDATE, 7, 7, "\t\ty[i] = 2.0f;").replace("\n", "\r\n")
