"""A steered run says so wherever its figures are shown, and an unsteered run is unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from supervisor_sample import Sample, correct

from actors.cli import UsageError
from actors.supervisor.finish import finish_run
from actors.supervisor.reporting.report import html_report
from actors.supervisor.reporting.run_data import run_results
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import Snapshot
from actors.supervisor.run_folder import open_run_folder
from actors.supervisor.run_loop import EndKind, RunEnd
from protocol.directives import REJECTED_BY_PERSON
from protocol.questions import PERSON
from protocol.values import Outcome
from scripts.tables.result_rows import rows_of_run


def steer(sample: Sample, verb: str, node: int | None = None, *, state: str = "applied") -> None:
    sample.db.execute(
        'INSERT INTO directive (key, verb, task, node, arguments, "by", wanted_at, state, reason,'
        " applied_at) VALUES (hex(randomblob(8)), ?, 'gelu', ?, '{}', 'eva', 1.0, ?, '', 2.0)",
        (verb, node, state),
    )


def snapshot_of(sample: Sample) -> Snapshot:
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    reader.close()
    assert snapshot is not None
    return snapshot


def result(sample: Sample) -> dict[str, object]:
    text = run_results.to_json(run_results.run_results(snapshot_of(sample), sample.settings))
    parsed: dict[str, object] = json.loads(text)
    return parsed


def test_result_json_counts_what_a_person_did(tmp_path: Path) -> None:
    """By verb, applied directives only; an answered call counts, however it was answered."""
    sample = Sample(tmp_path / "run")
    assert ["tasks"] == list(result(sample))
    steer(sample, "pin", 2)
    steer(sample, "pin", 3)
    steer(sample, "boost", 9, state="refused")
    sample.add_call("gelu/1/plan", 0.0)
    sample.db.execute("UPDATE call SET model = ?", (PERSON,))
    sample.db.execute("UPDATE run SET paused = 1")
    assert {"person": {"pin": 2, "answer": 1}, "paused": True} == {
        name: value for name, value in result(sample).items() if name != "tasks"
    }


def test_a_run_of_an_older_version_has_no_directives(tmp_path: Path) -> None:
    """Its run.db lacks the tables and columns; it reads as unsteered."""
    sample = Sample(tmp_path / "run")
    sample.db.execute("DROP TABLE directive")
    for column in ("paused", "finishing", "cap_usd", "max_cost"):
        sample.db.execute(f"ALTER TABLE run DROP COLUMN {column}")
    assert {} == snapshot_of(sample).person
    assert ["tasks"] == list(result(sample))


def test_the_report_says_that_a_person_helped(tmp_path: Path) -> None:
    """One line at its head; none in the report of an unsteered run."""
    sample = Sample(tmp_path / "run")
    assert "Steered by a person" not in html_report.render_report(sample.path)
    steer(sample, "pin", 2)
    assert "Steered by a person: 1 pin." in html_report.render_report(sample.path)


def test_the_tables_refuse_a_steered_run(tmp_path: Path) -> None:
    """One line names the run and what was done to it; a refused directive is no help."""
    sample = Sample(tmp_path / "run", names=("level1_1_Relu_",))
    steer(sample, "pin", 99, state="refused")
    assert 1 == len(rows_of_run(sample.path).rows)
    steer(sample, "advise")
    with pytest.raises(UsageError, match=r"was steered by a person \(1 advise\)") as refused:
        rows_of_run(sample.path)
    assert 1 == len(str(refused.value).splitlines())


def test_a_persons_source_is_named_in_the_winner(tmp_path: Path) -> None:
    """best.py does not say that the model wrote it."""
    sample = Sample(tmp_path / "run")
    (task,) = snapshot_of(sample).tasks
    reader = RunReader(sample.path)
    path = run_results.write_best(sample.path, reader, sample.settings, task)
    assert path is not None
    assert "by recipes." in path.read_text()
    sample.db.execute("UPDATE attempt SET kind = 'inject' WHERE number = 3")
    run_results.write_best(sample.path, reader, sample.settings, task)
    reader.close()
    assert "node 3, by a person." in path.read_text()


def test_a_rejected_winners_file_does_not_stay(tmp_path: Path) -> None:
    """After a person rejected the only winner, the folder holds no best.py."""
    sample = Sample(tmp_path / "run", nodes=((1, 0, correct(500.0)),))
    folder, settings, _ = open_run_folder(sample.path)
    said: list[str] = []

    def finish() -> None:
        reader = RunReader(sample.path)
        snapshot = reader.poll() or Snapshot()
        finish_run(folder, settings, reader, snapshot, RunEnd(kind=EndKind.OVER), said.append)

    finish()
    assert (sample.path / "best.py").exists()
    verdict = correct(500.0)
    rejected = type(verdict)(verdict=Outcome.REJECTED, reason=f"{REJECTED_BY_PERSON}it caches")
    first_look = sample.db.execute("SELECT COUNT(*) FROM first_look").fetchone()
    assert (1,) == first_look
    sample.confirm("gelu", 1, rejected)
    steer(sample, "reject", 1)
    finish()
    folder.close()
    assert not (sample.path / "best.py").exists()
    assert "steered: 1 reject" in said
