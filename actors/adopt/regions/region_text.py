"""The text of a split forward: a function for each region, and the forward that calls them."""

from __future__ import annotations

import hashlib
import keyword
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import torch

from actors.adopt.regions.forward_trace import ForwardTrace, StepKind
from actors.adopt.regions.function_text import DeviceWord, StateWord, Words, path_text
from actors.adopt.regions.region_search import TraceRegion, ordered, regions_of

RESERVED = frozenset(
    [
        "torch",
        "dataclasses",
        "expect",
        "parts_of",
        "OtherResultError",
        "F",
        "sys",
        "self",
        "tensors",
        "getattr",
        "slice",
        "training",
        *keyword.kwlist,
        *dir(torch.nn.Module),
    ]
)
OWN_TENSOR = re.compile(r"\bself\.(\w+)")  # in the body of a region
REGION = "region"  # begins the names of regions: region_1


class RegionText(msgspec.Struct, frozen=True, kw_only=True):
    """One region as the body of a function of (self, x0, x1, …)."""

    arguments: tuple[str, ...]
    body: str  # indented by four; a tensor of the module is `self.NAME`
    state: dict[str, str]  # NAME -> path of the parameter or buffer in the module

    @property
    def source(self) -> str:
        """The function, for a module that has the tensors under their names."""
        return f"def forward(self, {', '.join(self.arguments)}):\n{self.body}\n"

    @property
    def key(self) -> str:
        """A hash that equal regions have in common."""
        return hashlib.sha256(self.source.encode()).hexdigest()


class SplitText(msgspec.Struct, frozen=True, kw_only=True):
    """One traced forward in parts."""

    body: str  # of a function of (self, tensors, region_1, …), indented by four
    regions: dict[str, RegionText]  # in order of their calls
    places: dict[str, str]  # region -> which calls are before and after it


class _Names:
    """Names for values, all different."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self._taken = Counter(taken)

    def new(self, base: str) -> str:
        """Return a name that begins with `base`."""
        base = base if base.isidentifier() and not base.startswith(REGION) else "value"
        base = f"{base}_" if base in RESERVED else base
        name = base
        while self._taken[name]:
            name = f"{base}_{self._taken[base]}"
            self._taken[base] += 1
        self._taken[name] += 1
        return name


def split_text(trace: ForwardTrace) -> SplitText:
    """Return the text of a traced forward; without regions it is the forward as it was traced."""
    regions = regions_of(trace)
    texts = {id(region): _region_text(trace, region) for region in regions}
    units = ordered(trace, regions)
    names, lines = _Names(), list[str]()
    found: dict[str, RegionText] = {}
    places: dict[str, str] = {}
    values: dict[int, str] = {}
    given = [n for n, step in enumerate(trace.steps) if step.kind is StepKind.INPUT]
    for number in given:
        values[number] = names.new(trace.steps[number].base)
    lines.append(f"({', '.join(values[number] for number in given)},) = tensors")
    device = f"{values[0]}.device" if given else ""
    for place, unit in enumerate(units):
        if isinstance(unit, TraceRegion):
            name = f"{REGION}_{len(found) + 1}"
            found[name], places[name] = texts[id(unit)], _place(trace, units, place)
            outputs = []
            for number in unit.outputs:
                values[number] = names.new(trace.steps[number].base)
                outputs.append(values[number])
            arguments = ", ".join(values[number] for number in unit.inputs)
            lines.append(f"{', '.join(outputs)} = {name}({arguments})")
        else:
            step = trace.steps[unit]
            text = _rendered(step.words, values, path_text, device)
            expected = trace.expected.get(unit)
            if step.has_result:
                values[unit] = names.new(step.base)
                lines.append(f"{values[unit]} = {text}")
                lines += [f"expect({values[unit]}, {expected})"] if expected else []
            else:
                lines.append(f"expect({text}, {expected})" if expected else text)
    lines.append(f"return {_rendered(trace.result, values, path_text, device)}")
    return SplitText(body=_indented(lines), regions=found, places=places)


def _region_text(trace: ForwardTrace, region: TraceRegion) -> RegionText:
    """Return a region's text: equal for equal regions, wherever they are."""
    arguments = tuple(f"x{number}" for number in range(len(region.inputs)))
    names = _Names(arguments)
    # `norm1` and `norm2` are one name: equal regions have equal texts.
    bases = {path: path.rpartition(".")[2].rstrip("_0123456789") for path in region.state}
    state = {path: names.new(base or "weight") for path, base in bases.items()}
    values = dict(zip(region.inputs, arguments, strict=True))
    device = next(
        (
            f"{values[each]}.device"
            for each in region.inputs
            if (tensor := trace.steps[each].tensor) is not None and tensor.device == trace.device
        ),
        "",
    )
    lines = []
    for number in region.steps:
        step = trace.steps[number]
        text = _rendered(step.words, values, lambda path: f"self.{state[path]}", device)
        values[number] = names.new(step.base)
        lines.append(f"{values[number]} = {text}")
    lines.append(f"return {', '.join(values[number] for number in region.outputs)}")
    return RegionText(
        arguments=arguments,
        body=_indented(lines),
        state={name: path for path, name in state.items()},
    )


def _rendered(
    words: Words, values: Mapping[int, str], state: Callable[[str], str], device: str
) -> str:
    """Return words as code."""
    pieces = []
    for word in words:
        match word:
            case int():
                pieces.append(values[word])
            case StateWord(path):
                pieces.append(state(path))
            case DeviceWord():
                pieces.append(device)
            case _:
                pieces.append(word)
    return "".join(pieces)


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _place(trace: ForwardTrace, units: Sequence[int | TraceRegion], place: int) -> str:
    """Return which library calls are before and after a region: "after self.attn"."""

    def border(others: Sequence[int | TraceRegion]) -> str:
        for unit in others:
            if not isinstance(unit, TraceRegion) and trace.steps[unit].kind is StepKind.LIBRARY:
                step = trace.steps[unit]
                if step.submodule or step.computes:
                    return step.submodule or step.base
        return ""

    before, after = border(units[:place][::-1]), border(units[place + 1 :])
    pieces = [f"after {before}" if before else "", f"before {after}" if after else ""]
    return ", ".join(filter(None, pieces))


def region_function(name: str, region: RegionText) -> str:
    """Return a region as a function of the module that it is in."""
    body = OWN_TENSOR.sub(lambda found: path_text(region.state[found[1]]), region.body)
    return f"def {name}(self, {', '.join(region.arguments)}):\n{body}\n"
