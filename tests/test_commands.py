"""The names of commands in texts: as typed, in a checkout and in an installation."""

from __future__ import annotations

import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from actors.commands import (
    COMMAND_VARIABLE,
    COMMANDS,
    program_typed,
    typed_command,
    with_typed_commands,
)
from scripts import doctor

TOP = Path(__file__).parents[1]


def test_every_command_of_the_table_exists() -> None:
    """Each command's module exists, and the form for a checkout names a file or that module."""
    for command in COMMANDS:
        assert find_spec(command.module) is not None
        last = command.in_checkout.split()[-1]
        assert last == command.module or (TOP / last).is_file()


def test_texts_name_the_typed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`stark` puts its name into the environment; without it texts have the checkout's form."""
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    assert ("python supervisor.py", "python scripts/story.py") == (
        typed_command(),
        typed_command("story"),
    )
    text = "`python -m actors.evaluator.build FILE` and `python -m actors.evaluator`"
    assert text == with_typed_commands(text)
    monkeypatch.setenv(COMMAND_VARIABLE, "stark")
    assert ("stark", "stark story") == (typed_command(), typed_command("story"))
    assert "`stark build FILE` and `stark evaluate`" == with_typed_commands(text)


def test_a_program_that_is_not_on_the_path_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hint can be copied into the shell: `stark`, or the path by which it was called."""
    program = tmp_path / "an environment" / "stark"
    program.parent.mkdir()
    shutil.copy("/bin/true", program)
    monkeypatch.setenv("PATH", "/nowhere")
    assert f"'{program}'" == program_typed(str(program))
    monkeypatch.setenv("PATH", str(program.parent))
    assert "stark" == program_typed(str(program))


def test_the_doctor_looks_for_every_dependency() -> None:
    """A machine on which a run would miss a package is not called ready."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    declared = {each.partition(">=")[0] for each in project["dependencies"]}
    assert declared == {*doctor.NEEDED, "ninja"}
