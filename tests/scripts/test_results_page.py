"""The results page: what ran, what won, and every attempt that lost."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from supervisor_sample import NODES, WINNER, Sample, correct

from protocol import settings as settings_file
from protocol.directives import DirectiveArguments
from scripts.tables import results

RELU, CONV = "level1_1_Relu_", "level2_1_Conv"


def write_run(folder: Path) -> Sample:
    mended = replace(correct(500.0), amended="crashed: signal 11")
    nodes = (*NODES[:4], (5, 3, mended), NODES[5])
    sample = Sample(folder, names=(RELU, CONV), nodes=nodes)
    sample.db.execute(
        "DELETE FROM node WHERE task = ? AND word = 'correct' AND number > 0", (CONV,)
    )
    sample.add_call(f"{RELU}/1/plan", 0.25)
    sample.add_call(f"{RELU}/1/amend-write", 0.5)
    settings = replace(sample.settings, model="script:/home/someone/private/s.jsonl")
    settings_file.write(folder, replace(settings, base_url="http://10.0.0.7:8080"))
    return sample


def page_of(*arguments: str) -> str:
    assert 0 == results.main(list(arguments))
    return (Path(arguments[arguments.index("--out") + 1]) / results.PAGE).read_text()


def test_the_page_has_every_attempt_and_the_winner_its_file(tmp_path: Path) -> None:
    """Eager, the baselines, the best, verdicts with ideas, tokens and dollars; what was mended."""
    write_run(tmp_path / "run").db.close()
    page = page_of(str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    (row,) = [line for line in page.splitlines() if line.startswith(f"| [{RELU}]")]
    cells = [cell.strip() for cell in row.strip("| ").split("|")]
    assert ["1.00 ms", "800 µs", "400 µs", "2.50×"] == cells[1:5]
    assert ["200 (20 cached)", "40", "0.75", "0.125", "0.0125"] == cells[9:14]
    assert "max-autotune |" not in page  # nothing of it was measured, and a line says so
    assert "torch.compile: measured for 2 of 2 problems, max-autotune for 0" in page
    for number, _parent, verdict in NODES:
        (line,) = [one for one in page.split("## level2")[0].splitlines() if f"<{number}>" in one]
        assert verdict.verdict.replace("_", " ") in line
    assert "(mended: crashed: signal 11)" in page
    assert "**no candidate** (the model refused)" in page
    assert (tmp_path / "out" / f"{RELU}.py").read_text().endswith(WINNER)
    assert not (tmp_path / "out" / f"{CONV}.py").exists()


def test_the_page_says_what_answered_and_nothing_of_the_machine_but_its_device(
    tmp_path: Path,
) -> None:
    """The model as its calls name it, that a user's server was asked, and no path or host.

    What a reader needs to repeat or to doubt it: the day, the commit, the tolerance, the command.
    """
    write_run(tmp_path / "run").db.close()
    page = page_of(
        *(str(tmp_path / "run"), "--out", str(tmp_path / "out")),
        *("--answered-by", "a person, by hand", "--commit", "abc1234", "--note", "A trial."),
    )
    text = page + (tmp_path / "out" / f"{RELU}.py").read_text()
    assert "Answered by: model m through a server of the user's (--base-url): a person" in page
    assert "Device: cpu/1" in page
    assert re.search(r"Judged: \d{4}-\d\d-\d\d \(UTC\), by commit abc1234", page)
    assert "1e-4 for float32" in page
    assert f"python supervisor.py --task {RELU}.py --task {CONV}.py" in page
    assert "--model script:s.jsonl" in page
    assert "--device cpu" in page  # what a new run would choose by its machine
    assert "--baselines eager" in page
    assert "1 of 1 winners were confirmed" in page
    assert "- A trial." in page
    assert not [word for word in ("/home", "10.0.0.7", "private", str(tmp_path)) if word in text]


def test_a_run_under_way_shows_first_looks_and_counts_what_has_a_verdict(tmp_path: Path) -> None:
    """Calls for an attempt that is not judged yet are in the sum, and in no attempt's price."""
    sample = Sample(tmp_path / "run", names=(RELU,), status="running")
    sample.add_call(f"{RELU}/1/write", 0.6)
    sample.add_call(f"{RELU}/9/write", 7.0)
    sample.db.close()
    page = page_of(str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    assert "400 µs (first look)" in page
    assert "6 of 6 attempts judged (" in page
    assert "), 0.100 USD each; all calls: 7.60 USD" in page


def test_a_stopped_run_lists_what_was_begun(tmp_path: Path) -> None:
    """A run of a hundred problems that was stopped after two has two rows, and says so."""
    sample = Sample(tmp_path / "run", names=(RELU, CONV, "level1_3_New"), status="stopped")
    sample.db.execute("DELETE FROM node WHERE task = 'level1_3_New' AND number > 0")
    sample.db.execute(
        "DELETE FROM node WHERE task = ? AND word = 'correct' AND number > 0", (CONV,)
    )
    sample.db.close()
    page = page_of(str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    assert "| level1_3_New" not in page
    assert "[level1_3_New]" not in page
    assert "2 of 3 problems judged: 1 with a correct candidate, 1 with a faster one" in page
    assert "1.58× of the 2 judged, 1.36× of all 3 with 1× for those that are not judged" in page
    assert "1 were not begun" in page


def test_what_is_not_judged_yet_counts_in_no_mean(tmp_path: Path) -> None:
    """A problem whose answers wait for a card is not one without a faster candidate.

    Beside it stands the mean over all problems, so that the easy ones alone are no result.
    """
    sample = Sample(tmp_path / "run", names=(RELU, CONV), status="running")
    sample.db.execute("DELETE FROM node WHERE task = ? AND number > 0", (CONV,))
    sample.add_call(f"{CONV}/1/write", 0.6)
    sample.db.close()
    page = page_of(str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    assert "1 of 2 problems judged: 1 with a correct candidate, 1 with a faster one" in page
    assert ": 2.50× of the 1 judged, 1.58× of all 2" in page
    assert (
        "of the judged, against eager: 100.0 % for p = 1, 100.0 % for p = 1.5, 100.0 % for p = 2"
        in page
    )
    assert "1 have no judged attempt yet" in page
    assert "No attempt has been judged (1 calls of its model)." in page
    (row,) = [line for line in page.splitlines() if line.startswith(f"| [{CONV}]")]
    assert "none: no attempt judged yet" in row
    assert re.search(r"\| +0 of \d+ \| +0 \|", row)


def test_a_brief_page_is_the_table_alone(tmp_path: Path) -> None:
    """For a hundred problems of the rule book: no attempt, no link, no source."""
    write_run(tmp_path / "run").db.close()
    page = page_of(str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--brief")
    assert f"| {RELU} " in page
    assert "\n## " not in page
    assert ["README.md"] == [path.name for path in (tmp_path / "out").iterdir()]


def test_a_run_without_a_verdict_has_a_page(tmp_path: Path) -> None:
    """The first slice of a card may end before the first verdict."""
    sample = Sample(tmp_path / "run", names=(RELU,), status="stopped")
    sample.db.execute("DELETE FROM node WHERE number > 0")
    sample.db.close()
    page = page_of(str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    assert "0 of 1 problems judged: 0 with a correct candidate" in page
    assert "0 of 6 attempts judged" in page


def test_two_runs_of_one_problem_have_a_winner_each(tmp_path: Path) -> None:
    """The second file is named after its run."""
    for name in ("first", "second"):
        write_run(tmp_path / name / "run").db.close()
    page = page_of(
        str(tmp_path / "first"), str(tmp_path / "second" / "run"), "--out", str(tmp_path / "out")
    )
    files = sorted(path.name for path in (tmp_path / "out").glob("*.py"))
    assert [f"{RELU}.py", f"{RELU}.second.py"] == files
    assert all(f"[{name}]({name})" in page for name in files)


def test_a_run_that_a_person_steered_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its results are not the search's own; so is what is not a run folder.  Nothing is written."""
    sample = write_run(tmp_path / "run")
    sample.db.execute(
        'INSERT INTO directive (key, verb, task, node, arguments, "by", wanted_at, state,'
        " applied_at) VALUES ('k', 'pin', ?, 2, ?, 'eva', 1.0, 'applied', 2.0)",
        (RELU, msgspec.json.encode(DirectiveArguments()).decode()),
    )
    sample.db.close()
    for folder, words in (
        (tmp_path / "run", "was steered by a person"),
        (tmp_path / "x", "no run.db"),
    ):
        assert 2 == results.main([str(tmp_path / folder), "--out", str(tmp_path / "out")])
        assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
