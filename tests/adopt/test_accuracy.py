"""Results of a fitted model's steps, compared with the original's and with float64."""

from __future__ import annotations

import torch

from actors.adopt.check.accuracy import Accuracy, _Comparison
from actors.adopt.model.step_results import ModelCall, StepResult

PROMPTS = torch.arange(40).reshape(8, 5)
LOGITS = torch.randn(8, 30, generator=torch.Generator().manual_seed(0))
TOKENS = LOGITS.argmax(-1, keepdim=True)
LATER = torch.randn(8, 30, generator=torch.Generator().manual_seed(1))


def generated(
    tokens: torch.Tensor, second: torch.Tensor, first: torch.Tensor = LOGITS
) -> StepResult:
    """Return the result of a loop with two calls of a model; `tokens` were chosen after the first.

    `first` and `second`: what the two calls returned.
    """
    chosen = torch.cat([tokens, second.argmax(-1, keepdim=True)], 1)
    calls = [
        ModelCall(numbers=[PROMPTS], outputs=[first]),
        ModelCall(numbers=[tokens], outputs=[second]),
    ]
    return StepResult(outputs=[chosen], calls=calls)


def compared(fitted: StepResult, original: StepResult | None = None) -> Accuracy:
    comparison = _Comparison(is_exact=True)
    one = original or generated(TOKENS, LATER)
    comparison.add(0, one, fitted, generated(TOKENS, LATER))
    return comparison.result()


def other_token(row: int) -> torch.Tensor:
    """Return the tokens with another one in a row, as after a near-tie."""
    tokens = TOKENS.clone()
    tokens[row] = (tokens[row] + 1) % 30
    return tokens


def losses(*values: float) -> list[StepResult]:
    return [StepResult(outputs=[torch.tensor(value)]) for value in values]


def test_the_originals_error_of_a_loss_is_its_largest_in_any_batch() -> None:
    """On one number it may be small by chance: an honest kernel was wrong there."""
    exact, original = losses(1.0, 1.0, 1.0), losses(1.0002, 1.00003, 0.9999)
    for error, is_right in ((1.6e-4, True), (6e-4, False)):
        comparison = _Comparison(is_exact=True)
        fitted = losses(1.0, 1.0 - error, 1.0)
        for number in range(3):
            comparison.add(number, original[number], fitted[number], exact[number])
        found = comparison.result()
        assert found.is_right == is_right, found
        assert [place.partition(":")[0] for place in found.places] == (
            [] if is_right else ["output 0 of batch 1"]
        )
        assert abs(found.allowed - 4e-4) < 1e-6


def test_another_place_and_a_batch_without_finite_errors_allow_nothing_more() -> None:
    """Each output has its own error; of an infinite one nothing follows for other batches."""
    exact = [StepResult(outputs=[torch.tensor(1.0), torch.tensor(1.0)])] * 2
    original = [
        StepResult(outputs=[torch.tensor(1.01), torch.tensor(1.0)]),
        StepResult(outputs=[torch.tensor(1.01), torch.tensor(float("inf"))]),
    ]
    fitted = StepResult(outputs=[torch.tensor(1.0), torch.tensor(1.001)])
    comparison = _Comparison(is_exact=True)
    for number in range(2):
        comparison.add(number, original[number], fitted, exact[number])
    places = comparison.result().places
    assert [place.partition(":")[0] for place in places] == ["output 1 of batch 0"]


def test_many_numbers_are_judged_by_the_originals_error_in_their_own_batch() -> None:
    """A jump in one batch does not hide a wrong kernel in another one."""
    jump = LOGITS.clone()
    jump[0] += 1.0
    comparison = _Comparison(is_exact=True)
    for number, original in enumerate((jump, LOGITS)):
        one, other = (StepResult(outputs=[each]) for each in (original, LOGITS * 1.01))
        comparison.add(number, one, other, StepResult(outputs=[LOGITS]))
    places = comparison.result().places
    assert places[0].startswith("output 0 of batch 1:")


def test_a_near_tie_is_not_an_error() -> None:
    """Another token whose logits are right is no reason; behind it that row is not compared."""
    second = LATER.clone()
    second[3] += 5.0
    found = compared(generated(other_token(3), second))
    assert found.is_right
    assert 0 < found.unequal <= 0.25


def test_a_wrong_later_call_is_an_error() -> None:
    """A kernel that is wrong for single tokens only is seen in the second call."""
    found = compared(generated(TOKENS, LATER * 1.3))
    assert "of the model's call 2 of batch 0" in found.places[0]


def test_tokens_are_strict_where_no_later_call_could_be_compared() -> None:
    """If every row has another first token, nothing shows that later calls are right."""
    found = compared(generated((TOKENS + 1) % 30, LATER))
    assert "whole numbers differ" in found.places[0]


def test_whole_numbers_that_the_model_itself_returns_are_strict() -> None:
    """A wrong mask beside right logits is an error."""
    mask = torch.ones(8, 30, dtype=torch.bool)

    def step(mask: torch.Tensor) -> StepResult:
        call = ModelCall(numbers=[PROMPTS], outputs=[LOGITS, mask])
        return StepResult(outputs=[LOGITS, mask], calls=[call])

    comparison = _Comparison(is_exact=True)
    comparison.add(0, step(mask), step(~mask), step(mask))
    assert not comparison.result().is_right


def test_without_calls_of_the_model_whole_numbers_are_strict() -> None:
    """A model that returns tokens and no logits has to return the same ones."""
    comparison = _Comparison(is_exact=True)
    one, other = StepResult(outputs=[TOKENS]), StepResult(outputs=[other_token(3)])
    comparison.add(0, one, other, one)
    assert not comparison.result().is_right


def test_tokens_are_strict_where_logits_are_less_accurate_on_average() -> None:
    """An error below the bound of the largest one, in every element, is no near-tie."""
    noise = torch.randn(8, 30, generator=torch.Generator().manual_seed(2))
    exact = generated(TOKENS, LATER)
    original = generated(TOKENS.clone(), LATER + 0.001 * noise)
    for scale, is_right in ((0.0015, True), (0.0035, False)):
        second = LATER + scale * noise.sign() * noise.abs().clamp(max=1.0)
        comparison = _Comparison(is_exact=True)
        comparison.add(0, original, generated(other_token(3), second), exact)
        largest = [place for place in comparison.result().places if "whole numbers" in place]
        assert is_right is not bool(largest)
