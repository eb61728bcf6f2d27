"""The release checks: a winner in its users' uses, compared with the plain module."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from actors.evaluator.children.release_comparison import (
    NotCheckableError,
    ReleaseCheckError,
    ReleaseComparison,
    call_on_copies,
    changes_state,
    map_tensors,
    perturbed,
    require_same,
    stats_of,
)
from actors.evaluator.children.tensor_copies import clone
from actors.evaluator.children.tensors import tensors_in

CALLS = 20  # by each of two threads
BACKENDS = ("eager", "aot_eager", "inductor")


class ReleaseChecks(ReleaseComparison):
    """The checks that do not need a GPU."""

    def run(self, name: str) -> None:
        """Run one check by its name; raise `ReleaseCheckError` or `NotCheckableError`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(self, f"check_{name.replace(' ', '_')}")()

    def check_fresh_process(self) -> None:
        plain, winner = self.pair()
        for seed in range(3):
            self.expect(winner, plain, self.inputs(seed), kernels=True)

    def check_gradients(self) -> None:
        plain, winner = self.pair()
        gradients = [self._gradients_of(module) for module in (plain, winner)]
        for number, (expected, got) in enumerate(zip(*gradients, strict=True)):
            if (got is None) is not (expected is None):
                raise ReleaseCheckError(
                    f"gradient {number} is {'missing' if got is None else 'new'}"
                )
            if got is not None:
                require_same(got, expected, f"gradient {number}: ")

    def _gradients_of(self, module: torch.nn.Module) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of inputs and parameters, with a residual path around the module."""
        inputs = clone(self.inputs())
        leaves = [t for t in tensors_in(inputs) if t.is_floating_point()]
        for tensor in leaves:
            tensor.requires_grad_()
        leaves += [p for p in module.parameters() if p.requires_grad]
        torch.manual_seed(0)
        with torch.enable_grad():
            outputs = [t for t in tensors_in(module(*inputs)) if t.is_floating_point()]
            outputs += [t * 1.0 for t in leaves]
            loss = sum((t.float().square().mean() for t in outputs), torch.zeros(()).sum())
            if not loss.requires_grad:
                raise NotCheckableError("no gradient flows through the module")
            return torch.autograd.grad(loss, leaves, allow_unused=True)

    def check_state_dict(self) -> None:
        plain, winner = self.pair()
        inputs = self.inputs()
        self.expect(winner, plain, inputs, kernels=True)
        file = io.BytesIO()
        torch.save(perturbed(plain).state_dict(), file)
        for assign in (False, True):
            file.seek(0)
            state = torch.load(file)
            for module in (plain, winner):
                module.load_state_dict(state, assign=assign)
            # Loaded tensors may begin at any address: then the plain forward must run.
            self.expect(winner, plain, inputs, where=f"load_state_dict(assign={assign}): ")
        if list(winner.state_dict()) != list(plain.state_dict()):
            raise ReleaseCheckError("its state_dict has other names than the module's")
        with torch.no_grad():
            for tensor in (*plain.parameters(), *winner.parameters()):
                if tensor.is_floating_point():
                    tensor.mul_(1.25)
        self.expect(winner, plain, inputs, where="after an optimizer's step in place: ")

    def check_deepcopy(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        self.expect(copy.deepcopy(winner), plain, self.inputs(1), kernels=True)
        self.expect(winner, plain, self.inputs(2), kernels=True, where="the original: ")

    def check_pickle(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        copied = pickle.loads(pickle.dumps(winner))  # noqa: S301  # the pickle of the line itself
        self.expect(copied, plain, self.inputs(1), kernels=True)

    def check_other_batch(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        batches = [t.shape[0] for t in tensors_in(self.inputs()) if t.dim()]
        batch = batches[0] if batches else 0
        if batch < 2:
            raise NotCheckableError("no input has a first dimension that could be smaller")

        def shorter(tensor: torch.Tensor) -> torch.Tensor:
            has_batch = tensor.dim() and tensor.shape[0] == batch
            return tensor[: batch // 2].contiguous() if has_batch else tensor

        self.expect(winner, plain, map_tensors(self.inputs(1), shorter), kernels=False)
        self.expect(winner, plain, self.inputs(2), kernels=True, where="the judged batch again: ")

    def check_non_contiguous(self) -> None:
        plain, winner = self.pair()

        def strided(tensor: torch.Tensor) -> torch.Tensor:
            wide = tensor.new_empty((*tensor.shape, 2))
            wide[..., 0] = tensor
            return wide[..., 0]

        def shifted(tensor: torch.Tensor) -> torch.Tensor:
            memory = tensor.new_empty(tensor.numel() + 1)
            memory[1:] = tensor.reshape(-1)
            return memory[1:].view(tensor.shape)

        self.expect(winner, plain, map_tensors(self.inputs(), strided), where="strided inputs: ")
        self.expect(winner, plain, map_tensors(self.inputs(), shifted), where="misaligned inputs: ")
        self.expect(winner, plain, self.inputs(), kernels=True)

    def check_autocast(self) -> None:
        plain, winner = self.pair()
        with torch.autocast(self.device, dtype=torch.bfloat16):
            self.expect(winner, plain, self.inputs(), kernels=False)

    def check_other_mode(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        mode = not plain.training
        for number, each in enumerate((mode, not mode, mode)):
            for module in (plain, winner):
                module.train(each)
            self.expect(winner, plain, self.inputs(number), where=f"train({each}): ")

    def check_second_instance(self) -> None:
        plain, winner = self.pair()
        other_plain = perturbed(self.plain())
        other = self.winner_like(other_plain)
        for seed in range(2):
            self.expect(winner, plain, self.inputs(seed))
            self.expect(other, other_plain, self.inputs(seed), where="the second instance: ")

    def check_threads(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        # Two threads with inputs of their own: a buffer that the calls share gives wrong outputs.
        work = []
        for seed in range(2):
            inputs = self.inputs(seed)
            work.append((winner, inputs, call_on_copies(copy.deepcopy(plain), inputs)))
        errors: list[str] = []

        def call_repeatedly(
            module: torch.nn.Module, inputs: list[object], expected: object
        ) -> None:
            try:
                for _number in range(CALLS):
                    with torch.no_grad():
                        require_same(clone(module(*inputs)), expected)
            except Exception as error:  # noqa: BLE001  # the main thread reports it
                errors.append(f"{type(error).__name__}: {error}")

        if self._is_random(plain, work[0][1], work[0][2]) or changes_state(plain):
            raise NotCheckableError("the module's outputs depend on earlier calls")
        threads = [threading.Thread(target=call_repeatedly, args=each) for each in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise ReleaseCheckError(errors[0])

    def check_compile(self) -> None:
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1
        for backend in BACKENDS:
            self._check_backend(backend)
        self._check_compiled_gradients()

    def _check_backend(self, backend: str) -> None:
        plain, winner = self.pair()
        torch._dynamo.reset()
        compiled: Callable[..., object] = torch.compile(winner, backend=backend, fullgraph=True)
        try:
            for seed in range(2):
                self.expect(compiled, plain, self.inputs(seed), where=f"{backend}: ")
        except ReleaseCheckError:
            if self._compiles(plain, backend):
                raise

    def _compiles(self, plain: torch.nn.Module, backend: str) -> bool:
        """Whether the plain module can be compiled here; if not, the winner is not at fault."""
        torch._dynamo.reset()
        compiled: Callable[..., object] = torch.compile(plain, backend=backend, fullgraph=True)
        try:
            call_on_copies(compiled, self.inputs())
        except Exception:  # noqa: BLE001  # a backend may lack anything
            return False
        return True

    def _check_compiled_gradients(self) -> None:
        plain, winner = self.pair()
        if not any(p.requires_grad for p in plain.parameters()):
            return
        torch._dynamo.reset()
        for module in (plain, torch.compile(winner, backend="aot_eager")):
            torch.manual_seed(0)
            with torch.enable_grad():
                outputs = [t for t in tensors_in(module(*clone(self.inputs()))) if t.requires_grad]
                loss = sum((t.float().square().mean() for t in outputs), torch.zeros(()))
                if not outputs:
                    return
                torch.autograd.backward(loss)
        pairs = zip(plain.named_parameters(), winner.parameters(), strict=True)
        for (name, parameter), winners in pairs:
            expected, got = parameter.grad, winners.grad
            if (expected is None) is not (got is None):
                raise ReleaseCheckError(f"compiled: the gradient of {name} is missing")
            if expected is not None:
                require_same(got, expected, f"compiled: gradient of {name}: ")

    def check_export(self) -> None:
        plain, winner = self.pair()
        inputs = tuple(self.inputs())
        try:
            exported = torch.export.export(winner, inputs)
        except Exception as error:
            try:
                torch.export.export(plain, inputs)
            except Exception as plain_error:
                raise NotCheckableError("the module itself can't be exported") from plain_error
            raise ReleaseCheckError(f"{type(error).__name__}: {error}") from error
        self.expect(exported.module(), plain, self.inputs(1))

    def check_jit_trace(self) -> None:
        plain, winner = self.pair()
        inputs = tuple(self.inputs())
        trace: Any = torch.jit.trace
        try:
            with torch.no_grad():
                trace(plain, inputs)
        except Exception as error:
            raise NotCheckableError("the module itself can't be traced") from error
        with torch.no_grad():
            traced = trace(winner, inputs)
        self.expect(traced, plain, self.inputs(1))

    def check_vmap(self) -> None:
        plain, winner = self.pair()
        inputs = self.inputs()
        self.expect(winner, plain, inputs, kernels=True)
        stacked = map_tensors(inputs, lambda tensor: torch.stack([tensor, tensor]))
        if not all(isinstance(each, torch.Tensor) for each in stacked):
            raise NotCheckableError("torch.vmap takes only tensors")
        try:
            got = torch.vmap(winner)(*stacked)
        except Exception:  # noqa: BLE001  # a refusal is right
            return
        require_same(got, torch.vmap(plain)(*stacked))

    def check_no_compiler(self) -> None:
        """Without a compiler the plain forward runs, and a warning says so."""
        plain, winner = self.pair()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.expect(winner, plain, self.inputs())
        calls = stats_of(winner)
        if not calls["kernel"] and not any("plain forward" in str(each.message) for each in caught):
            raise ReleaseCheckError("the plain forward runs and no warning says so")
