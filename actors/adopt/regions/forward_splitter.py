"""A module whose forward runs in parts: its regions are modules of their own, with its tensors.

In `take` the regions are registered as submodules, so that they are recorded, proven and timed as
any module is; `take_out` leaves the model as it was.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from actors.adopt.fitted_package.site_state import recorded
from actors.adopt.model.call_effects import CallEffects
from actors.adopt.model.call_layouts import (
    CallKind,
    call_kind,
    layout_of,
    tensors_of,
    unsupported,
)
from actors.adopt.regions.forward_trace import TracedCall, traced_call
from actors.adopt.regions.region_text import (
    REGION,
    RegionText,
    SplitText,
    region_function,
    split_text,
)
from actors.adopt.regions.traced_values import Given
from actors.adopt.stage.errors import first_line
from actors.adopt.tasks.operation_text import UntranslatableError
from actors.adopt.tasks.task_proof import proof_of

MOST_KINDS = 8  # of calls of one module that are traced
TRACES = 3  # of calls of one kind, which have to be equal


class SplitLayout(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of call of a module whose forward runs in parts."""

    kind: CallKind
    same: tuple[int, ...]  # for each tensor of the call the first place of the same tensor
    body: str  # of the forward: a function of (self, tensors, region_1, …)
    regions: dict[str, CallKind]  # those that it calls, once each and in this order


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """One module whose forward runs in parts."""

    site: str  # the module's path
    inlined: tuple[str, ...]  # paths in the module: their functions are in the text
    leaves: tuple[str, ...]  # paths in the module of the submodules that stay calls
    state: dict[str, str]  # of the module while its calls were traced, see `recorded`
    layouts: tuple[SplitLayout, ...]
    regions: dict[str, RegionText]
    places: dict[str, str]  # region -> which library calls are before and after it

    @property
    def paths(self) -> set[str]:
        """The regions' paths in the model."""
        return {self.path(name) for name in self.regions}

    def is_in(self, site: str) -> bool:
        """Whether this is the module at `site`, or inside of it."""
        return f"{self.site}.".startswith(f"{site}.")

    def has_inlined(self, site: str) -> bool:
        """Whether operations of the module at `site` are in the text."""
        start = f"{self.site}." if self.site else ""
        return any(f"{site}.".startswith(f"{start}{path}.") for path in self.inlined)

    def path(self, region: str) -> str:
        """Return a region's path in the model."""
        return f"{self.site}.{region}" if self.site else region


class RegionModule(torch.nn.Module):
    """A region of a parent's forward as a module: its tensors are the parent's own."""

    def __init__(self, parent: torch.nn.Module, text: RegionText) -> None:
        super().__init__()
        for name, path in text.state.items():
            owner, _, key = path.rpartition(".")
            part = parent.get_submodule(owner)
            if key in part._parameters:
                self.register_parameter(name, part._parameters[key])
            else:
                self.register_buffer(name, part._buffers[key])
        self.train(parent.training)
        self._key = text.key

    def extra_repr(self) -> str:
        """Return what equal regions have in common."""
        return self._key


def region_module(parent: torch.nn.Module, text: RegionText) -> RegionModule:
    """Return a region as a module of a class of its own, named after the parent's."""
    own = {"forward": compiled_function(text.source, "forward")}
    kind: type[RegionModule] = type(f"{type(parent).__name__}Region", (RegionModule,), own)
    return kind(parent, text)


def compiled_function(source: str, name: str) -> Callable[..., Any]:
    """Return a function from its source."""
    names: dict[str, Any] = {}
    exec(compile(_BEGINNING, "<region>", "exec"), names)  # noqa: S102
    exec(compile(source, "<region>", "exec"), names)  # noqa: S102  # written by this project
    found: Callable[..., Any] = names[name]
    return found


class _TracedKind(msgspec.Struct, kw_only=True):
    """What is known of one kind of call."""

    text: SplitText
    same: tuple[int, ...]
    inlined: tuple[str, ...]
    calls: dict[str, CallKind]  # of its regions
    traces: int = 1


