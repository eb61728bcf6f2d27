"""`--max-minutes`: each stage ends in its time with the best of what is known."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from planted_winners import ONCE, candidate, winner_file
from quick_stages import looked_at, options, silent, take_quickly

from actors.adopt import stages, task_runs
from actors.adopt.check import check_process, compiled_graphs
from actors.adopt.check.check import check
from actors.adopt.check.check_process import check_apart
from actors.adopt.check.check_result import NO_TIME
from actors.adopt.check.compiled_graphs import GraphCount
from actors.adopt.check.step_timing import timed_steps
from actors.adopt.fit.fit import fit, load_package
from actors.adopt.model.model_file import ModelFile
from actors.adopt.model_report import report_text, verdict_line
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.stage.time_limit import TimeLimit, clock_text
from actors.adopt.take.take import NO_TIME as NO_TIME_TO_TAKE
from actors.adopt.take.take import take
from actors.adopt.take.taken_tasks import Take, TakenTask
from actors.exit_status import ExitStatus
from protocol.directives import waiting_directives
from protocol.release import LIMITS, Limit
from scripts import adopt

TOP = Path(__file__).parents[2]
FILE = Path(__file__).parent / "models" / "planted.py"
RUN = """\
import pathlib, sys, time
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
task = pathlib.Path(sys.argv[sys.argv.index("--task") + 1])
(run / "tasks").mkdir(parents=True)
(run / "tasks" / task.name).write_bytes(task.read_bytes())
(run / "stark.toml").write_text("")
if KIND == "unable":
    words = '{"tasks": [{"status": "finished", "attempts": 1, "correct": 0}]}'
    (run / "result.json").write_text(words)
is_told = lambda: KIND == "finishing" and list(run.glob("directives/*.json"))
while KIND not in ("quick", "unable") and not is_told():
    time.sleep(0.02)
