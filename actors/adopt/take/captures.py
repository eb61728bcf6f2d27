"""Recorded calls: inputs and outputs as they were, on disk, for the proof of a task.

The files are the user's data: mode 0600, in a folder of mode 0700, at most as many bytes as
allowed.  No other file of this project holds a recorded value.
"""

from __future__ import annotations

import functools
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import torch

from actors.adopt.model.call_effects import CallEffects
from actors.adopt.model.call_layouts import CallKind, call_kind, layout_of, tensors_of
from actors.adopt.model.thread_stack import ThreadStack
from actors.adopt.stage.errors import first_line
from actors.adopt.stage.stage_folder import StageFolder
from protocol.layouts import Layout, Leaf, Nest

FOLDER = "captures"


class CaptureSet(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded call."""

    file: str  # below the stage folder
    site: str  # the module's path
    kind: CallKind
    output: Layout
    size: int  # bytes
    effect: str = ""  # what the call did besides returning its result
    wanted: tuple[bool, ...] = ()  # for each tensor of the call: its gradient is wanted


class CaptureWriter:
    """The recorded calls of a model, within a cap of bytes."""

    def __init__(self, folder: StageFolder, cap: int) -> None:
        self.cap = cap
        self.bytes = 0
        self.is_full = False
        self.turn = threading.Lock()  # a model may call its modules in several threads
        self._folder = folder

    @property
    def room(self) -> int:
        """The bytes that are left."""
        return self.cap - self.bytes

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes are within the cap."""
        self.is_full = self.is_full or size > self.room
        return size <= self.room

    def write(self, group: str, number: int, content: dict[str, Any]) -> tuple[str, int]:
        """Write one call; return its file and size."""
        name = f"{FOLDER}/{group}/set-{number}.pt"
        path = self._folder.path / FOLDER / group
        path.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        size = self._folder.write_file(name, functools.partial(_save, content), 0o600)
        self.bytes += size
        return name, size

    def discard(self, group: str, captures: Sequence[CaptureSet]) -> None:
        """Remove a group's recorded calls: it is no task, and others may use the bytes."""
        shutil.rmtree(self._folder.path / FOLDER / group, ignore_errors=True)
        self.bytes -= sum(capture.size for capture in captures)


def _save(content: dict[str, Any], file: BinaryIO) -> None:
    """Write tensors to a file, without another copy in memory; raise OSError on a full disk."""
    try:
        torch.save(content, file)
    except RuntimeError as error:  # what torch's writer makes of an error of the file
        found = error.__context__
        raise found if isinstance(found, OSError) else OSError(0, first_line(error)) from error


def load_capture(folder: Path, capture: CaptureSet, device: torch.device) -> dict[str, Any]:
    """Return a recorded call: `args`, `kwargs` and `output`; the strides are as they were."""
    found: dict[str, Any] = torch.load(
        folder / capture.file, map_location=device, weights_only=True
    )
    args, kwargs = _strided((found["args"], found["kwargs"]), capture.kind.layout)
    return {"args": args, "kwargs": kwargs, "output": found["output"]}


def _strided(value: Any, layout: Layout) -> Any:
    """Return a copy of a recorded value in the strides of its layout."""
    if isinstance(layout, Leaf) and layout.stride is not None:
        kept = [
            1 if not step else size for size, step in zip(layout.shape, layout.stride, strict=True)
        ]
        made = torch.empty_strided(kept, layout.stride, dtype=value.dtype, device=value.device)
        index = tuple(slice(size) for size in kept)
        return made.copy_(value[index]).expand(layout.shape)
    if isinstance(layout, Nest) and isinstance(value, dict):
        pairs = zip(value.items(), layout.items, strict=True)
        return {key: _strided(item, inner) for (key, item), inner in pairs}
    if isinstance(layout, Nest):
        return type(value)(map(_strided, value, layout.items))
    return value


@contextmanager
def capturing(
    model: torch.nn.Module,
    groups: Mapping[str, tuple[Iterable[str], Mapping[CallKind, int]]],
    writer: CaptureWriter,
) -> Iterator[dict[str, list[CaptureSet]]]:
    """Record calls of the groups' modules while it is open: so many of each kind."""
    recorders = {name: _CaptureRecorder(name, kinds, writer) for name, (_, kinds) in groups.items()}
    handles = []
    try:
        for name, (paths, _) in groups.items():
            sites = list(paths)
            for path in sites:
                handles += recorders[name].attach(path, model.get_submodule(path), len(sites))
        yield {name: recorder.sets for name, recorder in recorders.items()}
    finally:
        for handle in handles:
            handle.remove()


class _CaptureRecorder:
    """The hooks of one group."""

    def __init__(self, name: str, kinds: Mapping[CallKind, int], writer: CaptureWriter) -> None:
        self.sets: list[CaptureSet] = []
        self._name = name
        self._kinds = kinds
        self._writer = writer
        self._counts: Counter[tuple[CallKind, str]] = Counter()  # (kind, site) -> recorded
        self._open: ThreadStack[Callable[[Any], None] | None] = ThreadStack()

    def attach(self, path: str, module: torch.nn.Module, sites: int) -> list[Any]:
        """Hook one of so many modules."""

        def begin(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._open.items.append(self._begin(path, sites, module, args, kwargs))

        def end(module: torch.nn.Module, args: Any, output: Any) -> None:
            finish = self._open.items.pop()
            if finish is not None:
                with self._writer.turn:
                    finish(output)

        first = module.register_forward_pre_hook(begin, with_kwargs=True)
        return [first, module.register_forward_hook(end)]

    def _begin(
        self,
        path: str,
        sites: int,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Callable[[Any], None] | None:
        """Keep the inputs, if this call is to be recorded; return what takes the output."""
        kind = call_kind(module, args, kwargs)
        size = sum(tensor.nbytes for tensor in tensors_of((args, kwargs)))
        with self._writer.turn:
            if not (self._has_share_left(kind, path, sites) and self._writer.has_room(size)):
                return None
            self._counts[kind, path] += 1
        wanted = tuple(tensor.requires_grad for tensor in tensors_of((args, kwargs)))
        content = {"args": _copied(args), "kwargs": _copied(kwargs)}
        before = CallEffects(module, (args, kwargs))

        def finish(output: Any) -> None:
            if not self._writer.has_room(size + sum(each.nbytes for each in tensors_of(output))):
                return
            layout = layout_of(output)
            effect = before.found() or before.shared(output)
            content["output"] = _compact(output) if _is_storable(output) else None
            file, stored = self._writer.write(self._name, len(self.sets), content)
            self.sets.append(
                CaptureSet(
                    file=file,
                    site=path,
                    kind=kind,
                    output=layout,
                    size=stored,
                    effect=effect,
                    wanted=wanted,
                )
            )

        return finish

    def _has_share_left(self, kind: CallKind, path: str, sites: int) -> bool:
        """Whether a call is to be recorded; all modules have a part, for their weights differ."""
        most = self._kinds.get(kind, 0)
        recorded = sum(count for (each, _), count in self._counts.items() if each == kind)
        return recorded < most and self._counts[kind, path] < -(-most // sites)


def _copied(value: Any) -> Any:
    """Return a copy on the host, in the same strides where they are dense."""
    if isinstance(value, torch.Tensor):
        detached = value.detach()
        return detached.cpu() if detached.device.type != "cpu" else detached.clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(item) for item in value)
    return value


def _compact(value: Any) -> Any:
    """Return a value to be stored at once: a view is copied, for all of its storage would be."""
    if isinstance(value, torch.Tensor):
        is_whole = value.untyped_storage().nbytes() == value.nbytes
        return value.detach().cpu() if is_whole else _copied(value)
    if isinstance(value, dict):
        return {key: _compact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_compact(item) for item in value)
    return value


def _is_storable(value: Any) -> bool:
    """Whether an output is made of lists, tuples, dicts, tensors and plain values alone."""
    if isinstance(value, dict):
        return type(value) is dict and all(map(_is_storable, value.values()))
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(_is_storable, value))
    return value is None or isinstance(value, torch.Tensor | bool | int | float | str)
