"""How figures and facts become text, the same in the live view, plain lines and the report."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from actors.supervisor.reporting.run_data.snapshot import NodeView, Spend, TaskState
from protocol.settings import Settings
from protocol.values import AGENT_ROLES, Verdict

# Upper end of an interval / lower end, from which on its ends are not printed: they would read as a
# measurement.  An interval that the judge calls too imprecise for a speed is printed up to here
# (`verdict_annotations.IMPRECISE_RATIO`): it may still show that there is a winner.
UNPRINTED_RATIO = 100


def printable(text: str) -> str:
    """Return text whose control characters, which could move a cursor, are replaced."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def counted(number: int, thing: str) -> str:
    """Return "1 evaluator", "2 evaluators"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def duration(us: float | None) -> str:
    """`412 µs`, `1.24 ms`, `2.10 s`; a dash for a value that was not measured."""
    if us is None:
        return "–"
    if us < 10:
        return f"{us:.2f} µs"
    if us < 1000:
        return f"{us:.0f} µs"
    return f"{us / 1000:.2f} ms" if us < 1_000_000 else f"{us / 1_000_000:.2f} s"


def clock_time(seconds: float) -> str:
    """`0:42`, `12:05`, `1:02:03`."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def speedup(verdict: Verdict) -> str:
    """`2.31× (2.28–2.34)`; nothing for a verdict without a speed-up."""
    if verdict.speedup is None:
        return ""
    if verdict.speedup_ci95 is None:
        return f"{verdict.speedup:.2f}×"
    low, high = verdict.speedup_ci95
    # A bound near 1 decides whether there is a winner: it must not read 1.00.
    digits = 3 if abs(low - 1.0) < 0.005 else 2
    return f"{verdict.speedup:.{digits}f}× ({interval(low, high, digits)})"


def interval(low: float, high: float, digits: int = 2) -> str:
    """`2.28–2.34`; of a machine that was too busy to measure `wider than 100-fold`."""
    if high >= UNPRINTED_RATIO * low:
        return f"wider than {UNPRINTED_RATIO}-fold"
    return f"{low:.{digits}f}–{high:.{digits}f}"


CLOCK_NOTE = (
    "All times are on one clock: a candidate's is the reference's time, as it was measured when the"
    " task began, divided by the speed-up that was measured in turn with the reference."
    " A first look is short, and the best of many is too good to be true; a confirmed figure was"
    " measured again at length, in fresh processes."
)


def measurement_label(node: NodeView) -> str:
    """Return the name of the measurement that a node's figures come from."""
    return "confirmed" if node.confirmed else "first look"


def result(task: TaskState, node: NodeView) -> str:
    """`correct 2.31× (2.28–2.34) 412 µs, first look`, or the outcome of a failure."""
    verdict = node.verdict
    mended = ", mended once" if verdict.amended else ""
    if not verdict.is_correct:
        again = ", when it was judged again" if node.confirmed else ""
        return f"{verdict.verdict}{again}{mended}"
    figures = " ".join(part for part in (speedup(verdict), duration(task.shown_us(node))) if part)
    itself = ", the module itself" if verdict.is_renamed_reference else ""
    return f"correct {figures}, {measurement_label(node)}{itself}{mended}"


def node_summary(node: NodeView, width: int = 70) -> str:
    """Return a node's advice, or for a failure the reason, on one line."""
    text = node.advice if node.verdict.is_correct else node.verdict.reason or node.advice
    return textwrap.shorten(text, width, placeholder="…")


def node_line(task: TaskState, node: NodeView) -> str:
    """Return the one line of a recorded attempt."""
    digits = len(str(task.budget))
    mark = "  ← best" if task.best is node and len(task.attempts) > 1 else ""
    return (
        f"[{node.number:>{digits}}/{task.budget}] {task.name}: {result(task, node)}{mark}"
        f"  from {node.parent}: {node_summary(node)}"
    )


def second_look_line(task: TaskState, node: NodeView) -> str:
    """Return the one line of a node that was judged again."""
    first = node.first_look
    before = f"; at first {speedup(first)}" if first is not None and first.speedup else ""
    if node.unconfirmable:
        return f"{task.name}: node {node.number} could not be judged again"
    return f"{task.name}: node {node.number} judged again: {result(task, node)}{before}"


