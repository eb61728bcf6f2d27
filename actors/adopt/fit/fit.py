"""The third stage: judged winners become a package that fits them into the model and out again."""

from __future__ import annotations

import hashlib
import importlib.util
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import torch

from actors.adopt.fit.judged_cases import (
    is_judged_with_gradients,
    judged_inputs,
    tensors_of_layouts,
)
from actors.adopt.fit.split_files import SplitFiles
from actors.adopt.look.look import opened_model
from actors.adopt.model.call_layouts import tensor_layouts
from actors.adopt.stage.errors import AdoptError, first_line
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.taken_tasks import Take, TakenTask
from actors.release.composition import UnreleasableError
from actors.release.decomposition import NotADropInError, drop_in_parts
from actors.release.package_module import limits_in, with_limits
from protocol.layouts import Layout
from protocol.release import LIMITS

PACKAGE = "stark_fitted"
UNFINISHED = f".{PACKAGE}.part"  # the package while it is written
REPLACED = f".{PACKAGE}.old"  # the one before, until it is removed
LATER_FILES = ("report.md", "check.json")  # the last one first
SPEEDUP_UNKNOWN = 0.0
ONE = "second instance"  # the limit with which kernels run in one instance only


class NoWinnerError(AdoptError):
    """No task has a winner."""


class FittedWinner(msgspec.Struct, frozen=True, kw_only=True):
    """One winner and its place."""

    name: str  # of the task
    file: str  # where it came from
    sha256: str
    speedup: float  # of the module alone, as its run measured it; 0: not known
    sites: tuple[str, ...]
    cases: tuple[int, ...] = (0,)  # of the task, that the winner was judged for


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """fit.json."""

    winners: list[FittedWinner]
    without: list[str]  # tasks for which no winner was found


class _Site(msgspec.Struct, frozen=True, kw_only=True):
    """One winner's record in sites.json; `fitted_package/` reads it."""

    name: str
    module: str
    sites: tuple[str, ...]
    structure: str
    layouts: tuple[Layout, ...]  # of the calls that the kernel takes
    results: tuple[Layout, ...]  # what the module returns for each of them
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    state: dict[str, str]
    gradients: bool  # the kernel was judged with its backward
    autocast: str  # the dtype of autocast in the calls; "" without it
    regions: dict[str, int] = {}  # site -> number of its split, where it is a region


def fit(
    folder: StageFolder,
    runs: Sequence[Path],
    given: dict[str, Path],
    say: Callable[[str], None],
) -> Fit:
    """Write the package `stark_fitted` and fit.json.

    `runs`: run folders, finished or not; without any, those in the stage folder.  `given`: winners
    by the task's name, which need no run.
    """
    taken = folder.read("take.json", Take, "adopt.py take")
    file, _ = opened_model(folder)
    unknown = set(given) - {task.name for task in taken.tasks}
    if unknown:
        raise AdoptError(f"--winner {min(unknown)}: take.json has no task of that name")
    winners, without = [], []
    for task in taken.tasks:
        found = _winner(folder, task, runs or _own_runs(folder), given.get(task.name))
        if found is None:
            without.append(task.name)
            continue
        winners.append(found)
    if not winners:
        raise NoWinnerError(
            f"no winner for any of {len(without)} tasks: run them first, or name a run with --run"
        )
    _write_package(folder, taken, winners, file.build())
    # A kill leaves the earlier fit as it was, or no fit.json, which all that use a fit ask for.
    folder.remove(*LATER_FILES, "fit.json")
    _place_package(folder.path)
    result = Fit(winners=winners, without=without)
    folder.write("fit.json", result)
    by_name = {task.name: task for task in taken.tasks}
    for winner in winners:
        alone = f"{winner.speedup:.2f}× alone" if winner.speedup else "its gain is not known"
        places = "regions" if by_name[winner.name].place else "modules"
        say(f"fitted: {winner.name} into {len(winner.sites)} {places}, {alone}")
    for name in without:
        say(f"without a winner: {name}")
    return result


def load_package(folder: StageFolder, written_as: str = PACKAGE) -> Any:
    """Import the package of a stage folder anew."""
    path = folder.path / written_as / "__init__.py"
    if not path.is_file():
        command = f"adopt.py fit {shlex.quote(str(folder.path))}"
        raise AdoptError(f"{folder.path} has no {PACKAGE}: run `{command}` first")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"{PACKAGE}_{digest}"
    for loaded in [key for key in sys.modules if key.startswith(name)]:
        del sys.modules[loaded]
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)]
    )
    if spec is None or spec.loader is None:
        raise AdoptError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # written here, but a user may have edited it
        raise AdoptError(f"{path} can't be imported: {first_line(error)}") from error
    return module


def has_winner(folder: StageFolder, task: TakenTask) -> bool:
    """Whether a run in the stage folder has a winner of a task."""
    return _winner(folder, task, _own_runs(folder), None) is not None


def _own_runs(folder: StageFolder) -> list[Path]:
    return sorted(path for path in (folder.path / "runs").glob("*") if path.is_dir())


