"""The release checks that need no GPU: a winner in each use, compared with the plain module."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import pickle
import threading
import warnings
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import torch

from actors.evaluator.children.release_checks.carried_attributes import require_same_attributes
from actors.evaluator.children.release_checks.release_comparison import (
    call_on_copies,
    changes_state,
    exact_outputs,
    map_tensors,
    perturbed,
    stats_of,
    widened,
)
from actors.evaluator.children.release_checks.state_release_checks import StateReleaseChecks
from actors.evaluator.children.release_checks.tensor_agreement import (
    ReleaseCheckError,
    UntestableUseError,
    require_same,
)
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone

CALLS = 20  # of each of two threads
BACKENDS = ("eager", "aot_eager", "inductor")
Gradients = Callable[[torch.nn.Module], list[torch.Tensor | None]]  # None: there is none


class _Differentiable(NamedTuple):
    """A forward whose backward has not run."""

    loss: torch.Tensor
    wanted: list[torch.Tensor]  # whose gradients are compared


class _GradientCalls(NamedTuple):
    """Which calls of a module are differentiated."""

    number: int
    together: bool = False  # all forwards before the first backward, as where gradients add up


# A module may refuse what others allow: one that keeps a graph from call to call, for example.
_GRADIENT_CALLS = (_GradientCalls(2, together=True), _GradientCalls(2), _GradientCalls(1))


class HostReleaseChecks(StateReleaseChecks):
    """The checks that need no GPU."""

    def run(self, name: str) -> None:
        """Run one check by its name; raise `ReleaseCheckError` or `UntestableUseError`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(self, f"check_{name.replace(' ', '_')}")()

    def check_fresh_process(self) -> None:
        plain, winner = self.pair()
        for seed in range(3):
            self.expect(winner, plain, self.inputs(seed), kernels=True)

    def check_gradients(self) -> None:
        for calls in _GRADIENT_CALLS:
            plain, winner = self.pair()
            try:
                expected = self._gradients(plain, calls)
            except RuntimeError as error:  # the module itself refuses it, or there is no memory
                own = error
                continue
            got = self._gradients(winner, calls)
            names = [f"gradient {number}" for number in range(len(expected))]
            doubled = functools.partial(self._gradients, calls=calls, wide=True)
            self._require_gradients(got, expected, names, plain, doubled)
            require_same_attributes(winner, plain, self.carried, "with gradients: ")
            return
        if isinstance(own, torch.OutOfMemoryError):
            raise own
        raise UntestableUseError(f"the module itself: {own}") from own

    def _require_gradients(
        self,
        got: list[torch.Tensor | None],
        expected: list[torch.Tensor | None],
        names: list[str],
        plain: torch.nn.Module,
        doubled: Gradients,
    ) -> None:
        """Raise unless gradients are the module's; `doubled` computes those in float64."""
        exact = functools.cache(lambda: self._exact_gradients(plain, doubled, len(expected)))
        for number, (one, other) in enumerate(zip(got, expected, strict=True)):
            name = names[number]
            if (one is None) is not (other is None):
                raise ReleaseCheckError(f"{name} is {'missing' if one is None else 'new'}")
            if one is not None:
                require_same(one, other, f"{name}: ", functools.partial(_item_of, exact, number))

    def _exact_gradients(
        self, plain: torch.nn.Module, gradients: Gradients, count: int
    ) -> list[torch.Tensor | None]:
        """Return so many gradients of a module in float64, None where it does not run so."""
        if exact_outputs(plain, self.inputs())() is not None:
            with contextlib.suppress(Exception):  # a user's module may mix dtypes
                doubled = copy.deepcopy(plain).double()
                doubled.zero_grad()
                return gradients(doubled)
        return [None] * count

    def _gradients(
        self, module: torch.nn.Module, calls: _GradientCalls, *, wide: bool = False
    ) -> list[torch.Tensor | None]:
        """Return the gradients of calls; `wide`: of the module and its inputs in float64."""
        made = (self._differentiable(module, seed, wide=wide) for seed in range(calls.number))
        return [
            gradient
            for each in (list(made) if calls.together else made)
            for gradient in torch.autograd.grad(each.loss, each.wanted, allow_unused=True)
        ]

    def _differentiable(self, module: torch.nn.Module, seed: int, *, wide: bool) -> _Differentiable:
        """Call a module with gradients; kernels without a backward in a residual path."""
        inputs = clone(self.inputs(seed))
        if wide:
            inputs = widened(inputs)
        wanted = [t for t in tensors_in(inputs) if t.is_floating_point()]
        if self.module._IS_DIFFERENTIATED:  # the kernels run for the judged ones alone
            judged = self.module._GRADIENT_INPUTS
            wanted = [t for number, t in enumerate(tensors_in(inputs)) if number in judged]
        for tensor in wanted:
            tensor.requires_grad_()
        wanted += [p for p in module.parameters() if p.requires_grad]
        torch.manual_seed(0)
        with torch.enable_grad():
            outputs = [t for t in tensors_in(module(*inputs)) if t.is_floating_point()]
            if not self.module._IS_DIFFERENTIATED:
                outputs += [t * 1.0 for t in wanted]
            loss = sum((_squares(t) for t in outputs), torch.zeros(()).sum())
        if not loss.requires_grad:
            raise UntestableUseError("no gradient flows through the module")
        return _Differentiable(loss, wanted)

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
            # A loaded tensor may begin at any address; then the plain forward may run as well.
            self.expect(winner, plain, inputs, where=f"load_state_dict(assign={assign}): ")
        if list(winner.state_dict()) != list(plain.state_dict()):
            raise ReleaseCheckError("its state_dict has other names than the module's")
        pairs = list(zip(plain.parameters(), winner.parameters(), strict=True))
        with torch.no_grad():
            for tensor in chain.from_iterable(pairs):
                if tensor.is_floating_point():
                    tensor.mul_(1.25)
        self.expect(winner, plain, inputs, where="after an optimizer's step in place: ")
        for tensor in chain.from_iterable(pairs):  # no version counter tells of these
            if tensor.is_floating_point():
                tensor.data.mul_(0.8)
        self.expect(winner, plain, inputs, where="after a step in place on .data: ")
        for tensor in chain.from_iterable(pairs):
            tensor.data = tensor.data * 2
        self.expect(winner, plain, inputs, where="after .data was replaced: ")

    def check_deepcopy(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        # A copy's call changes its own state alone: running statistics, for example.
        self.expect(copy.deepcopy(winner), copy.deepcopy(plain), self.inputs(1), kernels=True)
        self.expect(winner, plain, self.inputs(2), kernels=True, where="the original: ")

    def check_pickle(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        again = pickle.loads(pickle.dumps(winner))  # noqa: S301  # what was just written
        self.expect(again, plain, self.inputs(1), kernels=True)

    def check_other_batch(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        first = [t.shape[0] for t in tensors_in(self.inputs()) if t.dim()]
        batch = first[0] if first else 0
        if batch < 2:
            raise UntestableUseError("no input has a first dimension that could be smaller")

        def shorter(tensor: torch.Tensor) -> torch.Tensor:
            cut = tensor.dim() and tensor.shape[0] == batch
            return tensor[: batch // 2].contiguous() if cut else tensor

        self.expect(winner, plain, map_tensors(self.inputs(1), shorter), kernels=False)
        self.expect(
            winner, plain, self.inputs(2), kernels=self.again, where="the judged batch again: "
        )

    def check_non_contiguous(self) -> None:
        plain, winner = self.pair()

        def strided(tensor: torch.Tensor) -> torch.Tensor:
            wide = tensor.new_empty((*tensor.shape, 2))
            wide[..., 0] = tensor
            return wide[..., 0]

        def shifted(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.new_empty(tensor.numel() + 1)
            storage[1:] = tensor.reshape(-1)
            return storage[1:].view(tensor.shape)

        self.expect(winner, plain, map_tensors(self.inputs(), strided), where="strided inputs: ")
        self.expect(winner, plain, map_tensors(self.inputs(), shifted), where="misaligned inputs: ")
        self.expect(winner, plain, self.inputs(), kernels=self.again)

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
        other = self.like(other_plain)
        for seed in range(2):
            self.expect(winner, plain, self.inputs(seed))
            self.expect(other, other_plain, self.inputs(seed), where="the second instance: ")

    def check_threads(self) -> None:
        plain, winner = self.pair()
        self.expect(winner, plain, self.inputs(), kernels=True)
        if self.carried:
            raise UntestableUseError("the module's outputs depend on the calls before")
        # Two threads with inputs of their own, so that a buffer which calls share shows.
        work = []
        for seed in range(2):
            inputs = self.inputs(seed)
            expected = call_on_copies(copy.deepcopy(plain), inputs)
            work.append((winner, inputs, expected, exact_outputs(plain, inputs)))
        wrong: list[str] = []

        def calls(
            module: torch.nn.Module,
            inputs: list[object],
            expected: object,
            exact: Callable[[], object],
        ) -> None:
            try:
                for _number in range(CALLS):
                    with torch.no_grad():
                        require_same(clone(module(*inputs)), expected, exact=exact)
            except Exception as error:  # noqa: BLE001  # reported by the thread that joins
                wrong.append(f"{type(error).__name__}: {error}")

        if self._is_random(plain, work[0][1], work[0][2]) or changes_state(plain):
            raise UntestableUseError("the module's outputs depend on the calls before")
        threads = [threading.Thread(target=calls, args=each) for each in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise ReleaseCheckError(wrong[0])

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
        except Exception:  # noqa: BLE001  # a backend may fail in any way
            return False
        return True

    def _check_compiled_gradients(self) -> None:
        plain, winner = self.pair()
        if not any(p.requires_grad for p in plain.parameters()):
            return
        torch._dynamo.reset()
        compiled = torch.compile(winner, backend="aot_eager")
        expected = self._parameter_gradients(plain)
        got = self._parameter_gradients(compiled)
        names = [f"compiled: gradient of {name}" for name, _ in plain.named_parameters()]
        doubled = functools.partial(self._parameter_gradients, wide=True)
        self._require_gradients(got, expected, names, plain, doubled)

    def _parameter_gradients(self, module: Any, *, wide: bool = False) -> list[torch.Tensor | None]:
        """Return the gradients of parameters in a call; of none where no output has one."""
        wrapped: torch.nn.Module = getattr(module, "_orig_mod", module)  # the one in a compiled
        inputs = clone(self.inputs())
        torch.manual_seed(0)
        with torch.enable_grad():
            made = module(*(widened(inputs) if wide else inputs))
            outputs = [t for t in tensors_in(made) if t.requires_grad]
            if outputs:
                torch.autograd.backward(sum((_squares(t) for t in outputs), torch.zeros(())))
        return [parameter.grad for parameter in wrapped.parameters()]

    def check_export(self) -> None:
        self.require_no_state()
        plain, winner = self.pair()
        inputs = tuple(self.inputs())
        try:
            exported = torch.export.export(winner, inputs)
        except Exception as error:
            try:
                torch.export.export(plain, inputs)
            except Exception as own:
                raise UntestableUseError("the module itself can't be exported") from own
            raise ReleaseCheckError(f"{type(error).__name__}: {error}") from error
        module = exported.module()
        self.expect(module, plain, self.inputs(1))

    def check_jit_trace(self) -> None:
        self.require_no_state()
        plain, winner = self.pair()
        inputs = tuple(self.inputs())
        trace: Any = torch.jit.trace
        try:
            with torch.no_grad():
                trace(plain, inputs)
        except Exception as own:
            raise UntestableUseError("the module itself can't be traced") from own
        with torch.no_grad():
            traced = trace(winner, inputs)
        self.expect(traced, plain, self.inputs(1))

    def check_vmap(self) -> None:
        plain, winner = self.pair()
        inputs = self.inputs()
        self.expect(winner, plain, inputs, kernels=True)
        stacked = map_tensors(inputs, lambda tensor: torch.stack([tensor, tensor]))
        if not all(isinstance(each, torch.Tensor) for each in stacked):
            raise UntestableUseError("torch.vmap takes tensors alone")
        try:
            got = torch.vmap(winner)(*stacked)
        except Exception:  # noqa: BLE001  # an error is the expected result
            return
        require_same(got, torch.vmap(plain)(*stacked))

    def check_no_compiler(self) -> None:
        """Without a compiler the plain forward runs, and a warning reports it."""
        plain, winner = self.pair()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.expect(winner, plain, self.inputs())
        calls = stats_of(winner)
        if not calls["kernel"] and not any("plain forward" in str(each.message) for each in caught):
            raise ReleaseCheckError("the plain forward runs and no warning says so")


def _squares(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's mean square, in float32 at least."""
    return (tensor if tensor.dtype == torch.float64 else tensor.float()).square().mean()


def _item_of(values: Callable[[], list[torch.Tensor | None]], number: int) -> object:
    return values()[number]
