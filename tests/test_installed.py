"""The installed project: a wheel in an environment of its own, called from another folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.commands import BY_NAME, COMMANDS
from actors.installation import VERSION

TOP = Path(__file__).parents[1]
PACKAGES = ("actors", "protocol", "prompts", "scripts", "examples")
SINGLE_FILES = ("supervisor.py", "pyproject.toml", "README.md", "LICENSE")

TASK = '''"""A sum."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1.0


def get_inputs():
    return [torch.rand(8, 128)]


def get_init_inputs():
    return []
'''


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a user's working folder."""

    packages: Path
    program: Path
    here: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call `stark` as a shell with `stark` on its PATH."""
        path = f"{self.program.parent}{os.pathsep}{os.environ['PATH']}"
        left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")  # compiled once, not by each process
        environment = {k: v for k, v in os.environ.items() if k not in left_out} | {"PATH": path}
        return subprocess.run(
            ["stark", *arguments], cwd=self.here, env=environment, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=100,
        )  # fmt: skip

    def refusal(self, *arguments: str) -> str:
        """Return the one line of a usage error."""
        done = self.run(*arguments)
        assert (2, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))
        return done.stderr.strip()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build a wheel from a copy of the tree; install it without its dependencies.

    The dependencies come from the environment of the tests. The user's working folder has an
    `actors` package of its own.
    """
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    source.mkdir()
    for package in PACKAGES:
        without_caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TOP / package, source / package, ignore=without_caches)
    for file in SINGLE_FILES:
        shutil.copy(TOP / file, source / file)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    venv.create(folder / "venv", symlinks=True)
    (folder / "here" / "actors").mkdir(parents=True)
    (folder / "here" / "actors" / "__init__.py").write_text("raise SystemExit('not these')\n")
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "dependencies.pth").write_text("\n".join(others), encoding="utf-8")
    subprocess.run(
        [
            *pip,
            "--python",
            str(folder / "venv/bin/python"),
            "install",
            *offline,
            "--no-compile",
            str(source),
        ],
        check=True,
    )
    return Installed(packages, folder / "venv/bin/stark", folder / "here")


def test_every_file_of_the_packages_is_in_the_wheel(installed: Installed) -> None:
    """The wheel has every file of a checkout: prompts, SQL, CSS, prices, headers, examples."""
    expected = {
        path.relative_to(TOP)
        for package in PACKAGES
        for path in (TOP / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md"
    }
    assert set() == {path for path in expected if not (installed.packages / path).is_file()}


def test_stark_is_the_main_job_and_names_itself(installed: Installed) -> None:
    """`stark` takes the flags of `supervisor.py`; every text names the typed command."""
    help_text = installed.run("--help").stdout
    assert help_text.startswith("usage: stark --task FILE")
    assert "supervisor.py" not in help_text
    assert all(f"  {command.name} " in help_text for command in COMMANDS)
    assert f"stark-kernels {VERSION}\n" == installed.run("--version").stdout
    assert "see stark --help" in installed.refusal("--such-a-flag")
    assert "give --task FILE" in installed.refusal()


def test_help_without_a_reader_causes_no_traceback(installed: Installed) -> None:
    """As in `stark --help | head -1`: the list of commands comes when the reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [str(installed.packages.parents[2] / "bin/python"), str(installed.program), "--help"]
    done = subprocess.run(
        command, cwd=installed.here, stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert b"" == done.stderr


def test_an_unknown_command_is_refused_with_the_nearest_one(installed: Installed) -> None:
    """One line, status 2; for a file the line names `--task`."""
    assert "no command 'kernelbensh', expected kernelbench;" in installed.refusal("kernelbensh")
    assert all(command.name in installed.refusal("xyz") for command in COMMANDS)
    (installed.here / "doc.py").write_text(TASK, encoding="utf-8")
    assert installed.refusal("doc.py").endswith("stark --task doc.py")


@pytest.mark.parametrize("word", sorted(BY_NAME))
def test_every_command_exists_and_names_itself(installed: Installed, word: str) -> None:
    """Help exits with 0 and names no file of a checkout."""
    done = installed.run(word, "--help")
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith(f"usage: stark {word} ")
    assert "python " not in done.stdout


def test_examples_are_installed(installed: Installed) -> None:
    """`stark examples --copy` copies them to a folder, and never overwrites a user's files."""
    done = installed.run("examples", "--copy", "mine")
    assert (0, "stark --task mine/") == (done.returncode, done.stdout[:18])
    tasks = sorted(path.name for path in (TOP / "examples").glob("*.py"))
    assert tasks == sorted(path.name for path in (installed.here / "mine").iterdir())
    assert "exists already" in installed.refusal("examples", "--copy", "mine")


def test_a_whole_run_from_a_wheel(installed: Installed) -> None:
    """All processes find their modules, from a folder that has an `actors` of its own."""
    here = installed.here
    (here / "sum.py").write_text(TASK, encoding="utf-8")
    (here / "stark.toml").write_text("[limits]\ntime_s = 0.2\n", encoding="utf-8")
    replies = [
        {"role": "planner", "advice": "Add something else."},
        {"role": "coder", "code": TASK.replace("Model(", "ModelNew(").replace("1.0", "2.0")},
    ]
    script = "\n".join(json.dumps(reply) for reply in replies)
    (here / "script.jsonl").write_text(script, encoding="utf-8")
    roles = ("--evaluators", "--planners", "--coders", "--debuggers")
    nothing, one = ([word for role in roles for word in (role, count)] for count in "01")
    flags = ["--budget", "1", "--run-dir", "run", "--device", "cpu", "--until-idle"]
    idle_run = installed.run("--task", "sum.py", "--model", "script:script.jsonl", *flags, *nothing)
    assert (0, "resume with: stark --resume run") == (
        idle_run.returncode, idle_run.stdout.splitlines()[-1],
    )  # fmt: skip
    done = installed.run("--resume", "run", *one, "--json")
    (result,) = json.loads(done.stdout)["tasks"]
    summary = tuple(result[key] for key in ("status", "attempts", "compiled", "correct"))
    assert (1, ("finished", 1, 1, 0)) == (done.returncode, summary)  # wrong: it is not timed
    assert "run: nothing differs\n" in installed.run("replay", "run").stdout
