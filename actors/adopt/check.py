"""The fourth stage: what the winners bring to the whole model, each alone, then together.

A winner stays if the step is faster by more than noise, its outputs are as accurate as the
original's, its kernel ran as often as it should, memory and compiled graphs are as before, and
its gain is possible for its part of the step.  Another one is dropped by name, and the rest stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import torch

from actors.adopt.accuracy import Accuracy, Truth, step_outputs
from actors.adopt.call_recorder import recorded_calls
from actors.adopt.compiled_graphs import GraphCount, count_graphs
from actors.adopt.errors import AdoptError, first_line
from actors.adopt.fit import Fit, load_package
from actors.adopt.look import Look, opened_model, steps_of
from actors.adopt.memory_peak import peak_of
from actors.adopt.model_file import device_of, synchronize
from actors.adopt.site_groups import amdahl
from actors.adopt.stage_folder import StageFolder
from actors.adopt.step_timing import Gain, compare_states
from actors.adopt.take import Take, TakenTask

PROGRESS = "check.progress"  # the winners that are being tried: read after a crash
MORE_MEMORY = 1.05
CPU_SLACK = 32 << 20
CEILING_SLACK = 1.1  # shares are measured, too
QUALITY_CHANGE = 0.01  # of the user's own figures


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One winner in the whole model."""

    name: str
    kept: bool
    reason: str = ""  # why it was dropped
    alone: Gain | None = None
    together: Gain | None = None  # with those kept before it, compared with those only
    accuracy: Accuracy | None = None
    ceiling: float = 0.0
    kernel_calls: int = 0  # in one pass over all batches
    expected_calls: int = 0


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """check.json."""

    device: str
    kept: list[str]
    trials: list[Trial]
    gain: Gain | None  # of all kept winners; null where none is
    accuracy: Accuracy | None = None
    accuracy_problem: str = ""  # why there is no float64 reference
    memory_before: int = 0  # bytes, the highest of a pass
    memory_after: int = 0
    graphs_before: GraphCount | None = None
    graphs_after: GraphCount | None = None
    quality_before: dict[str, float] = msgspec.field(default_factory=dict)
    quality_after: dict[str, float] = msgspec.field(default_factory=dict)


class DroppedError(Exception):
    """A winner can't stay; the text is the reason."""


def check(
    folder: StageFolder, seconds: float, without: dict[str, str], say: Callable[[str], None]
) -> Check:
    """Try the winners and write check.json.  `without`: name -> why it is not tried."""
    stage = _CheckStage(folder, seconds, say)
    result = stage.run(without)
    folder.write("check.json", result)
    folder.remove(PROGRESS)
    return result