class ForwardSplitter:
    """Takes the place of one module's forward: it traces calls, then runs them in parts."""

    def __init__(self, module: torch.nn.Module, site: str, leaves: frozenset[str]) -> None:
        """`leaves`: paths in the module of the submodules that stay calls."""
        self.refused: dict[CallKind, str] = {}
        self._module, self._site, self._leaves = module, site, leaves
        self._own: Callable[..., Any] = module.forward
        self._replaced = {key: vars(module)[key] for key in vars(module) if key == "forward"}
        # Why no call is traced.
        self._problem = "the instance has a forward of its own" if self._replaced else ""
        self._traced: dict[CallKind, _TracedKind] = {}
        self._state: dict[str, str] = {}  # of the module, when its first call was traced
        self._regions: dict[str, RegionModule] = {}
        self._running: dict[CallKind, Callable[..., Any]] = {}
        module.__dict__["forward"] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one call: in parts, or traced, or as it was."""
        given = (args, kwargs)
        kind = call_kind(self._module, args, kwargs)
        run = self._running.get(kind)
        if run is not None:
            return run(given)
        if not self._is_wanted(kind):
            return self._own(*args, **kwargs)
        problem = _problem_of(kind) or self._problem
        if problem:
            self.refused[kind] = problem
            return self._own(*args, **kwargs)
        state: dict[str, str] = recorded(self._module)  # type: ignore[no-untyped-call]
        self._state = self._state or state
        if state != self._state:
            self.refused[kind] = "its mode, attributes or tensors differ from call to call"
            return self._own(*args, **kwargs)
        traced = traced_call(self._module, self._own, given, self._leaves)
        try:
            self._note(kind, given, traced)
        except UntranslatableError as error:
            self.refused[kind] = str(error)
        return traced.output

    def _is_wanted(self, kind: CallKind) -> bool:
        """Whether a call of this kind is to be traced."""
        if self._running or kind in self.refused:
            return False
        known = self._traced.get(kind)
        return len(self._traced) < MOST_KINDS if known is None else known.traces < TRACES

    def _note(self, kind: CallKind, given: Given, traced: TracedCall) -> None:
        """Compare a traced call with its text, and keep it."""
        trace = traced.trace
        if trace is None:
            raise UntranslatableError(traced.problem)
        text, known = split_text(trace), self._traced.get(kind)
        if known is not None and (known.text.body, known.same) != (text.body, same_places(given)):
            raise UntranslatableError(
                "its operations differ from call to call, for arguments of one layout"
            )
        calls = self._compared(text, given, traced.output)
        if known is not None:
            known.traces += 1
            return
        self._traced[kind] = _TracedKind(
            text=text, same=same_places(given), inlined=trace.inlined, calls=calls
        )

    def _compared(self, text: SplitText, given: Given, output: Any) -> dict[str, CallKind]:
        """Run a call in parts; return the regions' calls, or raise UntranslatableError."""
        regions = {name: region_module(self._module, each) for name, each in text.regions.items()}
        calls: dict[str, CallKind] = {}
        for name, region in regions.items():
            region.register_forward_pre_hook(functools.partial(_note_call, calls, name))
        effects = CallEffects(self._module, given, ())
        source = _forward_source("forward", text.body, len(regions))
        try:
            found = compiled_function(source, "forward")(
                self._module, list(tensors_of(given)), *regions.values()
            )
        except Exception as error:  # the user's submodules are run
            raise UntranslatableError(
                f"its parts can't be run: {first_line(error, 160)}"
            ) from error
        problem = effects.found()
        if problem:
            raise UntranslatableError(f"in parts: {problem}")
        if layout_of(found) != layout_of(output):
            raise UntranslatableError("its parts return another layout than it does")
        again = list(tensors_of(self._own(*given[0], **given[1])))
        results = list(tensors_of(found))
        try:
            proof_of(list(tensors_of(output)), again, results, results)
        except UntranslatableError as error:
            raise UntranslatableError(f"in parts: {error}") from error
        return calls

    def put_in(self) -> Split:
        """Register the regions, and run the traced kinds of calls in parts from now on."""
        split = self._split()
        for name, text in split.regions.items():
            if hasattr(self._module, name):
                raise UntranslatableError(f"it has an attribute {name}")
            self._regions[name] = region_module(self._module, text)
            self._module.add_module(name, self._regions[name])
        for layout in split.layouts:
            function = compiled_function(forward_function("forward", layout), "forward")
            regions = [self._regions[name] for name in layout.regions]
            self._running[layout.kind] = functools.partial(self._run, layout, function, regions)
        return split

    def _run(
        self,
        layout: SplitLayout,
        function: Callable[..., Any],
        regions: list[RegionModule],
        given: Given,
    ) -> Any:
        if same_places(given) != layout.same:
            return self._own(*given[0], **given[1])
        try:
            return function(self._module, list(tensors_of(given)), *regions)
        except function.__globals__["OtherResultError"]:
            return self._own(*given[0], **given[1])

    def take_out(self) -> None:
        """Give the module its own forward back."""
        for name in self._regions:
            self._module._modules.pop(name, None)
        del self._module.__dict__["forward"]
        self._module.__dict__.update(self._replaced)

    def _split(self) -> Split:
        """Return the split of the traced calls: equal regions of several kinds have one name."""
        known: dict[tuple[str, tuple[str, ...], int], str] = {}
        regions: dict[str, RegionText] = {}
        places: dict[str, str] = {}
        layouts = []
        for kind, traced in self._traced.items():
            if kind in self.refused:
                continue
            seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
            called = {}
            for name, region in traced.text.regions.items():
                key = region.key, tuple(region.state.values())
                seen[key] += 1
                own = known.setdefault((*key, seen[key]), f"{REGION}_{len(known) + 1}")
                regions[own], places[own] = region, traced.text.places[name]
                called[own] = traced.calls[name]
            body = traced.text.body
            layouts.append(SplitLayout(kind=kind, same=traced.same, body=body, regions=called))
        inlined = dict.fromkeys(path for traced in self._traced.values() for path in traced.inlined)
        return Split(
            site=self._site,
            inlined=tuple(inlined),
            leaves=tuple(sorted(self._leaves)),
            state=self._state,
            layouts=tuple(layouts),
            regions=regions,
            places=places,
        )


