"""The results that are read from run.db: result.json, best.py, exit status, report."""

from __future__ import annotations

import errno
import json
import re
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace
from supervisor_sample import REFERENCE, WINNER, Sample, correct, failed

from actors.exit_status import ExitStatus
from actors.supervisor import finish, run_folder
from actors.supervisor.reporting.report import html_report
from actors.supervisor.reporting.run_data import formatting, run_results
from actors.supervisor.reporting.run_data.run_reader import RunReader, checkpoint_database
from actors.supervisor.reporting.run_data.snapshot import Snapshot
from actors.supervisor.run_loop import EndKind, RunEnd
from protocol.cases import CaseReference
from protocol.layouts import Leaf, Nest
from protocol.release import LIMITS, Judged
from protocol.values import Outcome, Verdict

KEYS = [
    *("task", "status", "device", "hardware", "model", "strategy", "policy", "seed", "budget"),
    *("attempts", "compiled", "correct", "best", "reference", "usd"),
    *("input_tokens", "cached_tokens", "output_tokens", "seconds", "sandbox_level"),
    *("closest", "notes", "nodes", "usd_per_percent"),
]


def look(sample: Sample) -> Snapshot:
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    reader.close()
    assert snapshot is not None
    return snapshot


def test_a_ledger_tells_news_only_and_sees_each_node_once(tmp_path: Path) -> None:
    """Between two writes there is nothing to draw; after one, everything is there."""
    assert RunReader(tmp_path / "nothing").poll() is None
    sample = Sample(tmp_path, status="running")
    reader = RunReader(tmp_path)
    first = reader.poll()
    assert first is not None
    assert reader.poll() is None
    sample.add_node("gelu", 7, 3, correct(300.0))
    second = reader.poll()
    assert second is not None
    assert (6, 7) == (first.recorded, second.recorded)
    assert [0, 1, 2, 3, 4, 5, 6, 7] == [node.number for node in second.tasks[0].nodes]


def test_a_run_reader_never_writes(tmp_path: Path) -> None:
    """A reader of a run can't change it."""
    sample = Sample(tmp_path)
    sample.db.close()
    checkpoint_database(tmp_path)
    before = (tmp_path / "run.db").read_bytes()
    reader = RunReader(tmp_path)
    reader.poll()
    with pytest.raises(Exception, match="readonly"):
        reader._open().execute("DELETE FROM node")  # type: ignore[union-attr]
    reader.close()
    assert (tmp_path / "run.db").read_bytes() == before


def test_the_best_is_the_fastest_node_with_an_interval_above_1(tmp_path: Path) -> None:
    """A wrong node, a slower node and a node with an interval across 1 never win."""
    sample = Sample(
        tmp_path, nodes=((1, 0, failed(Outcome.WRONG, "x", "check")),), status="running"
    )
    assert look(sample).tasks[0].closest is None
    sample.add_node("gelu", 2, 0, correct(1200.0))
    sample.add_node("gelu", 3, 0, spread(correct(900.0), 0.84, 3.02))
    task = look(sample).tasks[0]
    assert (None, 3) == (task.best, task.closest and task.closest.number)
    sample.add_node("gelu", 4, 0, correct(950.0))
    task = look(sample).tasks[0]
    assert (4, None) == (task.best and task.best.number, task.closest)


def test_the_module_itself_never_wins(tmp_path: Path) -> None:
    """Its figure does not matter: on a noisy machine two runs of the same code differ, too."""
    lucky = replace(correct(500.0), profile={"labels": "library_only, renamed_reference"})
    sample = Sample(tmp_path, nodes=((1, 0, lucky), (2, 0, correct(1100.0))), budget=2)
    task = look(sample).tasks[0]
    results = run_results.run_results(look(sample), sample.settings)
    assert (None, 2) == (task.best, task.closest and task.closest.number)
    assert run_results.exit_status_of(results) == ExitStatus.NEGATIVE
    assert "correct 2.00× (1.98–2.02) 500 µs, confirmed, the module itself" in formatting.node_line(
        task, task.attempts[0]
    )
    alone = Sample(tmp_path / "alone", nodes=((1, 0, lucky),), budget=1)
    assert formatting.best_line(look(alone).tasks[0]).endswith("it is the module itself")
    assert "it is the module itself" in html_report.render_report(alone.path)


