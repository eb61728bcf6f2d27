"""The benchmark of a fitted call: it reads the inside of the package and of a winner's file."""

from __future__ import annotations

import sys

import pytest
import torch

from scripts.benchmarks.call_overhead import fitted_norm, layers


def test_every_layer_of_a_fitted_call_can_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's function that was renamed, or takes other arguments, fails here."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    x = torch.randn(4, 64)
    with torch.no_grad():
        norm, package = fitted_norm(())
        results = {name: call() for name, call in layers(norm, package, x).items()}

    assert results["  the module as it was fitted"] == ""
    assert results["  the winner's guard"] == ""
    assert results["    inputs"]
