"""How the Triton cards' functions are called: the card's name, then the function's."""

from __future__ import annotations

FUNCTIONS = {
    "triton-softmax": "softmax",
    "triton-layer-norm": "layer_norm",
    "triton-split-reduction": "row_sum",
    "triton-matmul-epilogue": "linear_relu",
    "triton-attention": "attention",
    "triton-channel-reduce": "moments",
    "triton-column-reduce": "column_sum",
    "triton-row-scan": "cumsum",
    "triton-stencil-2d": "depthwise",
}
# Which of a sample's sizes a function takes behind the tensors.
SIZES = {"triton-stencil-2d": slice(-2, None)}
