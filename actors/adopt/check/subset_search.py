"""Which of several winners spoil the whole, each alone or with others: bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def sound_subset(
    names: Sequence[str], problem: Callable[[Sequence[str]], str]
) -> tuple[list[str], dict[str, str]]:
    """Return the names without those that cause a problem, and why each of these was dropped.

    `names`: the best first.  `problem`: why some of them can't be together; "" where they can.
    The last one of the shortest beginning with a problem is dropped, until there is none.
    """
    kept, dropped = list(names), {}
    reason = problem(kept) if kept else ""
    while reason:
        length, reason = _shortest_with_problem(kept, reason, problem)
        culprit = kept.pop(length - 1)
        others = ", ".join(kept[: length - 1])
        own = problem([culprit]) if others else reason
        dropped[culprit] = own or f"together with {others}: {reason}"
        reason = problem(kept) if kept else ""
    return kept, dropped


def _shortest_with_problem(
    names: Sequence[str], reason: str, problem: Callable[[Sequence[str]], str]
) -> tuple[int, str]:
    """Return the length of the shortest beginning with a problem, and the problem."""
    sound, bad = 0, len(names)
    while bad - sound > 1:
        middle = (sound + bad) // 2
        found = problem(names[:middle])
        if found:
            bad, reason = middle, found
        else:
            sound = middle
    return bad, reason
