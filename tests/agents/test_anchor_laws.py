"""Anchors, scaffolds and edits outside of anchors: laws as properties."""

from __future__ import annotations

import ast

from agent_fakes import CANDIDATE, TASK_SOURCE
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.replies import anchors, python_source
from actors.agents.replies.scaffolds import Scaffold, check_scaffold
from actors.agents.replies.unanchored_edits import edits_outside_anchors
from protocol.values import Plan

PYTHON_LINES = st.sampled_from(
    ["x = 1", "y = x + 1  ", "# a comment of the source", "", "print(x)", "z = '#'", "\fw = 2"]
)
CPP_LINES = st.sampled_from(
    ["int a = 0;", "// a comment of the source", "/* another */", "", "  b += a;   ", "#pragma omp"]
)
ADVICE = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=200
) | st.sampled_from(['say """ and \\', "*/ end", "use {4} 'x'", anchors.END, "a\n\nb"])


@st.composite
def sources(draw: st.DrawFn) -> str:
    """Python statements, with C++ in strings between them."""
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        parts += draw(st.lists(PYTHON_LINES, max_size=4))
        if draw(st.booleans()):
            parts += ['code = r"""', *draw(st.lists(CPP_LINES, max_size=4)), '"""']
    end = draw(st.sampled_from(["\n", "", "\n\n"]))
    return "\n".join(parts) + end


@st.composite
def spans(draw: st.DrawFn) -> tuple[str, int, int]:
    """A source, and lines of it that begin and end in one language."""
    source = draw(sources().filter(lambda text: bool(anchors.lines_of(text))))
    zones = python_source.string_zones(source)
    count = len(anchors.lines_of(source))
    places = [
        (first, last)
        for first in range(1, count + 1)
        for last in range(first, count + 1)
        if anchors.zone_of(zones, first) == anchors.zone_of(zones, last + 1)
    ]
    first, last = draw(st.sampled_from(places))
    return source, first, last


@given(spans(), ADVICE)
def test_insert_is_accepted_and_strip_undoes_it(span: tuple[str, int, int], advice: str) -> None:
    """A pair around whole lines of one language is accepted, names these lines, leaves valid
    Python, and can be removed to the last byte."""
    source, first, last = span

    scaffold = anchors.insert_anchors(source, first, last, advice)
    checked = check_scaffold(scaffold, source)

    assert isinstance(checked, Scaffold), checked
    assert checked.source_spans == ((first, last),)
    begin, end = checked.spans[0]
    assert (
        anchors.lines_of(checked.text)[begin - 1 : end]
        == (anchors.lines_of(source)[first - 1 : last])
    )
    ast.parse(checked.text)


@given(spans(), st.data())
def test_any_other_change_is_refused(span: tuple[str, int, int], data: st.DataObject) -> None:
    """A text with one source line changed, added or removed is not a scaffold."""
    source, first, last = span
    lines = anchors.lines_of(anchors.insert_anchors(source, first, last, "faster"))
    own = [n for n, line in enumerate(lines) if not anchors.anchor_kind(line) and line.strip()]
    own = [n for n in own if "faster" not in lines[n]]
    if data.draw(st.booleans()) and own:
        number = data.draw(st.sampled_from(own))
        changed = data.draw(
            st.sampled_from([[], [lines[number] + " # x"], [lines[number], "q = 7"]])
        )
        lines[number : number + 1] = changed
    else:
        lines.insert(data.draw(st.sampled_from([0, len(lines)])), "q = 7")

    checked = check_scaffold(anchors.text_of(lines), source)

    assert not isinstance(checked, Scaffold)


@given(spans(), st.sampled_from(["BEGIN", "END"]), st.data())
def test_unbalanced_and_nested_pairs_are_refused(
    span: tuple[str, int, int], kind: str, data: st.DataObject
) -> None:
    """One additional mark, on any line, makes a scaffold unusable."""
    source, first, last = span
    lines = anchors.lines_of(anchors.insert_anchors(source, first, last, "faster"))
    number = data.draw(st.integers(0, len(lines)))
    lines.insert(number, f"# <<<IMPROVE {kind}>>>")

    assert not isinstance(check_scaffold(anchors.text_of(lines), source), Scaffold)


