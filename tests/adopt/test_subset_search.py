"""Winners that are right alone and wrong together: which ones are dropped."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from actors.adopt.check.subset_search import sound_subset

NAMES = "abcdefgh"


@given(st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=5))
def test_what_is_left_has_no_problem_and_each_culprit_is_in_one(
    pairs: set[tuple[str, str]],
) -> None:
    """Any set of pairs that do not go together: the rest is sound, a single bad one is named."""
    bad = {frozenset(pair) for pair in pairs}

    def problem(names: object) -> str:
        held = frozenset(names)  # type: ignore[call-overload]
        found = sorted(sorted(pair) for pair in bad if pair <= held)
        return f"{found[0]}" if found else ""

    kept, dropped = sound_subset(NAMES, problem)
    assert not problem(kept)
    assert set(NAMES) == set(kept) | set(dropped)
    assert all(any(name in pair for pair in bad) for name in dropped)


def test_the_weaker_one_of_two_is_dropped_with_the_reason() -> None:
    """The names are in the order of what they bring; the search takes few comparisons."""
    asked = itertools.count()

    def problem(names: object) -> str:
        next(asked)
        return "wrong" if {"b", "g"} <= set(names) else ""  # type: ignore[call-overload]

    kept, dropped = sound_subset(NAMES, problem)
    assert ("abcdefh", {"g": "together with a, b, c, d, e, f: wrong"}) == ("".join(kept), dropped)
    assert next(asked) <= 6
