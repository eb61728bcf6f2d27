"""`scripts/compare.py`: what a comparison counts, and what it refuses before anything runs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from table_samples import PROBLEM, rows_of, solved, unsolved

from actors.cli import UsageError
from actors.exit_status import ExitStatus
from actors.supervisor.cli.run_settings import CHANGEABLE_ON_RESUME
from scripts.comparison import comparison_runs
from scripts.comparison.comparison_arguments import parse_arguments
from scripts.comparison.comparison_figures import (
    comparable,
    estimate,
    run_gain,
    variation_figures,
)
from scripts.comparison.comparison_runs import check_runs
from scripts.comparison.comparison_text import comparison_text
from scripts.comparison.earlier_rows import earlier_line, read_earlier, with_earlier
from scripts.comparison.main import main
from scripts.tables.markdown_table import DASH
from scripts.tables.result_rows import ProblemState

TOP = Path(__file__).parents[2]
ratios = st.lists(st.floats(0.1, 10), min_size=2, max_size=8)


def test_a_gain_is_what_a_user_gets() -> None:
    """A slower candidate and none count as 1: the user keeps the task's own module."""
    run = rows_of(solved(1, 4.0), solved(2, 0.5), unsolved(3))
    assert math.isclose(run_gain(run), 4.0 ** (1 / 3))
    noise = solved(4, 56.0, is_winner=False)  # its interval reaches below 1
    assert run_gain(rows_of(noise)) == 1.0
    figures = variation_figures({0: run}, {0: run}, {0: run})
    assert figures.gain is not None
    assert figures.success == pytest.approx(2 / 3)
    assert figures.fast == pytest.approx(1 / 3)
    assert figures.gain.interval is None  # one seed says nothing about others


def test_two_seeds_have_students_interval() -> None:
    """By hand: the logarithms 0 and 2 have mean 1, standard error 1, and t is 12.706."""
    found = estimate([1.0, math.exp(2)])
    assert found is not None
    assert found.value == pytest.approx(math.e)
    assert found.interval == pytest.approx((math.exp(1 - 12.706), math.exp(1 + 12.706)))


def test_runs_that_found_nothing_faster_have_no_interval() -> None:
    """1.00 to 1.00 would say that nothing can be gained; no seed has shown it."""
    seeds = {seed: rows_of(solved(1, 2.0, is_winner=False)) for seed in (0, 1)}
    table = comparison_text({"a": seeds, "b": seeds})
    assert "1.00×" in table
    assert "1.00–1.00" not in table


def test_an_interval_that_says_nothing_is_told_as_that() -> None:
    """Two seeds that differ reach from nothing to thousands: such ends are not figures."""
    seeds = {0: rows_of(solved(1, 2.0)), 1: rows_of(solved(1, 6.0))}
    assert "wider than 100-fold" in comparison_text({"a": seeds})


def test_the_repeating_command_shows_nothing_of_the_machine() -> None:
    """Paths, addresses, phases and processes stay out; what changes results stays in."""
    line = "--task /home/x/a.py --vary knowledge=none,all --seeds 3-4 --budget 2 --phase table"
    line += " --base-url http://10.0.0.7 --model script:/home/x/s.jsonl --at-once 9"
    command = parse_arguments(line.split()).repeating_command
    assert command.split("compare.py ")[1] == (
        "--task a.py --vary knowledge=none,all --seeds 3,4 --budget 2 --model script:s.jsonl"
    )


@given(ratios)
def test_an_interval_contains_its_value_and_turns_with_its_ratios(values: list[float]) -> None:
    """Comparing b with a gives the inverse of comparing a with b."""
    assume(any(math.log(value) for value in values))
    found, inverse = estimate(values), estimate([1 / value for value in values])
    assert found is not None
    assert inverse is not None
    assert found.interval is not None
    assert inverse.interval is not None
    low, high = found.interval
    assert low <= found.value * (1 + 1e-9)
    assert high >= found.value * (1 - 1e-9)
    assert inverse.interval == pytest.approx((1 / high, 1 / low))


def test_variations_are_compared_seed_by_seed() -> None:
    """What differs from seed to seed in the same way does not widen the comparison."""
    first = {seed: rows_of(solved(1, 2.0 * (seed + 1))) for seed in range(3)}
    second = {seed: rows_of(solved(1, 3.0 * (seed + 1))) for seed in range(3)}
    figures = variation_figures(second, second, first)
    found = figures.against_first
    assert found is not None
    assert found.value == pytest.approx(1.5)
    assert found.interval == pytest.approx((1.5, 1.5))
    assert figures.pairs == (3, 0)
    assert variation_figures(first, first, first).against_first is None
    assert variation_figures(first, first, second).pairs == (0, 3)


