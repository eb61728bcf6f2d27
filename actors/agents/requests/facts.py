"""What is known of a task and of its attempts, as lines of the compact requests.  Pure.

The one place where these lines are gathered: a new kind of fact is added here.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.agents.requests.rules import has_products
from protocol.cases import reference_case_lines, result_case_lines
from protocol.fact_lines import (
    attainable_parts,
    idle_us,
    task_fact_lines,
    verdict_fact_lines,
)
from protocol.facts import OWN_CODE, DrawError
from protocol.values import TRITON_FACT, Reference, Task, Verdict
from protocol.variant_lines import raced_line

# What the evaluator's labels say (`actors/evaluator/labels/labels.py`).
LABEL_WORDS = {
    "library_only": "it has no kernel of its own",
    "fallback_swallowed": "it catches its kernel's failure and lets torch do the work",
    "decoy_kernel": "it builds a kernel that forward does not call, or drops its result",
    "renamed_reference": "it is the task's own module under another name, and never wins",
}
# What an author knows of its own work: the tolerance decides about both.
UNTOLD_LABELS = ("precision_cast", "algebraic_shortcut")
# Facts about a device that tell an author of kernels nothing.
UNTOLD_FACTS = (
    *("memory", "memory clock", "memory bus", "clock", "threads a warp", "driver"),
    *("shared memory a block without opting in", "shared memory a multiprocessor"),
    *("registers a multiprocessor", "threads a multiprocessor"),
    *("processor", "cores"),  # a host's name has both
)
MAKERS_RATES = ", by its maker"  # are left out where rates were measured
MAX_SENTENCES = 10  # of a node's profile
FIRST_SENTENCES = 2  # of another attempt's: its first one names what bounds it
ONE_KERNEL = "One kernel, "  # begins a sentence of a profile whose figures stand above it
MIN_SHARE = 0.02  # of a call's time: a smaller part of it is not named
SLOW_PROFILER = 1.15  # times the time of a timed call
NEAR_TOLERANCE = 0.1  # of it: errors from here on are told by kind of inputs

OPERATORS = "PyTorch's own call by operator"  # begins the line about them
# Rules of the judge that the system message states for every task.
TF32_RULE = "TF32 in the reference: "
STATED_RULES = ("Checks: ", "Timed: ", "Precision is judged by its error alone: ")


def device_line(task: Task, reference: Reference) -> str:
    """Return the device and its facts in a line; Triton's version where it is a language."""
    device = reference.device
    untold: tuple[str, ...] = UNTOLD_FACTS
    if "triton" not in {task.backend, *task.other_backends}:
        untold = (*untold, TRITON_FACT)
    name = device.name or device.kind
    is_measured = reference.facts is not None and reference.facts.rates.copy_gb_s is not None
    told = [
        f"{fact} {value}"
        for fact, value in device.facts.items()
        if value != name
        and fact not in untold
        and not (is_measured and fact.endswith(MAKERS_RATES))
    ]
    return f"Device: {name}{': ' if told else ''}{', '.join(told)}"


def machine_lines(task: Task, reference: Reference) -> list[str]:
    """Return the lines about a task and its machine: the same in all requests of the task."""
    return [device_line(task, reference), *task_lines(task, reference)]


def task_lines(task: Task, reference: Reference) -> list[str]:
    """Return what is counted and measured of a task and its machine."""
    known = reference.facts
    if known is not None and {task.backend, *task.other_backends} == {"triton"}:
        known = replace(known, rates=replace(known.rates, clusters={}))  # it launches none
    untold = (OPERATORS, *STATED_RULES, *(() if has_products(task, reference) else (TF32_RULE,)))
    return [
        line
        for line in task_fact_lines(known)
        if not line.startswith(untold) or "--precision" in line
    ]


def operator_lines(reference: Reference) -> list[str]:
    """Return what the task's own module spends its time on: for those that begin with it.

    A profiler that ran beside other programs, or on a host, takes longer than a timed call: its
    shares count.
    """
    known = reference.facts
    if known is None:
        return []
    told = [each for each in known.operations if each.share >= MIN_SHARE]
    if sum(each.us for each in told) > SLOW_PROFILER * reference.eager_us:
        told = [replace(each, us=each.share * reference.eager_us) for each in told]
    more = known.more_operations + len(known.operations) - len(told)
    known = replace(known, operations=tuple(told), more_operations=more)
    return [line for line in task_fact_lines(known) if line.startswith(OPERATORS)]


