"""The whole model with its winners: a real one stays, each planted bad one is found by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from planted_winners import MANY, ONCE, candidate, winner_file
from quick_stages import looked_at, silent, take_quickly

from actors.adopt.check.accuracy import Truth, step_outputs
from actors.adopt.check.check import check
from actors.adopt.check.check_process import check_apart
from actors.adopt.check.compiled_graphs import GraphCount, count_graphs
from actors.adopt.check.step_timing import interval, is_undecided
from actors.adopt.fit.fit import fit
from actors.adopt.look.look import each_step
from actors.adopt.model.model_file import ModelFile
from actors.adopt.model.model_state import KeptState, repeatable
from actors.adopt.model.step_results import StepResult
from actors.adopt.model_report import report_text, verdict_line
from actors.adopt.stage.stage_folder import StageFolder

FILE = Path(__file__).parent / "models" / "planted.py"
EXPRESSIONS = {
    "fast": ONCE.format(shift=0.1),
    "idle": MANY.format(shift=0.2, repeats=16),  # it does what the module does
    "slow": MANY.format(shift=0.3, repeats=48),
    "wrong": f"({ONCE.format(shift=0.4)}) * 1.0001",
    "breaking": ONCE.format(shift=0.5),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    """Return a folder in which every part of the model has a winner of another kind."""
    made = looked_at(FILE, tmp_path_factory.mktemp("stages"), 4)
    for task in take_quickly(made, "fast.*", "idle", "slow", "wrong", "breaking").tasks:
        source = (made.path / task.file).read_text()
        text = winner_file(source, candidate(EXPRESSIONS[task.name]))
        if task.name == "breaking":
            inner = "        if _torch.compiler.is_compiling():\n"
            text = text.replace(inner, f"        _torch._dynamo.graph_break()\n{inner}", 1)
        made.write_text(f"given/{task.name}.py", text)
    return made


def given(folder: StageFolder, *names: str) -> dict[str, Path]:
    return {name: folder.path / "given" / f"{name}.py" for name in names}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_each_planted_winner_is_found_by_name(folder: StageFolder) -> None:
    """The real winner stays; no gain, a loss, a wrong result and a broken graph are dropped."""
    fit(folder, [], given(folder, *EXPRESSIONS), silent)
    result = check(folder, 6.0, {}, silent)
    reasons = {trial.name: trial.reason for trial in result.trials if not trial.kept}

    assert ["fast"] == result.kept, result.trials
    assert "no gain beyond noise" in reasons["idle"] or "slower" in reasons["idle"]
    assert "slower" in reasons["slow"] or "no gain" in reasons["slow"]
    assert "wrong: output 0 of batch" in reasons["wrong"]
    assert "under torch.compile there are" in reasons["breaking"]
    fast = next(trial for trial in result.trials if trial.name == "fast")
    assert (12, 12) == (
        fast.kernel_calls,
        fast.expected_calls,
    )  # four modules, three of the batches
    assert result.gain is not None
    assert result.accuracy is not None
    assert ("float64", True) == (result.accuracy.against, result.accuracy.is_right)
    text = report_text(folder)
    assert "| wrong (Wrong) |" in text
    assert verdict_line(result) in text


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_kernel_that_never_runs_is_dropped(folder: StageFolder) -> None:
    """A winner whose guard refuses every call is not taken for a gain."""
    files = given(folder, "fast")
    made = "_kernels, _NO_KERNELS = _load_kernels()"
    text = files["fast"].read_text().replace(made, f"{made[:24]} _load_kernels()[0], 'off'")
    assert "'off'" in text
    folder.write_text("given/off.py", text)
    fit(folder, [], {"fast": folder.path / "given" / "off.py"}, silent)
    result = check(folder, 0.2, {}, silent)

    assert ([], None) == (result.kept, result.gain)
    assert "its kernel ran in 0 of 12 calls" in result.trials[0].reason


def test_the_allowed_error_is_twice_the_originals_own() -> None:
    """An output that is off by more is named; the original itself passes."""
    file = ModelFile(FILE)
    model, batches = file.build(), file.batches(4)
    truth = Truth(file, model, batches)
    outputs = step_outputs(file, model, batches)
    assert truth.accuracy(outputs).is_right
    outputs[3].outputs[0][0, 0] += 1e-3
    found = truth.accuracy(outputs)
    assert (False, 1) == (found.is_right, len(found.places))
    assert "output 0 of batch 3" in found.places[0]
    none = StepResult(outputs=[])
    assert truth.accuracy([none, *outputs[1:]]).places[0] == "batch 0 has 0 outputs"


def test_a_batch_that_its_step_changes_is_the_same_in_every_step(tmp_path: Path) -> None:
    """Otherwise an honest winner is called wrong for what the model does to its input."""
    (tmp_path / "eats.py").write_text(
        "import torch\nX = torch.randn(4, 8)\n"
        "class Eats(torch.nn.Sequential):\n"
        "    def forward(self, x): return super().forward(x.mul_(0.5))\n"
        "def build(): return Eats(torch.nn.Linear(8, 8)).eval()\n"
        "def batches():\n    for _ in range(3): yield (X,), {}\n"
    )
    file = ModelFile(tmp_path / "eats.py")
    model, batches = file.build(), file.batches(3)
    state = KeptState(model, batches)
    run = repeatable(each_step(file, model, batches), state)
    run()
    state.settle()
    truth = Truth(file, model, batches, state)
    run()
    assert truth.accuracy(truth.results()).is_right


def test_graphs_may_grow_with_the_fitted_modules_and_breaks_may_not() -> None:
    """Where blocks are compiled one by one, each fitted block has a graph of its own."""
    before = GraphCount(graphs=2, breaks=0)
    assert not GraphCount(graphs=6, breaks=0).is_worse_than(before, 3)
    assert GraphCount(graphs=7, breaks=0).is_worse_than(before, 3)
    assert GraphCount(graphs=2, breaks=1).is_worse_than(before, 3)


@pytest.mark.filterwarnings("ignore")
def test_the_reason_of_a_break_is_named() -> None:
    """A dropped winner's line says what torch.compile stopped at."""

    class Breaking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return x + 1

    model = Breaking()
    found = count_graphs(model, lambda: model(torch.ones(3)))
    assert found is not None
    assert 1 == found.breaks
    assert "graph_break()" in found.describe()


