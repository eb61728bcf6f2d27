"""The system message of compact requests: the judge's rules, as far as they concern the task.

Pure.  What it says of products is for tasks that have some, and for cards that have the
instructions.  It follows from task and device alone, so it is the same in all requests of a task.
"""

from __future__ import annotations

import prompts
from actors.agents.cards.task_operations import task_operations
from actors.agents.cards.techniques import techniques_in
from actors.agents.requests.prompting import fill
from actors.agents.requests.request import shown_source
from protocol.messages import AgentWork, Write
from protocol.values import Backend, Reference, Task

PRODUCTS = frozenset(["attention", "recurrence", "conv", "matmul"])  # of tensor cores
HOPPER = 90  # compute capability: wgmma
FLOAT8 = 89  # and later ones multiply float8
UNROLL = "`#pragma unroll` can't name a macro, which nvcc leaves as it is: name a `constexpr int`"
FLAG = "`f\"-DDEPTH={TUNE['DEPTH']}\"`"
SHORT_NAMES = "a macro of one letter breaks torch's headers"
ARGUMENT = '`DEPTH=TUNE["DEPTH"]` where a kernel is launched'


def system_message(task: Task, reference: Reference) -> str:
    """Return the rules, and how candidates are written in each language that the task allows."""
    notes = [_backend_notes(name) for name in (task.backend, *task.other_backends)]
    if len(notes) > 1:
        notes.append("Choose the language that suits the change; a plan names it.")
    return fill(
        "compact/system.md",
        products=_precision_notes(task, reference),
        backend="\n\n".join(note.rstrip() for note in notes),
    ).rstrip()


def has_products(task: Task, reference: Reference) -> bool:
    """Whether tensor cores have something to do: by what was counted, else by the source's names.

    A task that is not understood may have it.
    """
    cost = reference.facts.cost if reference.facts is not None else None
    if cost is not None:
        return bool(cost.flops or cost.uncounted)
    operations = task_operations(task.source, reference.inputs)
    return not operations or bool(PRODUCTS & {*operations})


def _precision_notes(task: Task, reference: Reference) -> str:
    """Return what float32 products in lower precisions are off by; "" where there are none."""
    is_float32 = "float32[" in reference.inputs or "float" not in reference.inputs
    if not is_float32 or not has_products(task, reference):
        return ""
    if task.device == "cpu" and "amx" not in reference.device.facts.get("vector", ""):
        return ""  # lower precisions multiply no faster there
    note = prompts.read("compact/products.md")
    cost = reference.facts.cost if reference.facts is not None else None
    is_in_float32 = cost is None or not cost.flops or "float32" in cost.flops
    # Where the reference computes in TF32, its own error lets float16 alone pass.
    if task.device == "cuda" and _capability(reference) >= FLOAT8 and is_in_float32:
        note = note.rstrip("\n") + prompts.read("compact/products-float8.md")
    return note


def instruction_notes(work: AgentWork) -> str:
    """Return what a compiler wants of wgmma, for code that has it or may have it."""
    backends = (work.task.backend, *work.task.other_backends)
    if "cuda" not in backends or _capability(work.reference) != HOPPER:
        return ""
    source = shown_source(work)
    plan = work.plan.advice if isinstance(work, Write) else ""
    is_first = source == work.task.source and has_products(work.task, work.reference)
    if not is_first and "wgmma" not in techniques_in(f"{source}\n{plan}"):
        return ""
    return f"\n\n{prompts.read('compact/wgmma.md').strip()}"


def variant_notes(task: Task) -> str:
    """Return how values are left to a race, as the task's languages take them."""
    backends = (task.backend, *task.other_backends)
    notes = "; ".join([SHORT_NAMES, *([UNROLL] if "cuda" in backends else [])])
    uses = [f"{FLAG} ({notes})"] if {*backends} - {"triton"} else []
    uses += [ARGUMENT] if "triton" in backends else []
    return fill("compact/variants.md", use=", in Triton ".join(uses)).strip()


def _backend_notes(backend: Backend) -> str:
    try:
        return prompts.read(f"compact/backend-{backend}.md")
    except FileNotFoundError:  # a backend of a user's, with notes for both styles
        return prompts.read(f"backend-{backend}.md")


def _capability(reference: Reference) -> int:
    """Return the compute capability times ten; 0 where it is not known."""
    text = reference.device.facts.get("compute capability", "").replace(".", "")
    return int(text) if text.isdigit() else 0