def test_at_the_end_only_a_confirmed_node_counts(tmp_path: Path) -> None:
    """If the best of the first looks is not confirmed, the next confirmed node is the winner."""
    sample = Sample(tmp_path, nodes=(), status="running", budget=2)
    sample.add_node("gelu", 1, 0, correct(300.0))
    sample.add_node("gelu", 2, 0, correct(400.0))
    assert look(sample).tasks[0].best.number == 1  # type: ignore[union-attr]
    sample.confirm("gelu", 1, spread(correct(800.0), 0.9, 1.7))
    sample.db.execute("UPDATE task SET status = 'finished'")
    sample.set_status("finished")
    task = look(sample).tasks[0]
    assert (None, 1) == (task.best, task.closest and task.closest.number)
    assert "nothing faster was found: node 1 comes closest" in formatting.best_line(task)
    assert "confirmed: its interval is not above 1" in formatting.best_line(task)
    sample.confirm("gelu", 2, correct(420.0))
    assert look(sample).tasks[0].best.number == 2  # type: ignore[union-attr]


def test_a_second_look_that_failed_confirms_nothing(tmp_path: Path) -> None:
    """A figure that was not measured again is not the winner's."""
    sample = Sample(tmp_path, nodes=((1, 0, correct(500.0)),), budget=1)
    sample.db.execute("UPDATE node SET confirmed = 2 WHERE number = 1")
    results = run_results.run_results(look(sample), sample.settings)
    assert run_results.exit_status_of(results) == ExitStatus.NEGATIVE
    assert formatting.best_line(look(sample).tasks[0]).endswith("it could not be judged again")


def test_an_interval_that_says_nothing_is_told_as_that() -> None:
    """On a busy machine three groups give intervals such as 0.00 to 94872.80."""
    measured = Verdict(verdict=Outcome.CORRECT, speedup=1.63, speedup_ci95=(0.002, 94872.8))
    assert "1.63× (wider than 100-fold)" == formatting.speedup(measured)
    narrow = replace(measured, speedup_ci95=(0.02, 1.96))
    assert "1.63× (0.02–1.96)" == formatting.speedup(narrow)


def test_result_json_has_the_fixed_keys_and_null_for_what_was_not_measured(tmp_path: Path) -> None:
    """Other tools read these keys; a figure that was not measured is null, never 0."""
    sample = Sample(tmp_path)
    sample.add_call("gelu/1/plan", 0.25)
    sample.add_call("gelu/2/plan", 0.5)
    sample.add_call("other/1/plan", 9.0)
    results = run_results.run_results(look(sample), sample.settings)
    run_results.write_result(tmp_path, results)
    (task,) = json.loads((tmp_path / "result.json").read_text())["tasks"]
    assert list(task) == KEYS
    assert (6, 4, 3) == (task["attempts"], task["compiled"], task["correct"])
    assert task["best"] == {
        "node": 3,
        "median_us": 400.0,
        "speedup_eager": 2.5,
        "speedup_eager_ci95": [2.475, 2.525],
        "speedup_compile": 2.0,
        "speedup_max_autotune": None,
        "confirmed": True,
        "release": None,
    }
    assert task["closest"] is None
    assert task["reference"] == {"eager_us": 1000.0, "compile_us": 800.0, "max_autotune_us": None}
    assert (0.75, 200, 20, 40) == (
        task["usd"],
        task["input_tokens"],
        task["cached_tokens"],
        task["output_tokens"],
    )
    assert ("Test CPU, 2 cores", 12.5, 1) == (
        task["hardware"],
        task["seconds"],
        task["sandbox_level"],
    )


