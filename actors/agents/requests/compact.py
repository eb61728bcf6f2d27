"""The compact requests: short rules, numbered sources, answers as edits, and a ledger.

Pure.  Promises what `prompting` promises of the paper's requests: the same text for the same work,
and the same bytes up to the architecture for every call of a task.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from msgspec.structs import replace

import prompts
from actors.agents.replies.placed_anchors import marked_spans
from actors.agents.replies.replies import fenced
from actors.agents.requests import facts, ledger
from actors.agents.requests.knowledge import (
    RequestKnowledge,
    building_block_lines,
    with_knowledge,
)
from actors.agents.requests.numbered_source import numbered
from actors.agents.requests.prompting import (
    CODE_TEMPERATURE,
    MAX_LOG,
    PLAN_TEMPERATURE,
    SOLO_TEMPERATURE,
    excerpt,
    fill,
    quoted,
    reference_times,
    relation,
)
from actors.agents.requests.request import PromptSection, Request, shown_source
from protocol.layouts import tensors_of
from protocol.messages import AgentWork, MakePlan, Repair, Solve, Write
from protocol.values import AttemptView, Outcome, Reference, Role, Task

MAX_LOG_OF_OTHERS = 1_500  # characters of a log of an attempt other than the node
MAX_DIFFERENCE = 0.6  # of a source: a longer difference is not shown in its place
MAX_IDEA = 200  # characters of a plan where its code is shown
CODE_FORM = "'## Edits' with a heading and a block for each place, or '## Candidate' with the file"
FORMS = {
    Role.PLANNER: "'## Advice', then '## Anchors' with one place a line",
    Role.CODER: CODE_FORM,
    Role.DEBUGGER: f"'## Diagnosis', then {CODE_FORM}",
}


def compact_request(
    whole_work: MakePlan | Write | Repair | Solve, max_tokens: int, knowledge: RequestKnowledge
) -> Request:
    """Return the request for one piece of work."""
    blocks = building_block_lines(whole_work.task, whole_work.reference, knowledge)
    work = with_knowledge(whole_work, knowledge)
    role, instruction, temperature = _part(work)
    node = PromptSection(kind="node", text=_node(work))
    sections = [
        PromptSection(kind="example", text=prompts.read("compact/example.md")),
        PromptSection(kind="architecture", text=_architecture(work.task, work.reference, blocks)),
        node,
        *_window(work),
    ]
    if work.ledger or work.best is not None:
        sections.append(PromptSection(kind="ledger", text=_ledger(work)))
    if work.person_advice:
        advice = "\n\n".join(quoted(text) for text in work.person_advice)
        sections.append(PromptSection(kind="person", text=fill("person.md", advice=advice)))
    sections.append(PromptSection(kind="role", text=instruction))
    return Request(
        role=role,
        task=work.task.name,
        attempt=work.attempt,
        system=fill("compact/system.md", backend=_backend_notes(work.task)).rstrip(),
        sections=tuple(replace(one, text=one.text.strip("\n")) for one in sections),
        temperature=temperature,
        max_tokens=max_tokens,
        form=f"'## Advice', then {CODE_FORM}" if isinstance(work, Solve) else FORMS[role],
        work=whole_work,
    )


def _part(work: MakePlan | Write | Repair | Solve) -> tuple[Role, str, float]:
    """Return the role, its instruction and its temperature."""
    spans = "`### span N`, " if isinstance(work, Write) else ""  # only a plan marks spans
    form = fill("compact/form.md", spans=spans).strip()
    match work:
        case MakePlan():
            text = fill("compact/planner.md", attempt=str(work.attempt))
            return Role.PLANNER, text, PLAN_TEMPERATURE
        case Write():
            text = fill("compact/coder.md", advice=quoted(work.plan.advice), form=form)
            return Role.CODER, text, CODE_TEMPERATURE
        case Repair():
            text = fill("compact/debugger.md", advice=quoted(work.plan.advice), form=form)
            return Role.DEBUGGER, text, CODE_TEMPERATURE
        case Solve():
            text = fill("compact/solo.md", attempt=str(work.attempt), form=form)
            return Role.CODER, text, SOLO_TEMPERATURE


def _backend_notes(task: Task) -> str:
    """Return how candidates are written, for each language that the task allows."""
    notes = []
    for backend in (task.backend, *task.other_backends):
        try:
            notes.append(prompts.read(f"compact/backend-{backend}.md"))
        except FileNotFoundError:  # a backend of a user's, with notes for both styles
            notes.append(prompts.read(f"backend-{backend}.md"))
    if len(notes) > 1:
        notes.append("Choose the language that suits the change; a plan names it.")
    return "\n\n".join(note.rstrip() for note in notes)


def _architecture(task: Task, reference: Reference, blocks: list[str]) -> str:
    device = reference.device
    name = device.name or device.kind
    sheet = [f"Device: {name}"]
    sheet += [f"{fact}: {value}" for fact, value in device.facts.items() if value != name]
    return fill(
        "compact/architecture.md",
        task=task.name,
        source=fenced(numbered(task.source)),
        inputs=(reference.inputs or "as get_inputs makes them") + _strides(reference),
        outputs=reference.outputs or "as forward returns them",
        times=reference_times(reference, ledger.duration),
        notes="".join(f"{line}\n" for line in facts.note_lines(reference)),
        hardware="\n".join(map(_item, (*sheet, *facts.task_lines(reference)))),
        blocks="\n".join(["", *blocks]) if blocks else "",
    )


def _strides(reference: Reference) -> str:
    """Return how the inputs lie in memory; "" where that is not known."""
    if reference.judged is None:
        return ""
    leaves = [*tensors_of(reference.judged.inputs)]
    strided = [f"input {n} has strides {list(x.stride)}" for n, x in enumerate(leaves) if x.stride]
    others = "" if len(strided) == len(leaves) else "contiguous" + ", but " * bool(strided)
    return f" ({others}{', '.join(strided)})" if leaves else ""


def _item(line: str) -> str:
    """Return a line of a list; one that is an item already belongs to the item above it."""
    return f"  {line}" if line.startswith("- ") else f"- {line}"


def _node(work: AgentWork) -> str:
    spans = marked_spans(work.plan, shown_source(work)) if isinstance(work, Write) else ()
    source = shown_source(work)
    if source == work.task.source:
        shown = "The module as given above, with its line numbers."
        marks = [f"span {n} = lines {first}-{last}" for n, (first, last) in enumerate(spans, 1)]
        shown += f" Marked: {', '.join(marks)}." if marks else ""
    else:
        shown = fenced(numbered(source, spans))
    return _observed("compact/node.md", _node_title(work), work.node, shown, work)


def _node_title(work: AgentWork) -> str:
    if work.node.node == work.root.node:
        return "the module as it was given"
    return f"node {work.node.node}"


def _window(work: AgentWork) -> Iterator[PromptSection]:
    if work.window:
        yield PromptSection(kind="window", text=prompts.read("compact/window.md"))
    for number, entry in enumerate(work.window, start=1):
        title = f"Attempt {number}: node {entry.node}, {relation(entry, work)}"
        yield PromptSection(kind="attempt", text=_attempt(title, entry, work), node=entry.node)


def _attempt(title: str, entry: AttemptView, work: AgentWork) -> str:
    return _observed("compact/attempt.md", title, entry, _shown_attempt(entry, work), work)


def _shown_attempt(entry: AttemptView, work: AgentWork) -> str:
    """Return an attempt's source, or its difference from the node's where that is much shorter."""
    if not entry.source.strip():
        return "(no code was written)"
    lines = difflib.unified_diff(
        shown_source(work).splitlines(), entry.source.splitlines(), lineterm="", n=2
    )
    difference = "\n".join(list(lines)[2:])  # without the names of files
    if len(difference) > MAX_DIFFERENCE * len(entry.source):
        return fenced(entry.source)
    where = "the module" if work.node.node == work.root.node else f"node {work.node.node}"
    return f"Its source, as changes of {where} above:\n\n{fenced(difference, 'diff')}"


def _observed(template: str, title: str, node: AttemptView, shown: str, work: AgentWork) -> str:
    idea = ledger.one_line(node.advice, MAX_IDEA)
    return fill(
        template,
        title=title,
        origin=f"Its idea: {idea}\n\n" if idea else "",
        source=shown,
        result=_result(node, work.reference, is_node=template == "compact/node.md"),
    )


def _result(node: AttemptView, reference: Reference, *, is_node: bool) -> str:
    verdict = node.verdict
    known = "".join(f"\n{_item(line)}" for line in facts.attempt_lines(verdict, reference))
    if verdict.is_correct:
        time = node.score_us if node.score_us is not None else verdict.median_us
        parts = ["Correct"] if time is None else [f"Correct: {ledger.duration(time)} a call"]
        if node.node and time is not None:
            parts += ledger.comparisons(time, reference)
        if verdict.is_wide and verdict.speedup_ci95 is not None:
            low, high = verdict.speedup_ci95
            parts.append(f"not sure: with 95 % between {low:.3g} and {high:.3g} × eager")
        return ", ".join(parts) + known
    word = verdict.verdict.replace("_", " ").capitalize()
    outcome = f"{word}: {verdict.reason}".rstrip(": ")
    if verdict.verdict is Outcome.NO_CANDIDATE:  # its log is what a model answered
        return f"{outcome}. The source above is the one that it was to change."
    log = excerpt(verdict.log, MAX_LOG if is_node else MAX_LOG_OF_OTHERS)
    return f"{outcome}{known}\n\n{fenced(log, 'text')}" if log else f"{outcome}{known}"


def _ledger(work: AgentWork) -> str:
    text = ""
    if work.ledger:
        lines = "\n".join(ledger.ledger_lines(work))
        text = fill("compact/ledger.md", lines=lines, stance=ledger.stance(work))
    if work.best is not None:
        title = f"The fastest so far: node {work.best.node}"
        text = "\n\n".join(
            part for part in (text.strip(), _attempt(title, work.best, work)) if part
        )
    return text
