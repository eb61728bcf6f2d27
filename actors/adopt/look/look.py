"""The first stage: where the model's time is, and what of it a task could save."""

from __future__ import annotations

import copy
import functools
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch

from actors.adopt.look.module_profile import DeviceProfile, profile_steps
from actors.adopt.look.site_groups import SiteGroup, site_groups
from actors.adopt.model.call_recorder import median_step_ms
from actors.adopt.model.model_file import Batch, ModelFile, device_of, explained, synchronize
from actors.adopt.stage.errors import AdoptError, first_line
from actors.adopt.stage.stage_folder import ModelRecord, StageFolder, file_hash

LATER_FILES = ("report.md", "check.json", "fit.json", "take.json")  # the last one first
ROUNDS = 3  # of all batches, where these are looked at
LONG_MS = 5_000.0  # of a round: one has to do
STEP_S = 2.0  # for the median time of a step
SHOWN = 16  # lines of the table


class Regime(msgspec.Struct, frozen=True, kw_only=True):
    """A way to run the model without any new kernel."""

    name: str
    step_ms: float | None = None
    problem: str = ""  # why it was not measured


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """look.json."""

    device: str
    batches: int
    step_ms: float  # median over all batches, eager
    busy: float  # the part of a step in which the device works
    outside_share: float  # of the device time: in no module
    outside: dict[str, float]  # the largest operations of it, by share
    groups: list[SiteGroup]
    update_share: float = 0.0  # in the optimizer of a training step
    regimes: list[Regime] = msgspec.field(default_factory=list)
    threads: int = 0  # of an operation on a host; 0: on a card

    @property
    def fastest_regime(self) -> str:
        """The name of the fastest measured regime without any new kernel."""
        measured = [(each.step_ms, each.name) for each in self.regimes if each.step_ms is not None]
        return min(measured, default=(self.step_ms, "eager"))[1]


class OutsideError(AdoptError):
    """Too much time belongs to no module."""


def look(
    file: ModelFile,
    folder: StageFolder,
    count: int,
    regimes: Sequence[str],
    say: Callable[[str], None],
) -> Look:
    """Measure the model and write model.json, look.json and look.txt."""
    model = file.build()
    batches = file.batches(count)
    device = device_of(model, batches)
    if len(batches) < 3:
        say(f"{file.path}: batches() gave {len(batches)}; three or more show noise and shapes")
    _first_run(each_step(file, model, batches), device, file)
    file.quality(model)  # a mistake in it is found before anything is spent
    run = steps_of(file, model, batches)
    step_ms = median_step_ms(run, device, STEP_S) / len(batches)
    rounds = rounds_of(step_ms, len(batches))

    def rounds_of_steps() -> None:
        for _ in range(rounds):
            run()

    profile = profile_steps(model, rounds_of_steps, device)
    steps = rounds * len(batches)
    found = _result(model, profile, steps, step_ms, device, len(batches))
    measured = [_regime(name, file, model, batches, step_ms) for name in regimes]
    result = msgspec.structs.replace(found, regimes=measured)
    record = ModelRecord(path=str(file.path.resolve()), sha256=file_hash(file.path), batches=count)
    if not found.groups:
        _refuse_model(file, model)
    folder.remove(*LATER_FILES, "look.json")  # an older look is none of this model.json
    folder.write("model.json", record)
    folder.write_text("look.txt", "\n".join(look_lines(result)) + "\n")
    folder.write("look.json", result)
    return result


def rounds_of(step_ms: float, batches: int) -> int:
    """Return how often all batches are run where their calls are looked at."""
    return ROUNDS if step_ms * batches < LONG_MS else 1


def opened_model(folder: StageFolder) -> tuple[ModelFile, ModelRecord]:
    """Return the file that `look` saw; raise AdoptError when it has changed since."""
    record = folder.read("model.json", ModelRecord, "adopt.py look")
    path = Path(record.path)
    if file_hash(path) != record.sha256:
        command = f"adopt.py look {shlex.quote(str(path))} --out {shlex.quote(str(folder.path))}"
        raise AdoptError(f"{path} has changed since `look`: run `{command}` again")
    return ModelFile(path), record


def is_unchanged(folder: StageFolder, path: Path) -> bool:
    """Whether `look` saw this file as it is now."""
    record = folder.read("model.json", ModelRecord, "adopt.py look")
    return (record.path, record.sha256) == (str(path.resolve()), file_hash(path))


def steps_of(
    file: ModelFile, model: torch.nn.Module, batches: Sequence[Batch]
) -> Callable[[], None]:
    """Return a function that runs one step for each batch."""
    steps = each_step(file, model, batches)

    def run() -> None:
        for step in steps:
            step()

    return run


def each_step(
    file: ModelFile, model: torch.nn.Module, batches: Sequence[Batch]
) -> list[Callable[[], object]]:
    """Return a function for the step of each batch."""
    return [functools.partial(file.step, model, batch) for batch in batches]


