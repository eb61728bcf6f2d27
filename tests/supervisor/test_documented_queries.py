"""The queries of docs/run-folder.md, on a run."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from supervisor_sample import Sample

from protocol.run_views import column_descriptions

PAGE = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a call and a lease of each attempt."""
    sample = Sample(tmp_path_factory.mktemp("run"))
    for number in range(1, 7):
        sample.add_call(f"gelu/{number}/plan", 0.25)
        sample.db.execute(
            "INSERT INTO lease VALUES (?, 'gelu/' || ? || '/plan', 'planner-0', 'x', 1.0, 2.5,"
            " 'done', 0)",
            (number, number),
        )
    sample.db.close()
    return sample.path / "run.db"


def test_there_are_queries() -> None:
    """The page shows how a run is read."""
    assert len(QUERIES) >= 5


@pytest.mark.parametrize("query", QUERIES)
def test_a_documented_query_gives_rows(run: Path, query: str) -> None:
    """A query that a user copies from the page runs, and no column of it is all null."""
    with closing(sqlite3.connect(f"file:{run}?mode=ro", uri=True)) as db:
        rows = db.execute(query).fetchall()
    assert rows
    assert all(any(value is not None for value in column) for column in zip(*rows, strict=True))


def test_the_page_names_every_column() -> None:
    """A column that a view has is on the page, in the row of that view."""
    for one in column_descriptions():
        (row,) = re.findall(rf"^\| `{one.table}` \|.*$", PAGE, re.MULTILINE)
        assert f"`{one.column}`" in row
