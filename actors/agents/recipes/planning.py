"""The planner's rules: which one change to try next, and where in the source it goes."""

from __future__ import annotations

import ast
import contextlib
import random
import textwrap

import msgspec

from actors.agents.recipes.choices import Choice, Scene, is_all_tried, lesson, offers
from actors.agents.recipes.compose import Made
from actors.agents.recipes.knobs import Knobs, changed, read_change, read_knobs, start
from actors.agents.recipes.objects import Exhausted, Unreadable
from protocol.messages import AgentWork, MakePlan, Reflect, Solve, Write
from protocol.values import source_key

BEGIN, END = "<<<IMPROVE BEGIN>>>", "<<<IMPROVE END>>>"
BLIND = 8.0  # what a draw weighs beside promises of up to 10, for who can't see what was tried
# What is tried on a task that nobody has written for yet, until one of them makes a kernel.
FIRST: tuple[dict[str, object], ...] = ({}, {"fusion": "layers"}, {"fusion": "single"})
IN_FORWARD = frozenset({"fusion", "bias", "memory"})


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Lines [first, last] of the shown source, 0-based, and how a comment is written there."""

    first: int
    last: int
    comment: str  # "# {}" or "/* {} */"


def scene_of(work: AgentWork) -> Scene:
    """What all candidates for this work are composed from."""
    task, reference = work.task, work.reference
    return Scene(
        task=task.source,
        inputs=reference.inputs,
        outputs=reference.outputs,
        backend=task.backend,
    )


def begin(work: AgentWork) -> tuple[Knobs, Made]:
    """The node's knobs and what they make; for what others wrote, the first that make anything.

    Raises Unreadable where nothing does: then no knob helps, on any node of this task.
    """
    scene = scene_of(work)
    first = start(work.task.backend)
    own = read_knobs(work.node.source)
    problem: Unreadable | None = None
    for change in (None, *FIRST):
        knobs = own if change is None else changed(first, change)
        if knobs is None:
            continue
        try:
            return knobs, scene.made(knobs)
        except Unreadable as why:
            problem = problem or why
    raise problem or Unreadable("no knobs fit")


def seen_by(work: AgentWork) -> set[str]:
    """The keys of what was tried: shown to the agent, or named by the coordinator."""
    return {source_key(entry.source) for entry in (work.node, *work.window)} | {*work.tried}


def choose(work: MakePlan | Write | Solve | Reflect) -> tuple[Choice, Made]:
    """The most promising change, and what the base looks like; raises Exhausted without any."""
    scene = scene_of(work)
    base, shown = begin(work)
    seen = seen_by(work)
    for advice in work.planned:
        knobs = changed(base, read_change(advice) or {})
        if knobs is not None:
            with contextlib.suppress(Unreadable):
                seen.add(source_key(scene.made(knobs).source))
    key = source_key(shown.source)
    blind = is_blind(work)
    if read_knobs(work.node.source) is None and key not in seen and not blind:
        words = "Fuse what follows each other into one kernel, with plain settings"
        first = Choice(change={"fusion": base.fusion}, words=words, promise=99.0, made=shown)
        return first, shown
    found = list(offers(scene, base, shown, seen | {key}))
    if not found:
        every = bool(work.tried) and is_all_tried(scene, base, seen | {key})
        raise Exhausted("task" if every else "node")
    score = reference_score(work, base)
    draw = random.Random(work.seed)  # noqa: S311 - breaks ties, guards nothing

    def value(choice: Choice) -> float:
        chance = draw.random() * (BLIND if blind else 0.3)
        return choice.promise + lesson(choice, base, score, work.window) + chance

    return max([(value(choice), i, choice) for i, choice in enumerate(found)])[2], shown


def is_blind(work: MakePlan | Write | Solve | Reflect) -> bool:
    """Whether earlier attempts at this node may be under way and nothing is known of them.

    Several that are asked at once would choose the same change: so promise counts for less and
    the draw for more, as temperature does for a model.
    """
    alone = isinstance(work, Solve | Reflect)
    at_root = work.node.node == work.root.node
    known = work.window or work.tried or work.planned
    return work.attempt > 1 and not known and (alone or at_root)


def reference_score(work: MakePlan | Write | Solve | Reflect, base: Knobs) -> float | None:
    """The time that others are compared with: the node's, or of the plain try below the root."""
    if read_knobs(work.node.source) is not None:
        return work.node.score_us
    for entry in work.window:
        if read_knobs(entry.source) == base and entry.score_us is not None:
            return entry.score_us
    return work.node.score_us


