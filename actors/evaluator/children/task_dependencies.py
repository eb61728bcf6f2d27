"""What lay beside a task's file, in a folder of each child's own that is the first on its path."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

DEPENDENCY_FOLDER = "beside-the-task"  # a name that no library has on its way


def write_dependencies(modules: Mapping[str, str]) -> None:
    """Write `modules` (path -> source) into the working directory and let them be imported.

    Read-only, and written anew for each child: what a builder left there is gone.
    """
    if not modules:
        return
    folder = Path.cwd() / DEPENDENCY_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    for name, source in modules.items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name} does not lie beside the task")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        file.chmod(0o444)
    sys.path.insert(0, str(folder))  # as for `python task.py`
    importlib.invalidate_caches()