class _CheckStage:
    """One run of the stage."""

    def __init__(self, folder: StageFolder, seconds: float, say: Callable[[str], None]) -> None:
        self._folder, self._seconds, self._say = folder, seconds, say
        self._file, record = opened_model(folder)
        self._look = folder.read("look.json", Look, "adopt.py look")
        taken = folder.read("take.json", Take, "adopt.py take")
        self._tasks = {task.name: task for task in taken.tasks}
        self._fit = folder.read("fit.json", Fit, "adopt.py fit")
        self._package = load_package(folder)
        self._model = self._file.build()
        self._batches = self._file.batches(record.batches)
        self._device = device_of(self._model, self._batches)
        self._run = steps_of(self._file, self._model, self._batches)
        self._held: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}

    def run(self, without: dict[str, str]) -> Check:
        """Try each winner alone, then together; return the result."""
        self._run()
        truth = Truth(self._file, self._model, self._batches)
        graphs = self._graphs()
        memory = peak_of(self._run, self._device)
        names = [winner.name for winner in self._fit.winners if winner.name not in without]
        trials = [Trial(name=name, kept=False, reason=why) for name, why in without.items()]
        alone = [self._alone(name, truth, graphs) for name in names]
        trials += [trial for trial in alone if not trial.kept]
        good = sorted(
            (t for t in alone if t.kept), key=lambda t: -(t.alone.speedup if t.alone else 0)
        )
        stacked = self._stack(good, truth)
        trials += self._without_bad_quality(stacked)
        kept = [trial.name for trial in trials if trial.kept]
        result = Check(
            device=str(self._device),
            kept=kept,
            trials=trials,
            gain=None,
            accuracy_problem=truth.problem,
            memory_before=memory,
            graphs_before=graphs,
            quality_before=self._quality([]),
        )
        return self._whole(result, truth) if kept else result

    def _whole(self, result: Check, truth: Truth) -> Check:
        """Measure all kept winners together."""
        self._begin(result.kept)
        gain = self._gain([], result.kept)
        self._fit_only(result.kept)
        return msgspec.structs.replace(
            result,
            gain=gain,
            accuracy=truth.accuracy(step_outputs(self._file, self._model, self._batches)),
            memory_after=peak_of(self._run, self._device),
            graphs_after=self._graphs(),
            quality_after=self._file.quality(self._model),
        )

    def _alone(self, name: str, truth: Truth, graphs: GraphCount | None) -> Trial:
        """Try one winner in the original model."""
        self._begin([name])
        task = self._tasks[name]
        ceiling = amdahl(min(task.share * self._look.busy, 1.0))
        trial = Trial(name=name, kept=False, ceiling=ceiling)
        try:
            expected, part = self._calls_of(task)
            ceiling = max(ceiling, amdahl(part))
            trial = msgspec.structs.replace(trial, ceiling=ceiling)
            memory = peak_of(self._run, self._device)
            self._fit_only([name])
            accuracy = truth.accuracy(step_outputs(self._file, self._model, self._batches))
            trial = msgspec.structs.replace(trial, accuracy=accuracy)
            if not accuracy.is_right:
                raise DroppedError(f"wrong: {accuracy.places[0]}")
            ran, reason = self._kernel_calls(name)
            trial = msgspec.structs.replace(trial, kernel_calls=ran, expected_calls=expected)
            if ran != expected:
                raise DroppedError(f"its kernel ran in {ran} of {expected} calls ({reason})")
            self._refuse_costs(graphs, memory, len(task.sites))
            gain = self._gain([], [name])
            trial = msgspec.structs.replace(trial, alone=gain)
            _refuse_gain(gain, ceiling, task.share)
        except DroppedError as dropped:
            self._say(f"dropped: {name}: {dropped}")
            return msgspec.structs.replace(trial, reason=str(dropped))
        except Exception as error:  # noqa: BLE001  # a kernel of unknown origin
            self._say(f"dropped: {name}: the model raised {first_line(error)}")
            return msgspec.structs.replace(trial, reason=f"the model raised {first_line(error)}")
        finally:
            self._fit_only([])
        self._say(f"alone: {name}: {gain.describe()}, at most {ceiling:.2f}× is possible")
        return msgspec.structs.replace(trial, kept=True)

    def _stack(self, good: Sequence[Trial], truth: Truth) -> list[Trial]:
        """Add the winners one by one, the best first; drop those that spoil what is there."""
        kept: list[str] = []
        result = []
        for trial in good:
            if not kept:
                kept.append(trial.name)
                result.append(trial)
                continue
            self._begin([*kept, trial.name])
            gain = self._gain(kept, [*kept, trial.name])
            self._fit_only([*kept, trial.name])
            accuracy = truth.accuracy(step_outputs(self._file, self._model, self._batches))
            reason = ""
            if gain.high < 1.0:
                reason = f"slower together with {', '.join(kept)}: {gain.describe()}"
            elif not accuracy.is_right:
                reason = f"wrong together with {', '.join(kept)}: {accuracy.places[0]}"
            if reason:
                self._say(f"dropped: {trial.name}: {reason}")
            else:
                kept.append(trial.name)
                self._say(f"together: {' + '.join(kept)}: {gain.describe()} more")
            result.append(
                msgspec.structs.replace(trial, together=gain, kept=not reason, reason=reason)
            )
        return result

    def _without_bad_quality(self, trials: Sequence[Trial]) -> list[Trial]:
        """Drop the winners with which the user's own figures change."""
        before = self._quality([])
        kept = [trial.name for trial in trials if trial.kept]
        if not before or not _changed(before, self._quality(kept)):
            return list(trials)
        result = []
        for trial in trials:
            changed = _changed(before, self._quality([trial.name])) if trial.kept else ""
            if changed:
                self._say(f"dropped: {trial.name}: quality(): {changed}")
            result.append(
                msgspec.structs.replace(trial, kept=False, reason=f"quality(): {changed}")
                if changed
                else trial
            )
        return result

    def _refuse_costs(self, graphs: GraphCount | None, memory: int, sites: int) -> None:
        """Raise DroppedError for more memory or worse compiled graphs; the winner is fitted."""
        after = peak_of(self._run, self._device)
        slack = CPU_SLACK if self._device.type == "cpu" else 0  # the process has other memory, too
        if memory and after > memory * MORE_MEMORY + slack:
            raise DroppedError(f"memory grows from {memory >> 20} to {after >> 20} MiB")
        counted = self._graphs()
        if graphs is not None and counted is not None and counted.is_worse_than(graphs, sites):
            raise DroppedError(
                f"under torch.compile there are {counted.describe()}, before {graphs.describe()}"
            )

    def _graphs(self) -> GraphCount | None:
        return count_graphs(self._model, self._run)

    def _quality(self, names: Iterable[str]) -> dict[str, float]:
        self._fit_only(names)
        torch.manual_seed(0)
        return self._file.quality(self._model)

    def _gain(self, before: Sequence[str], after: Sequence[str]) -> Gain:
        return compare_states(
            lambda: self._fit_only(before),
            lambda: self._fit_only(after),
            self._run,
            self._device,
            self._seconds,
        )

    def _calls_of(self, task: TakenTask) -> tuple[int, float]:
        """Return how many calls of the task's kind a pass has, and their part of its time now."""
        began = time.perf_counter()
        with recorded_calls(self._model, {"": task.sites}, self._device) as calls:
            self._run()
            synchronize(self._device)
        pass_us = (time.perf_counter() - began) * 1e6
        found = [each for each in calls[""].kinds if each.kind == task.kind]
        spent = sum(sum(each.samples) * each.calls / len(each.samples) for each in found)
        return sum(each.calls for each in found), min(spent / pass_us, 1.0)

    def _kernel_calls(self, name: str) -> tuple[int, str]:
        """Return how often a kernel ran since the winner was fitted, and why it did not."""
        counts = [
            each for each in self._package.report(self._model).values() if each["winner"] == name
        ]
        reasons = {reason: n for each in counts for reason, n in each["reasons"].items()}
        return sum(each["kernel"] for each in counts), max(
            reasons, key=lambda reason: reasons[reason], default="no call of this layout"
        )

    def _fit_only(self, names: Iterable[str]) -> None:
        """Have exactly these winners in the model; a winner is set up once."""
        self._package.unfit(self._model)
        for name in names:
            if name not in self._held:
                placed = self._package.fit(self._model, only=[name])
                if not placed:
                    raise DroppedError("none of its modules is in the model that build() returns")
                found = [vars(self._model.get_submodule(path)) for path in placed]
                self._held[name] = [
                    (place, {key: place[key] for key in ("forward", "__reduce_ex__")})
                    for place in found
                ]
            for place, entries in self._held[name]:
                place.update(entries)

    def _begin(self, names: Sequence[str]) -> None:
        """Note which winners are tried, for the case that the process dies."""
        self._folder.write(PROGRESS, list(names))


def _refuse_gain(gain: Gain, ceiling: float, share: float) -> None:
    """Raise DroppedError for a gain that is not there, or that can't be."""
    if gain.low <= 1.0:
        word = "slower" if gain.high < 1.0 else "no gain beyond noise"
        raise DroppedError(f"{word}: {gain.describe()}")
    if gain.low > ceiling * CEILING_SLACK:
        raise DroppedError(
            f"the step becomes {gain.describe()} faster, and the module is only {share:.0%} of it"
            f" (at most {ceiling:.2f}×): something else changed"
        )


def _changed(before: dict[str, float], after: dict[str, float]) -> str:
    for name, value in before.items():
        other = after.get(name, float("nan"))
        if not abs(other - value) <= QUALITY_CHANGE * max(abs(value), 1e-12):
            return f"{name} changes from {value:.6g} to {other:.6g}"
    return ""


def read_progress(folder: StageFolder) -> list[str]:
    """Return the winners that were being tried when a check died."""
    try:
        return folder.read(PROGRESS, list[str], "adopt.py check")
    except AdoptError:
        return []