def counts(task: TaskState) -> dict[str, int]:
    """Return the number of attempts by outcome, the most frequent first."""
    found: dict[str, int] = {}
    for node in task.attempts:
        found[node.verdict.verdict] = found.get(node.verdict.verdict, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def best_line(task: TaskState) -> str:
    """Return the one line about the best of a task, or about its lack."""
    best = task.best
    if task.problem:
        return f"{task.name}: can't be measured: {task.problem}"
    if best is None:
        return f"{task.name}: {nothing_faster(task)}"
    return (
        f"{task.name}: best is node {best.number}: {_figures(task, best)}, "
        f"{measurement_label(best)}"
    )


def nothing_faster(task: TaskState) -> str:
    """Describe the closest candidate of a task without a `best`."""
    closest = task.closest
    done = f"{len(task.attempts)}/{task.budget} attempts"
    if closest is None and not task.is_over:
        return f"no correct candidate yet, {done}"
    so_far = "was found" if task.is_over else "so far"
    if closest is None:
        return f"nothing faster {so_far}: no candidate was correct, {done}"
    return (
        f"nothing faster {so_far}: node {closest.number} comes closest:"
        f" {_figures(task, closest)}, {measurement_label(closest)}: {_not_faster(closest)}"
    )


def _figures(task: TaskState, node: NodeView) -> str:
    return (
        f"{speedup(node.verdict)} {duration(task.shown_us(node))}"
        f" (reference {duration(task.eager_us(node))}),"
        f" {len(task.attempts)}/{task.budget} attempts"
    )


def _not_faster(node: NodeView) -> str:
    """Return the reason why a correct node is not the winner."""
    verdict = node.verdict
    if verdict.is_renamed_reference:
        return "it is the module itself"
    if node.unconfirmable:
        return "it could not be judged again"
    if verdict.is_faster:
        return "it was not confirmed"
    if verdict.speedup_ci95 is None:
        return "too noisy for an interval"
    if verdict.speedup_ci95[1] < 1.0:
        return "it is slower"
    return "its interval is not above 1"


# How the evaluator's children/runner.py and children/task_module.py call both modules.
MODE = (
    "Both modules are called under torch.no_grad(), in the mode in which their constructor leaves"
    " them: training mode, unless it calls eval()."
)


def ranking_device(task: TaskState) -> str:
    """Describe how a task's nodes were ranked: never by runtimes of different devices."""
    if task.reference is None:
        return "nothing measured yet"
    own = task.reference.device.name or "one kind of device"
    if not task.other_devices:
        return f"runtime, all on {own}"
    others = "; ".join(task.other_devices)
    return (
        f"speed-up against the reference on each node's own device: {own} and {others}"
        " (for a while no device of the first kind was there)"
    )


def total_spend(spends: list[Spend]) -> Spend:
    """Return the sum; its dollars are unknown as soon as those of one part are."""
    prices = [spend.usd for spend in spends]
    return Spend(
        calls=sum(spend.calls for spend in spends),
        lost=sum(spend.lost for spend in spends),
        usd=None if None in prices else sum(price or 0.0 for price in prices),
        input_tokens=sum(spend.input_tokens for spend in spends),
        cached_tokens=sum(spend.cached_tokens for spend in spends),
        output_tokens=sum(spend.output_tokens for spend in spends),
        seconds=sum(spend.seconds for spend in spends),
    )


def spend_line(spent: Spend) -> str:
    """`0.42 USD, 31,204 tokens in (12,000 cached), 4,210 out, 18 calls`."""
    usd = "price unknown" if spent.usd is None else f"{spent.usd:.2f} USD"
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    lost = f" ({spent.lost} lost, at the most it can have cost)" if spent.lost else ""
    return (
        f"{usd}, {spent.input_tokens:,} tokens in{cached}, {spent.output_tokens:,} out,"
        f" {counted(spent.calls, 'call')}{lost}"
    )


def model_line(settings: Settings) -> str:
    """Return the models of the roles, and why the first was chosen."""
    text = settings.model
    if settings.model_reason:
        text += f" ({settings.model_reason})"
    others = {role: settings.model_of(role) for role in AGENT_ROLES}
    for role, other in others.items():
        if other != settings.model:
            text += f", {role}: {other}"
    return text


def search_line(settings: Settings) -> str:
    """Describe the search: `strategy stark, policy epsilon-greedy, seed 0`."""
    policy = f", policy {settings.requested_policy}" if settings.requested_policy else ""
    return f"strategy {settings.strategy}{policy}, seed {settings.seed}"


def person_line(person: Mapping[str, int]) -> str:
    """Return what a person did to a run: `1 pause, 2 pin`."""
    return ", ".join(f"{count} {verb}" for verb, count in person.items())
