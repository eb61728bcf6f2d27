"""The planner's rules: which one change to try next, and where in the source it goes."""

from __future__ import annotations

import ast
import contextlib
import random
import textwrap
from collections.abc import Iterator

import msgspec

from actors.agents.recipes.codegen.compiler import CaseText, CompiledCandidate
from actors.agents.recipes.frontend.symbolic_values import ExhaustedError, UnsupportedSourceError
from actors.agents.recipes.roles.heuristics import (
    CompileInputs,
    KnobChange,
    candidate_changes,
    evidence_from_window,
    is_all_tried,
)
from actors.agents.recipes.schedule.knobs import (
    Knobs,
    default_knobs,
    read_change,
    read_knobs,
    with_change,
)
from actors.agents.replies.anchors import BEGIN, END
from actors.case_source import with_constants
from protocol.messages import AgentWork, MakePlan, Reflect, Solve, Write
from protocol.values import source_key

# How much chance weighs, beside priors of up to 10, where the agent can't see what was tried.
HIDDEN_ATTEMPTS_WEIGHT = 8.0
TIE_BREAK_WEIGHT = 0.3
# The first candidates of a task, in this order, until one of them makes a kernel.
STARTING_KNOBS: tuple[dict[str, object], ...] = ({}, {"fusion": "layers"}, {"fusion": "single"})
WARP_ROW = 1024  # numbers of a row that one warp takes at first
MANY_ROWS = 1024  # with fewer, a block has too few of them to keep all of a card busy
BUFFERED_ROW = 8192  # numbers of a row that a block keeps in registers
KNOBS_IN_FORWARD = frozenset({"fusion", "bias", "memory"})


class AnchorSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Lines [first, last] of the shown source, 0-based, and the form of a comment there."""

    first: int
    last: int
    comment: str  # "# {}" or "/* {} */"


def compile_inputs_of(work: AgentWork) -> CompileInputs:
    """What all candidates for this work are compiled from."""
    task, reference = work.task, work.reference
    measured = {each.name: each for each in reference.cases}
    texts = [
        CaseText(
            source=with_constants(task.source, case),
            inputs=measured[case.name].inputs,
            outputs=measured[case.name].outputs,
        )
        for case in task.cases
        if case.name in measured
    ]
    return CompileInputs(
        task=texts[0].source if texts else task.source,
        inputs=reference.inputs,
        outputs=reference.outputs,
        backend=task.backend,
        more_cases=tuple(texts[1:]),
        gradients=None if reference.judged is None else reference.judged.gradients,
    )


def starting_knobs(compile_inputs: CompileInputs) -> Knobs:
    """The knobs of a task's first candidate.

    On a card many short rows get a warp each, so that no thread of a block is idle, and rows that
    fit into registers are read once.
    """
    plain = default_knobs(compile_inputs.backend)
    if compile_inputs.backend != "cuda":
        return plain
    try:
        nests = compile_inputs.compile(plain).loop_nests
    except UnsupportedSourceError:
        return plain
    rows = [nest for nest in nests if nest.kind == "rows"]
    if not rows:
        return plain
    longest, fewest = max(nest.length for nest in rows), min(nest.units for nest in rows)
    change: dict[str, object] = {}
    if longest <= WARP_ROW and fewest >= MANY_ROWS:
        change["threads"] = 32
    if longest <= BUFFERED_ROW:
        change["passes"] = "buffer"
    return with_change(plain, change) or plain


def base_candidate(work: AgentWork) -> tuple[Knobs, CompiledCandidate]:
    """The node's knobs and their candidate; for a source without knobs, the first that compile.

    Raises `UnsupportedSourceError` where none compile: then no knob helps at any node of the task.
    """
    compile_inputs = compile_inputs_of(work)
    problem: UnsupportedSourceError | None = None
    for knobs in _base_knobs(work, compile_inputs):
        try:
            return knobs, compile_inputs.compile(knobs)
        except UnsupportedSourceError as error:
            problem = problem or error
    raise problem or UnsupportedSourceError("no knobs fit")


def _base_knobs(work: AgentWork, compile_inputs: CompileInputs) -> Iterator[Knobs]:
    """The node's knobs; then those of first candidates, which take a compilation to find."""
    node_knobs = read_knobs(work.node.source)
    if node_knobs is not None:
        yield node_knobs
    first = starting_knobs(compile_inputs)
    for change in STARTING_KNOBS:
        knobs = with_change(first, change)
        if knobs is not None:
            yield knobs


def keys_tried(work: AgentWork) -> set[str]:
    """The source keys of what was tried: shown to the agent, or listed by the coordinator."""
    return {source_key(entry.source) for entry in (work.node, *work.window)} | {*work.tried}


