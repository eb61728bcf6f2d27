"""The release checks that need a card: streams, CUDA graphs, a second device."""

from __future__ import annotations

from contextlib import nullcontext
from types import ModuleType
from typing import Any

import torch

from actors.evaluator.children.release_checks.carried_attributes import require_same_attributes
from actors.evaluator.children.release_checks.host_release_checks import HostReleaseChecks
from actors.evaluator.children.release_checks.release_comparison import (
    call_on_copies,
    changes_state,
    exact_outputs,
    map_tensors,
)
from actors.evaluator.children.release_checks.tensor_agreement import (
    ReleaseCheckError,
    UntestableUseError,
    require_same,
)
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone
from actors.evaluator.ipc.runner_orders import ReleaseChecked
from protocol.cases import TaskCase
from protocol.values import DeviceKind

SLEEP_CYCLES = 50_000_000  # some 25 ms of a card's time
CUDA: Any = torch.cuda  # torch's own functions are untyped


class GpuReleaseChecks(HostReleaseChecks):
    """All release checks; on a host those of this file raise `UntestableUseError`."""

    def check_side_stream(self) -> None:
        self._require_gpu()
        plain, winner = self.pair()
        inputs = self.inputs()
        self.expect(winner, plain, inputs, kernels=True)
        expected = call_on_copies(plain, self.inputs(1))
        torch.cuda.synchronize()
        late = map_tensors(inputs, torch.zeros_like)
        source = self.inputs(1)
        torch.cuda.synchronize()
        stream = CUDA.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            CUDA._sleep(SLEEP_CYCLES)
            for place, value in zip(tensors_in(late), tensors_in(source), strict=True):
                place.copy_(value)
            torch.manual_seed(0)
            got = clone(winner(*late))
        stream.synchronize()
        if self.carried:  # the call has changed the state that exact outputs would follow from
            require_same(got, expected)
            require_same_attributes(winner, plain, self.carried, "")
        else:
            require_same(got, expected, exact=exact_outputs(plain, source))

    def check_CUDA_graph(self) -> None:  # the spelling of the check's name
        self._require_gpu()
        plain, winner = self.pair()
        static = self.inputs()
        self.expect(winner, plain, static, kernels=True)
        if self.carried or changes_state(plain):
            raise UntestableUseError("each call changes the module's state")
        stream = CUDA.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            for _number in range(3):
                winner(*static)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.no_grad(), CUDA.graph(graph):
                captured = winner(*static)
        except Exception as error:
            raise ReleaseCheckError(f"the capture failed: {error}") from error
        for seed in (1, 2):
            fresh = self.inputs(seed)
            for place, value in zip(tensors_in(static), tensors_in(fresh), strict=True):
                place.copy_(value)
            for tensor in tensors_in(captured):
                tensor.zero_()
            graph.replay()
            torch.cuda.synchronize()
            expected = call_on_copies(plain, fresh)
            exact = exact_outputs(plain, fresh)
            require_same(clone(captured), expected, f"replay {seed}: ", exact)

    def check_second_device(self) -> None:
        self._require_gpu()
        if torch.cuda.device_count() < 2:
            raise UntestableUseError("there is one card")
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        moved = map_tensors(self.inputs(1), lambda tensor: tensor.to("cuda:1"))
        for within in (nullcontext(), torch.cuda.device(1)):
            with within:
                one, other = self.pair()
                self.expect(other.to("cuda:1"), one.to("cuda:1"), moved)
        self.expect(winner, plain, self.inputs(2), kernels=True, where="the first card again: ")

    def _require_gpu(self) -> None:
        if self.device != "cuda":
            raise UntestableUseError("there is no GPU")


def run_check(
    module: ModuleType,
    device: DeviceKind,
    name: str,
    case: TaskCase | None = None,
    *,
    fills_on_card: bool = False,
) -> ReleaseChecked:
    """Run one check and say how it ended; the others: as for `ReleaseComparison`."""
    try:
        GpuReleaseChecks(module, device, case, fills_on_card=fills_on_card).run(name)
    except UntestableUseError as error:
        return ReleaseChecked(passed=False, skipped=True, reason=str(error))
    except (MemoryError, torch.OutOfMemoryError):
        return ReleaseChecked(passed=False, skipped=True, reason="there is not enough memory")
    except ReleaseCheckError as error:
        return ReleaseChecked(passed=False, reason=_one_line(error))
    except Exception as error:  # noqa: BLE001  # whatever the winner raises is the finding
        return ReleaseChecked(passed=False, reason=f"{type(error).__name__}: {_one_line(error)}")
    return ReleaseChecked(passed=True)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
