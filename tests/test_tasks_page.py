"""docs/tasks.md: its file of cases and its commands work as they are written."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from actors.supervisor.cli.flags import parse_arguments
from actors.task_cases import read_options

TOP = Path(__file__).parents[1]
PAGE = (TOP / "docs" / "tasks.md").read_text(encoding="utf-8")
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"^```\n(python .*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
CASES = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
HEAD = "import torch\nfrom torch import nn\n"
ATTENTION = f"""{HEAD}
B, T = 4, 128


class Model(nn.Module):
    def forward(self, x, mask):
        scores = x @ x.transpose(-2, -1) / 8.0
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ x


def get_inputs():
    return [torch.randn(B, T, 64), torch.ones(T, T, dtype=torch.bool).tril()]


def get_init_inputs():
    return []
"""
GELU = f"""{HEAD}
ROWS = 512


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x * 2.0) + 1.0


def get_inputs():
    return [torch.randn(ROWS, 256)]


def get_init_inputs():
    return []
"""
BLOCK = GELU.replace("nn.functional.gelu(x * 2.0)", "torch.tanh(mylib.doubled(x))").replace(
    HEAD, f"{HEAD}import mylib\n"
)
PLAIN_BLOCK = GELU.replace("nn.functional.gelu(x * 2.0)", "torch.tanh(x * 2.0)")


def test_the_file_of_cases_of_the_page_can_be_read(tmp_path: Path) -> None:
    """Each of its cases is judged, the heaviest first."""
    (tmp_path / "attention.cases.toml").write_text(CASES)
    options = read_options(tmp_path / "attention.py", ATTENTION)
    assert ["short", "long", "odd"] == [case.name for case in options.cases]
    assert (0.6, "bfloat16") == (options.cases[0].weight, options.cases[2].dtype)


def test_every_command_of_the_page_parses() -> None:
    """Its flags exist, with these values."""
    runs = [shlex.split(line)[2:] for line in COMMANDS if line.startswith("python supervisor.py")]
    assert (4, 5) == (len(runs), len(COMMANDS))
    for words in runs:
        assert 1 == len(parse_arguments(words).tasks)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(tmp_path: Path, command: str) -> None:
    """With the rule book in place of a model; the result has the cases, and the backward."""
    library = tmp_path / "work" / "mylib" / "src" / "mylib"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("def doubled(x):\n    return x * 2.0\n")
    files = {
        "attention.py": ATTENTION,
        "attention.cases.toml": CASES,
        "faster.py": ATTENTION.replace("class Model", "class ModelNew"),
        "gelu.py": GELU,
        "more.toml": "[[case]]\nset = { ROWS = 64 }\n[[case]]\ndrawn = true\n",
        "block.py": BLOCK if "--import-path" in command else PLAIN_BLOCK,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    words = [word.replace("~", str(tmp_path)) for word in shlex.split(command)]
    if words[1] == "supervisor.py":
        words[1] = str(TOP / words[1])
        words += ["--budget", "1", "--device", "cpu", "--model", "recipes", "--run-dir", "run"]
    else:
        words += ["--device", "cpu", "--time-s", "1"]
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TOP), "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: nothing faster was found
    if words[1] == "-m":
        assert done.stdout.count("faster.py: case ") == 3, done.stdout
        return
    (task,) = json.loads((tmp_path / "run" / "result.json").read_text())["tasks"]
    cases = {"attention": 3, "gelu": 2}.get(task["task"], 0)
    assert cases == len(task.get("cases") or []), done.stdout + done.stderr
    if "--backward" in command:
        assert "forward and backward" in done.stdout + done.stderr