def best_change(work: MakePlan | Write | Solve | Reflect) -> tuple[KnobChange, CompiledCandidate]:
    """The change with the highest value, and the base candidate.

    Raises `ExhaustedError` where no change is left.
    """
    compile_inputs = compile_inputs_of(work)
    base, shown = base_candidate(work)
    seen = keys_tried(work)
    for advice in work.planned:
        knobs = with_change(base, read_change(advice) or {})
        if knobs is not None:
            with contextlib.suppress(UnsupportedSourceError):
                seen.add(source_key(compile_inputs.compile(knobs).source))
    key = source_key(shown.source)
    is_blind = attempts_may_be_hidden(work)
    if read_knobs(work.node.source) is None and key not in seen and not is_blind:
        advice = "Fuse what follows each other into one kernel, with plain settings"
        first = KnobChange(
            change={"fusion": base.fusion}, advice=advice, prior=99.0, compiled=shown
        )
        return first, shown
    changes = list(candidate_changes(compile_inputs, base, shown, seen | {key}))
    if not changes:
        all_tried = bool(work.tried) and is_all_tried(compile_inputs, base, seen | {key})
        raise ExhaustedError("task" if all_tried else "node")
    score = reference_score(work, base)
    draw = random.Random(work.seed)  # noqa: S311 - breaks ties, guards nothing

    def value(choice: KnobChange) -> float:
        chance = draw.random() * (HIDDEN_ATTEMPTS_WEIGHT if is_blind else TIE_BREAK_WEIGHT)
        return choice.prior + evidence_from_window(choice, base, score, work.window) + chance

    return max([(value(choice), i, choice) for i, choice in enumerate(changes)])[2], shown


def attempts_may_be_hidden(work: MakePlan | Write | Solve | Reflect) -> bool:
    """Whether earlier attempts at this node may be under way and nothing is known of them.

    Several agents that are asked at once would choose the same change.  So priors count for less
    and the draw for more, which is what temperature does for a language model.
    """
    alone = isinstance(work, Solve | Reflect)
    at_root = work.node.node == work.root.node
    known = work.window or work.tried or work.planned
    return work.attempt > 1 and not known and (alone or at_root)


def reference_score(work: MakePlan | Write | Solve | Reflect, base: Knobs) -> float | None:
    """The time that other attempts are compared with: the node's, or that of the base candidate."""
    if read_knobs(work.node.source) is not None:
        return work.node.score_us
    for entry in work.window:
        if read_knobs(entry.source) == base and entry.score_us is not None:
            return entry.score_us
    return work.node.score_us


def planner_reply(work: MakePlan) -> str:
    """The planner's reply."""
    choice, shown = best_change(work)
    line = change_line(choice)
    advice = f"{choice.advice}. {evidence_text(work, shown)}"
    anchored = with_anchors(
        work.node.source, anchor_spans(work.node.source, choice.knob), [advice, line]
    )
    return f"## Advice\n\n{advice} {line}\n\n## Source\n\n```python\n{anchored}\n```\n"


def change_line(choice: KnobChange) -> str:
    """The line of a plan that names its change for the coder."""
    return f"recipe: {msgspec.json.encode(choice.change).decode()}"


def evidence_text(work: MakePlan | Solve | Reflect, shown: CompiledCandidate) -> str:
    """The facts behind a plan: the loop nests, the failures shown, the best time shown."""
    kinds = [loops.kind for loops in shown.loop_nests]
    parts = [f"The forward is {len(kinds)} loop nest{'s' * (len(kinds) != 1)} ({', '.join(kinds)})"]
    if shown.program.left_to_torch:
        parts.append(f"{', '.join(shown.program.left_to_torch)} stay in PyTorch")
    scores = [e.score_us for e in work.window if e.score_us is not None and e.verdict.is_correct]
    if scores and work.node.score_us:
        parts.append(
            f"this node takes {work.node.score_us:.0f} us, the best one shown {min(scores):.0f} us"
        )
    failed = sum(not entry.verdict.is_correct for entry in work.window)
    if failed:
        parts.append(f"{failed} of the attempts shown failed")
    return "; ".join(parts) + "."


def anchor_spans(source: str, knob: str) -> list[AnchorSpan]:
    """The lines that a change of this knob affects: the kernels, the forward, or both."""
    lines = source.splitlines()
    kernels = [i for i, line in enumerate(lines) if line.startswith('extern "C"')]
    if read_knobs(source) is None or not kernels:
        return [
            forward_statements(source, "Model" if "class ModelNew" not in source else "ModelNew")
        ]
    end = max(i for i, line in enumerate(lines) if line == "}" and i > kernels[0])
    first = kernels[0]
    if knob in ("vector", "maths"):
        first = next(i for i, line in enumerate(lines) if line.startswith(("#define W", "typedef")))
    found = [AnchorSpan(first=first, last=end, comment="/* {} */")]
    if knob in KNOBS_IN_FORWARD:
        found.append(forward_statements(source, "ModelNew"))
    return found


def forward_statements(source: str, name: str) -> AnchorSpan:
    """The statements of the class's forward without its docstring; else of another function."""
    tree = ast.parse(source)
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    classes.sort(key=lambda owner: owner.name != name)
    methods = [n for owner in classes for n in owner.body if isinstance(n, ast.FunctionDef)]
    others = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    found = [n for n in (*methods, *others) if n.name == "forward"] or methods or others
    if not found:
        raise UnsupportedSourceError("there is no function in the source that was shown")
    body = found[0].body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:] or body
    first, last = body[0].lineno - 1, body[-1].end_lineno or body[-1].lineno
    return AnchorSpan(first=first, last=last - 1, comment="# {}")


def with_anchors(source: str, where: list[AnchorSpan], advice: list[str]) -> str:
    """The source with anchors around the spans and the advice as comments inside of them."""
    lines = source.split("\n")
    comments = [part for line in advice for part in textwrap.wrap(line, 88, break_long_words=False)]
    for span in sorted(where, key=lambda s: -s.first):
        text = lines[span.first]
        indent = text[: len(text) - len(text.lstrip())]
        head = [indent + span.comment.format(comment) for comment in (BEGIN, *comments)]
        lines.insert(span.last + 1, indent + span.comment.format(END))
        lines[span.first : span.first] = head
    return "\n".join(lines).removesuffix("\n")