def test_the_table_says_what_is_missing() -> None:
    """A variation that has not begun has no row; open tasks are named before the figures."""
    open_row = replace(unsolved(2), state=ProblemState.UNFINISHED)
    text = comparison_text({"a": {0: rows_of(solved(1, 2.0), open_row)}, "b": {}})
    assert "Not finished: a has " in text
    assert "gains are not of equal budgets" in text
    assert "**Not begun: b.**" in text
    assert "| b " not in text
    assert "nothing has begun" == comparison_text({"a": {}})
    judged = comparison_text({"a": {0: rows_of(solved(1, 2.0), open_row)}})
    assert "gains are from first looks in part" in judged


def test_all_variations_count_the_same_tasks() -> None:
    """What waits for a card in one variation is left out in all; nothing judged has no gain."""
    waiting = replace(unsolved(2), state=ProblemState.UNFINISHED, attempts=0)
    runs = {
        "a": {0: rows_of(solved(1, 2.0), solved(2, 9.0))},
        "b": {0: rows_of(solved(1, 3.0), waiting)},
    }
    text = comparison_text(runs)
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if "|" in line}
    assert "2.00×" in lines["a"]
    assert "3.00×" in lines["b"]
    assert "1 : 0" in lines["b"]
    assert "b has 10 of 20 attempts, 1 of 2 tasks left out" in text
    assert lines[waiting.task].count(DASH) == 2
    none = comparison_text({"a": {0: rows_of(waiting)}})
    assert not [word for word in ("1.00", "0.0 %") if word in none]


def test_dollars_for_a_percent_are_of_the_tasks_that_count() -> None:
    """What was paid for a task that waits for its verdict has saved nothing yet."""
    waiting = replace(unsolved(2), state=ProblemState.UNFINISHED, attempts=0, usd=7.0)
    run = rows_of(replace(solved(1, 2.0), usd=1.0), waiting)
    counted = comparable({"a": {0: run}})["a"]
    figures = variation_figures({0: run}, counted, counted)
    assert figures.usd == 4.0
    assert figures.usd_per_percent == pytest.approx(1.0 / 50.0)


def test_a_task_without_a_correct_candidate_says_so() -> None:
    """One is not 1x by a slow candidate; in one seed of two it is told of which."""
    failed = replace(unsolved(1), attempts=4)
    text = comparison_text({"a": {0: rows_of(failed)}, "b": {0: rows_of(solved(1, 3.0))}})
    assert "none correct" in text
    assert "3.00×" in text
    seeds = {0: rows_of(failed), 1: rows_of(solved(1, 3.0))}
    assert "2.00× (1.00–3.00), correct in 1 of 2" in comparison_text({"a": seeds})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "give --task"),
        ("--task a.py --seed 1", "--seeds instead"),
        ("--task a.py --seeds 1,1", "twice"),
        ("--task a.py --seeds 3-1", "numbers like"),
        ("--task a.py --seeds 0-300", "too many"),
        ("--task a.py --vary nothing=1", "expected a setting"),
        ("--task a.py --vary seed=1,2", "--seeds"),
        ("--task a.py --vary strategy=stark,stark", "named twice"),
        ("--task a.py --vary strategy=stark --strategy search", "given twice"),
        ("--task a.py --vary strategy=best", "--strategy"),
        ("--task a.py --seeds 0-199 --vary budget=1,2", "400 runs"),
    ],
)
def test_a_mistake_is_found_before_anything_runs(line: str, reason: str) -> None:
    """One line names the flag."""
    with pytest.raises(UsageError, match=reason):
        parse_arguments(line.split())


def test_what_a_model_reads_is_varied_for_a_model_that_reads(tmp_path: Path) -> None:
    """The rule book reads no requests: the arms would be the same, hours later."""
    (tmp_path / "a.py").write_text(PROBLEM.replace("{factor}", "2"))
    line = f"--task {tmp_path / 'a.py'} --vary knowledge=none,all --results {tmp_path / 'r'}"
    line += " --device cpu --model recipes"
    with pytest.raises(UsageError, match="recipes reads no requests"):
        check_runs(parse_arguments(line.split()))
    with pytest.raises(UsageError, match="--knowledge none needs --prompts compact"):
        check_runs(parse_arguments(f"{line} --prompts paper".split()))


