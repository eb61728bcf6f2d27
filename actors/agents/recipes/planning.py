"""The planner's rules: which one change to try next, and where in the source it goes."""

from __future__ import annotations

import ast
import random
import textwrap

import msgspec

from actors.agents.recipes.choices import Choice, body, lesson, offers
from actors.agents.recipes.compose import Made, compose
from actors.agents.recipes.knobs import Knobs, read_knobs, start
from actors.agents.recipes.objects import Unreadable
from protocol.messages import AgentWork, MakePlan, Reflect, Solve, Write

BEGIN, END = "<<<IMPROVE BEGIN>>>", "<<<IMPROVE END>>>"
BLIND = 8.0  # what a draw weighs beside promises of up to 10, for who can't see what was tried
IN_FORWARD = frozenset({"fusion", "bias", "memory"})


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Lines [first, last] of the shown source, 0-based, and how a comment is written there."""

    first: int
    last: int
    comment: str  # "# {}" or "/* {} */"


def base_knobs(work: AgentWork) -> Knobs:
    """The node's knobs; for the reference, and for what others wrote, those of a first try."""
    return read_knobs(work.node.source) or start(work.task.backend)


def choose(work: MakePlan | Write | Solve | Reflect) -> tuple[Choice, Made] | None:
    """The most promising change, None when all are tried; and what the base looks like."""
    backend, inputs = work.task.backend, work.reference.inputs
    base = base_knobs(work)
    shown = compose(work.task.source, inputs, backend, base)
    seen = {body(entry.source) for entry in (work.node, *work.window)}
    blind = is_blind(work)
    plain = read_knobs(work.node.source) is None and body(shown.source) not in seen
    if plain and not blind:
        words = "Fuse what follows each other into one kernel, with plain settings"
        first = Choice(change={"fusion": base.fusion}, words=words, promise=99.0, made=shown)
        return first, shown
    seen.add(body(shown.source))
    found = list(offers(work.task.source, inputs, backend, base, shown, seen))
    if not found:
        return None
    score = reference_score(work, base)
    draw = random.Random(work.seed)  # noqa: S311 - breaks ties, guards nothing

    def value(choice: Choice) -> float:
        chance = draw.random() * (BLIND if blind else 0.3)
        return choice.promise + lesson(choice, base, score, work.window) + chance

    return max([(value(choice), i, choice) for i, choice in enumerate(found)])[2], shown


def is_blind(work: MakePlan | Write | Solve | Reflect) -> bool:
    """Whether earlier attempts at this node may be there and none is shown.

    Whoever sees nothing of them would choose the same change for ever: so promise counts for less
    and the draw for more, as temperature does for a model.
    """
    alone = isinstance(work, Solve | Reflect)
    at_root = work.node.node == work.root.node
    return work.attempt > 1 and not work.window and (alone or at_root)


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
    try:
        chosen = choose(work)
    except Unreadable as problem:
        return f"## Cannot\n\nThe rule book can't plan here: {problem}.\n"
    if chosen is None:
        return (
            "## Cannot\n\nThe rule book has no change left that would give a kernel which was not"
            " tried: every single knob of this one is exhausted.\n"
        )
    choice, shown = chosen
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
    """The statements of the class's forward, its docstring left out."""
    tree = ast.parse(source)
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    wanted = [n for n in classes if n.name == name] or classes
    for owner in wanted:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name == "forward":
                inner = node.body
                if isinstance(inner[0], ast.Expr) and isinstance(inner[0].value, ast.Constant):
                    inner = inner[1:] or inner
                first, last = inner[0].lineno - 1, inner[-1].end_lineno or inner[-1].lineno
                if inner[0].lineno > node.lineno:  # not `def forward(self, x): return x`
                    return Spot(first=first, last=last - 1, comment="# {}")
                return Spot(first=first, last=last - 1, comment="# {}")
    raise Unreadable("there is no forward in the source that was shown")


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
