"""A child process that imports one candidate and reports its builds: the parent's side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from actors.evaluator.fastbuild.request.compiler_process import BuildTimeoutError
from actors.evaluator.fastbuild.store.build_record import ImportReport
from actors.installation import module_path

CHILD_MODULE = "actors.evaluator.fastbuild.candidate_import"


def import_in_child(
    file: Path, toolkits: Path | None, folder: Path, limit_s: float
) -> ImportReport:
    """Import `file` in a child process whose extensions go to `folder`, in no sandbox.

    `toolkits`: the folder of toolkits for fast builds; None for torch's own builds.
    Raises `BuildTimeoutError` when the child runs longer than `limit_s`.
    """
    report = folder / "report.json"
    argv = [sys.executable, "-P", "-m", CHILD_MODULE, str(file), str(report)]
    environment = {
        **os.environ,
        "PYTHONPATH": module_path(os.environ),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }
    child = subprocess.Popen(
        [*argv, *([str(toolkits)] if toolkits else [])],
        env=environment,
        stdout=sys.stderr.fileno(),
    )
    try:
        status = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise BuildTimeoutError(f"the build took longer than {limit_s:g} s") from None
    finally:
        child.kill()
        child.wait()
    if not report.exists():
        return ImportReport(seconds=0.0, error=f"the import ended the process with status {status}")
    return msgspec.json.decode(report.read_bytes(), type=ImportReport)
