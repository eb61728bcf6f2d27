"""The stream on which a rule book's CUDA kernels are launched, with a torch that stands in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from recipe_runner import candidate
from test_recipes_cuda import FAMILIES

from actors.agents.recipes.codegen.templates import STREAM_FUNCTION


class StreamsOfDevices:
    """Two devices, each with streams; a context chooses one of each."""

    def __init__(self, *, has_raw: bool) -> None:
        self.device = 0
        self.streams = {0: 0, 1: 0}  # handles; 0 is the default stream
        self.objects = 0  # `torch.cuda.Stream`s that were made
        raw = {"_cuda_getCurrentRawStream": self.streams.__getitem__} if has_raw else {}
        self._C = SimpleNamespace(**raw)
        self.cuda = SimpleNamespace(
            current_device=lambda: self.device, current_stream=self.current_stream
        )

    def current_stream(self) -> SimpleNamespace:
        self.objects += 1
        return SimpleNamespace(cuda_stream=self.streams[self.device])


@pytest.mark.parametrize("has_raw", [True, False])
def test_a_kernel_is_launched_on_the_callers_stream(has_raw: bool) -> None:
    """On the current device, whatever stream is current there, and at each call anew."""
    torch = StreamsOfDevices(has_raw=has_raw)
    names: dict[str, Any] = {"torch": torch}
    exec(STREAM_FUNCTION, names)  # noqa: S102  (the text of a file)
    current_stream = names["current_stream"]
    assert current_stream() == 0
    torch.streams[0] = 17
    assert current_stream() == 17
    torch.device = 1
    assert current_stream() == 0
    torch.streams[1] = 34
    assert current_stream() == 34
    assert torch.objects == (0 if has_raw else 4)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_forward_makes_no_stream_object(name: str) -> None:
    """An object a launch takes the host microseconds: as long as a small kernel runs."""
    text = candidate(FAMILIES[name], {}, "cuda")
    outside = text.replace(STREAM_FUNCTION.rstrip(), "")
    assert outside != text
    assert "torch.cuda.current_stream" not in outside
    assert ", current_stream()))" in outside