def _winner(
    folder: StageFolder, task: TakenTask, runs: Iterable[Path], given: Path | None
) -> FittedWinner | None:
    """Return the fastest judged winner of a task, a given one before those of runs."""
    source = (folder.path / task.file).read_text(encoding="utf-8").rstrip()
    if given is not None:
        text = _text(given)
        if "class ModelNew" not in text:
            raise AdoptError(f"--winner {task.name}={given}: it has no class ModelNew")
        if not _takes_gradients(task, text):
            raise AdoptError(
                f"--winner {task.name}={given}: it was judged without backward, and the task is"
                " one of a training step"
            )
        return _fitted(task, given, text, SPEEDUP_UNKNOWN)
    found = []
    for run in runs:
        if not run.is_dir():
            raise AdoptError(f"--run {run}: there is no such folder")
        for file in sorted(run.glob("best*.py")):
            text = _text(file)
            # A winner begins with its task's source.
            if source in text and _takes_gradients(task, text):
                found.append(_fitted(task, file, text, _speedup(run, task.name)))
    return max(found, key=lambda winner: winner.speedup, default=None)


def _fitted(task: TakenTask, file: Path, text: str, speedup: float) -> FittedWinner:
    return FittedWinner(
        name=task.name,
        file=str(file.resolve()),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        speedup=speedup,
        sites=task.sites,
        cases=_judged_cases(task, text),
    )


def _takes_gradients(task: TakenTask, text: str) -> bool:
    """Whether a winner was judged for the gradients that the task's calls want."""
    return not task.gradients or is_judged_with_gradients(text)


def _judged_cases(task: TakenTask, text: str) -> tuple[int, ...]:
    """Return the task's cases that a winner was judged for; an unknown file has the first."""
    judged = judged_inputs(text)
    found = []
    for number, case in enumerate(task.cases):
        leaves = [leaf for _, leaf in tensor_layouts(case.kind.layout)]
        if tensors_of_layouts([leaves[place] for place in task.inputs]) in judged:
            found.append(number)
    return tuple(found) or (0,)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AdoptError(f"can't read {file}: {error}") from error


def _speedup(run: Path, task: str) -> float:
    """Return a winner's speed-up in a run's result.json; a run that was killed has none."""
    try:
        result = msgspec.json.decode((run / "result.json").read_bytes())
        for each in result["tasks"]:
            if each["task"] == task and each["best"]:
                return float(each["best"]["speedup_eager"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        pass
    return SPEEDUP_UNKNOWN


def package_texts() -> dict[str, str]:
    """Return the files of every package: name -> text."""
    own = resources.files("actors.adopt.fitted_package")
    guard = resources.files("actors.release.guard")
    places = {
        "layout_matching.py": own.joinpath("layout_matching.py"),
        "call_modes.py": guard.joinpath("call_modes.py"),
        "equal_values.py": guard.joinpath("equal_values.py"),
        "site_state.py": own.joinpath("site_state.py"),
        "fitted_forward.py": own.joinpath("fitted_forward.py"),
        "split_forward.py": own.joinpath("split_forward.py"),
        "__init__.py": own.joinpath("package_init.py"),
    }
    return {name: place.read_text(encoding="utf-8") for name, place in places.items()}


def _for_several_instances(text: str) -> str:
    """Return a winner's text without its limit to one instance, if several were not tried.

    A run that was stopped before it confirmed its best has tried no use of it, and the file has
    every limit.  The check tries the kernels in all instances of the model.
    """
    try:
        judged = drop_in_parts(text).judged
        limits = limits_in(judged)
    except (NotADropInError, UnreleasableError):
        return text
    if not set(limits) >= set(LIMITS):
        return text
    return text.replace(judged, with_limits(judged, [each for each in limits if each != ONE]), 1)


def _write_package(
    folder: StageFolder,
    taken: Take,
    winners: Sequence[FittedWinner],
    model: torch.nn.Module,
) -> None:
    """Write the unfinished package: its own code, the winners, and sites.json."""
    shutil.rmtree(folder.path / UNFINISHED, ignore_errors=True)
    for name, text in package_texts().items():
        folder.write_text(f"{UNFINISHED}/{name}", text)
    structure = load_package(folder, UNFINISHED).structure
    by_name = {task.name: task for task in taken.tasks}
    splits = SplitFiles(folder, UNFINISHED, model, structure)
    sites = []
    for number, winner in enumerate(winners):
        task = by_name[winner.name]
        module, text = f"winner_{number}", _text(Path(winner.file))
        text = _for_several_instances(text) if len(task.sites) > 1 else text
        folder.write_text(f"{UNFINISHED}/{module}.py", text)
        sites.append(
            _Site(
                name=task.name,
                module=module,
                sites=task.sites,
                structure="" if task.place else structure(model.get_submodule(task.sites[0])),
                layouts=tuple(task.cases[number].kind.layout for number in winner.cases),
                results=tuple(task.cases[number].output for number in winner.cases),
                inputs=task.inputs,
                outputs=task.outputs,
                state=task.state,
                gradients=task.gradients,
                regions=splits.numbers(taken, task.sites) if task.place else {},
                autocast=task.cases[0].kind.autocast_dtype,
            )
        )
    folder.write(f"{UNFINISHED}/sites.json", {"winners": sites, "splits": splits.records})


def _place_package(folder: Path) -> None:
    """Give the written package its name; no part of it is ever there."""
    package, replaced = folder / PACKAGE, folder / REPLACED
    try:
        shutil.rmtree(replaced, ignore_errors=True)
        if package.exists():
            package.rename(replaced)
        (folder / UNFINISHED).rename(package)
    except OSError as error:
        raise AdoptError(f"can't write {package}: {error.strerror}") from error
    shutil.rmtree(replaced, ignore_errors=True)
