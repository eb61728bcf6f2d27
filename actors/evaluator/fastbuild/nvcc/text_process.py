"""Work on long texts in processes of their own: Python runs one thread of a process at a time.

Preparing ten flag sets goes through 150 MB of preprocessed text: on 16 cores the threads waited for
each other, and three cores were busy.  Both programs need the standard library alone, so such a
process begins at once.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from actors.evaluator.fastbuild.headers import declared_names
from actors.evaluator.fastbuild.nvcc import strip_bodies
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import read_text, write_text
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler


def text_without_bodies(text: str, whole_files: re.Pattern[str] | None, deadline: Deadline) -> str:
    """Return what `strip_bodies` makes of `text`."""
    pattern = whole_files.pattern if whole_files else ""
    made = _made_by(strip_bodies.__file__, text, deadline, pattern)
    return strip_bodies.strip_bodies(text, whole_files) if made is None else made


def names_declared(text: str, deadline: Deadline) -> frozenset[str]:
    """Return what `names_declared_in` finds in `text`."""
    made = _made_by(declared_names.__file__, text, deadline)
    return declared_names.names_declared_in(text) if made is None else frozenset(made.split())


def _made_by(program: str, text: str, deadline: Deadline, *arguments: str) -> str | None:
    """Return what a file of ours, run as a program, makes of `text`; None if it can't run."""
    with tempfile.TemporaryDirectory() as name:
        given, made = Path(name, "given"), Path(name, "made")
        write_text(given, text)
        argv = [sys.executable, "-I", "-S", program, str(given), str(made), *arguments]
        ran = run_compiler(argv, Path(name), deadline)
        return None if ran.status else read_text(made)
