"""Laws of counted operations: hand-worked figures, whatever mode or fused operator hides them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from actors.evaluator.children.task_cost import count_operations

X, W = torch.ones(64, 128), torch.ones(256, 128)
QUERY = torch.ones(2, 4, 64, 32)
SEQUENCE = torch.ones(2, 10, 16)
TOKENS = torch.ones(2, 10, 32)
functional = torch.nn.functional


def in_inference_mode() -> object:
    with torch.inference_mode():
        return functional.linear(X, W)


def under_autocast() -> object:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return X @ W.T


def attention(*, is_causal: bool) -> Callable[[], object]:
    return lambda: functional.scaled_dot_product_attention(QUERY, QUERY, QUERY, is_causal=is_causal)


@pytest.mark.parametrize(
    ("call", "precision", "flops"),
    [
        (lambda: X @ W.T, "float32", 2 * 64 * 128 * 256),
        (in_inference_mode, "float32", 2 * 64 * 128 * 256),
        (under_autocast, "bfloat16", 2 * 64 * 128 * 256),
        (lambda: X.double() @ W.T.double(), "float64", 2 * 64 * 128 * 256),
        (lambda: W @ X[0], "float32", 2 * 128 * 256),
        (lambda: torch.einsum("bij,bkj->bik", TOKENS, TOKENS), "float32", 2 * 2 * 10 * 10 * 32),
        (attention(is_causal=False), "float32", 4 * 2 * 4 * 64 * 64 * 32),
        (attention(is_causal=True), "float32", 4 * 2 * 4 * (64 * 65 // 2) * 32),
    ],
)
def test_products_are_counted(call: Callable[[], object], precision: str, flops: int) -> None:
    """A product counts two operations for each multiplication, under the dtype that computes it."""
    assert count_operations(call, "cpu") == ({precision: flops}, ())


@pytest.mark.parametrize("groups", [1, 4])
def test_a_convolution_counts_its_groups(groups: int) -> None:
    """Each output element of a grouped convolution takes its own group's channels only."""
    convolution = torch.nn.Conv2d(8, 16, 3, padding=1, groups=groups)

    counted, _ = count_operations(lambda: convolution(torch.ones(2, 8, 32, 32)), "cpu")

    assert counted == {"float32": 2 * (2 * 16 * 32 * 32) * (8 // groups) * 9}


@pytest.mark.parametrize(
    ("module", "inputs", "flops"),
    [
        (torch.nn.LSTM(16, 32, batch_first=True), (SEQUENCE,), 2 * 2 * 10 * (16 + 32) * 128),
        (torch.nn.GRU(16, 32, batch_first=True), (SEQUENCE,), 2 * 2 * 10 * (16 + 32) * 96),
        (
            torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
            (TOKENS,),
            2 * 20 * 32 * (96 + 32 + 64 + 64) + 4 * 2 * 4 * 10 * 10 * 8,
        ),
    ],
)
def test_fused_operators_hide_nothing(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], flops: int
) -> None:
    """Recurrent layers and the fused transformer layer count the products inside of them."""
    module.eval()

    assert count_operations(lambda: module(*inputs), "cpu") == ({"float32": flops}, ())


def test_elementwise_operations_do_not_count() -> None:
    """A task without products has no operations, and so no bound of arithmetic."""
    assert count_operations(lambda: functional.gelu(X) + X.sum(), "cpu") == ({}, ())
