"""The user's file: `build()` and `batches()`, perhaps `step()` and `quality()`.

The code of this file is the user's own and runs unconfined, as it does without this project.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import torch

from actors.adopt.stage.errors import AdoptError, first_line
from actors.adopt.stage.stage_folder import file_hash

Batch: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
NETWORK_WORDS = ("huggingface.co", "urlopen", "connection", "gated repo", "name resolution")
OWN_FOLDER = Path(__file__).resolve().parents[1]
CONTRACT = "see docs/own-model.md for what such a file has"
_imported: dict[tuple[Path, str], Any] = {}  # by path and hash
_with_batches: set[Any] = set()  # imported files whose batches() gave some


class ModelFile:
    """One imported file."""

    def __init__(self, path: Path) -> None:
        """Import it; raise AdoptError when it can't be imported or has not the two functions."""
        self.path = path = path.absolute()  # its code may change the working directory
        self._module = _import(path)
        for name in ("build", "batches", "step", "quality"):
            found = getattr(self._module, name, None)
            if found is None and name in ("build", "batches"):
                raise AdoptError(f"{path} has no function {name}(): {CONTRACT}")
            if found is not None and not callable(found):
                raise AdoptError(
                    f"{path}: {name} is a {type(found).__name__}, expected a function: {CONTRACT}"
                )

    def build(self) -> torch.nn.Module:
        """Return the model; raise AdoptError when there is none."""
        model = self._call("build")
        if not isinstance(model, torch.nn.Module):
            raise AdoptError(
                f"{self.path}: build() returned a {type(model).__name__}, expected a"
                " torch.nn.Module"
            )
        self._refuse_unfit(model)
        return model

    def _refuse_unfit(self, model: torch.nn.Module) -> None:
        """Raise AdoptError for a model whose modules can't be looked at as they are."""
        if isinstance(model, torch.jit.ScriptModule):
            raise AdoptError(
                f"{self.path}: build() returned a scripted model; return it as it is before"
                " torch.jit.script or torch.jit.trace"
            )
        for path, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_meta:
                raise AdoptError(
                    f"{self.path}: build() returned a model whose {path} has no values (it is on"
                    " the device meta): load the weights in build()"
                )
        for path, part in model.named_modules():
            which = f"a model with a compiled part ({path})" if path else "a compiled model"
            if "_orig_mod" in part._modules or part._compiled_call_impl is not None:
                raise AdoptError(
                    f"{self.path}: build() returned {which}; return it as it is before"
                    " torch.compile (--regime compile measures that)"
                )
            if any(torch.nn.parameter.is_lazy(each) for each in part._parameters.values()):
                raise AdoptError(
                    f"{self.path}: build() returned a model whose {path or type(part).__name__} has"
                    " no shapes yet (a lazy module): call the model once in build()"
                )

    def batches(self, count: int) -> list[Batch]:
        """Return the first `count` batches; raise AdoptError when there are none."""
        given = self._call("batches")
        if not isinstance(given, Iterable):
            raise AdoptError(
                f"{self.path}: batches() returned a {type(given).__name__}, expected an iterator of"
                " (args, kwargs)"
            )
        found = self._guarded("batches", lambda: list(itertools.islice(given, count)))
        if not found:
            why = ", expected three batches or more"
            if self._module in _with_batches:
                why = " when it is called again: each call has to make its iterator anew"
            raise AdoptError(f"{self.path}: batches() is empty{why}")
        _with_batches.add(self._module)
        return [self._batch(batch, number) for number, batch in enumerate(found)]

    @property
    def has_step(self) -> bool:
        """Whether the file says what one step is."""
        return callable(getattr(self._module, "step", None))

    def step(self, model: torch.nn.Module, batch: Batch) -> Any:
        """Run one step; without `step()` it is a call of the model without gradients."""
        if self.has_step:
            return self._module.step(model, batch)
        with torch.no_grad():
            return model(*batch[0], **batch[1])

    def quality(self, model: torch.nn.Module) -> dict[str, float]:
        """Return the user's own figures for the model; empty without `quality()`."""
        if not callable(getattr(self._module, "quality", None)):
            return {}
        figures = self._guarded("quality", lambda: self._module.quality(model))
        if not isinstance(figures, dict):
            raise AdoptError(
                f"{self.path}: quality() returned a {type(figures).__name__}, expected a dict of"
                " numbers"
            )
        found: dict[str, float] = self._guarded(
            "quality", lambda: {str(name): float(value) for name, value in figures.items()}
        )
        return found

    def _call(self, name: str) -> Any:
        return self._guarded(name, getattr(self._module, name))

    def _guarded(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (Exception, SystemExit) as error:  # the user's function may raise anything
            raise AdoptError(
                f"{self.path}: {name}() raised {explained(error, self.path)}"
            ) from error

    def _batch(self, batch: object, number: int) -> Batch:
        match batch:
            case (tuple() | list() as args, dict() as kwargs):
                return tuple(args), kwargs
        raise AdoptError(
            f"{self.path}: batch {number} of batches() is a {type(batch).__name__}, expected"
            " (args, kwargs): a tuple of the model's arguments and a dict of its keywords"
        )


def explained(error: BaseException, file: Path) -> str:
    """Return an error of the user's code as one line: its place in `file`, its cause, advice."""
    said = first_line(error)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in frames if Path(each.filename).resolve() == file.resolve()]
    if lines:
        said = f"{said} ({file.name}:{lines[-1]})"
    if error.__cause__ is not None:
        said += f", because of {first_line(error.__cause__)}"
    if is_out_of_memory(error):
        return f"{said} (out of memory: use smaller batches or a machine with more)"
    if any(word in str(error).lower() for word in NETWORK_WORDS):
        return f"{said} (it needs the network or access to a repository: fetch the files before)"
    return said


def is_raised_by(error: BaseException, file: Path) -> bool:
    """Whether the user's code raised an error: it went through `file`, and began in no file here.

    A step calls this project's hooks, too: what these raise is a fault of ours.
    """
    files = [Path(each.filename).resolve() for each in traceback.extract_tb(error.__traceback__)]
    return file.resolve() in files and OWN_FOLDER not in files[-1].parents


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a card or on the host."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def device_of(model: torch.nn.Module, batches: Iterable[Batch] = ()) -> torch.device:
    """Return the device on which the model computes: its first tensor's, or a batch's."""
    tensors = itertools.chain(
        model.parameters(),
        model.buffers(),
        (value for args, kwargs in batches for value in (*args, *kwargs.values())),
    )
    first = next((value for value in tensors if isinstance(value, torch.Tensor)), None)
    return torch.device("cpu") if first is None else first.device


def synchronize(device: torch.device) -> None:
    """Wait until the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _import(path: Path) -> Any:
    if not path.is_file():
        raise AdoptError(f"{path}: there is no such file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # the file's own imports, as if it were run by itself
    known = (path.resolve(), file_hash(path))
    if known in _imported:  # stages of one process: what its import registers exists already
        return _imported[known]
    name = f"adopted_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AdoptError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's file may raise anything
        raise AdoptError(f"{path} can't be imported: {explained(error, path)}") from error
    _imported[known] = module
    return module
