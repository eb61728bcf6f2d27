"""The rule book's page: all problems of a level are counted, also those that it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from supervisor_sample import Sample, correct, failed
from table_samples import checkout

from protocol import settings as settings_file
from protocol.values import Outcome
from scripts.tables import rule_book_results

MATMUL = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(64, 256), torch.randn(256, 64)]


def get_init_inputs():
    return []
"""
RELU, OTHER = "level1_1_Relu", "level1_2_Other"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A level of four problems: three that the rule book takes, and a matrix product."""
    folder = tmp_path / "bench"
    checkout(folder, "level1/1_Relu.py", "level1/2_Other.py", "level1/3_Third.py")
    checkout(folder, "level1/4_Matmul.py", source=MATMUL)
    return folder


def test_every_problem_of_the_level_is_counted(tmp_path: Path, bench: Path) -> None:
    """Means of the judged and of all four, what waits, and what stays in PyTorch and why."""
    sample = Sample(tmp_path / "run", names=(RELU,), budget=1, nodes=((1, 0, correct(250.0)),))
    wrong = failed(Outcome.WRONG, "y[0] is 2", "check")
    sample.add_task(OTHER, 1, ((1, 0, wrong),))
    sample.db.close()
    settings_file.write(tmp_path / "run", replace(sample.settings, tasks=(RELU, OTHER)))
    out = tmp_path / "page.md"
    assert 0 == rule_book_results.main([str(bench), str(tmp_path / "run"), "--out", str(out)])
    page = out.read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()
            if line.startswith("| ")]  # fmt: skip
    assert ["1", "4", "3", "2", "1", "1", "2.00×", "1.41×", "4.00×", "4.00×"] in rows
    assert ["1 Relu", "confirmed", "1.00 ms", "250 µs", "4.00×", "3.96–4.04"] in rows
    assert ["2 Other", "wrong: y[0] is 2", "1.00 ms", "–", "–", "–"] in rows
    assert "1 of the 3 that it takes were not judged." in page
    assert "The rule book leaves 1 to PyTorch: 4." in page
    assert "torch.matmul (…) stays in PyTorch" in page


def test_a_problem_in_two_runs_is_refused(
    tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two figures of one problem would be a choice of the reader's."""
    for name in ("one", "two"):
        Sample(tmp_path / name, names=(RELU,)).db.close()
    runs = [str(tmp_path / name) for name in ("one", "two")]
    assert 2 == rule_book_results.main([str(bench), *runs, "--out", str(tmp_path / "page.md")])
    assert f"{RELU} is in two of the runs" in capsys.readouterr().err


def test_problems_of_an_earlier_page_stay(tmp_path: Path, bench: Path) -> None:
    """New verdicts replace those of an earlier page's JSON, and its other rows are counted."""
    first = Sample(tmp_path / "first", names=(RELU,), budget=1, nodes=((1, 0, correct(500.0)),))
    first.add_task(OTHER, 1, ((1, 0, failed(Outcome.CRASHED, "illegal address", "check")),))
    first.db.close()
    settings_file.write(tmp_path / "first", replace(first.settings, tasks=(RELU, OTHER)))
    old, new = tmp_path / "old.md", tmp_path / "new.md"
    assert 0 == rule_book_results.main([str(bench), str(tmp_path / "first"), "--out", str(old)])
    again = Sample(tmp_path / "again", names=(OTHER,), budget=1, nodes=((1, 0, correct(250.0)),))
    again.db.close()
    arguments = [str(bench), str(tmp_path / "again"), "--out", str(new)]
    assert 0 == rule_book_results.main([*arguments, "--join", str(tmp_path / "old.json")])
    page = new.read_text()
    assert "crashed" not in page
    assert "- 1 problems are of earlier runs:" in page
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()
            if line.startswith("| ")]  # fmt: skip
    assert ["1", "4", "3", "2", "2", "2", "2.83×", "1.68×", "3.00×", "4.00×"] in rows
