"""The straight line of torch calls that one call of a module's forward makes.

The forward runs as it is, on the model's own tensors, under a TorchFunctionMode that notes every
function of torch.  Submodules on a list stay calls.  What the line would not repeat is a
problem: values of tensors that Python reads, changed inputs, attributes or globals,
random numbers, autocast, prints.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from actors.adopt.model.call_effects import CallEffects, ChangedTensors, random_state
from actors.adopt.model.call_layouts import tensors_of
from actors.adopt.regions.data_dependence import depends_on_values
from actors.adopt.regions.function_text import (
    METADATA,
    DeviceWord,
    StateWord,
    Word,
    Words,
    argument_words,
    call_words,
    function_name,
    is_library_function,
    object_words,
    path_text,
    value_words,
)
from actors.adopt.regions.python_effects import python_effects
from actors.adopt.regions.traced_values import (
    Given,
    attributes_of,
    input_names,
    is_of_torch,
    items_of,
    odd_item,
    result_text,
    state_of,
    storage_of,
)
from actors.adopt.stage.errors import first_line
from actors.adopt.tasks.operation_text import UntranslatableError


class StepKind(enum.Enum):
    """What a step is to a region."""

    INPUT = "input"  # a tensor of the call
    GLUE = "glue"  # may be a part of a region
    LIBRARY = "library"  # products, convolutions, attention, submodules: between regions
    ORDERED = "ordered"  # changes a tensor or draws random numbers: nothing moves across it


@dataclass(frozen=True, kw_only=True)
class TraceStep:
    """One line of a traced forward."""

    kind: StepKind
    base: str  # its result's name, without a number
    words: Words  # its text; a number is the result of that step
    after: frozenset[int]  # steps that it follows: its inputs, and those that keep the order
    computes: bool  # its result is not only another view of what it is given
    storages: frozenset[int]  # of the tensors in its result
    tensor: torch.Tensor | None  # its result, if that is one tensor
    submodule: str = ""  # what a call of a submodule calls
    has_result: bool = True

    @property
    def inputs(self) -> list[int]:
        """The numbers of the values in its text, each once."""
        return list(dict.fromkeys(word for word in self.words if isinstance(word, int)))


@dataclass(frozen=True, kw_only=True)
class ForwardTrace:
    """One call of a forward."""

    steps: list[TraceStep]  # the call's tensors come first
    device: torch.device  # of the first one
    result: Words
    inlined: tuple[str, ...]  # paths of the called submodules whose functions are in the line
    state: Mapping[str, torch.Tensor]  # parameters and buffers of the module
    changed: frozenset[int]  # storages of tensors that are changed in place
    expected: Mapping[int, str]  # what submodules returned, see `result_text`

    @property
    def returned(self) -> set[int]:
        """The numbers of the values that are returned."""
        return {word for word in self.result if isinstance(word, int)}


@dataclass(frozen=True, kw_only=True)
class TracedCall:
    """A call that has run."""

    output: Any
    trace: ForwardTrace | None = None
    problem: str = ""  # why there is no trace


def traced_call(
    module: torch.nn.Module, forward: Callable[..., Any], given: Given, leaves: Collection[str]
) -> TracedCall:
    """Run one call, once, and trace it.

    `leaves`: paths of submodules that stay calls.  What `forward` raises passes through.
    """
    tracer = _Tracer(module, forward, given)
    effects = CallEffects(module, given, _parts(module, leaves))
    with tracer.observed(leaves), python_effects() as python:
        python.is_paused = lambda: tracer.depth > 0
        with tracer:
            output = forward(*given[0], **given[1])
    problem = tracer.problem or effects.found() or python.found()
    try:
        trace = None if problem else tracer.trace(output)
    except UntranslatableError as error:
        return TracedCall(output=output, problem=f"of its result: {error}")
    return TracedCall(output=output, trace=trace, problem=problem)


def _parts(module: torch.nn.Module, leaves: Collection[str]) -> list[torch.nn.Module]:
    """Return the module and its submodules that are not inside of `leaves`."""
    outside = tuple(f"{leaf}." for leaf in leaves)
    return [part for path, part in module.named_modules() if not f"{path}.".startswith(outside)]


class _Tracer(TorchFunctionMode):
    """Notes the functions of torch that one forward calls."""

    def __init__(self, module: torch.nn.Module, forward: Callable[..., Any], given: Given) -> None:
        super().__init__()
        self.problem = ""
        self.depth = 0  # of calls of submodules that stay calls
        self._module = module
        self._state = dict(state_of(module))
        self._state_words = {id(tensor): StateWord(path) for path, tensor in self._state.items()}
        self._attributes = {id(tensor): text for text, tensor in attributes_of(module)}
        self._own_storages = {storage_of(tensor) for tensor in self._state.values()}
        self._inlined: dict[str, None] = {}
        self._numbers: dict[int, int] = {}  # id of a tensor -> the step that it is the result of
        self._steps: list[TraceStep] = []
        self._order: set[int] = set()  # what every later step follows
        self._last_submodule: int | None = None
        self._changed: set[int] = set()
        self._expected: dict[int, str] = {}
        self._gradients = torch.is_grad_enabled()
        tensors = list(tensors_of(given))
        for tensor, name in zip(tensors, input_names(forward, given), strict=True):
            if id(tensor) in self._state_words:
                self._refuse("it is given its own parameter")
            self._add(StepKind.INPUT, name, (), tensor, is_new=id(tensor) not in self._numbers)
        self._device = tensors[0].device if tensors else torch.device("cpu")

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one function, and note it unless it is inside of another one."""
        kwargs = kwargs or {}
        if self.depth or self.problem:
            return func(*args, **kwargs)
        self.depth += 1  # what is done here is none of the forward
        try:
            return self._noted(func, args, kwargs)
        finally:
            self.depth -= 1

    def _noted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one function and note it."""
        if torch.is_autocast_enabled(self._device.type):
            self._refuse("it switches autocast on")
        given = list(tensors_of((args, kwargs)))
        try:
            changed = ChangedTensors(given)
        except RuntimeError as error:  # tensors of torch.func
            self._refuse(f"it uses a tensor without a version: {first_line(error, 160)}")
            return func(*args, **kwargs)
        is_sized = not depends_on_values(func, args, kwargs)
        random = random_state()
        result = func(*args, **kwargs)
        try:
            self._note(func, args, kwargs, given, changed.found(), random, result)
            if not is_sized:
                self._refuse(f"a size in it depends on values ({function_name(func)})")
        except UntranslatableError as error:
            self._refuse(str(error))
        return result

    def _refuse(self, reason: str) -> None:
        self.problem = self.problem or reason

    def _note(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: list[torch.Tensor],
        changed: list[torch.Tensor],
        random: torch.Tensor,
        result: Any,
    ) -> None:
        """Note one function that has run."""
        name, found = function_name(func), list(tensors_of(result))
        is_ordered = bool(changed) or not torch.equal(random, random_state())
        if torch.is_grad_enabled() != self._gradients:
            raise UntranslatableError("it switches gradients on or off")
        if not found and not changed:
            if not (name in METADATA or name == "_set_grad_enabled"):
                raise UntranslatableError(f"it reads the values of a tensor in Python ({name})")
            return
        if name.endswith("_") and not name.endswith("__") and not changed:
            raise UntranslatableError(f"it changes a property of a tensor ({name})")
        if isinstance(result, torch.Tensor) and any(result is each for each in given):
            if not changed:
                return  # such as contiguous() of a contiguous tensor
            found, result = [], None
        words = call_words(func, args, kwargs, self._word_of)
        kind = StepKind.LIBRARY if is_library_function(func) else StepKind.GLUE
        self._changed |= {storage_of(tensor) for tensor in changed}
        self._add_results(StepKind.ORDERED if is_ordered else kind, name, words, given, result)

    def _add_results(
        self,
        kind: StepKind,
        base: str,
        words: Words,
        given: list[torch.Tensor],
        result: Any,
        submodule: str = "",
    ) -> None:
        """Add a step, and one for each tensor in a result of several."""
        storages = {storage_of(tensor) for tensor in given} | self._own_storages
        made = {storage_of(tensor) for tensor in tensors_of(result)}
        single = result if isinstance(result, torch.Tensor) else None
        number = self._add(
            kind, base.strip("_") or base, words, single,
            computes=not made <= storages, storages=frozenset(made), submodule=submodule,
            has_result=bool(made),
        )  # fmt: skip
        if single is None:
            item_kind = StepKind.GLUE if kind is StepKind.GLUE else StepKind.LIBRARY
            for text, tensor in items_of(result):
                item = f"{base.strip('_') or base}_item"
                self._add(item_kind, item, (number, text), tensor)

    def _add(
        self,
        kind: StepKind,
        base: str,
        words: Words,
        tensor: torch.Tensor | None,
        *,
        computes: bool = False,
        storages: frozenset[int] | None = None,
        submodule: str = "",
        has_result: bool = True,
        is_new: bool = True,
    ) -> int:
        """Add a step; return its number."""
        number = len(self._steps)
        after = {word for word in words if isinstance(word, int)} | self._order
        if submodule:  # submodules may have effects of their own, such as caches
            after |= {self._last_submodule} - {None}  # type: ignore[arg-type]
            self._last_submodule = number
        if kind is StepKind.ORDERED:
            after |= set(range(number))
            self._order = {number}
        if storages is None:
            storages = frozenset() if tensor is None else frozenset([storage_of(tensor)])
        self._steps.append(
            TraceStep(
                kind=kind, base=base, words=words, after=frozenset(after), computes=computes,
                storages=storages, tensor=tensor, submodule=submodule, has_result=has_result,
            )
        )  # fmt: skip
        if tensor is not None and is_new:
            self._numbers[id(tensor)] = number
        return number

    def _word_of(self, value: Any) -> Word | None:
        """Return the word of a tensor or device; None for other values."""
        if isinstance(value, torch.device):
            same = value == self._device or value == torch.device(self._device.type)
            return DeviceWord() if same else None
        if not isinstance(value, torch.Tensor):
            return None
        number = self._numbers.get(id(value))
        if number is not None:
            return number
        if id(value) in self._state_words:
            return self._state_words[id(value)]
        if id(value) in self._attributes:
            return self._add(StepKind.LIBRARY, "held", (self._attributes[id(value)],), value)
        raise UntranslatableError("it uses a tensor that is not its input, parameter or attribute")

    @contextmanager
    def observed(self, leaves: Collection[str]) -> Iterator[None]:
        """Note the calls of submodules while it is open."""
        with ExitStack() as stack:
            for path, part in self._module.named_modules():
                if not path or isinstance(part, torch.jit.ScriptModule):
                    continue  # torch.jit's take no hooks: a result of theirs is an unknown tensor
                if path in leaves:
                    for handle in self._hooked(path, part):
                        stack.callback(handle.remove)
                else:
                    hook = part.register_forward_pre_hook(self._inlined_hook(path))
                    stack.callback(hook.remove)
            yield

    def _inlined_hook(self, path: str) -> Callable[..., None]:
        def note(part: torch.nn.Module, args: Any) -> None:
            if not self.depth:
                self._inlined[path] = None

        return note

    def _hooked(self, path: str, part: torch.nn.Module) -> list[Any]:
        """Hook a submodule that stays a call: outermost, so that its own hooks are inside."""
        open_calls: list[tuple[Words, list[torch.Tensor], ChangedTensors]] = []
        effects: list[CallEffects] = []  # of a user's module, which runs twice in some calls

        def begin(part: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.depth += 1  # first: what is done here is none of the forward
            if self.depth == 1 and not self.problem:
                given = list(tensors_of((args, kwargs)))
                try:
                    words = argument_words(args, kwargs, self._words)
                    open_calls.append((words, given, ChangedTensors(given)))
                    effects[:] = [] if is_of_torch(part) else [CallEffects(part, ())]
                except UntranslatableError as error:
                    self._refuse(f"of {path}: {error}")

        def end(part: torch.nn.Module, args: Any, output: Any) -> None:
            if self.depth == 1 and open_calls:
                words, given, changes = open_calls.pop()
                problem = effects[0].found() if effects else ""
                if problem:
                    self._refuse(f"of {path}: {problem}")
                try:
                    self._note_submodule(path, words, given, changes.found(), output)
                except UntranslatableError as error:
                    self._refuse(f"of {path}: {error}")
            self.depth -= 1

        first = part.register_forward_pre_hook(begin, with_kwargs=True, prepend=True)
        return [first, part.register_forward_hook(end)]

    def _note_submodule(
        self,
        path: str,
        words: Words,
        given: list[torch.Tensor],
        changed: list[torch.Tensor],
        output: Any,
    ) -> None:
        """Note one call of a submodule that has run."""
        problem = odd_item(output)
        if problem:
            raise UntranslatableError(f"it returns a {problem}")
        self._changed |= {storage_of(tensor) for tensor in changed}
        kind = StepKind.ORDERED if changed else StepKind.LIBRARY
        text = (path_text(path), *words)
        self._expected[len(self._steps)] = result_text(output)
        self._add_results(kind, path.rpartition(".")[2], text, given, output, path)

    def _words(self, value: Any) -> Words:
        return value_words(value, self._word_of)

    def trace(self, output: Any) -> ForwardTrace:
        """Return the trace of the call that has ended with `output`."""
        result = object_words(output, self._module, self._word_of)
        return ForwardTrace(
            steps=self._steps,
            device=self._device,
            result=result,
            inlined=tuple(self._inlined),
            state=self._state,
            changed=frozenset(self._changed),
            expected=self._expected,
        )