def _note_call(
    calls: dict[str, CallKind], name: str, module: torch.nn.Module, args: tuple[Any, ...]
) -> None:
    calls[name] = call_kind(module, args, {})


def _problem_of(kind: CallKind) -> str:
    """Return why calls of a kind can't be traced; "" when they can."""
    if unsupported(kind.layout):
        return f"it is given a {unsupported(kind.layout)}"
    if kind.gradients:
        return "regions are for inference, and gradients are recorded in it"
    return "regions are for plain dtypes, and autocast is on in it" if kind.autocast_dtype else ""


def same_places(given: Any) -> tuple[int, ...]:
    """Return for each tensor of a call the first place of the same tensor."""
    places: dict[int, int] = {}
    return tuple(places.setdefault(id(each), place) for place, each in enumerate(tensors_of(given)))


def forward_function(name: str, layout: SplitLayout) -> str:
    """Return the forward for one kind of call as a function.

    Its parameters are region_1, region_2, …: the regions that it calls, in the order of its calls.
    """
    return _forward_source(name, layout.body, len(layout.regions))


def _forward_source(name: str, body: str, regions: int) -> str:
    own = [f"{REGION}_{number + 1}" for number in range(regions)]
    return f"def {name}({', '.join(['self', 'tensors', *own])}):\n{body}\n"


def split_source(split: Split, class_name: str) -> str:
    """Return the file of a package with the functions of one split module."""
    forwards = {
        name: layout for layout, name in zip(split.layouts, forward_names(split), strict=True)
    }
    functions = [
        *(region_function(name, text) for name, text in split.regions.items()),
        *(forward_function(name, layout) for name, layout in forwards.items()),
    ]
    text = "\n\n".join(functions)
    return _FILE.format(class_name=class_name, beginning=_BEGINNING, functions=text)


def forward_names(split: Split) -> list[str]:
    """Return the name of each layout's function: layouts of one text share it."""
    known: dict[str, str] = {}
    return [known.setdefault(each.body, f"forward_{len(known)}") for each in split.layouts]


_BEGINNING = """\
import dataclasses
import sys

import torch
import torch.nn.functional as F


class OtherResultError(Exception):
    pass


def expect(value, kind):
    if isinstance(kind, tuple):
        fits = isinstance(value, torch.Tensor) and value.layout is torch.strided
        fits = fits and (value.dtype, value.shape, value.stride(), value.device.type) == kind
    elif kind is None:
        fits = value is None
    else:
        name, parts = kind
        fits = type(value).__name__ == name
        found = parts_of(value) if fits else {}
        fits = fits and list(found) == list(parts)
        for key in parts if fits else ():
            expect(found[key], parts[key])
    if not fits:
        raise OtherResultError


def parts_of(value):
    if isinstance(value, dict):
        return value
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
"""
_FILE = '''"""The forward of {class_name} in parts: regions, and for each layout the rest."""

{beginning}

{functions}'''