def note_lines(task: Task, reference: Reference) -> list[str]:
    """Return what else is asked of a candidate: the task's notes and its cases.

    Of a single case the request has inputs and times; its text is not the one that is shown.
    """
    notes = [f"Note: {note}" for note in reference.notes]
    if len(reference.cases) > 1 or not task.cases:
        return [*notes, *reference_case_lines(reference.cases)]
    constants = ", ".join(f"{name} = {value}" for name, value in task.cases[0].constants.items())
    return [*notes, f"The judge sets {constants} in the module."] if constants else notes


def attempt_lines(verdict: Verdict, reference: Reference, *, is_node: bool = True) -> list[str]:
    """Return the lines below an attempt's result.

    Its share of the floor stands beside its time already; without a profile, what it reaches of the
    device's rates is told of the node.  Of another attempt a profile is cut to its begin, and has
    no kernels beside it.
    """
    facts, rates_of = verdict.facts, reference.facts if is_node else None
    if facts is not None:
        told = facts.profile_sentences[:MAX_SENTENCES]
        if facts.kernels and len(told) > 1:
            told = tuple(each for each in told if not each.startswith(ONE_KERNEL))
        if told and is_node:
            rates_of = None
        elif told:
            told = told[:FIRST_SENTENCES]
            facts = replace(facts, kernels=(), more_kernels=0)
        told_kernels = [x for x in facts.kernels if x.share is None or x.share >= MIN_SHARE]
        if [x.name for x in told_kernels] == [OWN_CODE]:  # its time is that of the call
            facts = replace(facts, kernels=(), more_kernels=0)
        errors = _near_errors(facts.errors, is_node=is_node)
        no_profile = facts.no_profile if is_node else ""
        facts = replace(facts, profile_sentences=told, no_profile=no_profile, errors=errors)
    task = (verdict.profile or {}).get("task")
    labels = [
        f"{label}: {LABEL_WORDS.get(label, 'a label')}"
        for label in verdict.labels
        if label not in UNTOLD_LABELS
    ]
    return [
        *_case_lines(verdict),
        *verdict_fact_lines(facts, rates_of),
        *([f"task: {task}"] if task else []),
        *([f"Remark on its text, {', '.join(labels)}."] if labels else []),
        *raced_line(verdict),
    ]


def for_a_coder(verdict: Verdict) -> Verdict:
    """Return what code that follows a plan needs of a result: the plan has what a profile says."""
    facts = verdict.facts
    if facts is None:
        return verdict
    return replace(verdict, facts=replace(facts, profile_sentences=(), no_profile=""))


def _near_errors(errors: tuple[DrawError, ...], *, is_node: bool) -> tuple[DrawError, ...]:
    """Return the errors that come near the tolerance, or else the node's largest: it has room."""
    near = tuple(each for each in errors if each.share >= NEAR_TOLERANCE)
    return near or tuple(sorted(errors, key=lambda each: each.share)[-1:] if is_node else ())


def brief_lines(verdict: Verdict, reference: Reference) -> list[str]:
    """Return the lines of an attempt beside the node: cases, its bound, an idle device, faults.

    Its share of the floor stands beside its time already.
    """
    facts = verdict.facts
    if facts is not None:  # the first sentence of a profile is the bound
        facts = replace(
            facts,
            kernels=(),
            errors=(),
            launches=facts.launches if idle_us(facts) is not None else None,
            profile_sentences=facts.profile_sentences[:1],
            no_profile="",
        )
    return [*_case_lines(verdict), *verdict_fact_lines(facts, None)]


def _case_lines(verdict: Verdict) -> list[str]:
    """Return the figures of each case; a single one's are those of the attempt."""
    return result_case_lines(verdict.cases) if len(verdict.cases) > 1 else []


def item(line: str) -> str:
    """Return a line of a list; one that is an item already belongs to the item above it."""
    return f"  {line}" if line.startswith("- ") else f"- {line}"


def attainable_us(reference: Reference) -> float | None:
    """Return the least time where float32 products may be split; None where it is not known."""
    return max(attainable_parts(reference.facts).values(), default=None)


def least_us(reference: Reference) -> float | None:
    """Return the least time of the task's own bytes and operations; None where it is not known."""
    floor = reference.facts.floor if reference.facts is not None else None
    return floor.us if floor is not None else None
