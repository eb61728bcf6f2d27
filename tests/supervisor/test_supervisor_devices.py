"""Figures of different devices are never compared, and the report says so."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from supervisor_sample import Sample, correct

from actors.supervisor.reporting.report import html_report
from actors.supervisor.reporting.run_data import formatting, run_results
from actors.supervisor.reporting.run_data.run_reader import RunReader


def result_of(folder: Path, device: str) -> tuple[run_results.TaskResult, str, str]:
    """Return the result, the report and the header where the winner ran on `device`."""
    other = replace(correct(400.0), device=device, median_us=41.0, reference_us=100.0)
    nodes = ((1, 0, correct(800.0)), (2, 0, other if device != "cpu/1" else correct(400.0)))
    sample = Sample(folder, nodes=nodes, budget=2)
    sample.db.close()
    reader = RunReader(folder)
    snapshot = reader.poll()
    assert snapshot is not None
    (task,) = snapshot.tasks
    assert task.best is not None
    head = run_results.best_file_header(task, task.best, sample.settings)
    reader.close()
    found = run_results.run_results(snapshot, sample.settings).tasks[0]
    assert formatting.ranking_device(task)
    return found, html_report.render_report(folder), head


def test_a_task_measured_on_one_kind_of_device_is_ranked_by_runtime(tmp_path: Path) -> None:
    """The report names the device; the winner is compared with the compiled reference, too."""
    found, page, head = result_of(tmp_path / "run", "cpu/1")
    assert found.best is not None
    assert found.best.speedup_compile == 2.0
    assert "Ranked by runtime, all on Test CPU, 2 cores" in page
    assert ("Test CPU, 2 cores", True) == (found.hardware, "on Test CPU, 2 cores;" in head)


def test_every_output_shows_the_first_measurement_of_the_reference(tmp_path: Path) -> None:
    """Terminal, report and result.json show one time, and the speed-up agrees with it.

    In the minute of the winner the machine may have been slower.
    """
    other = replace(correct(400.0), speedup=3.0, reference_us=1200.0)
    sample = Sample(tmp_path / "run", nodes=((1, 0, other),), budget=1)
    sample.db.close()
    reader = RunReader(tmp_path / "run")
    snapshot = reader.poll()
    reader.close()
    assert snapshot is not None
    (task,) = snapshot.tasks
    result = run_results.run_results(snapshot, sample.settings).tasks[0]
    assert result.reference.eager_us == 1000.0
    assert result.best is not None
    assert result.best.median_us == 1000.0 / 3.0
    assert "3.00×" in formatting.best_line(task)
    assert "333 µs (reference 1.00 ms)" in formatting.best_line(task)
    assert "<b>1.00 ms</b><span>reference, a call</span>" in html_report.render_report(
        tmp_path / "run"
    )


def test_a_winner_from_another_device_is_ranked_by_speedup_and_says_so(tmp_path: Path) -> None:
    """Its time is not compared with times of the first device; `hardware` names its own device."""
    found, page, head = result_of(tmp_path / "run", "Card X; driver 1")
    assert found.best is not None
    assert found.best.speedup_eager == 2.5
    assert (found.reference.eager_us, found.best.median_us) == (100.0, 40.0)
    assert found.best.speedup_compile is None
    assert found.best.speedup_max_autotune is None
    assert found.hardware == "Card X; driver 1"
    assert "Ranked by speed-up against the reference on each node&#39;s own device" in page
    assert "Measured on Card X; driver 1" in head
