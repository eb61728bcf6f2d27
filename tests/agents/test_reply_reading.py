"""Replies as models really write them."""

from __future__ import annotations

import pytest
from agent_fakes import CANDIDATE
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.replies import anchors, scaffolds
from actors.agents.replies.candidates import candidate_problem, read_candidate
from actors.agents.replies.replies import ReplyProblem, fenced, parse_reply
from actors.agents.replies.scaffolds import Scaffold
from protocol.values import Candidate, Plan

FREE = Plan(advice="", scaffold="")
SMALL = "class ModelNew:\n    pass\n"


def candidate_of(text: str) -> str:
    read = read_candidate(parse_reply(text), FREE)
    assert isinstance(read, Candidate), read
    return read.source


@pytest.mark.parametrize(
    "reply",
    [
        f"## Candidate\n\n```python\n{SMALL}```\n",
        f"Sure!\r\n\r\n## Candidate\r\n```python\r\n{SMALL}```\r\nHope it helps.".replace(
            "\n", "\r\n"
        ).replace("\r\r", "\r"),
        f"### CANDIDATE:\n```py\n{SMALL}```",
        f"**Candidate**\n```Python\n{SMALL}```",
        f"## 2. Candidate\n~~~python\n{SMALL}~~~",
        f"## Candidate\n````python\n{SMALL}````",
        f"No heading at all\n```\n{SMALL}```",
        f"## Candidate\n{SMALL}",
        f"## Candidate\n```python\n{SMALL}",
        f"## Candidate\nThe kernel:\n```cpp\nint x;\n```\nThe module:\n```python\n{SMALL}```",
        f"## Candidate\n```python\nclass ModelNew\n```\nOops, again:\n```python\n{SMALL}```",
        f"## Notes\n```python\nclass Model: ...\n```\n## Candidate\n```python\n{SMALL}```",
        f"```python\nprint('never closed')\n## Candidate\n```python\n{SMALL}```",
        "## Candidate\n  ```python\n  class ModelNew:\n      pass\n  ```\n",
    ],
)
def test_the_code_is_found_however_it_is_wrapped(reply: str) -> None:
    """Text around it, other headings and fences, several blocks, CRLF, a cut end: the same code."""
    assert candidate_of(reply) == SMALL


@pytest.mark.parametrize(
    "inner",
    ["```cpp\nint x;\n```", "```\nint x;\n```", "```cpp\nint x;"],
)
def test_fences_inside_the_code_do_not_end_it(inner: str) -> None:
    """A docstring with a fenced block of its own does not cut the candidate."""
    code = f'class ModelNew:\n    """Like so:\n\n{inner}\n    """\n'

    assert candidate_of(f"## Candidate\n\n```python\n{code}```\n") == code


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_any_text_has_sections(text: str) -> None:
    """No reply makes the parser fail, and a word outside headings and fences is in some section."""
    reply = parse_reply(text)

    assert reply.sections[0].name == ""


@given(st.text(st.sampled_from("`~a\n "), max_size=40))
def test_what_is_fenced_comes_back(code: str) -> None:
    """The fence around a code is longer than any fence in it."""
    source = f"'''{code}'''\nclass ModelNew: ...\n"

    assert candidate_of(f"## Candidate\n\n{fenced(source)}\n") == source


def test_anchors_that_a_coder_left_never_reach_the_evaluator() -> None:
    """The marks are removed; the code around them does not change."""
    marked = CANDIDATE.replace("    for (", "    /* <<<IMPROVE BEGIN>>> */\n    for (").replace(
        "        return (x", "        # <<<IMPROVE END>>>\n        return (x"
    )

    assert candidate_of(f"## Candidate\n\n{fenced(marked)}\n") == CANDIDATE


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("    for (", "    // <<<IMPROVE BEGIN>>> one pass\n    for ("),
        ("    for (", "    /* <<<IMPROVE BEGIN>>> one pass */ for ("),
        ("    for (", "    /* <<< improve begin >>> */\n    for ("),
        ("        return (x", "        # <<<IMPROVE BEGIN>>> one expression\n        return (x"),
        ("        return (x", "        # <<<IMPROVE BEGINS>>>\n        return (x"),
        ("import torch\n", "import torch  # <<<IMPROVE END>>> as before\n"),
    ],
)
def test_a_candidate_with_misspelt_marks_can_be_planned_for(line: str, mark: str) -> None:
    """Marks in any spelling, with text beside them: the code stays code, and no mark is left that
    would make later plans for this source invalid."""
    source = candidate_of(f"## Candidate\n\n{fenced(CANDIDATE.replace(line, mark))}\n")

    first = next(n for n, text in enumerate(source.split("\n"), 1) if "def forward" in text) + 1
    assert isinstance(
        scaffolds.check_scaffold(anchors.insert_anchors(source, first, first, "More."), source),
        Scaffold,
    )


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("class ModelNew(:\n", "not valid Python"),
        ("class Model: ...\n", "no class ModelNew"),
        ("x = 1\0\n", "not valid Python"),
        (f"class ModelNew: ...\nx = '{'a' * 300_000}'\n", "longer than 256 KiB"),
        ("(" * 100_000, "not valid Python"),
    ],
)
def test_the_fault_of_a_candidate_is_named(code: str, word: str) -> None:
    """Each fault has a sentence that a model can act on."""
    assert word in candidate_problem(code)
    read = read_candidate(parse_reply(f"## Candidate\n\n```python\n{code}\n```"), FREE)
    assert isinstance(read, ReplyProblem)
    assert word in read.reason


@pytest.mark.parametrize(
    ("before", "is_macro"),
    [
        ("", True),
        ("#define DEPTH 4\n", True),
        ("constexpr int deep = DEPTH;\n", True),
        ("template <int DEPTH>\n", False),
        ("constexpr int DEPTH = 4;\n", False),
        ("constexpr int WARPS = 12, DEPTH = TUNED;\n", False),
        ("constexpr int warps = 12, deep = DEPTH;\n", True),
    ],
)
def test_a_macro_in_an_unroll_pragma_is_asked_about(before: str, is_macro: bool) -> None:
    """No preprocessor expands it there: a question is cheaper than an attempt."""
    kernel = f"{before}__global__ void f() {{\n#pragma unroll DEPTH\n  for (;;) ;\n}}\n"
    flag = """FLAGS = [f"-DDEPTH={TUNE['DEPTH']}"]\n"""
    code = f'C = r"""\n{kernel}"""\n{flag}class ModelNew:\n    pass\n'
    assert is_macro == ("`#pragma unroll DEPTH` names a macro" in candidate_problem(code))
    assert candidate_problem(code.replace("unroll DEPTH", "unroll 4")) == ""
    if not before:  # a constant of the kernel's own
        assert candidate_problem(code.replace(flag, "")) == ""
    # The flags may be made in a loop over the declared names.
    looped = code.replace(flag, 'TUNE: dict = {\n    "DEPTH": [2, 4],\n}\n')
    assert is_macro == ("`#pragma unroll DEPTH` names a macro" in candidate_problem(looped))


def test_no_code_at_all_is_a_problem() -> None:
    """Prose alone, even five megabytes of it, is a problem, not a candidate."""
    read = read_candidate(parse_reply("I would fuse these. " * 250_000), FREE)

    assert isinstance(read, ReplyProblem)
    assert "no code" in read.reason
