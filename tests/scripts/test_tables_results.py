"""The files of a table: for users, spreadsheets and KernelBench's own scripts."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest
from supervisor_sample import WINNER, Sample

from scripts.tables import result_files
from scripts.tables.result_rows import ProblemState

RELU, CONV, LARGE = "level1_1_Relu_", "level2_1_Conv", "level1_23_Softmax"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A finished run: one problem solved, one without a correct attempt, one not measurable."""
    sample = Sample(tmp_path / "run", names=(RELU, LARGE, CONV))
    for query in (
        "DELETE FROM node WHERE task = ?",
        "UPDATE task SET reference = NULL, status ="
        " 'refused', problem = 'too large for this machine' WHERE name = ?",
    ):
        sample.db.execute(query, (LARGE,))
    sample.db.execute(
        "DELETE FROM node WHERE task = ? AND word = 'correct' AND number > 0", (CONV,)
    )
    sample.add_call(f"{RELU}/1/plan", 0.25)
    sample.add_call(f"{RELU}/1/write", 0.5)
    for epoch, (work, granted, ended) in enumerate(
        ((f"{RELU}/1/evaluate", 0.0, 60.0), (f"{RELU}/2/evaluate", 100.0, 130.0))
    ):
        sample.db.execute(
            "INSERT INTO lease (epoch, work, slot, incarnation, granted, ended, outcome, running)"
            " VALUES (?, ?, 'e', 'i', ?, ?, 'done', 1)",
            (epoch, work, granted, ended),
        )
    (tmp_path / "run" / f"best-{RELU}.py").write_text(f"# header\n{WINNER}")
    sample.db.close()
    return tmp_path


def test_a_row_has_the_result_of_a_problem(place: Path) -> None:
    """Solved, unsolved with the last reason, unmeasured with its reason: each problem has a row."""
    relu, large, conv = result_files.write(place).rows

    assert (relu.level, relu.problem, relu.name) == (1, 1, "Relu_")
    assert (relu.state, relu.speed_eager, relu.speed_compile) == (ProblemState.SOLVED, 2.5, 2.0)
    assert (relu.attempts, relu.compiled, relu.correct) == (6, 4, 3)
    assert (relu.usd, relu.minutes) == (0.75, 1.5)
    assert relu.speed_max_autotune is None
    assert (conv.state, conv.reason) == (ProblemState.UNSOLVED, "no_candidate: the model refused")
    assert (large.state, large.reason) == (ProblemState.UNMEASURED, "too large for this machine")


def test_all_files_agree(place: Path) -> None:
    """rows.json, rows.csv and table.md: nulls stay null, empty and a dash."""
    rows = result_files.write(place)
    assert not list((place / "run").glob("run.db-*"))
    again = msgspec.json.decode((place / result_files.ROWS_FILE).read_bytes(), type=type(rows))
    with (place / "rows.csv").open() as file:
        table = {row["task"]: row for row in csv.DictReader(file)}

    assert rows == again == result_files.read(place) == result_files.read(place / "run")
    assert (table[RELU]["speed_eager"], table[RELU]["speed_max_autotune"]) == ("2.5", "")
    assert "| 1 Relu " in (place / "table.md").read_text()
    assert "unmeasured: too large for this machine" in (place / "table.md").read_text()


def test_kernels_are_where_kernelbench_looks_for_them(place: Path) -> None:
    """One kernel a solved problem, verdicts by number, times in milliseconds by file name."""
    result_files.write(place)
    result_files.write(place)  # twice: files of an older state of the run are removed
    top = place / "kernelbench"
    kernels = sorted(path.name for path in top.glob("runs/*/*"))
    judged = json.loads((top / "judged/level1/eval_results.json").read_text())
    eager = json.loads((top / "timing/baseline_time_torch.json").read_text())

    assert ["level_1_problem_1_sample_0_kernel.py"] == kernels
    assert WINNER in (top / "runs/level1" / kernels[0]).read_text()
    assert ["1", "23"] == list(judged)
    assert (judged["1"][0]["correctness"], judged["1"][0]["runtime"]) == (True, 0.4)
    assert (judged["23"][0]["correctness"], judged["23"][0]["runtime"]) == (False, -1.0)
    assert 1.0 == eager["level1"]["1_Relu_.py"]["mean"]
    assert {"1_Conv.py"} == set(eager["level2"])
    assert (top / "timing/baseline_time_torch_compile_inductor_default.json").exists()
    assert not (top / "timing/baseline_time_torch_compile_inductor_max-autotune.json").exists()


def test_a_run_without_a_database_yet_has_open_problems(tmp_path: Path) -> None:
    """A run that was killed before its first write: every problem is open."""
    sample = Sample(tmp_path / "run", names=(RELU, CONV))
    sample.db.close()
    (tmp_path / "run" / "run.db").unlink()
    rows = result_files.write(tmp_path)

    assert {ProblemState.UNFINISHED} == {row.state for row in rows.rows}
    assert [None, None] == [row.speed_eager for row in rows.rows]


def test_a_run_of_other_tasks_is_refused(tmp_path: Path) -> None:
    """A run of ordinary tasks is refused in one line."""
    Sample(tmp_path / "run", names=("gelu",)).db.close()
    with pytest.raises(ValueError, match="gelu is not a problem of KernelBench"):
        result_files.write(tmp_path)