@given(spans(), st.lists(PYTHON_LINES | CPP_LINES, max_size=5))
def test_a_change_inside_is_not_outside(span: tuple[str, int, int], new: list[str]) -> None:
    """A change between the anchors, of any text, does not count as a change outside of them."""
    source, first, last = span
    checked = check_scaffold(anchors.insert_anchors(source, first, last, "faster"), source)
    assert isinstance(checked, Scaffold)
    plan = Plan(advice="faster", scaffold=checked.text, spans=checked.spans)
    lines = anchors.lines_of(source)
    answer = anchors.text_of([*lines[: first - 1], *new, *lines[last:]])

    assert edits_outside_anchors(plan, answer) == ()


def test_a_change_outside_is_recorded_with_its_line() -> None:
    """An include outside of the anchors is accepted and recorded, and so is a removed line."""
    source = CANDIDATE
    at = next(n for n, line in enumerate(source.split("\n"), 1) if "y[i]" in line)
    checked = check_scaffold(anchors.insert_anchors(source, at, at, "use fma"), source)
    assert isinstance(checked, Scaffold)
    plan = Plan(advice="use fma", scaffold=checked.text, spans=checked.spans)
    answer = (
        source.replace("extern", "#include <cmath>\nextern")
        .replace("y[i] = (x[i] + 1.0f) * 0.5f;", "y[i] = std::fma(x[i], 0.5f, 0.5f);")
        .replace("import torch\n", "")
    )

    assert edits_outside_anchors(plan, answer) == (
        "@@ line 1 @@\n-import torch",
        "@@ line 5 @@\n+#include <cmath>",
    )


def test_one_scaffold_may_have_several_pairs() -> None:
    """One change may have two places, each in the comments of its own language."""
    lines = CANDIDATE.split("\n")
    inner = next(n for n, line in enumerate(lines) if "y[i]" in line)
    outer = next(n for n, line in enumerate(lines) if "return" in line)
    both = [
        *lines[:inner],
        "        /* <<<IMPROVE BEGIN>>> */",
        "        // unroll",
        lines[inner],
        "        /* <<<IMPROVE END>>> */",
        *lines[inner + 1 : outer],
        "        # <<<IMPROVE BEGIN>>>",
        "        # call it",
        lines[outer],
        "        # <<<IMPROVE END>>>",
        *lines[outer + 1 :],
    ]

    checked = check_scaffold("\n".join(both), CANDIDATE)

    assert isinstance(checked, Scaffold)
    assert checked.source_spans == ((inner + 1, inner + 1), (outer + 1, outer + 1))


def test_an_anchor_is_a_comment_of_its_language() -> None:
    """A Python comment in C++ text is refused, and the reason shows the right form."""
    wrong = anchors.insert_anchors(CANDIDATE, 6, 6, "x").replace("/* <<<IMPROVE", "# <<<IMPROVE")
    wrong = wrong.replace(">>> */", ">>>")

    checked = check_scaffold(wrong, CANDIDATE)

    assert isinstance(checked, anchors.AnchorProblem)
    assert "/* <<<IMPROVE BEGIN>>> */" in checked.reason


def test_a_model_may_drop_blanks_at_line_ends() -> None:
    """A model may drop blanks at line ends, CRLF and the last newline; the checked scaffold has the
    source's own bytes."""
    source = "x = 1   \ny = 2\n\n\n"
    sent = "# <<<IMPROVE BEGIN>>>\nx = 1\n# <<<IMPROVE END>>>\ny = 2"

    checked = check_scaffold(sent, source)

    assert isinstance(checked, Scaffold)
    assert checked.text == "# <<<IMPROVE BEGIN>>>\nx = 1   \n# <<<IMPROVE END>>>\ny = 2\n\n\n"


def test_the_reason_names_the_changed_line() -> None:
    """The reason names the line and its shown text, so that a model can correct it."""
    scaffold = anchors.insert_anchors(TASK_SOURCE, 12, 12, "x").replace("/ 2.0", "* 0.5")

    checked = check_scaffold(scaffold, TASK_SOURCE)

    assert isinstance(checked, anchors.AnchorProblem)
    assert "return y / 2.0" in checked.reason