def test_all_combinations_are_run_whole_seeds_first() -> None:
    """A comparison that is stopped early can compare the seeds that it has."""
    line = "--task a.py --vary strategy=stark,search --vary in-flight=1,3 --seeds 5,7 --budget 2"
    runs = parse_arguments(line.split()).runs()
    assert [run.seed for run in runs] == [5] * 4 + [7] * 4
    assert len({run.folder for run in runs}) == 8
    assert runs[1].variation.label == "strategy=stark, in-flight=3"
    assert runs[1].argv(only=["search.in_flight", "search.budget"]) == [
        "--budget", "2", "--in-flight", "3",
    ]  # fmt: skip


def test_a_comparison_that_is_stopped_before_its_first_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing has begun, so there is nothing to describe: one line, and the run's own status."""
    (tmp_path / "own.py").write_text(PROBLEM.replace("{factor}", "2"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(comparison_runs, "check_runs", lambda _arguments: None)
    monkeypatch.setattr(comparison_runs, "serve_runs", lambda _arguments: ExitStatus.STOPPED)
    line = "--task own.py --vary strategy=stark,search --seeds 0 --budget 1"
    assert main(line.split()) == ExitStatus.STOPPED
    assert capsys.readouterr().out == "nothing has begun\n"


def test_seeds_of_an_earlier_comparison_count_without_their_runs(tmp_path: Path) -> None:
    """Its runs are lost, its comparison.json is not: the table has both seeds and says of which."""
    old = tmp_path / "comparison.json"
    run = replace(rows_of(solved(1, 2.0)), budget=2, hardware="A card")
    old.write_bytes(msgspec.json.encode({"a": {0: run}, "left out": {0: run}}))
    earlier = read_earlier(old, ["a", "b"], [1], [run.rows[0].task])
    rows = with_earlier({"a": {1: rows_of(solved(1, 8.0))}, "b": {}}, earlier)
    assert {label: [*runs] for label, runs in rows.items()} == {"a": [0, 1], "b": []}
    page = comparison_text(rows, earlier_line(earlier))
    assert "1 task, 2 or 10 attempts each, on A card or Test CPU" in page
    assert "4.00×" in page
    assert "seed 0 (2 attempts each on A card, model recipes)" in page


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--seeds 0 --vary knowledge=none", "has seed 0 of knowledge=none"),
        ("--seeds 1 --vary knowledge=all", "none of these variations"),
        ("--seeds 1 --vary knowledge=none --task other.py", "its tasks"),
        ("--seeds 1 --vary knowledge=none --earlier a.py", "expected a comparison.json"),
    ],
)
def test_rows_that_are_no_further_seeds_are_refused(
    line: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A seed that counts twice, or other tasks, would spoil the table and not be seen in it."""
    old = tmp_path / "old.json"
    old.write_bytes(msgspec.json.encode({"knowledge=none": {0: rows_of(solved(1, 2.0))}}))
    task = f"--task {solved(1, 2.0).task}.py"
    assert main(f"--earlier {old} {task} {line}".split()) == ExitStatus.USAGE
    assert reason in capsys.readouterr().err


def test_an_earlier_file_is_not_the_one_that_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would hold the new seeds as well, and the next start of the command would refuse them."""
    old = tmp_path / "comparison.json"
    old.write_bytes(msgspec.json.encode({"knowledge=none": {0: rows_of(solved(1, 2.0))}}))
    line = f"--task {solved(1, 2.0).task}.py --seeds 1 --vary knowledge=none --phase table"
    command = f"{line} --earlier {old} --results {tmp_path}"
    assert main(command.split()) == ExitStatus.USAGE
    assert "copy it" in capsys.readouterr().err


@pytest.mark.long
def test_a_comparison_runs_goes_on_and_is_not_run_again(tmp_path: Path) -> None:
    """Two strategies on a task of one's own: a table, and then no new run."""
    task = PROBLEM.replace("{factor}", "2")
    (tmp_path / "own.py").write_text(task)
    code = task.replace("class Model(", "class ModelNew(")
    lines = [{"role": "planner", "advice": "Leave it."}, {"role": "coder", "code": code}]
    (tmp_path / "script.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "stark.toml").write_text("[limits]\ntime_s = 0.1\n")
    command = [sys.executable, str(TOP / "scripts/compare.py"), "--task", "own.py", "--budget", "1"]
    command += ["--vary", "strategy=stark,sampling", "--seeds", "0", "--device", "cpu"]
    command += ["--model", "script:script.jsonl"]
    first, second = (
        subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=280)
        for _ in range(2)
    )
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "# Comparison: 1 task, 1 attempt each" in first.stdout
    assert "| own " in first.stdout
    assert "[1/1]" in first.stderr + first.stdout
    assert "[1/1]" not in second.stderr + second.stdout


COUNTS = ("planners", "coders", "debuggers", "evaluators")


@pytest.mark.parametrize(
    ("phase", "given", "counts"),
    [
        ("agents", "", "1 1 1 0"),
        ("agents", "--coders 3", "1 3 1 0"),
        ("evaluators", "--evaluators 2", "0 0 0 2"),
    ],
)
def test_a_phase_names_all_its_processes(phase: str, given: str, counts: str) -> None:
    """A run that is resumed in the other phase would otherwise keep the numbers of the last one."""
    (run, *_) = parse_arguments(f"--task a.py --phase {phase} {given}".split()).runs()
    assert [run.texts[name] for name in COUNTS] == counts.split()
    argv = run.argv(only=CHANGEABLE_ON_RESUME)
    assert set(COUNTS) <= {flag.removeprefix("--") for flag in argv}
    assert argv[-1] == "--until-idle"


def test_first_looks_are_asked_of_every_start() -> None:
    """The flag holds for one start, so a run that is resumed gets it, too."""
    (run, *_) = parse_arguments(["--task", "a.py", "--first-looks"]).runs()
    assert run.argv(only=CHANGEABLE_ON_RESUME) == ["--first-looks"]
    assert run.supervisor_arguments().settings["first_looks"] is True


def test_a_phase_refuses_the_processes_of_the_other() -> None:
    """`--evaluators 8` in the agents' phase is a mistake, not eight evaluators."""
    with pytest.raises(UsageError, match="leave out --evaluators"):
        parse_arguments(["--task", "a.py", "--phase", "agents", "--evaluators", "8"])


@pytest.mark.long
def test_phases_on_machines_of_their_own(tmp_path: Path) -> None:
    """References, answers, verdicts: three phases, the folder moved in between; then none is left.

    The second run takes the first one's reference, and a table can have an earlier seed's rows.
    """
    task = PROBLEM.replace("{factor}", "2")
    code = task.replace("class Model(", "class ModelNew(")
    line = json.dumps({"role": "coder", "advice": "Leave it.", "code": code})

    def phase(name: str, folder: str, *more: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        for file, text in {"own.py": task, "script.jsonl": line,
                           "stark.toml": "[limits]\ntime_s = 0.1\n"}.items():  # fmt: skip
            (tmp_path / folder / file).write_text(text)
        command = [sys.executable, str(TOP / "scripts/compare.py"), "--task", "own.py"]
        command += ["--vary", "strategy=sampling", "--seeds", "0,1", "--device", "cpu"]
        command += ["--budget", "1", "--model", f"script:{tmp_path / 'a' / 'script.jsonl'}"]
        command += ["--phase", name, "--max-minutes", "4", *more]
        return subprocess.run(
            command, cwd=tmp_path / folder, text=True, capture_output=True, timeout=280
        )

    first = phase("evaluators", "a")
    assert first.returncode == 0, first.stderr
    assert "go on with the same command and --phase agents" in first.stderr
    assert (first.stdout + first.stderr).count("measuring own") <= 1
    second = phase("agents", "a")
    assert second.returncode == 0, second.stderr
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "results").rename(tmp_path / "b" / "results")
    third = phase("evaluators", "b")
    assert third.returncode == 0, third.stderr
    assert "Not finished" not in third.stdout
    assert "go on with" not in third.stderr
    table = phase("table", "b")
    assert third.stdout.endswith(table.stdout)
    stored = tmp_path / "b" / "results" / "comparison" / "comparison.json"
    rows = json.loads(stored.read_bytes())["strategy=sampling"]
    old = {"strategy=sampling": {"7": rows["0"]}}
    (tmp_path / "b" / "old.json").write_text(json.dumps(old))
    joined = phase("table", "b", "--earlier", "old.json")
    assert "--earlier old.json" in joined.stdout, joined.stderr
    assert list(json.loads(stored.read_bytes())["strategy=sampling"]) == ["0", "1", "7"]
