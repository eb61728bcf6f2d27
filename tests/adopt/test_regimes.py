"""A winner that eager does not need: where the host is the limit, the fastest regime decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from planted_winners import MANY, candidate, winner_file
from quick_stages import looked_at, silent, take_quickly

from actors.adopt.check.call_costs import CallCost, cost_words, recorded_call
from actors.adopt.check.check import check
from actors.adopt.check.regime_gains import RegimeGain
from actors.adopt.check.step_timing import Gain
from actors.adopt.fit.fit import fit
from actors.adopt.look.look import Look, Regime
from actors.adopt.model.model_file import ModelFile
from actors.adopt.model_report import report_text, verdict_line
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.taken_tasks import Take

FILE = Path(__file__).parent / "models" / "planted.py"
FASTER = Gain(speedup=1.4, low=1.35, high=1.45, before_ms=7.0, after_ms=5.0, rounds=18)
NO_GAIN = msgspec.structs.replace(FASTER, speedup=1.0, low=0.98, high=1.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    """Return a folder with one winner that takes three times as long as its module."""
    made = looked_at(FILE, tmp_path_factory.mktemp("stages"), 4)
    task = take_quickly(made, "slow").tasks[0]
    source = candidate(MANY.format(shift=0.3, repeats=48))
    made.write_text("slow.py", winner_file((made.path / task.file).read_text(), source))
    fit(made, [], {"slow": made.path / "slow.py"}, silent)
    return made


def checked_with(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch, compiled_ms: float, found: RegimeGain
) -> tuple[Any, list[tuple[str, Sequence[str]]]]:
    """Check with a measured regime; return the result and what was tried in a regime."""
    tried: list[tuple[str, Sequence[str]]] = []

    def regime_gain(name: str, file: Any, batches: Any, package: Any, kept: Any, s: Any) -> Any:
        tried.append((name, list(kept)))
        return found

    look = folder.read("look.json", Look, "look")
    regimes = [Regime(name="eager", step_ms=9.0), Regime(name="compile", step_ms=compiled_ms)]
    folder.write("look.json", msgspec.structs.replace(look, regimes=regimes))
    monkeypatch.setattr("actors.adopt.check.check.regime_gain", regime_gain)
    return check(folder, 0.2, {}, silent), tried


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_winner_without_a_gain_in_eager_may_stay_for_the_fastest_regime(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept with that regime's gain, and the sentence says how the model is run."""
    faster = RegimeGain(name="compile", gain=FASTER, engaged=3)
    result, tried = checked_with(folder, monkeypatch, 7.0, faster)
    assert [("compile", ["slow"])] == tried
    assert (["slow"], "compile", FASTER) == (result.kept, result.regime, result.gain)
    assert result.accuracy is not None
    assert "a pass under torch.compile(model) takes 5 ms instead of 7 ms" in verdict_line(result)
    assert "Time: 1.400× (1.350–1.450) under compile." in report_text(folder)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("compiled_ms", "found", "is_tried"),
    [
        (7.0, RegimeGain(name="compile", gain=NO_GAIN, engaged=3), True),
        (7.0, RegimeGain(name="compile", gain=FASTER, engaged=0), True),  # the original ran
        (7.0, RegimeGain(name="compile", problem="it did not compile"), True),
        (9.5, RegimeGain(name="compile", gain=FASTER, engaged=3), False),  # eager is faster
    ],
)
def test_no_winner_stays_that_brings_the_fastest_regime_nothing(
    folder: StageFolder,
    monkeypatch: pytest.MonkeyPatch,
    compiled_ms: float,
    found: RegimeGain,
    is_tried: bool,
) -> None:
    """No gain there, no call of the kernel there, no measurement, or a regime slower than eager."""
    result, tried = checked_with(folder, monkeypatch, compiled_ms, found)
    assert is_tried is bool(tried)
    assert ([], None, "eager") == (result.kept, result.gain, result.regime)
    assert "Nothing is kept: slow: " in verdict_line(result)


def test_the_sentence_about_a_step_that_waits_for_the_host(folder: StageFolder) -> None:
    """Both costs of a call; the way out only where it was not measured."""
    look = folder.read("look.json", Look, "look")
    before, after = CallCost(60.0, 407.0), CallCost(95.0, 263.0)
    costs = (
        "a call takes 60 µs of the host and 407 µs of the card, with the kernel 95 µs of the host"
        " and 263 µs of the card"
    )
    waits = "; the step waits for the host, the card works 80% of it"
    waiting = msgspec.structs.replace(look, busy=0.8, regimes=[])
    graphed = msgspec.structs.replace(waiting, regimes=[Regime(name="cudagraph", step_ms=1.0)])
    busy = msgspec.structs.replace(waiting, busy=0.97)
    advice = " (--regime cudagraph tries it without the host)"
    assert costs + waits + advice == cost_words(before, after, waiting)
    assert costs + waits == cost_words(before, after, graphed)
    assert costs == cost_words(before, after, busy)


def test_a_recorded_call_is_made_again(folder: StageFolder) -> None:
    """It returns what the module returns, with nothing left at the module."""
    task = folder.read("take.json", Take, "take").tasks[0]
    file = ModelFile(FILE)
    model, batches = file.build(), file.batches(4)

    def run() -> None:
        for batch in batches:
            file.step(model, batch)

    call = recorded_call(model, task.sites[0], task.cases[0].kind, run)
    assert tuple(call().shape) == tuple(task.cases[0].output.shape)  # type: ignore[attr-defined,union-attr]
    assert not model.get_submodule(task.sites[0])._forward_pre_hooks