def test_result_json_lists_every_attempt(tmp_path: Path) -> None:
    """A table of all attempts needs result.json alone; failures are in it with their reason."""
    sample = Sample(tmp_path)
    sample.add_call("gelu/1/plan", 0.25)
    reader = RunReader(tmp_path)
    rows = reader.attempt_rows()
    reader.close()
    results = run_results.run_results(look(sample), sample.settings, rows)
    run_results.write_result(tmp_path, results)
    (task,) = json.loads((tmp_path / "result.json").read_text())["tasks"]
    assert [1, 2, 3, 4, 5, 6] == [node["number"] for node in task["nodes"]]
    assert {
        **{"number": 1, "parent": 0, "kind": "improve", "idea": "advice <1>"},
        **{"verdict": "compile_failed", "reason": "error: expected ';' before <b>"},
        **{"failed_in": "build", "speedup": None, "low": None, "high": None, "us": None},
        **{"confirmed": False, "build_s": 1.0, "check_s": 0.5, "timing_s": 0.5},
        **{"usd": 0.25, "input_tokens": 100, "output_tokens": 20},
    } == task["nodes"][0]
    assert (2.5, 400.0, True) == tuple(
        task["nodes"][2][key] for key in ("speedup", "us", "confirmed")
    )


def test_a_task_that_was_given_up_says_why_everywhere(tmp_path: Path) -> None:
    """The reason is in result.json and in the report; the status is 1."""
    why = "input 0 (x) is bfloat16[8] (line 3)"
    refusal = Verdict(verdict=Outcome.NO_CANDIDATE, reason=why, gives_up_on="task")
    sample = Sample(tmp_path, nodes=((1, 0, refusal),))
    results = run_results.run_results(look(sample), sample.settings)
    assert (f"ended after 1 of 6 attempts: {why}",) == results.tasks[0].notes
    assert ExitStatus.NEGATIVE == run_results.exit_status_of(results)
    html_report.write_report(tmp_path)
    assert why in (tmp_path / "report.html").read_text()


def test_a_node_that_was_given_up_ends_no_task_by_itself(tmp_path: Path) -> None:
    """Another node may still grow before the task is over."""
    refusal = Verdict(verdict=Outcome.NO_CANDIDATE, reason="nothing is left", gives_up_on="node")
    sample = Sample(tmp_path, nodes=((1, 0, refusal),), status="running")
    assert not look(sample).tasks[0].notes
    sample.db.execute("UPDATE task SET status = 'finished'")
    assert "nothing is left" in look(sample).tasks[0].notes[0]


def test_an_unknown_price_is_null(tmp_path: Path) -> None:
    """One call without a known price makes the sum unknown, not smaller."""
    sample = Sample(tmp_path)
    sample.add_call("gelu/1/plan", 0.25)
    sample.add_call("gelu/2/plan", None)
    (task,) = run_results.run_results(look(sample), sample.settings).tasks
    assert task.usd is None


def test_the_exit_status_follows_the_results(tmp_path: Path) -> None:
    """0 only for a candidate that is confirmed to be faster than the reference, for every task."""
    cases = {
        "faster": (((1, 0, correct(500.0)),), ExitStatus.DONE),
        "same": (((1, 0, correct(1000.0)),), ExitStatus.NEGATIVE),
        "either": (((1, 0, spread(correct(935.0), 0.84, 3.02)),), ExitStatus.NEGATIVE),
        "unknown": (((1, 0, replace(correct(500.0), speedup_ci95=None)),), ExitStatus.NEGATIVE),
        "slower": (((1, 0, correct(1001.0)),), ExitStatus.NEGATIVE),
        "none": (((1, 0, failed(Outcome.CRASHED, "x", "check")),), ExitStatus.NEGATIVE),
    }
    for name, (nodes, expected) in cases.items():
        sample = Sample(tmp_path / name, budget=1, nodes=nodes)
        assert (
            run_results.exit_status_of(run_results.run_results(look(sample), sample.settings))
            == expected
        )
    sample = Sample(tmp_path / "short", budget=2, nodes=cases["faster"][0], status="stopped")
    assert (
        run_results.exit_status_of(run_results.run_results(look(sample), sample.settings))
        == ExitStatus.STOPPED
    )
    sample = Sample(tmp_path / "two", names=("a", "b"), budget=1, nodes=cases["faster"][0])
    assert (
        run_results.exit_status_of(run_results.run_results(look(sample), sample.settings))
        == ExitStatus.DONE
    )
    sample.add_task("c", 1, cases["slower"][0])
    assert (
        run_results.exit_status_of(run_results.run_results(look(sample), sample.settings))
        == ExitStatus.NEGATIVE
    )


