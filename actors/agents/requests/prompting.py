"""From a piece of work to a request: `prompts/`, filled in the order of `docs/method.md`.

Pure.  Promises the same text for the same work.  All requests of one task, of any role, have the
same bytes up to and including the architecture section.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import prompts
from actors.agents.replies.anchors import BEGIN, END
from actors.agents.replies.replies import fenced
from actors.agents.requests.request import PromptSection, Request, shown_source
from protocol.messages import AgentWork, MakePlan, Reflect, Repair, Solve, Write
from protocol.values import (
    METRIC_TABLE,
    TRITON_FACT,
    AttemptView,
    Backend,
    Outcome,
    Reference,
    Role,
    Task,
    Verdict,
)

# The sampling temperatures (tau) of `docs/method.md`: a planner should vary, a coder should not.
PLAN_TEMPERATURE = 0.8
CODE_TEMPERATURE = 0.1
SOLO_TEMPERATURE = 0.7  # an agent that does all; the value of KernelBench's baselines
MAX_LOG = 6_000  # characters of a compiler's or runtime's log that a model is shown
ORDINALS = ("first", "second", "third")
REPLY_FORMATS = {
    Role.PLANNER: "'## Advice', then '## Source' with one python block",
    Role.CODER: "'## Candidate' with one python block that holds the whole file",
    Role.DEBUGGER: "'## Diagnosis', then '## Candidate' with one python block",
}


def plan_request(work: MakePlan, max_tokens: int) -> Request:
    """Return the planner's request."""
    # Most models refuse a temperature today.  So the request itself varies, by the seed.
    choice = ORDINALS[work.seed % len(ORDINALS)]
    role = fill("planner.md", attempt=str(work.attempt), choice=choice, begin=BEGIN, end=END)
    return _request(Role.PLANNER, work, shown_source(work), role, PLAN_TEMPERATURE, max_tokens)


def write_request(work: Write, max_tokens: int) -> Request:
    """Return the coder's request: it shows the node's source with the plan's anchors in it."""
    role = fill("coder.md", advice=quoted(work.plan.advice), begin=BEGIN, end=END)
    source = work.plan.scaffold or shown_source(work)
    return _request(Role.CODER, work, source, role, CODE_TEMPERATURE, max_tokens)


def repair_request(work: Repair, max_tokens: int) -> Request:
    """Return the debugger's request."""
    role = fill("debugger.md", advice=quoted(work.plan.advice))
    return _request(Role.DEBUGGER, work, shown_source(work), role, CODE_TEMPERATURE, max_tokens)


def solve_request(work: Solve, max_tokens: int) -> Request:
    """Return the solo agent's request."""
    role = fill("solo.md")
    return _request(Role.CODER, work, shown_source(work), role, SOLO_TEMPERATURE, max_tokens)


def reflect_request(work: Reflect, max_tokens: int) -> Request:
    """Return the request of a solo agent that reflects on earlier attempts before it writes."""
    texts = [" ".join(reflection.split()) for reflection in work.reflections]
    lines = [f"{number}. {text}" for number, text in enumerate(filter(None, texts), start=1)]
    role = fill("reflexion.md", reflections="\n".join(lines) or "(none yet)")
    return _request(Role.CODER, work, shown_source(work), role, SOLO_TEMPERATURE, max_tokens)


def problem_prompt(role: Role, problem: str, form: str = "") -> str:
    """Return the message to a model about an answer that can't be used."""
    return fill("again.md", problem=problem.rstrip("."), form=form or REPLY_FORMATS[role])


def _request(
    role: Role,
    work: AgentWork,
    source: str,
    instruction: str,
    temperature: float,
    max_tokens: int,
) -> Request:
    backend = work.task.backend
    example = _example if isinstance(work, Solve | Reflect) else _team_example
    sections = [
        PromptSection(kind="example", text=example(backend)),
        PromptSection(kind="architecture", text=_architecture(work.task, work.reference)),
        PromptSection(kind="node", text=_observed("node.md", _node_title(work), work.node, source)),
    ]
    if work.window:
        sections.append(PromptSection(kind="window", text=prompts.read("window.md")))
    for number, entry in enumerate(work.window, start=1):
        title = f"Attempt {number}: node {entry.node}, {relation(entry, work)}"
        text = _observed("attempt.md", title, entry, entry.source)
        sections.append(PromptSection(kind="attempt", text=text, node=entry.node))
    sections += person_sections(work)
    sections.append(PromptSection(kind="role", text=instruction))
    return Request(
        role=role,
        task=work.task.name,
        attempt=work.attempt,
        system=fill("system.md", backend=prompts.read(f"backend-{backend}.md")).rstrip(),
        sections=tuple(sections),
        temperature=temperature,
        max_tokens=max_tokens,
        work=work,
    )


def person_sections(work: AgentWork) -> list[PromptSection]:
    """Return the section with what a person advises; [] where no person does."""
    if not work.person_advice:
        return []
    advice = "\n\n".join(quoted(text) for text in work.person_advice)
    return [PromptSection(kind="person", text=fill("person.md", advice=advice))]


