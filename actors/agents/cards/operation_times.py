"""Orders a task's classes of operations by the time that PyTorch's own operators take in them.

The judge measures the operators of the task's own module (`ReferenceFacts.operations`).  A class
whose operators take little of the time is left out: a card about it could save no more.  Only a
reduction behind a product stays: algebra may make a product with a vector of both.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from protocol.facts import OperationTime

LEAST_SHARE = 0.03
LEAST_ELEMENTWISE_SHARE = 0.1
# These are made of operators of other classes, products and softmax, and stay first.
COMPOSED = ("attention", "recurrence")
REDUCTIONS = r"sum|mean|a?max|a?min|arg(max|min)|prod|var|std|any|all|count_nonzero"
OPERATORS = {
    "depthwise-conv": re.compile(r"depthwise"),
    "conv": re.compile(r"(?<!_)conv|convolution|slow_conv|thnn_conv"),
    "matmul": re.compile(r"(^|_)(add|badd)?b?mm|linear|matmul|(^|_)(add)?mv|(^|_)dot|einsum"),
    "softmax": re.compile(r"softmax|logsumexp"),
    "pool": re.compile(r"pool|unfold|im2col"),
    "batch-norm": re.compile(r"batch_norm"),
    "norm": re.compile(r"norm"),
    "loss": re.compile(rf"loss|kl_div|^({REDUCTIONS})$"),
    "column-reduction": re.compile(rf"batch_norm|^({REDUCTIONS})$"),
    "channel-reduction": re.compile(rf"batch_norm|^({REDUCTIONS})$"),
    "scan": re.compile(r"^(log)?cum(sum|prod|max|min)"),
    "reduction": re.compile(rf"^({REDUCTIONS})$"),
}
# Operators of more than one class count for the first of these.
WHOLE = (
    *("depthwise-conv", "conv", "matmul", "softmax", "pool", "batch-norm", "norm", "scan"),
    "reduction",
)


def by_time(operations: Iterable[str], times: Sequence[OperationTime]) -> list[str]:
    """Return the classes, the longest first, without those that take little; as given if unknown.

    Element-wise work is what no other class has; it comes in at its place if it takes a tenth.
    """
    given = list(operations)
    total = sum(each.share for each in times)
    shares = {one: _share(one, times) for one in given}
    if not total or not any(shares[one] for one in given if one not in COMPOSED):
        return given
    kept = [
        one
        for one in given
        if one in COMPOSED
        or (one == "reduction" and "matmul" in given)
        or shares[one] >= (LEAST_ELEMENTWISE_SHARE if one == "elementwise" else LEAST_SHARE)
    ]
    if not kept:
        return given
    # Sorting is stable: classes of equal shares stay in their order.
    return sorted(kept, key=lambda one: (one not in COMPOSED, -shares[one]))


def _share(operation: str, times: Iterable[OperationTime]) -> float:
    if operation == "elementwise":
        return sum(each.share for each in times if _class(each.name) == "")
    pattern = OPERATORS.get(operation)
    if pattern is None:
        return 0.0
    # An instance norm is a batch norm of other channels.
    classes = {"norm": {"norm", "batch-norm"}}.get(operation, {operation})
    names = classes if operation in WHOLE else set(WHOLE)
    return sum(
        each.share
        for each in times
        if pattern.search(_plain(each.name)) and _class(each.name) in names
    )


def _class(name: str) -> str:
    """Return the first class of an operator; "" for element-wise work, copies and the rest."""
    return next((one for one in WHOLE if OPERATORS[one].search(_plain(name))), "")


def _plain(name: str) -> str:
    """Return an operator's name without its namespace and without the mark of writing in place."""
    return name.rpartition("::")[2].rstrip("_")