def test_best_py_is_the_winners_source_under_a_comment(tmp_path: Path) -> None:
    """The drop-in is the node's own source, named after its task where there are several."""
    sample = Sample(tmp_path / "one")
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    assert snapshot is not None
    path = run_results.write_best(sample.path, reader, sample.settings, snapshot.tasks[0])
    assert path == sample.path / "best.py"
    text = path.read_text()
    assert text.endswith(WINNER)
    comment = text.removesuffix(WINNER).strip().splitlines()
    assert all(line.startswith("# ") for line in comment)
    assert "400 µs a call; eager PyTorch: 1.00 ms, 2.50× (2.48–2.52) (confirmed)" in text
    compile(text, "best.py", "exec")
    several = Sample(tmp_path / "two", names=("a", "b"))
    assert run_results.best_file(several.path, "b", 2).name == "best-b.py"
    reader.close()


def test_a_winner_without_a_release_check_runs_in_every_case(tmp_path: Path) -> None:
    """A run that was stopped before: its winner was judged in all cases, and is correct in them."""
    row, column = (
        Nest(kind="list", items=(Leaf(dtype="float32", shape=shape),))
        for shape in ((1, 64), (64, 1))
    )
    nothing = Nest(kind="list", items=())
    first, second = (
        Judged(device="cpu", init=nothing, inputs=inputs, outputs=nothing, state=nothing)
        for inputs in (row, column)
    )
    cases = tuple(
        CaseReference(name=name, weight=0.5, eager_us=1000.0, judged=judged)
        for name, judged in (("row", first), ("column", second))
    )
    task = look(Sample(tmp_path / "run")).tasks[0]
    assert task.best is not None
    task = replace(task, reference=replace(REFERENCE, judged=first, cases=cases))
    release = run_results.release_of(task, task.best)
    assert release is not None
    assert (first, (second,), LIMITS) == (release.judged, release.more_judged, release.limits)


def conclude(sample: Sample) -> tuple[ExitStatus, list[str]]:
    """End a run as its supervisor does; return the status and the lines."""
    lines: list[str] = []
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    assert snapshot is not None
    place = run_folder.open_run_folder(sample.path)[0]
    with place:
        ending = RunEnd(kind=EndKind.OVER)
        code, _ = finish.finish_run(place, sample.settings, reader, snapshot, ending, lines.append)
    return code, lines


def test_the_command_that_resumes_can_be_pasted(tmp_path: Path) -> None:
    """A folder with spaces is one word of the command."""
    folder = tmp_path / "my runs" / "größe 1"
    _, lines = conclude(Sample(folder, status="stopped"))
    words = shlex.split(lines[-1].partition("resume with: ")[2])
    assert ["--resume", str(folder)] == words[-2:]


def test_files_that_could_not_be_written_are_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the last lines say so, and name neither a winner's file nor a report."""

    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_results, "write_best", full_disk)
    code, lines = conclude(Sample(tmp_path / "run", nodes=((1, 0, correct(500.0)),), budget=1))
    assert ExitStatus.FAULT is code
    assert "No space left on device" in lines[0]
    assert not any("best.py" in line or "report" in line for line in lines)


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    """The last line is the fault; no file is written, and nothing is promised."""
    sample = Sample(tmp_path / "run", nodes=((1, 0, correct(500.0)),), budget=1)
    lines: list[str] = []
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    assert snapshot is not None
    with run_folder.open_run_folder(sample.path)[0] as place:
        sample.path.rename(tmp_path / "elsewhere")
        ending = RunEnd(kind=EndKind.FAULT, reason="run was moved or removed")
        code, _ = finish.finish_run(place, sample.settings, reader, snapshot, ending, lines.append)
    assert ExitStatus.FAULT is code
    assert ["a fault: run was moved or removed"] == lines
    assert not sample.path.exists()


