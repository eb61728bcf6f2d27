"""The choice of problems, and usage errors: one line, status 2, no files made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from table_samples import PROBLEM, checkout, rows_of, solved

from actors.cli import UsageError
from scripts.tables import problems, strategy_runs, table_arguments
from scripts.tables.main import main
from scripts.tables.result_files import ROWS_FILE


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = [f"level1/{number}_P{number}_.py" for number in (1, 2, 3, 10, 11)]
    return checkout(tmp_path / "bench", *files, "level2/1_Conv.py")


def test_tasks_are_named_by_level_number_and_name(root: Path) -> None:
    """Numbers repeat from level to level; task names do not, and contain their origin."""
    selected = problems.choose(root, [1, 2], "1")
    assert ["level1_1_P1_", "level2_1_Conv"] == [problem.task for problem in selected]
    origin = problems.origin_of("level1_1_P1_")
    assert origin == problems.ProblemOrigin(level=1, number=1, name="P1_")


@pytest.mark.parametrize(
    ("selection", "numbers"),
    [("all", [1, 2, 3, 10, 11]), ("1-3", [1, 2, 3]), ("11, 1-2", [11, 1, 2]), ("3", [3])],
)
def test_numbers_ranges_and_all(root: Path, selection: str, numbers: list[int]) -> None:
    """Named problems keep their order; `all` sorts by number."""
    assert numbers == [problem.number for problem in problems.choose(root, [1], selection)]


def test_the_folder_of_the_levels_is_a_root_too(root: Path) -> None:
    """`--root` may be the checkout, or its folder with level1."""
    assert problems.choose(root, [1], "2") == problems.choose(root / "KernelBench", [1], "2")


def test_representative_is_kernelbenchs_own_list(tmp_path: Path) -> None:
    """The lists have 18, 8 and 9 problems; a level without a list is refused."""
    numbers = problems.REPRESENTATIVE[2]
    root = checkout(tmp_path, *(f"level2/{n}_X.py" for n in range(1, 60)), "level4/1_X.py")
    selected = problems.choose(root, [2], "representative")

    assert list(numbers) == [problem.number for problem in selected]
    assert [18, 8, 9] == [len(problems.REPRESENTATIVE[level]) for level in (1, 2, 3)]
    with pytest.raises(UsageError, match="names none for level 4"):
        problems.choose(root, [4], "representative")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "give --root"),
        ("--root nowhere --level 1", "does not exist"),
        ("--root empty --level 1", "not a checkout of KernelBench"),
        ("--root bench", "which level?"),
        ("--root bench --level one", "expected a number"),
        ("--root bench --level 7", "no such level; it has 1, 2"),
        ("--root bench --level 1 --level 1", "given twice"),
        ("--root bench --level 1 --problems 1,4", "no problem 4; it has 1–3, 10–11"),
        ("--root bench --level 1 --problems 1,1", "named twice"),
        ("--root bench --level 1 --problems 1-999999", "no problem 4–9, 12–999999"),
        (f"--root {'x' * 300} --level 1", "File name too long"),
        (f"--root bench --level 1 --problems 1 --results {'x' * 300}", "File name too long"),
        ("--root bench --level 1 --problems 1-3,2", "named twice"),
        ("--root bench --level 1 --problems 3-1", "backwards"),
        ("--root bench --level 1 --problems=", "expected representative"),
        ("--root bench --level 1 --problems 1,", "expected representative"),
        ("--root bench --level 1 --problems first", "expected representative"),
        ("--root bench --level 1", "no problem 6, 18, 23"),
        ("--root bench --level 1 --problems 1 --budget 0", "--budget: expected a whole number"),
        ("--root bench --level 1 --problems 1 --model gpt", "unknown model 'gpt'"),
        ("--root bench --level 1 --problems 1 --results file", "file"),
        ("--root bench --level 1 --problems 1 --results other", "not a run of this command"),
        ("--root bench --level 1 --problems 1 --compare stark,nonsense", "neither a strategy"),
        ("--root bench --level 1 --problems 1 --compare stark,stark", "named twice"),
        ("--root bench --level 1 --problems 1 --compare stark --strategy stark", "leave out"),
        ("--compare empty", "not a results folder"),
        ("--compare empty --level 1", "leave out --level"),
    ],
)
def test_a_usage_error_is_one_line(
    root: Path, arguments: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The line has the reason; no run is started, and no folder is made."""
    Path("empty").mkdir()
    Path("file").touch()
    Path("other/stark").mkdir(parents=True)
    Path("other/stark/thesis.txt").touch()
    before = sorted(map(str, Path().rglob("*")))

    status = main(
        [*arguments.split(), "--device", "cpu"] if "root" in arguments else arguments.split()
    )
    out, err = capfd.readouterr()

    assert 2 == status
    assert out == ""
    assert reason in err
    assert 1 == len(err.splitlines())
    assert before == sorted(map(str, Path().rglob("*")))