def refuse_outside(result: Look, most: float) -> None:
    """Raise OutsideError when more than `most` of the device time belongs to no module."""
    if result.outside_share <= most:
        return
    worst = ", ".join(f"{name} {share:.0%}" for name, share in result.outside.items())
    raise OutsideError(
        f"{result.outside_share:.0%} of the device time belongs to no module (at most {most:.0%} is"
        f" allowed): {worst}. Put this code into the forward of a module, or allow it with"
        " --max-outside"
    )


def look_lines(result: Look) -> list[str]:
    """Return the table that `look` prints."""
    lines = [
        f"a step takes {ms_text(result.step_ms)} on {result.device} (median over {result.batches}"
        f" batches); the device works {result.busy:.0%} of it",
        "",
        f"{'module':34} {'sites':>5} {'calls':>7} {'share':>6} {'libraries':>9} {'ceiling':>8}",
    ]
    for group in result.groups[:SHOWN]:
        mark = "*" if group.is_chosen else " "
        name = f"{mark} {group.name} ({group.class_name})"
        lines.append(
            f"{name[:34]:34} {'×' + str(len(group.sites)):>5} {group.calls:>7.4g}"
            f" {group.share:>6.1%} {group.library_share:>9.1%} {group.ceiling:>7.2f}×"
        )
    if len(result.groups) > SHOWN:
        lines.append(f"  … and {len(result.groups) - SHOWN} more in look.json")
    if result.update_share:
        lines.append(f"{'  in the optimizer':34} {'':5} {'':7} {result.update_share:>6.1%}")
    lines += [
        f"{'  in no module':34} {'':5} {'':7} {result.outside_share:>6.1%}",
        "",
        "share: of the device time, submodules included. libraries: the part of it in matrix",
        "products, convolutions and attention. ceiling: the step's speed-up if the module took no",
        "time. *: becomes a task.",
    ]
    for regime in result.regimes:
        if regime.step_ms is None:
            lines.append(f"without a new kernel, {regime.name}: not measured: {regime.problem}")
        else:
            speedup = result.step_ms / regime.step_ms
            lines.append(
                f"without a new kernel, {regime.name}: {ms_text(regime.step_ms)}, {speedup:.2f}×"
            )
    if result.busy < 0.5:
        lines.append(
            "The device is idle most of the time: torch.compile or CUDA graphs come before kernels"
            " (--regime compile,cudagraph measures them)."
        )
    return lines


def ms_text(ms: float) -> str:
    """Return a time with three digits: "1.23 ms", "1230 ms"."""
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def _first_run(
    steps: Sequence[Callable[[], object]], device: torch.device, file: ModelFile
) -> None:
    for number, step in enumerate(steps):
        which = f"the step of batch {number}" if number else "the first step"
        try:
            step()
            synchronize(device)
        except (Exception, SystemExit) as error:  # the user's model may raise anything
            raise AdoptError(f"{which} raised {explained(error, file.path)}") from error


def _refuse_model(file: ModelFile, model: torch.nn.Module) -> NoReturn:
    """Raise AdoptError for a model of which no module was called."""
    if any(model.children()):
        raise AdoptError(f"{file.path}: a step calls no module of the model that build() returned")
    raise AdoptError(
        f"{file.path}: the {type(model).__name__} of build() has no submodules, and tasks are made"
        " of these: return a module that has it as a part"
    )


def _result(
    model: torch.nn.Module,
    profile: DeviceProfile,
    steps: int,
    step_ms: float,
    device: torch.device,
    batches: int,
) -> Look:
    total = profile.total_us or 1.0
    busy = min(profile.total_us / (profile.wall_us or 1.0), 1.0)
    if device.type == "cuda":  # the profiler slows the host down, not the card's kernels
        busy = min(profile.total_us / steps / (step_ms * 1e3), 1.0)
    return Look(
        device=str(device),
        batches=batches,
        step_ms=step_ms,
        busy=busy,
        outside_share=profile.outside_us / total,
        outside={name: us / total for name, us in profile.outside.most_common(3)},
        groups=site_groups(model, profile, steps, busy),
        update_share=profile.update_us / total,
        threads=torch.get_num_threads() if device.type == "cpu" else 0,
    )


def compile_mode(regime: str) -> str | None:
    """Return torch.compile's mode for a regime."""
    return "reduce-overhead" if regime == "cudagraph" else None


def _regime(
    name: str, file: ModelFile, model: torch.nn.Module, batches: Sequence[Batch], eager_ms: float
) -> Regime:
    """Measure one way to run the model as it is."""
    device = device_of(model, batches)
    if name == "eager":
        return Regime(name=name, step_ms=eager_ms)
    if name == "cudagraph" and device.type != "cuda":
        return Regime(name=name, problem="there are no CUDA graphs on a CPU")
    try:
        compiled: Any = torch.compile(copy.deepcopy(model), mode=compile_mode(name))
        run = steps_of(file, compiled, batches)
        for _ in range(3):
            run()
        return Regime(name=name, step_ms=median_step_ms(run, device, STEP_S) / len(batches))
    except Exception as error:  # noqa: BLE001  # a compiler, on the user's model
        return Regime(name=name, problem=first_line(error, 160))
