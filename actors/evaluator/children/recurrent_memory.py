"""Parameters with which a recurrent module of torch remembers all of a long sequence.

As constructed, a gate is near a half: of a step 64 steps ago 2^-64 is left.  A candidate that
computes the last 64 of 512 steps is right within rounding, and wrong with weights that were
trained to remember.  So half of the units keep their state, and the others stay as they are.
Pure functions on tensors; they run in the trusted referee.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

KEPT = 6.0  # added to a gate that keeps state: 0.25 % of it are lost in a step
TAKEN = -4.0  # to an LSTM's input gate: what hundreds of steps add up to is no constant of tanh
LATCHED = 3.0  # a tanh unit's weight on itself: it stays at the side at which it began
KEPT_SHARE = 0.5  # of all units
# Of each kind, the gates whose biases change, by their place in the rows of its parameters.
GATES: Mapping[type[nn.Module], Mapping[int, float]] = {
    nn.LSTM: {0: TAKEN, 1: KEPT},
    nn.LSTMCell: {0: TAKEN, 1: KEPT},
    nn.GRU: {1: KEPT},
    nn.GRUCell: {1: KEPT},
}


def remember(model: nn.Module, state: dict[str, torch.Tensor], seed: int) -> None:
    """Change copies of the parameters of `model`, by name in `state`, in place."""
    lots = torch.Generator().manual_seed(seed)
    for prefix, module in model.named_modules():
        gates = GATES.get(type(module), {})
        is_tanh = isinstance(module, nn.RNN | nn.RNNCell) and module.nonlinearity == "tanh"
        for name, _ in module.named_parameters(prefix, recurse=False):
            last = name.rpartition(".")[2]
            if last.startswith("bias_hh") and gates:
                units = state[name].view(-1, module.hidden_size)
                kept = _kept(units.shape[1], lots).to(units.device)
                for gate, added in gates.items():
                    units[gate] += added * kept
            elif last.startswith("weight_hh") and is_tanh:
                own = state[name].diagonal()
                own += LATCHED * _kept(len(own), lots).to(own.device)


def _kept(units: int, lots: torch.Generator) -> torch.Tensor:
    return torch.rand(units, generator=lots) < KEPT_SHARE
