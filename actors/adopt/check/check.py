"""The fourth stage: what the winners bring to the whole model, each alone, then together.

A winner stays if the step is faster by more than noise, its outputs are as accurate as the
original's, its kernel ran as often as it should, memory and compiled graphs are as before, and
its gain is possible for its part of the step.  Another one is dropped by name, and the rest stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import torch

from actors.adopt.check.accuracy import TRUTH_RUNS, Accuracy, Truth
from actors.adopt.check.call_costs import call_cost, cost_words, recorded_call
from actors.adopt.check.check_result import NO_TIME, Check, Trial, best_so_far, changed_figure
from actors.adopt.check.compiled_graphs import GraphCounts
from actors.adopt.check.expected_calls import expected_calls, expected_sites
from actors.adopt.check.fitted_states import DroppedError, FittedStates
from actors.adopt.check.gain_limits import NoGainError, possible_gain, refuse_gain
from actors.adopt.check.memory_peak import peak_of
from actors.adopt.check.regime_gains import RegimeGain, regime_gain
from actors.adopt.check.step_timing import Gain, compare_states, timed_steps
from actors.adopt.check.subset_search import sound_subset
from actors.adopt.fit.fit import Fit, load_package
from actors.adopt.look.look import Look, each_step, opened_model
from actors.adopt.look.site_groups import amdahl
from actors.adopt.model.call_recorder import calls_ms, recorded_calls
from actors.adopt.model.host_clocks import working_seconds
from actors.adopt.model.model_file import device_of, synchronize
from actors.adopt.model.model_state import KeptState, repeatable
from actors.adopt.stage.errors import AdoptError, first_line
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.stage.time_limit import UNLIMITED, TimeLimit
from actors.adopt.take.taken_tasks import Take, TakenTask

PROGRESS = "check.progress"  # the winners that are being tried: read after a crash
PARTIAL = "check.partial"  # what is known so far: read where the time is over
MORE_MEMORY = 1.05
CPU_SLACK = 32 << 20
SHOWN_GROUPS = 12  # whose time before and after is measured


def check(
    folder: StageFolder,
    seconds: float,
    without: dict[str, str],
    say: Callable[[str], None],
    limit: TimeLimit = UNLIMITED,
) -> Check:
    """Try the winners and write check.json.  `without`: name -> why it is not tried."""
    stage = _CheckStage(folder, seconds, limit, say)
    result = stage.run(without)
    folder.write("check.json", result)
    folder.remove(PROGRESS, PARTIAL)
    return result


class _CheckStage:
    """One run of the stage."""

    def __init__(
        self, folder: StageFolder, seconds: float, limit: TimeLimit, say: Callable[[str], None]
    ) -> None:
        self._folder, self._seconds, self._say = folder, seconds, say
        self._limit = limit
        self._longest_s = 0.0  # of what was tried so far
        self._file, record = opened_model(folder)
        self._look = folder.read("look.json", Look, "adopt.py look")
        self._taken = folder.read("take.json", Take, "adopt.py take")
        self._tasks = {task.name: task for task in self._taken.tasks}
        self._fit = folder.read("fit.json", Fit, "adopt.py fit")
        self._package = load_package(folder)
        self._model = self._file.build()
        self._batches = self._file.batches(record.batches)
        self._device = device_of(self._model, self._batches)
        self._steps = each_step(self._file, self._model, self._batches)
        self._state = KeptState(self._model, self._batches)
        self._run = repeatable(self._steps, self._state)
        self._fitted = FittedStates(self._package, self._model)
        # Of sets of winners: what was measured for one set is not measured again.
        self._accuracies: dict[frozenset[str], Accuracy] = {}
        self._peaks: dict[frozenset[str], int] = {}
        self._graphs = GraphCounts(self._fitted.only, self._model, self._run)

    def run(self, without: dict[str, str]) -> Check:
        """Try each winner alone, then together; return the result."""
        self._measure_original()
        names = [winner.name for winner in self._fit.winners if winner.name not in without]
        trials = [Trial(name=name, kept=False, reason=why) for name, why in without.items()]
        first = Check(
            device=str(self._device),
            kept=[],
            trials=[],
            gain=None,
            accuracy_problem=self._truth.problem,
            memory_before=self._peak([]),
            quality_before=self._quality_before,
        )
        alone: list[Trial] = []
        for number, name in enumerate(names):
            self._note(first, [*trials, *alone], names[number:])
            alone.append(self._alone(name))
        self._note(first, [*trials, *alone], [])
        trials += [trial for trial in alone if not trial.kept]
        good = [trial for trial in alone if trial.kept]
        trials += self._stack(sorted(good, key=lambda t: -(t.alone.speedup if t.alone else 0.0)))
        kept = [trial.name for trial in trials if trial.kept]
        result = msgspec.structs.replace(first, kept=kept, trials=trials)
        return self._whole(result) if result.kept else self._under_regime(result)

    def _note(self, first: Check, trials: Sequence[Trial], waiting: Sequence[str]) -> None:
        """Write what is known so far: what follows may take longer than there is time."""
        untried = [Trial(name=name, kept=False, reason=NO_TIME) for name in waiting]
        self._folder.write(PARTIAL, best_so_far(first, [*trials, *untried], self._peaks))

    def _measure_original(self) -> None:
        """Measure what the winners are compared with."""
        self._run()
        self._state.settle()
        began = time.perf_counter()
        self._run()
        pass_s = time.perf_counter() - began
        self._timed = timed_steps(self._steps, pass_s, self._seconds)
        count = f"{len(self._timed)} of {len(self._steps)}"
        self._say(
            f"check: a pass over all batches takes {pass_s:.2g} s; comparisons time {count} batches"
        )
        began = time.perf_counter()
        self._truth = Truth(self._file, self._model, self._batches, self._state)
        truth_s = time.perf_counter() - began
        self._peak([])
        self._quality_before = self._quality([])
        rest_s = time.perf_counter() - began - truth_s
        self._longest_s = truth_s / TRUTH_RUNS + rest_s + self._seconds  # what a trial repeats

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Note how long something takes, for `_has_time`."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._longest_s = max(self._longest_s, time.monotonic() - began)

    def _has_time(self, trials: int = 1) -> bool:
        """Whether there is time for so many trials more."""
        return self._limit.left_s > trials * self._longest_s

    def _whole(self, result: Check) -> Check:
        """Measure all kept winners together."""
        self._begin(result.kept)
        alone = next(trial.alone for trial in result.trials if trial.kept)
        if len(result.kept) > 1 or alone is None or self._has_time():
            gain = self._gain([], result.kept)
        else:
            gain = alone
        ceiling = self._ceiling(result.kept)
        result = self._with_figures(msgspec.structs.replace(result, gain=gain, ceiling=ceiling))
        regimes = [
            self._regime_gain(regime.name, result.kept)
            for regime in self._look.regimes
            if regime.name != "eager" and regime.step_ms is not None
        ]
        return msgspec.structs.replace(result, regimes=regimes)

    def _under_regime(self, result: Check) -> Check:
        """Keep winners that bring eager nothing, if they bring the fastest regime something."""
        names = [trial.name for trial in result.trials if trial.has_no_gain]
        regime = self._look.fastest_regime
        if not names or regime == "eager":
            return result
        names, _ = sound_subset(names, self._problem)
        found = self._regime_gain(regime, names)
        result = msgspec.structs.replace(result, regimes=[found])
        if not names or not found.is_faster:
            return result
        trials = [
            msgspec.structs.replace(trial, kept=trial.name in names) for trial in result.trials
        ]
        result = msgspec.structs.replace(result, kept=names, trials=trials, regime=regime)
        return self._with_figures(msgspec.structs.replace(result, gain=found.gain))

    def _with_figures(self, result: Check) -> Check:
        """Return a result with the figures of its kept winners besides their gain."""
        accuracy = self._accuracy(result.kept)
        quality = self._quality(result.kept)
        module_ms = self._module_ms(result.kept)
        self._fitted.only([])
        return msgspec.structs.replace(
            result,
            accuracy=accuracy,
            memory_after=self._peak(result.kept),
            graphs_before=self._graphs.of([]),
            graphs_after=self._graphs.of(result.kept),
            quality_after=quality,
            module_ms=module_ms,
        )

    def _regime_gain(self, name: str, kept: Sequence[str]) -> RegimeGain:
        if not self._has_time():
            return RegimeGain(name=name, problem=NO_TIME)
        with self._measured():
            return regime_gain(name, self._file, self._batches, self._package, kept, self._seconds)

    def _alone(self, name: str) -> Trial:
        """Try one winner in the original model, where there is time for it."""
        if not self._has_time():
            self._say(f"dropped: {name}: {NO_TIME}")
            return Trial(name=name, kept=False, reason=NO_TIME)
        with self._measured():
            return self._tried(name)

    def _tried(self, name: str) -> Trial:
        """Try one winner in the original model."""
        self._begin([name])
        task = self._tasks[name]
        trial = Trial(name=name, kept=False)
        try:
            expected, part = self._calls_of(task)
            ceiling = max(possible_gain(self._look, [task]), amdahl(part))
            count = sum(expected.values())
            trial = msgspec.structs.replace(trial, ceiling=ceiling, expected_calls=count)
            accuracy = self._accuracy([name])
            ran = self._fitted.kernel_calls(name)
            trial = msgspec.structs.replace(trial, accuracy=accuracy, kernel_calls=ran)
            if not accuracy.is_right:
                raise DroppedError(f"wrong: {accuracy.places[0]}")
            missed = self._fitted.misses(name, expected)
            if missed:
                raise DroppedError(f"its kernel ran in {ran} of {count} calls: {missed}")
            self._refuse_memory([name])
            gain = self._gain([], [name])
            trial = msgspec.structs.replace(trial, alone=gain)
            self._refuse_gain(gain, ceiling, task)
        except DroppedError as dropped:
            self._say(f"dropped: {name}: {dropped}")
            return msgspec.structs.replace(trial, reason=str(dropped))
        except AdoptError:
            raise
        except Exception as error:  # noqa: BLE001  # a kernel of unknown origin
            self._say(f"dropped: {name}: the model raised {first_line(error)}")
            return msgspec.structs.replace(trial, reason=f"the model raised {first_line(error)}")
        finally:
            self._fitted.only([])
        self._say(f"alone: {name}: {gain.describe()}, at most {ceiling:.2f}× is possible")
        return msgspec.structs.replace(trial, kept=True)

    def _refuse_gain(self, gain: Gain, ceiling: float, task: TakenTask) -> None:
        """Raise DroppedError for a gain that is not believed; on a card with a call's costs."""
        try:
            refuse_gain(gain, ceiling, task.share)
        except NoGainError as error:
            if self._device.type != "cuda":
                raise
            self._fitted.only([])
            site = expected_sites(self._taken, task, [task.cases[0].kind])[0]
            call = recorded_call(self._model, site.path, site.kinds[0], self._run)
            before = call_cost(call)
            self._fitted.only([task.name])
            words = cost_words(before, call_cost(call), self._look)
            raise NoGainError(f"{error}; {words}") from error

    def _stack(self, good: Sequence[Trial]) -> list[Trial]:
        """Drop those that spoil the whole, then add the others one by one, the best first."""
        together = good if self._has_time(2) else good[:1]
        sound, dropped = sound_subset([trial.name for trial in together], self._problem)
        dropped |= {trial.name: NO_TIME for trial in good[len(together) :]}
        for name, reason in dropped.items():
            self._say(f"dropped: {name}: {reason}")
        kept: list[str] = []
        result = []
        for trial in good:
            reason, gain = dropped.get(trial.name, ""), None
            if trial.name in sound and kept and not self._has_time(2):  # and for the whole
                reason = NO_TIME
                self._say(f"dropped: {trial.name}: {reason}")
            elif trial.name in sound and kept:
                self._begin([*kept, trial.name])
                gain = self._gain(kept, [*kept, trial.name])
                if gain.high < 1.0:
                    reason = f"slower together with {', '.join(kept)}: {gain.describe()}"
                    self._say(f"dropped: {trial.name}: {reason}")
                else:
                    names = " + ".join([*kept, trial.name])
                    self._say(f"together: {names}: {gain.describe()} more")
            if not reason:
                kept.append(trial.name)
            result.append(
                msgspec.structs.replace(trial, together=gain, kept=not reason, reason=reason)
            )
        return result

    def _problem(self, names: Sequence[str]) -> str:
        """Return why the model can't have these winners together; "" when it can."""
        self._begin(names)
        try:
            changed = changed_figure(self._quality_before, self._quality(names))
            if changed:
                return f"quality(): {changed}"
            if len(names) > 1:  # one alone has passed these
                accuracy = self._accuracy(names)
                if not accuracy.is_right:
                    return f"wrong: {accuracy.places[0]}"
                self._refuse_memory(names)
            self._graphs.refuse(names, sum(len(self._tasks[name].sites) for name in names))
        except DroppedError as dropped:
            return str(dropped)
        except Exception as error:  # noqa: BLE001  # kernels of unknown origin
            return f"the model raised {first_line(error)}"
        finally:
            self._fitted.only([])
        return ""

    def _refuse_memory(self, names: Sequence[str]) -> None:
        """Raise DroppedError where a pass takes more memory with these winners."""
        self._fitted.only([])
        before = peak_of(self._run, self._device)
        after = self._peak(names)
        slack = CPU_SLACK if self._device.type == "cpu" else 0  # the process has other memory, too
        if before and after > before * MORE_MEMORY + slack:
            raise DroppedError(f"memory grows from {before >> 20} to {after >> 20} MiB")

    def _accuracy(self, names: Sequence[str]) -> Accuracy:
        """Return the errors with these winners, which are in the model then."""
        self._fitted.only(names)
        key = frozenset(names)
        if key not in self._accuracies:
            self._accuracies[key] = self._truth.accuracy(self._truth.results())
        return self._accuracies[key]

    def _peak(self, names: Sequence[str]) -> int:
        """Return the highest memory of a pass with these winners, which are in the model then."""
        self._fitted.only(names)
        key = frozenset(names)
        if key not in self._peaks:
            self._peaks[key] = peak_of(self._run, self._device)
        return self._peaks[key]

    def _quality(self, names: Iterable[str]) -> dict[str, float]:
        self._fitted.only(names)
        self._state.restore()  # a step that was timed may have trained the model
        torch.manual_seed(0)
        return self._file.quality(self._model)

    def _gain(self, before: Sequence[str], after: Sequence[str]) -> Gain:
        def state(names: Sequence[str]) -> None:
            self._fitted.only(names)
            self._state.restore()

        return compare_states(
            lambda: state(before), lambda: state(after), self._timed, self._device, self._seconds
        )

    def _ceiling(self, names: Sequence[str]) -> float:
        """Return what winners together could bring at most: their modules take no time."""
        tasks = [self._tasks[name] for name in names]
        parts = sum(self._calls_of(task)[1] for task in tasks)
        return max(possible_gain(self._look, tasks), amdahl(min(parts, 1.0)))

    def _module_ms(self, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Return the time of the largest groups of modules in a step, before and after."""
        fitted = tuple(f"{site}." for name in names for site in self._tasks[name].sites)
        groups = {
            group.name: sites
            for group in self._look.groups[:SHOWN_GROUPS]
            if (sites := [site for site in group.sites if not site.startswith(fitted)])
        }
        found = []
        for state in ([], names):
            self._fitted.only(state)
            self._state.restore()
            found.append(calls_ms(self._model, groups, self._device, self._run))
        steps = len(self._batches)
        return {name: (found[0][name] / steps, found[1][name] / steps) for name in groups}

    def _calls_of(self, task: TakenTask) -> tuple[dict[str, int], float]:
        """Return the calls that a winner takes in a pass, by site, and their part of its time."""
        self._fitted.only([])
        self._state.restore()
        winner = next(each for each in self._fit.winners if each.name == task.name)
        cases = [task.cases[number] for number in winner.cases]
        sites = expected_sites(self._taken, task, [case.kind for case in cases])
        clock = working_seconds if self._device.type == "cpu" else time.perf_counter
        began = clock()
        paths = {site.path: [site.path] for site in sites}
        with recorded_calls(self._model, paths, self._device) as calls:
            self._run()
            synchronize(self._device)
        pass_us = (clock() - began) * 1e6
        expected, spent = expected_calls(task, sites, calls)
        return expected, min(spent / pass_us, 1.0)

    def _begin(self, names: Sequence[str]) -> None:
        """Note which winners are tried, for the case that the process dies."""
        self._folder.write(PROGRESS, list(names))
