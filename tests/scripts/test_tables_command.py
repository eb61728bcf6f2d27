"""`scripts/kernelbench.py` as a user runs it: real processes, real evaluator, a scripted model."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from supervisor_sample import TASK_SOURCE, Sample
from table_samples import PROBLEM, RAISES, checkout

TOP = Path(__file__).parents[2]
ARGUMENTS = "--root bench --level 1 --problems 1,3 --model script:script.jsonl --device cpu"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a good problem and one whose own code raises, and a script for the first."""
    folder = tmp_path_factory.mktemp("tables")
    checkout(folder / "bench", "level1/1_Relu_.py", "level1/2_Other.py")
    checkout(folder / "bench", "level1/3_Raises.py", source=RAISES)
    code = PROBLEM.replace("{factor}", "2").replace("class Model(", "class ModelNew(")
    lines = [{"role": "planner", "advice": "Leave it."}, {"role": "coder", "code": code}]
    (folder / "script.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "stark.toml").write_text("[limits]\ntime_s = 0.1\n")
    return folder


def run(folder: Path, *more: str, arguments: str = ARGUMENTS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOP / "scripts" / "kernelbench.py"), *arguments.split(), *more]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=110)


@pytest.fixture(scope="module")
def first(folder: Path) -> subprocess.CompletedProcess[str]:
    return run(folder, "--budget", "1")


def test_an_interrupt_that_no_terminal_sent_reaches_the_supervisor(tmp_path: Path) -> None:
    """`kill -INT` and `timeout -s INT` name the command alone: its run is stopped, too."""
    waits = "import signal, sys; print('up', flush=True); signal.sigwait({2}); sys.exit(3)"
    (tmp_path / "waits.py").write_text("import signal; signal.pthread_sigmask(0, {2})\n" + waits)
    serve = (
        "import sys; from scripts.tables import strategy_runs as runs;"
        " runs.supervisor = lambda: (sys.executable, 'waits.py');"
        " sys.exit(runs.supervise(()))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", serve],
        cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert b"up\n" == process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            assert 3 == process.wait(20)
        finally:
            process.kill()


def test_every_problem_of_a_level_has_its_line(
    folder: Path, first: subprocess.CompletedProcess[str]
) -> None:
    """One problem solved, one not measurable: still a table, status 0, and the exports."""
    place = folder / "results" / "level1-1+3" / "stark"
    rows = json.loads((place / "rows.json").read_text())["rows"]

    assert 0 == first.returncode, first.stderr
    assert ["solved", "unmeasured"] == [row["state"] for row in rows]
    assert "ValueError: no such thing" in rows[1]["reason"]
    assert rows[0]["speed_eager"] > 0
    assert rows[0]["speed_compile"] is None
    assert (place / "table.md").read_text() in first.stdout
    assert "50.0 %" in first.stdout
    assert (place / "kernelbench/runs/level1/level_1_problem_1_sample_0_kernel.py").exists()


@pytest.mark.usefixtures("first")
def test_the_same_command_again_only_shows_the_table(folder: Path) -> None:
    """A finished run is not begun again; flags that contradict it are refused in one line."""
    place = folder / "results" / "level1-1+3" / "stark"
    database = (place / "run" / "run.db").read_bytes()
    again = run(folder, "--budget", "1")
    other = run(folder, "--budget", "1", "--seed", "5")
    fewer = run(folder, arguments=ARGUMENTS.replace("1,3", "1,2") + f" --results {place.parent}")
    results = [other, fewer]

    assert 0 == again.returncode, again.stderr
    assert (place / "table.md").read_text() in again.stdout
    assert [2, 2] == [result.returncode for result in results]
    assert [1, 1] == [len(result.stderr.splitlines()) for result in results]
    assert "--seed 5 contradicts the run" in other.stderr
    assert "level1_2_Other not there, level1_3_Raises not asked for" in fewer.stderr
    assert database == (place / "run" / "run.db").read_bytes()


@pytest.mark.usefixtures("first")
def test_a_changed_problem_is_another_problem(folder: Path) -> None:
    """A command on an updated checkout does not resume the run of the old one."""
    path = folder / "bench" / "KernelBench" / "level1" / "1_Relu_.py"
    source = path.read_text()
    path.write_text(source.replace("+ 1.0", "+ 2.0"))
    try:
        changed = run(folder, "--budget", "1")
    finally:
        path.write_text(source)

    assert 2 == changed.returncode
    assert "level1_1_Relu_ in results/level1-1+3/stark is not the file" in changed.stderr


@pytest.mark.long  # one that is not measurable among others has its line above
def test_without_a_measurable_problem_there_is_still_a_table(folder: Path) -> None:
    """All problems are refused: the folder stays, and each has its line."""
    result = run(folder, arguments=ARGUMENTS.replace("1,3", "3"))

    assert 0 == result.returncode, result.stderr
    assert "unmeasured: Model.forward raised ValueError: no such thing" in result.stdout
    assert (folder / "results" / "level1-3" / "stark" / "rows.json").exists()


def test_a_run_with_a_supervisor_is_left_alone(tmp_path: Path) -> None:
    """Of two equal commands at one time the second prints one line and changes no file."""
    run_dir = tmp_path / "results" / "level1-1" / "stark" / "run"
    Sample(run_dir, names=("level1_1_Relu_",), status="running").db.close()
    checkout(tmp_path / "bench", "level1/1_Relu_.py", source=TASK_SOURCE)
    with (run_dir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run(tmp_path, arguments="--root bench --level 1 --problems 1 --device cpu")

    assert 2 == result.returncode
    assert 1 == len(result.stderr.splitlines())
    assert "another supervisor serves" in result.stderr
    assert ["run"] == [path.name for path in run_dir.parent.iterdir()]