sys.exit(1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    return looked_at(FILE, tmp_path_factory.mktemp("stages"), 3)


def tasks_named(folder: StageFolder, names: Sequence[str]) -> Iterator[TakenTask]:
    """Yield tasks of their own texts, that stand for nothing."""
    (first,) = take_quickly(folder, "fast.*").tasks
    for name in names:
        folder.write_text(f"tasks/{name}.py", f"# {name}\n")
        yield msgspec.structs.replace(first, name=name, file=f"tasks/{name}.py")


def run_kinds(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch, kinds: Sequence[str], seconds: float
) -> list[str]:
    """Run a task of each kind within a time; return the lines."""
    said: list[str] = []
    kinds_left = iter(kinds)

    def command() -> tuple[str, ...]:
        return (sys.executable, "-c", RUN.replace("KIND", repr(next(kinds_left))))

    monkeypatch.setattr(task_runs, "supervisor", command)
    monkeypatch.setattr(task_runs, "LEAST_RUN_S", 0.5)
    names = [f"{kind}_{number}" for number, kind in enumerate(kinds)]
    tasks = list(tasks_named(folder, names))
    task_runs.run_tasks(folder, tasks, 4 * len(tasks), [], said.append, TimeLimit(seconds))
    return said


def test_a_run_is_asked_to_finish_in_time_to_confirm_its_best(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends by itself then; a run that ended early leaves its time to the others."""
    monkeypatch.setattr(task_runs, "CONFIRM_S", 100.0)
    said = run_kinds(folder, monkeypatch, ["quick", "finishing"], 12.0)
    assert [f"{name}: 4 attempts, 0:" for name in ("quick_0", "finishing_1")] == [
        line[: line.index(":", line.index(", "))] + ":" for line in said[:2]
    ]
    assert ["finishing_1: the time for attempts is over, the best is judged again"] == said[2:]
    assert [] == waiting_directives(folder.path / "runs" / "quick_0")
    (asked,) = waiting_directives(folder.path / "runs" / "finishing_1")
    assert "finish" == asked.verb


def test_attempts_that_a_run_leaves_are_for_the_others(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ended at its first attempt kept seven of eight, and the next one had one."""
    said = run_kinds(folder, monkeypatch, ["unable", "quick"], 12.0)
    assert ["unable_0: 4 attempts", "quick_1: 7 attempts"] == [each.split(",")[0] for each in said]


def test_a_run_has_as_many_threads_as_the_model_s_steps(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may set them: a kernel was timed on all cores, and ran on one in the model."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    run = "import os, sys; sys.exit(os.environ['OMP_NUM_THREADS'] != '1')"
    monkeypatch.setattr(task_runs, "supervisor", lambda: (sys.executable, "-c", run + " and 7"))
    tasks = list(tasks_named(folder, ["threads"]))
    said: list[str] = []
    task_runs.run_tasks(folder, tasks, 4, [], said.append)
    assert ["threads: 4 attempts"] == said


def test_a_run_that_does_not_end_is_ended_and_the_next_one_has_no_time(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself ends in its time, with a line for each task."""
    said = run_kinds(folder, monkeypatch, ["endless", "quick"], 0.6)
    assert "quick_1: no time is left for its run (--max-minutes)" == said[-1]


def all_arguments(folder: StageFolder) -> argparse.Namespace:
    """Return the arguments of an `adopt all` of twelve seconds."""
    words = {"out": folder.path, "model": FILE, "max_minutes": 12 / 60, "budget": 8}
    return argparse.Namespace(supervisor="", run_model="", seconds=0.05, **words)


def test_without_a_winner_the_time_of_the_check_is_for_runs(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: "no time is left for its run", and the command ended with 0.4 of its time left.

    A run that was not begun comes before parts of the others, and before one that was stopped.
    """
    kinds = ("endless", *["quick"] * 3)
    commands = iter((sys.executable, "-c", RUN.replace("KIND", repr(kind))) for kind in kinds)
    monkeypatch.setattr(task_runs, "supervisor", lambda: next(commands))
    for module in (task_runs, stages):
        monkeypatch.setattr(module, "LEAST_RUN_S", 3.9)
    arguments = all_arguments(folder)
    tasks = list(tasks_named(folder, ["longest", "waiting"]))
    said: list[str] = []
    monkeypatch.setattr(stages, "say", said.append)
    taken = Take(tasks=tasks, not_taken=[], captured_bytes=0, is_cap_reached=False)
    stages._AllStages(arguments)._run_tasks(taken)
    # The run's own last line tells to resume it, which is not what its user should do.
    assert said[3] == "longest: its time is over; adopt ends the run and goes on with what it has"
    assert said.index("waiting: no time is left for its run (--max-minutes)") == 4
    assert said[5] == "no winner so far: runs that had too little time get that of the check"
    assert said[6].startswith("waiting: 4 attempts, 0:0")


def test_a_winner_keeps_the_time_of_its_check(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a late run took 0.6 of the check's time, and the check then tried nothing."""
    endless = RUN.replace("KIND", repr("endless"))
    monkeypatch.setattr(task_runs, "supervisor", lambda: (sys.executable, "-c", endless))
    monkeypatch.setattr(stages, "has_winner", lambda folder, task: task.name == "won")
    for module in (task_runs, stages):
        monkeypatch.setattr(module, "LEAST_RUN_S", 4.0)
    arguments = all_arguments(folder)
    tasks = list(tasks_named(folder, ["won", "waiting"]))
    monkeypatch.setattr(stages, "say", silent)
    taken = Take(tasks=tasks, not_taken=[], captured_bytes=0, is_cap_reached=False)
    every_stage = stages._AllStages(arguments)
    every_stage._run_tasks(taken)
    assert every_stage._limit.left_s > 0.45 * 12


def test_what_the_check_can_spare_is_for_tasks_that_had_no_time(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a U-Net's second task was not run, and a minute of three was left at the end."""
    run = RUN.replace("KIND", "sys.argv[1]")
    monkeypatch.setattr(task_runs, "supervisor", lambda: (sys.executable, "-c", run, next(kinds)))
    monkeypatch.setattr(stages, "has_winner", lambda folder, task: task.name == "first")
    monkeypatch.setattr(stages, "CHECK_S", 0.1)
    for module in (task_runs, stages):
        monkeypatch.setattr(module, "LEAST_RUN_S", 3.7)
    tasks = list(tasks_named(folder, ["first", "second"]))
    taken = Take(tasks=tasks, not_taken=[], captured_bytes=0, is_cap_reached=False)
    for _try in range(3):  # other programs may leave it no time
        shutil.rmtree(folder.path / "runs", ignore_errors=True)
        kinds = iter(("endless", "quick", "quick"))
        said: list[str] = []
        monkeypatch.setattr(stages, "say", said.append)
        stages._AllStages(all_arguments(folder))._run_tasks(taken)
        late = said[said.index("second: no time is left for its run (--max-minutes)") + 1 :]
        if late:
            break
    assert late[0].startswith("second: 4 attempts, 0:0")


def test_runs_that_can_not_begin_are_no_result_also_where_others_get_no_attempt(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag that a run refuses is told; "it was not run" would be taken for the answer."""
    monkeypatch.setattr(
        task_runs, "supervisor", lambda: (sys.executable, "-c", "raise SystemExit(2)")
    )
    tasks = list(tasks_named(folder, ["refused_0", "refused_1"]))
    said: list[str] = []
    with pytest.raises(AdoptError, match="no task could be run: the run of refused_0 ended with"):
        task_runs.run_tasks(folder, tasks, task_runs.LEAST_ATTEMPTS, [], said.append)
    assert "refused_1: no attempts are left of the budget of 2" == said[-1]


def test_take_without_time_says_so_of_each_module(folder: StageFolder) -> None:
    """A module that there was no time for is not taken to be unsuitable."""
    taken = take(folder, options("fast.*"), silent, TimeLimit(0.0))
    assert [NO_TIME_TO_TAKE] == [each.reason for each in taken.not_taken]
    assert not taken.tasks


def with_a_winner(folder: StageFolder, limits: Sequence[Limit] = ()) -> None:
    (task,) = take_quickly(folder, "fast.*").tasks
    source = (folder.path / task.file).read_text()
    text = winner_file(source, candidate(ONCE.format(shift=0.1)), limits=limits)
    folder.write_text("given.py", text)
    fit(folder, [], {"fast": folder.path / "given.py"}, silent)


@pytest.mark.parametrize(("limits", "kernels"), [(LIMITS, 4), (("second instance",), 1)])
def test_a_winner_of_a_run_without_time_to_confirm_runs_in_all_modules(
    folder: StageFolder, limits: Sequence[Limit], kernels: int
) -> None:
    """No second instance was tried: the check does that. One that was found wrong stays alone."""
    with_a_winner(folder, limits)
    package, model = load_package(folder), ModelFile(FILE).build()
    package.fit(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.randn(512, 64))
    assert kernels == sum(each["kernel"] for each in package.report(model).values())


@pytest.mark.filterwarnings("ignore")
def test_a_check_without_time_names_the_winners_that_it_did_not_try(folder: StageFolder) -> None:
    """A winner that was not tried is not kept, and the last line says why."""
    with_a_winner(folder)
    result = check(folder, 0.1, {}, silent, TimeLimit(0.0))
    assert [("fast", NO_TIME)] == [(trial.name, trial.reason) for trial in result.trials]
    assert f"Nothing is kept: fast: {NO_TIME}. The same command goes on." == verdict_line(result)
    assert result.has_untried
    assert "| 0.00× |" not in report_text(folder)


def test_a_check_that_does_not_come_to_a_result_is_ended(
    folder: StageFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends in its time with a sentence, not with half a result; nothing is to mend."""
    with_a_winner(folder)
    status = adopt.main(["check", str(folder.path), "--max-minutes", "0.002"])
    assert ExitStatus.STOPPED == status
    assert "the time was over before the check had a result" in capsys.readouterr().err


def test_a_check_with_a_result_has_it_also_where_its_process_ends_too_late(
    folder: StageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a result that was written as the time was over was none."""
    with_a_winner(folder)
    found = check(folder, 0.1, {}, silent, TimeLimit(0.0))
    script = tmp_path / "slow_end.py"
    script.write_bytes(
        b"import pathlib, sys, time\nresult = pathlib.Path(sys.argv[2], 'check.json')\n"
    )
    with script.open("a") as file:
        text = (folder.path / "check.json").read_text()
        file.write(f"result.write_text({text!r})\ntime.sleep(600)\n")
    monkeypatch.setattr(check_process, "SCRIPT", script)
    assert found == check_apart(folder, 1.0, silent, TimeLimit(10.0))


@pytest.mark.filterwarnings("ignore")
def test_a_check_whose_time_is_over_in_the_middle_has_what_is_known_by_then(
    folder: StageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tracing a generate loop took all of the time, and a winner of 1.2× was no result.

    So it comes last, and only for winners with which the model is faster and right.
    """
    with_a_winner(folder)
    notes: list[str] = []

    def count(model: torch.nn.Module, run: Callable[[], None]) -> GraphCount:
        notes.append((folder.path / "check.partial").read_text())
        return GraphCount(graphs=1, breaks=0)

    monkeypatch.setattr(compiled_graphs, "count_graphs", count)
    result = check(folder, 0.3, {}, silent)
    assert ["fast"] == result.kept, result.trials
    assert 2 == len(notes)  # without the winner, and with it
    assert not (folder.path / "check.partial").exists()

    script = tmp_path / "endless.py"
    script.write_text(
        "import pathlib, sys, time\n"
        f"pathlib.Path(sys.argv[2], 'check.partial').write_text({notes[0]!r})\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(check_process, "SCRIPT", script)
    found = check_apart(folder, 1.0, silent, TimeLimit(3.0))
    assert (["fast"], True) == (found.kept, found.is_faster)
    assert found.gain == result.trials[0].alone
    assert "The time was over before torch.compile, quality() and other" in verdict_line(found)
    assert "| kept |" in report_text(folder)


def test_long_steps_are_compared_on_some_of_the_batches() -> None:
    """Six rounds of A B B A over all batches would take 240 s of 20."""
    steps = [lambda number=number: number for number in range(8)]
    assert [0, 2, 5] == [step() for step in timed_steps(steps, 6.5, 20.0)]
    assert [0] == [step() for step in timed_steps(steps, 1e4, 20.0)]
    assert steps == timed_steps(steps, 0.01, 20.0)


def test_a_model_file_that_hangs_is_ended(tmp_path: Path) -> None:
    """A build() that waits for the network, say: the command ends with a sentence and status 3."""
    (tmp_path / "m.py").write_text(
        "import time\ndef build():\n    time.sleep(600)\ndef batches():\n    return []\n"
    )
    command = [sys.executable, str(TOP / "scripts" / "adopt.py"), "all", "m.py"]
    done = subprocess.run(
        [*command, "--max-minutes", "0.02"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert 3 == done.returncode, done.stderr
    assert "adopt: the time was over in `look` (--max-minutes 0.02)" in done.stderr


def test_the_time_that_is_left_is_shown_in_minutes_and_seconds() -> None:
    """The lines between stages show how much of `--max-minutes` is left."""
    assert ["0:00", "1:05", "75:30"] == [clock_text(each) for each in (0.9, 65, 4530)]