def test_a_best_so_far_that_was_not_confirmed_is_removed(tmp_path: Path) -> None:
    """Only a winner has a best.py; the user's file from an earlier end stays."""
    sample = Sample(tmp_path / "run", nodes=((1, 0, correct(500.0)),), budget=1)
    best = sample.path / "best.py"
    assert conclude(sample)[0] is ExitStatus.DONE
    assert best.exists()
    sample.confirm("gelu", 1, spread(correct(900.0), 0.9, 1.4))
    code, lines = conclude(sample)  # an earlier version ended the run by another rule
    assert (ExitStatus.NEGATIVE, True) == (code, best.exists())
    (sample.path / "result.json").unlink()
    code, lines = conclude(sample)
    assert (ExitStatus.NEGATIVE, False) == (code, best.exists())
    assert any("nothing faster was found" in line for line in lines)
    assert not any("best.py" in line for line in lines)


def test_every_output_uses_one_clock_and_one_winner(tmp_path: Path) -> None:
    """Times, speed-ups and the end of the curve agree in the report, result.json and the terminal.

    A first look that seems faster is labelled as a first look.
    """
    nodes = ((1, 0, moment(350.0, 3.1)), (2, 0, moment(289.0, 2.98)), (3, 0, moment(338.0, 3.0)))
    sample = Sample(tmp_path, nodes=nodes, budget=3, status="finished")
    sample.confirm("gelu", 1, moment(370.0, 2.88, reference_us=983.0))
    task = look(sample).tasks[0]
    (result,) = run_results.run_results(look(sample), sample.settings).tasks
    assert result.best is not None
    assert result.reference.eager_us is not None
    assert (1, 2.88) == (result.best.node, result.best.speedup_eager)
    assert result.reference.eager_us / result.best.median_us == pytest.approx(2.88)  # type: ignore[operator]
    assert result.best.speedup_compile == pytest.approx(2.88 * 800.0 / 1000.0)
    page = html_report.render_report(sample.path)
    for words in (
        "<b>347 µs</b><span>best, a call</span>",
        "<b>1.00 ms</b><span>reference, a call</span>",
        "0 · the reference, 1.00 ms",
        "correct 2.88× (2.85–2.91) 347 µs, confirmed",
        "correct 2.98× (2.95–3.01) 336 µs, first look",
        "node 1: 2.88×, confirmed",
        "node 1: 3.10×, first look",
        "All times are on one clock",
    ):
        assert words in page
    for words in ("370 µs", "289 µs", "983 µs"):
        assert words not in page
    assert "347 µs (reference 1.00 ms)" in formatting.best_line(task)
    assert ends_at(page) == height(page, "node 1: 2.88×, confirmed")


def test_a_curve_without_a_winner_ends_at_the_reference(tmp_path: Path) -> None:
    """A candidate that only seemed faster leaves no mark at the end of the line."""
    sample = Sample(tmp_path, nodes=((1, 0, correct(500.0)),), budget=1)
    sample.confirm("gelu", 1, spread(correct(1000.0), 0.9, 1.1))
    picture = html_report.render_report(sample.path)
    assert ends_at(picture) == float(re.findall(r'class="best" d="M\S+ ([\d.]+)', picture)[0])


def ends_at(picture: str) -> float:
    """Return the height at which a curve's line ends."""
    return float(re.findall(r'class="best" d="[^"]*V([\d.]+)H[\d.]+"', picture)[0])


def height(picture: str, title: str) -> float:
    """Return the height of the dot of that title."""
    found = re.findall(r'cy="([\d.]+)" r="[\d.]+"><title>([^<]*)', picture)
    return next(float(cy) for cy, words in found if words == title)


def moment(median_us: float, speedup: float, reference_us: float = 838.0) -> Verdict:
    """Return a verdict of another moment, in which the machine was faster or slower."""
    bounds = (speedup - 0.03, speedup + 0.03)
    return replace(
        correct(median_us), speedup=speedup, speedup_ci95=bounds, reference_us=reference_us
    )


def spread(verdict: Verdict, low: float, high: float) -> Verdict:
    """Return a verdict with another interval."""
    return replace(verdict, speedup_ci95=(low, high))
