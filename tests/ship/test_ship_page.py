"""docs/ship.md: its commands work as they are written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from package_samples import COMPILED_KERNELS, winner_file

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "ship.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"^```\n(python .*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def test_the_page_has_a_command_for_each_word() -> None:
    """A package, its check, two wheels, the hub; in this order."""
    words = [shlex.split(command)[2] for command in COMMANDS]
    assert ["runs/mine", "check", "wheel", "wheel", "hub"] == words


@pytest.mark.long
@pytest.mark.timeout(1800)  # the same source is compiled twice with torch's headers
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """With a winner's file in place of a run each command ends with status 0."""
    winner_file(tmp_path, COMPILED_KERNELS).rename(tmp_path / "mine.py")
    environment = {**os.environ, "STARK_KERNEL_CACHE": str(tmp_path / "cache")}
    for command in COMMANDS:
        words = [word.replace("runs/mine", "mine.py") for word in shlex.split(command)]
        words[1] = str(TOP / words[1])
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, command + done.stdout + done.stderr
    folder = tmp_path / "dist" / "fused-gate"
    for name in re.findall(r"^    (\S+), ", PAGE, re.MULTILINE):
        assert (folder / name).is_file()
    assert 2 == len(list((folder / "wheels").glob("*.whl")))
    assert (tmp_path / "dist" / "fused-gate-hub" / "build.toml").is_file()