def _example(backend: Backend) -> str:
    """Return a module and its candidate: the example for a solo agent."""
    before = prompts.read(f"examples/{backend}-before.py")
    after = prompts.read(f"examples/{backend}-after.py")
    return fill("example.md", before=fenced(before), after=fenced(after))


def _team_example(backend: Backend) -> str:
    """Return two attempts in the form of the team's answers: every role sees all forms."""

    def shown(name: str) -> str:
        return fenced(prompts.read(f"examples/{backend}-{name}"), "markdown")

    def written(name: str) -> str:
        code = fenced(prompts.read(f"examples/{backend}-{name}.py"))
        return fenced(f"## Candidate\n\n{code}\n", "markdown")

    return fill(
        "example-team.md",
        before=fenced(prompts.read(f"examples/{backend}-before.py")),
        first_plan=shown("plan-1.md"),
        first=written("first"),
        second_plan=shown("plan-2.md"),
        second=written("after"),
    )


def _architecture(task: Task, reference: Reference) -> str:
    device = reference.device
    facts = {"Device": device.name or device.kind, **device.facts}
    return fill(
        "architecture.md",
        task=task.name,
        source=fenced(task.source),
        inputs=reference.inputs or "as get_inputs makes them",
        outputs=reference.outputs or "as forward returns them",
        times=reference_times(reference),
        notes="".join(f"Note: {note}\n" for note in reference.notes),
        hardware="\n".join(
            f"- {name}: {value}" for name, value in facts.items() if name != TRITON_FACT
        ),
    )


def us(microseconds: float) -> str:
    """Return a time as the paper's requests show it."""
    return f"{microseconds:.4g} µs"


def reference_times(reference: Reference, text: Callable[[float], str] = us) -> str:
    """Return PyTorch's own times in a line."""
    times = [f"{text(reference.eager_us)} eager"]
    if reference.compile_us is not None:
        times.append(f"{text(reference.compile_us)} under torch.compile")
    if reference.max_autotune_us is not None:
        times.append(f"{text(reference.max_autotune_us)} under torch.compile with max-autotune")
    return ", ".join(times)


def _node_title(work: AgentWork) -> str:
    if work.node.node == work.root.node:
        return "the module as it was given"
    return f"node {work.node.node}"


def relation(entry: AttemptView, work: AgentWork) -> str:
    """Return what an entry of the window is to the node."""
    if entry.parent == work.node.node:
        return "a child of the source above"
    if isinstance(work, Repair):
        return "another child of the same parent"
    return "one of the fastest so far" if isinstance(work, MakePlan) else "a cousin"


def _observed(template: str, title: str, node: AttemptView, source: str) -> str:
    verdict = node.verdict
    origin = f"The plan was: {node.advice}" if node.advice else "No plan came before it."
    return fill(
        template,
        title=title,
        origin=origin,
        source=fenced(source) if source.strip() else "(no code was written)",
        observation=_observation(verdict, source),
        result=_result(node),
    )


def _observation(verdict: Verdict, source: str) -> str:
    if verdict.verdict is Outcome.NO_CANDIDATE:
        whose = " The source above is the one that it was to change." if source.strip() else ""
        return f"There was nothing to compile.{whose}"
    if verdict.is_compiled:
        return "It compiled."
    log = excerpt(verdict.log)
    return f"It did not compile.\n\n{fenced(log, 'text')}" if log else "It did not compile."


def _result(node: AttemptView) -> str:
    verdict = node.verdict
    if verdict.is_correct:
        time = node.score_us if node.score_us is not None else verdict.median_us
        parts = ["Correct"] if time is None else [f"Correct: {us(time)} a call"]
        if verdict.speedup is not None:
            parts.append(f"{verdict.speedup:.3g} times as fast as PyTorch")
        return ", ".join(parts) + _profile(verdict)
    outcome = f"{verdict.verdict.replace('_', ' ')}: {verdict.reason}".rstrip(": ")
    log = excerpt(verdict.log) if verdict.is_compiled else ""
    return f"{outcome.capitalize()}\n\n{fenced(log, 'text')}" if log else outcome.capitalize()


def _profile(verdict: Verdict) -> str:
    rows = (verdict.profile or {}).items()
    return "".join(f"\n- {name}: {value}" for name, value in rows if name != METRIC_TABLE)


def excerpt(log: str, most: int = MAX_LOG) -> str:
    """Return the beginning of a log, where the first error is, and a little of its end."""
    log = log.strip()
    if len(log) <= most:
        return log
    head, tail = most * 5 // 6, most // 6
    return f"{log[:head]}\n[… {len(log) - head - tail} characters left out …]\n{log[-tail:]}"


def quoted(advice: str) -> str:
    """Return a plan's advice as a quotation, or a default where there is none."""
    lines = (advice or "Make the module faster in the way that you find best.").splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def fill(name: str, **values: str) -> str:
    """Fill the {{names}} in a prompt file, once: a filled source or log is not filled again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match.group(1)], prompts.read(name))