def plan(work: MakePlan) -> str:
    """The planner's reply."""
    choice, shown = choose(work)
    line = f"recipe: {msgspec.json.encode(choice.change).decode()}"
    advice = f"{choice.words}. {situation(work, choice, shown)}"
    anchored = scaffold(work.node.source, spots(work.node.source, choice.knob), [advice, line])
    return f"## Advice\n\n{advice} {line}\n\n## Source\n\n```python\n{anchored}\n```\n"


def situation(work: MakePlan | Solve | Reflect, choice: Choice, shown: Made) -> str:
    """What the plan rests on: the loops, what was tried, how far the leaders are."""
    kinds = [layout.kind for layout in shown.layouts]
    parts = [f"The forward is {len(kinds)} loop nest{'s' * (len(kinds) != 1)} ({', '.join(kinds)})"]
    if shown.program.kept:
        parts.append(f"{', '.join(shown.program.kept)} stay in PyTorch")
    scores = [e.score_us for e in work.window if e.score_us is not None and e.verdict.correct]
    if scores and work.node.score_us:
        parts.append(
            f"this node takes {work.node.score_us:.0f} us, the best one shown {min(scores):.0f} us"
        )
    failed = sum(not entry.verdict.correct for entry in work.window)
    if failed:
        parts.append(f"{failed} of the attempts shown failed")
    text = "; ".join(parts)
    return text + "."


def spots(source: str, knob: str) -> list[Spot]:
    """Where a change of this knob shows: in the kernels, in the forward, or in both."""
    lines = source.splitlines()
    kernels = [i for i, line in enumerate(lines) if line.startswith('extern "C"')]
    if read_knobs(source) is None or not kernels:
        return [forward(source, "Model" if "class ModelNew" not in source else "ModelNew")]
    end = max(i for i, line in enumerate(lines) if line == "}" and i > kernels[0])
    first = kernels[0]
    if knob in ("vector", "maths"):
        first = next(i for i, line in enumerate(lines) if line.startswith(("#define W", "typedef")))
    found = [Spot(first=first, last=end, comment="/* {} */")]
    if knob in IN_FORWARD:
        found.append(forward(source, "ModelNew"))
    return found


def forward(source: str, name: str) -> Spot:
    """The statements of the class's forward, its docstring left out; else of another function."""
    tree = ast.parse(source)
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    classes.sort(key=lambda owner: owner.name != name)
    methods = [n for owner in classes for n in owner.body if isinstance(n, ast.FunctionDef)]
    others = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    found = [n for n in (*methods, *others) if n.name == "forward"] or methods or others
    if not found:
        raise Unreadable("there is no function in the source that was shown")
    inner = found[0].body
    if isinstance(inner[0], ast.Expr) and isinstance(inner[0].value, ast.Constant):
        inner = inner[1:] or inner
    first, last = inner[0].lineno - 1, inner[-1].end_lineno or inner[-1].lineno
    return Spot(first=first, last=last - 1, comment="# {}")


def scaffold(source: str, where: list[Spot], advice: list[str]) -> str:
    """The source with anchors around the spots and the advice as comments inside of them."""
    lines = source.split("\n")
    for spot in sorted(where, key=lambda s: -s.first):
        text = lines[spot.first]
        indent = text[: len(text) - len(text.lstrip())]
        words = [
            part for line in advice for part in textwrap.wrap(line, 88, break_long_words=False)
        ]
        opened = [indent + spot.comment.format(word) for word in (BEGIN, *words)]
        lines.insert(spot.last + 1, indent + spot.comment.format(END))
        lines[spot.first : spot.first] = opened
    return "\n".join(lines).removesuffix("\n")
