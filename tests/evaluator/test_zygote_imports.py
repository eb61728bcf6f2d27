"""What the zygote imports asks no driver: a fork of it can use a card, also a part of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# A torch that was built for CUDA, whose question about devices would initialise it (as with MIG).
PROGRAM = """\
import torch
asked = []
def is_available():
    asked.append(1)
    return True
torch.cuda._is_compiled = lambda: True
torch.version.cuda = "13.0"
torch.cuda.is_available = is_available
from actors.evaluator.children import zygote
zygote.import_everything("cuda")
import torch.utils.cpp_extension
print(torch.utils.cpp_extension.CUDA_HOME, asked, torch.cuda.is_available is is_available)
"""


def test_no_import_asks_for_devices(tmp_path: Path) -> None:
    """The extensions' module finds the toolkit, and children can ask afterwards."""
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "CUDA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed == f"{tmp_path} [] True\n"
