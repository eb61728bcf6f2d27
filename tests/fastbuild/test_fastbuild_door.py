"""The door of fast builds loads torch late; tests/test_rooms.py says who may import what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
PACKAGE = "actors.evaluator.fastbuild"


def test_the_facade_is_imported_without_torch() -> None:
    """The judge's process imports the facade, and never torch."""
    program = f"import sys, {PACKAGE}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=TOP, check=True)
