"""`scripts/export.py`: a run's tables as files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervisor_sample import WINNER, Sample, failed

from scripts import export

TABLES = ("tasks", "attempts", "verdicts", "calls", "leases")
HOSTILE = 'say "no", <b>\n; \x1b[2J =1+1'


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Sample]:
    """A run that is still served: its last rows are in the write-ahead log."""
    made = Sample(tmp_path / "run", status="running", budget=9)
    made.add_node("gelu", 7, 3, failed("wrong", HOSTILE, "check"))  # type: ignore[arg-type]
    made.add_call("gelu/3/plan", 0.25)
    made.add_call("gelu/3/write", None)
    made.db.execute("INSERT INTO lease VALUES (1, 'gelu/3/plan', 'a-0', 'x', 1.0, NULL, NULL, 0)")
    yield made
    made.db.close()


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_both_forms_have_every_row_and_value(sample: Sample, tmp_path: Path) -> None:
    """Reading the files gives back what sqlite3 shows; an unknown figure is empty or null."""
    assert 0 == export.main([str(sample.path), "--out", str(tmp_path / "csv")])
    assert 0 == export.main([str(sample.path), "--json", "--out", str(tmp_path / "json")])
    for table in TABLES:
        cursor = sample.db.execute(f"SELECT * FROM {table}")  # noqa: S608
        names = [column[0] for column in cursor.description]
        stored = [dict(zip(names, row, strict=True)) for row in cursor]
        as_json = json.loads((tmp_path / "json" / f"{table}.json").read_text(encoding="utf-8"))
        as_csv = csv_rows(tmp_path / "csv" / f"{table}.csv")
        as_text = [
            {name: "" if value is None else str(value) for name, value in row.items()}
            for row in stored
        ]
        assert sorted(stored, key=str) == sorted(as_json, key=str)
        assert sorted(as_text, key=str) == sorted(as_csv, key=str)
    assert HOSTILE == csv_rows(tmp_path / "csv" / "attempts.csv")[6]["reason"]


def test_the_files_explain_themselves(sample: Sample, tmp_path: Path) -> None:
    """`columns.csv` lies beside the tables and has every column of each, also the added texts."""
    assert 0 == export.main([str(sample.path), "--texts", "--out", str(tmp_path / "out")])
    explained = [
        (row["table"], row["column"]) for row in csv_rows(tmp_path / "out" / "columns.csv")
    ]
    for table in TABLES:
        with (tmp_path / "out" / f"{table}.csv").open(encoding="utf-8", newline="") as file:
            header = next(csv.reader(file))
        assert header == [column for name, column in explained if name == table]


def test_texts_are_exported_when_they_are_asked_for(sample: Sample, tmp_path: Path) -> None:
    """Sources, requests and replies may be large: a flag adds them."""
    assert 0 == export.main([str(sample.path), "--texts", "--out", str(tmp_path / "out")])
    attempt = csv_rows(tmp_path / "out" / "attempts.csv")[0]
    assert (WINNER, "advice <1>") == (attempt["source"], attempt["advice"])
    call = csv_rows(tmp_path / "out" / "calls.csv")[0]
    assert ("q", "a") == (call["request"], call["reply"])


@pytest.mark.parametrize("file", ["attempts.csv", "columns.csv"])
def test_no_file_is_overwritten(
    sample: Sample, tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second export into one folder is refused before anything is written."""
    out = tmp_path / "out"
    out.mkdir()
    (out / file).write_text("mine")
    assert 2 == export.main([str(sample.path), "--out", str(out)])
    assert f"{file} exists and is not overwritten" in capsys.readouterr().err
    assert [out / file] == list(out.iterdir())
    assert "mine" == (out / file).read_text()


def test_a_file_in_place_of_the_folder_is_named(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what is wrong and which flag repairs it."""
    (tmp_path / "out").write_text("mine")
    assert 2 == export.main([str(sample.path), "--out", str(tmp_path / "out")])
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"export: {tmp_path / 'out'} is not a folder: name one with --out"


def test_the_run_is_not_changed(sample: Sample, tmp_path: Path) -> None:
    """An export only reads: the run goes on, and its tables are the same."""
    before = list(sample.db.iterdump())
    assert 0 == export.main([str(sample.path), "--out", str(tmp_path / "out")])
    assert before == list(sample.db.iterdump())
