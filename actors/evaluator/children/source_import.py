"""Imports a task's or a candidate's file in a child, with its dependencies and with fast builds.

The fast-build hook is not a security boundary: it runs in the candidate's process.  It reads
read-only toolkits and writes to the candidate's own folder.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import torch

from actors.evaluator.fastbuild import TOOLKITS_VARIABLE, install_hook, may_compile
from actors.evaluator.sandbox.confinement import IMPORT_PATHS_VARIABLE

DEPENDENCY_FOLDER = "beside-the-task"  # no library has a folder of this name on its path
UNLIMITED_S = 1e6  # the judge has a limit of its own


def import_candidate(source: str, modules: Mapping[str, str]) -> ModuleType:
    """Import a candidate's file, with fast builds where the machine has a toolkit for it."""
    add_import_paths()
    install_fast_builds(source)
    write_dependencies(modules)
    return import_file(source, "candidate")


def import_task(source: str, modules: Mapping[str, str]) -> ModuleType:
    """Import a task's file."""
    add_import_paths()
    write_dependencies(modules)
    return import_file(source, "task")


def add_import_paths() -> None:
    """Let Python find the packages of `--import-path`, after everything that is installed."""
    for folder in os.environ.get(IMPORT_PATHS_VARIABLE, "").split(os.pathsep):
        if folder and folder not in sys.path:
            sys.path.append(folder)


def install_fast_builds(source: str) -> None:
    """Make torch's build functions use the toolkit for the extensions that `source` compiles."""
    toolkits = os.environ.get(TOOLKITS_VARIABLE)
    if toolkits and may_compile(source):
        install_hook(Path(toolkits), UNLIMITED_S)


def write_dependencies(modules: Mapping[str, str]) -> None:
    """Write `modules` (path -> source), the files beside the task, where Python imports them first.

    The folder belongs to this child.  Its files are read-only and written anew, so a builder's
    changes to them have no effect here.
    """
    if not modules:
        return
    folder = Path.cwd() / DEPENDENCY_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    for name, source in modules.items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name} is not in the task's folder")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        file.chmod(0o444)
    sys.path.insert(0, str(folder))  # as for `python task.py`
    importlib.invalidate_caches()


def import_file(source: str, name: str) -> ModuleType:
    """Write `source` to NAME.py in the working directory and import it."""
    path = Path.cwd() / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def seed_all(seed: int) -> None:
    """Seed the random generators of torch and Python."""
    torch.manual_seed(seed)
    random.seed(seed)


def seed_in_use(seed: int) -> None:
    """Seed as `seed_all` does what is in use now, in microseconds.

    `torch.manual_seed` also notes a stack trace for each kind of device that is not in use: 90 to
    330 µs a call, more than many calls of candidates take.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
