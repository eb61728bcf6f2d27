"""The judge's rules in numbers, as lines for models: they are made of its own constants.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from actors.evaluator.ipc.orders import InputKind
from actors.evaluator.ipc.referee_orders import OutputTolerance, TaskDescribed
from protocol.settings import JudgeRules
from protocol.values import DeviceKind

NAMES_SHOWN = 6


def rule_lines(
    task: TaskDescribed,
    device: DeviceKind,
    input_kinds: Sequence[InputKind],
    checks: int,
    rules: JudgeRules,
    updated: Sequence[str] = (),
    carried: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return what is compared, what is timed and what comes, one line each.

    `updated`: the names of what a call of the task changes and is compared for; `carried`: of
    tensors in plain attributes.
    """
    return (
        *_tolerance_lines(task.tolerances, rules),
        *_tf32_lines(task, device),
        _inputs_line(input_kinds, checks),
        *_state_lines(updated),
        *_attribute_lines(carried),
        *_timing_lines(device),
    )


def _tolerance_lines(tolerances: Sequence[OutputTolerance], rules: JudgeRules) -> Iterator[str]:
    shown: list[str] = []
    for number, each in enumerate(tolerances):
        name = "the output" if len(tolerances) == 1 else f"output {number}"
        rule = f"{each.dtype}{_tolerance(each)}"
        if rule not in shown:  # outputs of one kind need one line
            shown.append(rule)
            yield f"Tolerance of {name}, {rule}"
    if any(each.allowed for each in tolerances):
        wider = "" if rules.precision == "task" else f" (--precision {rules.precision} is in it)"
        yield (
            "Precision is judged by its error alone: any arithmetic is allowed whose error is "
            f"within the tolerance{wider} on every draw. Sums of split products (three TF32 or "
            "three bfloat16 products) usually are."
        )


def _tolerance(each: OutputTolerance) -> str:
    if not each.allowed:
        return ": none, it must be equal exactly."
    against = "a float64 run of the reference" if each.is_double else "eager PyTorch"
    own = each.eager_error if each.is_double else None
    allowed = max(each.allowed, each.error_factor * (own or 0.0))
    text = f", against {against}: {allowed:.2g} x (|element| + RMS of the output)"
    if allowed > each.allowed:
        text += f", which is {each.error_factor:g} x eager's own error and above {each.allowed:g}"
    text += f", {allowed * each.rms:.2g} for an element near 0 (RMS {each.rms:.3g} as given)"
    return f"{text}.{_measured_shares(own, each.tf32_error, allowed)}"


def _measured_shares(own: float | None, tf32: float | None, allowed: float) -> str:
    """Return how much of the tolerance eager itself takes: the rest is for lower precision."""
    if own is None:
        return ""
    text = f" Eager's own largest error is {own / allowed:.2g} of it"
    if tf32 is not None:
        text += f", with its products in TF32 {tf32 / allowed:.2g}"
    return f"{text}."


def _tf32_lines(task: TaskDescribed, device: DeviceKind) -> Iterator[str]:
    if device == "cuda":
        named = {"matrix products": task.tf32_products, "convolutions": task.tf32_convolutions}
        text = "; ".join(f"float32 {what}: {'on' if on else 'off'}" for what, on in named.items())
        yield f"TF32 in the reference: {text}."


def _inputs_line(input_kinds: Sequence[InputKind], checks: int) -> str:
    kinds = ", ".join(input_kinds)
    other = f", then draws of other kinds ({kinds})" if kinds else ""
    return (
        f"Checks: at least {max(2, checks)} fresh draws of get_inputs(){other}. Shapes, dtypes and "
        "layouts are always those of get_inputs(). Parameters and buffers are copied by name; "
        "parameters, running statistics and buffers of one number but zero get other values, other "
        "buffers, such as masks, keep theirs; the module stays in the mode in which it was "
        "constructed; inputs must stay unchanged."
    )


def _state_lines(updated: Sequence[str]) -> Iterator[str]:
    if updated:
        yield (
            f"Each call of Model changes {_names(updated)}: each call of "
            "ModelNew has to change them likewise. Before a timed block both get them as loaded. "
            "They are compared after the checks' calls and after some timed blocks, each by the "
            "rule for outputs with its own RMS: statistics of values in half precision are often "
            "off by more."
        )


def _attribute_lines(carried: Sequence[str]) -> Iterator[str]:
    if carried:
        yield (
            f"Each call of Model changes {_names(carried)}, tensors in plain attributes: ModelNew "
            "has to make them in its constructor under the same names and in the same form, and "
            "each call has to change them likewise."
        )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}"


def _timing_lines(device: DeviceKind) -> Iterator[str]:
    timed = (
        "Timed: calls in a row in blocks, each call on fresh inputs of its own; a block's time "
        "less that of an empty one, divided by its calls. Allocation, launches and the host's part "
        "count, and so does work on any stream or thread."
    )
    if device == "cuda":
        yield (
            f"{timed} Allowed: every instruction of the card, cooperative and dependent launches, "
            "clusters, CUDA graphs whose inputs are copied in, workspaces that are recomputed. "
            "Wrong or rejected: results or static outputs that are kept from call to call."
        )
        return
    yield f"{timed} Wrong or rejected: results that are kept from call to call."