def test_two_problems_of_one_number_are_refused(root: Path) -> None:
    """KernelBench's layout names a kernel by level and number: two of one number are refused."""
    checkout(root, "level1/2_Twin.py")
    with pytest.raises(UsageError, match="two problems 2"):
        problems.choose(root, [1], "all")
    assert [3] == [problem.number for problem in problems.choose(root, [1], "3")]


def test_a_broken_file_is_named_by_its_path_in_the_checkout(root: Path) -> None:
    """The error names the user's file, not a temporary copy."""
    broken = root / "KernelBench" / "level1" / "3_P3_.py"
    broken.write_text(PROBLEM.replace("class Model(", "class Module("))
    with pytest.raises(UsageError, match=r"level1/3_P3_\.py has no Model"):
        problems.choose(root, [1], "all")


def test_the_same_command_finds_the_same_folder(root: Path) -> None:
    """The default folder follows from the choice; a script's path is the same at a resume."""
    argv = ["--root", "bench", "--level", "1", "--level", "2", "--problems", "1,3-5"]
    arguments = table_arguments.parse_arguments([*argv, "--model", "script:a.jsonl"])

    assert Path("results/level1+2-1+3-5") == arguments.results_folder
    assert f"script:{Path('a.jsonl').resolve()}" == arguments.texts["model"]
    assert ["--model", arguments.texts["model"], "--strategy", "stark"] == arguments.arguments(
        "stark"
    )
    assert [] == arguments.arguments("stark", only=("max_cost",))


def test_a_policy_goes_to_the_strategies_that_use_one(root: Path) -> None:
    """In a comparison it is for `stark` and `search`; without any of these it is refused."""
    argv = ["--root", "bench", "--level", "1", "--policy", "mcts", "--compare"]
    arguments = table_arguments.parse_arguments([*argv, "stark,sampling"])

    assert ["--policy", "mcts", "--strategy", "stark"] == arguments.arguments("stark")
    assert ["--strategy", "sampling"] == arguments.arguments("sampling")
    assert "policy" not in arguments.supervisor_arguments("sampling").settings
    alone = table_arguments.parse_arguments([*argv, "sampling,team"])
    assert (
        alone.supervisor_arguments("sampling").settings["policy"] == "mcts"
    )  # which the run's own check refuses
    with pytest.raises(UsageError, match="--strategy sampling asks no policy"):
        strategy_runs.check_runs(alone, problems.choose(root, [1], "1"))


def test_folders_are_compared_without_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of two folders are shown side by side; other problems and damaged rows are refused."""
    rows_by_folder = {
        "a": rows_of(solved(1, 2.0), strategy="stark"),
        "b": rows_of(solved(1, 1.5), strategy="sampling"),
        "c": rows_of(solved(2, 1.5), strategy="team"),
    }
    for name, rows in rows_by_folder.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / ROWS_FILE).write_text(_json(rows))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / ROWS_FILE).write_text('{"strategy": ')

    def compare(*names: str) -> int:
        return main(["--compare", ",".join(str(tmp_path / name) for name in names)])

    assert 0 == compare("a", "b")
    out = capsys.readouterr().out
    assert "| stark    |  100.0 % |" in out or "| stark    | 100.0 % |" in out
    assert "### sampling" in out
    assert 2 == compare("a", "c")
    assert "other problems" in capsys.readouterr().err
    assert 2 == compare("a", "d")
    assert 1 == len(capsys.readouterr().err.splitlines())


def _json(rows: object) -> str:
    import msgspec

    text = msgspec.json.encode(rows).decode()
    assert json.loads(text)["rows"][0]["max_autotune_us"] is None  # null, not left out, not 0
    return text