def test_the_interval_covers_the_speed_up() -> None:
    """It is narrow for equal rounds; steps that were interrupted widen it and do not move it."""
    assert (2.0, 2.0) == interval([[(4.0, 2.0), (2.0, 1.0)]] * 9)
    quiet, interrupted = [(4.0, 2.0), (2.0, 1.0)], [(40.0, 2.0), (2.0, 30.0)]
    low, high = interval([quiet] * 7 + [interrupted] * 2)
    assert low <= 2.0 <= high < 20.0


def test_a_gain_that_noise_may_hide_is_measured_longer() -> None:
    """Not a clear gain, not a loss, and not a difference too small to count."""
    noise = [[(104.0, 100.0)], [(90.0, 100.0)], [(130.0, 100.0)]] * 3
    assert is_undecided(noise)
    assert not is_undecided([[(104.0, 100.0)]] * 9)
    assert not is_undecided([[(after, before)] for ((before, after),) in noise])
    assert not is_undecided([[(100.5, 100.0)], [(99.0, 100.0)], [(102.0, 100.0)]] * 3)


@pytest.mark.long
def test_a_kernel_that_kills_the_process_is_dropped(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check runs in a process of its own, and goes on without that winner."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    task = folder.path / "tasks" / "idle" / "idle.py"
    killing = candidate("__import__('os').kill(__import__('os').getpid(), 11)")
    folder.write_text("given/killing.py", winner_file(task.read_text(), killing))
    winners = {**given(folder, "fast"), "idle": folder.path / "given" / "killing.py"}
    fit(folder, [], winners, silent)
    result = check_apart(folder, 1.0, silent)

    assert {"idle": "the process died (SIGSEGV)"} == {
        trial.name: trial.reason for trial in result.trials if trial.name == "idle"
    }


@pytest.mark.long
def test_the_check_as_a_command(folder: StageFolder) -> None:
    """The command ends with one sentence, a report, and status 0 or 1."""
    fit(folder, [], given(folder, "fast"), silent)
    script = Path(__file__).parents[2] / "scripts" / "adopt.py"
    done = subprocess.run(
        [sys.executable, str(script), "check", str(folder.path), "--seconds", "3"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert "fast" in done.stdout
    assert (folder.path / "report.md").is_file()
