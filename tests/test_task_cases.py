"""The file of cases, and the text of a task for one case."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.case_source import CaseSourceError, case_task, with_constants
from actors.task_cases import (
    TaskCasesError,
    options_text,
    read_options,
    stored_name,
    with_options,
)
from protocol.values import Task, TaskCase

SOURCE = """\
import torch

B, T = 2, 64
WIDTH: int = 32
ROWS = B * T
EPS = 1e-5


class Model(torch.nn.Module):
    def forward(self, x):
        return x * EPS


def get_inputs(dtype="float32", *, sparse=False):
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []
"""
CASES = """\
[[case]]
name = "drawn"
drawn = true
weight = 3

[[case]]
name = "long"
set = { T = 2048, WIDTH = 8, dtype = "it's" }

[[case]]
name = "half"
shapes = [[4, 16]]
dtypes = ["bfloat16"]
dtype = "bfloat16"
calls = 7
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task's file with a file of cases beside it."""
    file = tmp_path / "t.py"
    file.write_text(SOURCE)
    file.with_name("t.cases.toml").write_text(CASES)
    return file


def test_cases_beside_a_task_are_read_the_heaviest_first(task: Path) -> None:
    """Weights become shares; keys that other tools write are ignored."""
    cases = read_options(task, SOURCE).cases
    assert [("drawn", 0.6), ("long", 0.2), ("half", 0.2)] == [(c.name, c.weight) for c in cases]
    assert {"T": "2048", "WIDTH": "8", "dtype": '"it\'s"'} == cases[1].constants
    assert (((4, 16),), ("bfloat16",), "bfloat16") == (
        cases[2].shapes,
        cases[2].dtypes,
        cases[2].dtype,
    )


def test_a_copy_in_a_run_folder_means_the_same(task: Path, tmp_path: Path) -> None:
    """What is stored beside the run's copy of a task is read back as it was understood."""
    options = read_options(task, SOURCE)
    copy = tmp_path / "run" / "t.py"
    copy.parent.mkdir()
    copy.with_name(stored_name("t")).write_text(options_text(options))
    assert options == read_options(copy, SOURCE)
    assert options_text(read_options(tmp_path / "other.py", SOURCE)) == ""


def test_a_folder_s_file_counts_for_the_task_that_it_names(task: Path) -> None:
    """`cases.toml` is one of several tasks' neighbours: without `task` it is of none."""
    task.with_name("t.cases.toml").rename(task.with_name("cases.toml"))
    assert () == read_options(task, SOURCE).cases
    task.with_name("cases.toml").write_text(f'task = "t.py"\n{CASES}')
    assert 3 == len(read_options(task, SOURCE).cases)


def test_cases_that_only_inform_leave_a_task_as_it_is(task: Path) -> None:
    """A file that lists layouts without a change to draw is one of the drawn case alone."""
    text = '[[case]]\nname = "a"\ndrawn = true\n[[case]]\nname = "b"\nus = 3.5\n'
    task.with_name("t.cases.toml").write_text(text)
    assert () == read_options(task, SOURCE).cases


def test_dtypes_multiply_the_cases(task: Path, tmp_path: Path) -> None:
    """`--dtype` alone makes a case of each dtype; with cases each is judged in each."""
    alone = read_options(tmp_path / "other.py", SOURCE, dtypes=("bfloat16",)).cases
    assert [("bfloat16", "bfloat16", 1.0)] == [(c.name, c.dtype, c.weight) for c in alone]
    both = read_options(task, SOURCE, dtypes=("float32", "float16")).cases
    assert 6 == len(both)
    assert {"drawn-float32", "drawn-float16"} <= {case.name for case in both}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[case]\n", "is not TOML"),
        ("cases = 3\n", "unknown key cases"),
        ('task = "other.py"\n', "is of the task other.py"),
        ('[[case]]\ndtpye = "float16"\n', "case 0: unknown key dtpye"),
        ('[[case]]\nname = "../x"\ndtype = "float32"\n', "a name is up to 60"),
        ("[[case]]\nset = { Q = 3 }\n", "no constant of that name"),
        ("[[case]]\nset = { EPS = 0.1 }\n", "which the class Model uses"),
        ("[[case]]\nset = { B = nan }\n", "a number, a text"),
        ("[[case]]\nshapes = [4, 5]\n", "one shape for each tensor"),
        ("[[case]]\nshapes = [[-1]]\n", "one shape for each tensor"),
        ('[[case]]\ndtype = "int8"\n', "expected one of float16"),
        ('[[case]]\ndtypes = ["half"]\n', "torch's name"),
        ("[[case]]\nweight = 0\nset = { B = 1 }\n", "not a number above 0"),
        (
            '[[case]]\nname="a"\nset={B=1}\n[[case]]\nname="a"\nset={B=3}\n',
            "two cases are called a",
        ),
        ("".join(f"[[case]]\nset = {{ B = {n} }}\n" for n in range(17)), "more than 16"),
    ],
)
def test_a_file_that_can_t_be_used_is_one_line(task: Path, text: str, expected: str) -> None:
    """Each mistake names the file, and what was expected."""
    task.with_name("t.cases.toml").write_text(text)
    with pytest.raises(TaskCasesError, match=expected) as raised:
        read_options(task, SOURCE)
    assert "\n" not in str(raised.value)
    assert "t.cases.toml" in str(raised.value)


def test_a_named_file_without_cases_is_refused(task: Path, tmp_path: Path) -> None:
    """`--shapes FILE` has to have an effect."""
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    with pytest.raises(TaskCasesError, match="--shapes"):
        read_options(task, SOURCE, empty)


def test_a_case_changes_its_constants_and_moves_no_line() -> None:
    """Errors of the task name the user's own lines; what is computed from a constant follows."""
    case = TaskCase(name="c", constants={"T": "2048", "WIDTH": "8", "sparse": "True"})
    changed = case_task(Task(name="t", source=SOURCE, cases=(case,)), case)
    before, after = SOURCE.splitlines(), changed.source.splitlines()
    assert len(before) == len(after)
    assert ["B, T = 2, 2048", "WIDTH: int = 8"] == [
        new for old, new in zip(before, after, strict=True) if old != new
    ][:2]
    assert "sparse=True" in changed.source
    assert (case, ()) == (changed.case, changed.cases)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (("int8",), "--dtype int8: expected one of"),
        (("",), "--dtype : expected one of"),
        (("float32", "float32"), "--dtype float32: it is given twice"),
    ],
)
def test_a_wrong_dtype_of_the_command_line_is_named(
    task: Path, dtypes: tuple[str, ...], expected: str
) -> None:
    """A dtype that no module has, none, or one that would make two equal cases."""
    with pytest.raises(TaskCasesError, match=expected):
        read_options(task, SOURCE, dtypes=dtypes)


@pytest.mark.parametrize("name", ["ROWS", "Model", "torch", "get_inputs"])
def test_what_is_not_a_literal_can_t_be_set(name: str) -> None:
    """A computed constant has a constant that it is computed from."""
    with pytest.raises(CaseSourceError, match="it has: B, EPS, T, WIDTH"):
        with_constants(SOURCE, TaskCase(name="c", constants={name: "3"}))


def test_a_task_without_cases_is_stored_as_before() -> None:
    """Runs of tasks without cases are byte for byte what they were."""
    import msgspec

    task = Task(name="t", source=SOURCE)
    assert {"name", "source"} == set(msgspec.to_builtins(task))
    assert task == with_options(task, read_options(Path("nowhere/t.py"), SOURCE))
