"""The compact requests: short rules, numbered sources, answers as edits, and a ledger.

Pure.  Promises what `prompting` promises of the paper's requests: the same text for the same work,
and the same bytes up to the architecture for every call of a task.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from actors.agents.replies.placed_anchors import marked_spans, span_notes
from actors.agents.replies.replies import fenced
from actors.agents.requests import attempts, facts, ledger, rules
from actors.agents.requests.building_blocks import building_block_lines
from actors.agents.requests.folded import shown_folds
from actors.agents.requests.knowledge import RequestKnowledge, known_lessons, with_knowledge
from actors.agents.requests.numbered_source import docstring_lines, numbered
from actors.agents.requests.prompting import (
    CODE_TEMPERATURE,
    PLAN_TEMPERATURE,
    SOLO_TEMPERATURE,
    fill,
    person_sections,
    quoted,
    reference_times,
)
from actors.agents.requests.request import PromptSection, Request, shown_source
from protocol.layouts import tensors_of
from protocol.messages import AgentWork, MakePlan, Repair, Solve, Write
from protocol.values import Plan, Reference, Role, Task

CODE_FORM = "'## Edits' with a heading and a block for each place, or '## Candidate' with the file"
OTHERS = " Repeat no idea of the ledger, done or under way{failed}."
FAULT = "; of what failed, tell whether the idea or the code was at fault"
TAKE_OVER = " The change may take over from the fastest."
OTHER_TRIES = " Other tries close to this one are shown: use what got past the same obstacle."
FAILED = " It failed as shown there: find the cause first and mend it."
MAX_NOTE = 160  # characters of what a plan says at one of its places
UNITS = ", how busy DRAM (beside a copy) and the tensor cores were"
FOLDED = (
    "A line that ends with `/* lines A-B */` stands for these lines, too, which are not shown: they"
    " stay, and the mark brings them back in a block or a file of an answer."
)
FORMS = {
    Role.PLANNER: "'## Advice', then '## Anchors' with one place a line",
    Role.CODER: CODE_FORM,
    Role.DEBUGGER: f"'## Diagnosis', then {CODE_FORM}",
}


def compact_request(
    whole_work: MakePlan | Write | Repair | Solve, max_tokens: int, knowledge: RequestKnowledge
) -> Request:
    """Return the request for one piece of work."""
    blocks = building_block_lines(whole_work, knowledge)
    lessons = known_lessons(whole_work, knowledge)
    work = with_knowledge(whole_work, knowledge)
    role, instruction, temperature = _part(work)
    sections = [
        PromptSection(kind="architecture", text=_architecture(work.task, work.reference, lessons))
    ]
    if blocks:
        sections.append(PromptSection(kind="cards", text="\n".join(blocks)))
    sections += [PromptSection(kind="node", text=_node(work)), *attempts.window_sections(work)]
    known = ledger_text(work)
    if known:
        sections.append(PromptSection(kind="ledger", text=known))
    sections += person_sections(work)
    sections.append(PromptSection(kind="role", text=instruction))
    return Request(
        role=role,
        task=work.task.name,
        attempt=work.attempt,
        system=rules.system_message(work.task, work.reference),
        sections=tuple(replace(one, text=one.text.strip("\n")) for one in sections),
        temperature=temperature,
        max_tokens=max_tokens,
        form=f"'## Advice', then {CODE_FORM}" if isinstance(work, Solve) else FORMS[role],
        work=whole_work,
    )


def _part(work: MakePlan | Write | Repair | Solve) -> tuple[Role, str, float]:
    """Return the role, its instruction and its temperature."""
    spans = "`### span N`, " if isinstance(work, Write) else ""  # only a plan marks spans
    notes = rules.instruction_notes(work)
    form = f"{fill('compact/form.md', spans=spans).strip()}{notes}"
    # A repair changes little, so it is told of no variants.
    variants = rules.variant_notes(work.task)
    match work:
        case MakePlan():
            text = fill("compact/planner.md", attempt=str(work.attempt), others=_others(work))
            return Role.PLANNER, f"{text.rstrip()}{notes}", PLAN_TEMPERATURE
        case Write():
            advice = quoted(work.plan.advice)
            text = fill("compact/coder.md", advice=advice, form=f"{form}\n\n{variants}")
            return Role.CODER, text, CODE_TEMPERATURE
        case Repair():
            form += f"\n\n{rules.UNROLL}." if "#pragma unroll" in shown_source(work) else ""
            text = fill(
                "compact/debugger.md",
                advice=quoted(work.plan.advice),
                others=OTHER_TRIES if [*attempts.window_sections(work)] else "",
                form=form,
            )
            return Role.DEBUGGER, text, CODE_TEMPERATURE
        case Solve():
            number, others = str(work.attempt), _others(work)
            others += TAKE_OVER if attempts.fastest(work) else ""
            failed = "" if work.node.verdict.is_correct else FAILED
            text = fill(
                "compact/solo.md",
                attempt=number,
                others=others,
                failed=failed,
                form=f"{form}\n\n{variants}",
            )
            return Role.CODER, text, SOLO_TEMPERATURE


def _others(work: MakePlan | Solve) -> str:
    """Return what is asked about the other attempts; "" where no idea of theirs is known."""
    entries = ledger.shown_entries(work)
    has_failed = any(one.outcome is not None and one.score_us is None for one in entries)
    is_known = any(one.outcome is not None or one.idea for one in entries)
    return OTHERS.format(failed=FAULT if has_failed else "") if is_known else ""


def _architecture(task: Task, reference: Reference, lessons: list[str]) -> str:
    return fill(
        "compact/architecture.md",
        task=task.name,
        source=fenced(numbered(task.source, left_out=docstring_lines(task.source))),
        inputs=(reference.inputs or "as get_inputs makes them") + _strides(reference),
        outputs=reference.outputs or "as forward returns them",
        times=reference_times(reference, ledger.duration),
        notes="".join(f"{line}\n" for line in facts.note_lines(task, reference)),
        hardware="\n".join(
            map(
                facts.item, (facts.device_line(task, reference), *facts.task_lines(task, reference))
            )
        ),
        blocks="\n".join(["", *lessons]) if lessons else "",
    )


def _strides(reference: Reference) -> str:
    """Return how the inputs lie in memory; "" where that is not known."""
    if reference.judged is None:
        return ""
    leaves = [*tensors_of(reference.judged.inputs)]
    strided = [f"input {n} has strides {list(x.stride)}" for n, x in enumerate(leaves) if x.stride]
    others = "" if len(strided) == len(leaves) else "contiguous" + ", but " * bool(strided)
    return f" ({others}{', '.join(strided)})" if leaves else ""


def _node(work: AgentWork) -> str:
    source = shown_source(work)
    spans = marked_spans(work.plan, source) if isinstance(work, Write) else ()
    marked = _marked(work.plan, source, spans) if isinstance(work, Write) else ""
    if work.node.node == work.root.node and source == work.task.source:  # all of it is above
        plans = isinstance(work, MakePlan | Solve)
        operators = facts.operator_lines(work.reference) if plans else []
        lines = "\n".join((*map(facts.item, operators), marked))
        return f"# Where we stand: {_node_title(work)}\n\n{lines}".strip()
    if source == work.task.source:
        shown = f"The module as given above, with its line numbers. {marked}".strip()
    else:
        folds = shown_folds(work)
        shown = fenced(numbered(source, spans, docstring_lines(source), folds))
        shown = "\n\n".join(filter(None, (FOLDED if folds else "", shown, marked)))
    title = _node_title(work)
    return attempts.observed("compact/node.md", title, work.node, shown, work, is_node=True)


def _marked(plan: Plan, source: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return which lines a plan marks, and what it says there; "" where it marks none."""
    notes = [ledger.one_line(note, MAX_NOTE) for note in span_notes(plan, source)]
    marks = [
        f"span {n} = lines {first}-{last}{f' ({note})' if note else ''}"
        for n, ((first, last), note) in enumerate(zip(spans, notes, strict=True), 1)
    ]
    return f"Marked: {', '.join(marks)}." if marks else ""


def _node_title(work: AgentWork) -> str:
    if work.node.node == work.root.node:
        return "the module above"
    return f"node {work.node.node}"


def ledger_text(work: AgentWork) -> str:
    """Return all attempts in a line each, and the fastest where it is not the node."""
    text = ""
    if ledger.shown_entries(work):
        above = {work.node.node, *(one.node for one in attempts.window_sections(work))}
        lines = "\n".join(ledger.ledger_lines(work, above))
        has_units = any(entry.units for entry in work.ledger)
        text = fill(
            "compact/ledger.md",
            lines=lines,
            units=UNITS if has_units else "",
            stance=ledger.stance(work),
        ).strip()
    return "\n\n".join(part for part in (text, attempts.fastest(work)) if part)
