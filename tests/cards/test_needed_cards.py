"""Cards that build on other cards: their code, and their places in a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.cards.card import MAX_PLACES, Card, CardError, with_needed_code
from actors.agents.cards.selection import choose_cards
from protocol.values import Device, Reference, Task

H100 = Device(kind="cuda", facts={"compute capability": "9.0"})
PRODUCT = "class Model:\n    def forward(self, x):\n        return x @ x\n"


def card(name: str, needs: str = "", dtype: str = "", operation: str = "matmul") -> Card:
    """A card whose code is its name."""
    return Card(
        name=f"cuda-{name}",
        title=name,
        backend="cuda",
        architecture="sm_80+",
        operations=(operation,),
        bottleneck=("compute",),
        source="none",
        effect="none",
        checked="2026-11-22",
        needs=f"cuda-{needs}" if needs else "",
        dtype=dtype,
        text=name,
        code=f"{name};\n",
    )


def chosen(cards: list[Card], inputs: str = "float32[8, 8]") -> list[str]:
    """The names of a product's cards, without their backend."""
    task = Task(name="t", source=PRODUCT, device="cuda", backend="cuda")
    reference = Reference(eager_us=1.0, device=H100, inputs=inputs)
    found = choose_cards(task, reference, cards=with_needed_code(cards))
    return [each.title for each in found]


def test_a_card_has_the_code_that_it_needs_in_front() -> None:
    """The whole chain stands in front of a card's own code; the digest holds all of it."""
    cards = [card("c", "b"), card("b", "a"), card("a", dtype="float32")]
    changed = [*cards[:2], card("a", dtype="float32", operation="conv")]
    named = {each.title: each for each in with_needed_code(cards)}

    assert "a;\nb;\nc;\n" == named["c"].whole_code
    assert "float32" == named["c"].dtype
    assert named["c"].digest != cards[0].digest
    assert named["c"].digest == with_needed_code(changed)[0].digest


@pytest.mark.parametrize("needs", ["missing", "a", "b"])
def test_a_card_that_needs_none_of_the_cards_is_named(needs: str) -> None:
    """A card that needs one that is missing, or itself by a circle, can't be loaded."""
    with pytest.raises(CardError, match="card cuda-a: there is no card cuda-"):
        with_needed_code([card("a", needs), card("b", "a")])


@given(
    needs=st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=5, max_size=5),
    operations=st.lists(st.sampled_from(["matmul", "conv"]), min_size=5, max_size=5),
)
def test_what_a_shown_card_needs_is_shown_before_it(
    needs: list[str], operations: list[str]
) -> None:
    """Whatever cards there are: none is shown without those that it needs in front of it."""
    names = ["a", "b", "c", "d", "e"]
    cards = [
        card(name, need if need < name else "", operation=operation)
        for name, need, operation in zip(names, needs, operations, strict=True)
    ]
    shown = chosen(cards)

    assert len(shown) <= MAX_PLACES
    for each in cards:
        if each.title in shown and each.needs:
            before = shown[: shown.index(each.title)]
            assert each.needs.removeprefix("cuda-") in before


def test_a_card_without_place_for_what_it_needs_gives_its_place_to_the_next() -> None:
    """Four cards that build on each other do not fit: the next one that fits is shown."""
    chain = [card("b1"), card("b2", "b1"), card("b3", "b2"), card("a", "b3")]

    assert ["b1", "b2", "b3"] == chosen(chain)
    assert ["b1", "b2"] == chosen([*chain[:2]])


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        ("float32[8, 8]", ["split"]),
        ("int64[8], float32[8, 8]", ["split"]),
        ("bfloat16[8, 8]", []),
        ("int64[8]", ["split"]),
        ("", ["split"]),
    ],
)
def test_a_card_for_a_type_is_for_tasks_with_it(inputs: str, shown: list[str]) -> None:
    """Split products help float32 alone; a task whose inputs have no such type may still use it."""
    assert shown == chosen([card("split", dtype="float32")], inputs)


@pytest.mark.parametrize("inputs", ["bfloat16[8, 8]", "float16[8, 8], int64[8]"])
def test_a_card_may_be_for_several_types(inputs: str) -> None:
    """A card for both halves is for a task with either, and not for float32."""
    halves = [card("half", dtype="bfloat16, float16")]
    assert ["half"] == chosen(halves, inputs)
    assert [] == chosen(halves, "float32[8, 8]")
