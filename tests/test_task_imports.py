"""The modules in a task's folder that it imports; an import that can't be used is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.task_imports import MAX_BYTES, TaskImportError, task_imports


@pytest.fixture
def task_folder(tmp_path: Path) -> Path:
    """A task's folder with modules, packages, and files that the task does not import."""
    files = {
        "lib.py": "from pkg.core import SCALE\nimport torch\n",
        "pkg/__init__.py": "from .core import SCALE\n",
        "pkg/core.py": "import os\nfrom . import deep\n",
        "pkg/deep/__init__.py": "from ..core import SCALE\n",
        "pkg/unused.py": "raise SystemExit\n",
        "plain/helper.py": "",
        "broken.py": "def f(:\n",
        "upward.py": "from .lib import SCALE\n",
        "random.py": "",
        "protocol/__init__.py": "",
        "large.py": f"x = 1\n{'#' * MAX_BYTES}\n",
        "secret.py": "KEY = 1\n",
        "compiled.so": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pkg" / "bytes.py").write_bytes(b"\xff\xfe")
    return tmp_path


PKG = ("pkg/__init__.py", "pkg/core.py", "pkg/deep/__init__.py")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch, os\nfrom torch import nn", ()),
        ("import lib", ("lib.py", *PKG)),
        ("from lib import act", ("lib.py", *PKG)),
        ("def f():\n    from pkg import unused", (*PKG, "pkg/unused.py")),
        ("import pkg.core as core", PKG),
        ("from plain import helper", ("plain/helper.py",)),
        ("import plain.helper", ("plain/helper.py",)),
        ("import importlib\nimportlib.import_module('plain.helper')", ("plain/helper.py",)),
        ("try:\n    import compiled\nexcept ImportError:\n    import pkg", PKG),
        ("try:\n    from .pkg import core\nexcept ImportError:\n    from pkg import core", PKG),
        ("import nowhere, pkg.nowhere", PKG),
    ],
)
def test_imported_files_are_found_and_no_others(
    task_folder: Path, source: str, found: tuple[str, ...]
) -> None:
    """Imports of imported modules are followed; a file without an import statement is not read."""
    modules = task_imports(source, task_folder / "task.py")
    assert sorted(found) == list(modules)
    assert all(text == (task_folder / name).read_text() for name, text in modules.items())


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from .lib import act", "mine.py:1: from .lib import act: .* write from lib import act"),
        ("from . import lib", "write import lib"),
        ("x = 1\nfrom ..lib import act", "mine.py:2: .*leads out of the folder"),
        ("import upward", "upward.py:1: from .lib import SCALE: .*write from lib import SCALE"),
        ("import broken", "broken.py:1: invalid syntax"),
        ("import random", "random in the folder of the task's file hides"),
        ("import protocol", "protocol in the folder of the task's file hides"),
        ("import large", "more than 1 MiB"),
        ("import compiled", "compiled.so is compiled"),
        ("from pkg import bytes", "is not UTF-8 text"),
    ],
)
def test_an_unusable_import_is_one_line(task_folder: Path, source: str, reason: str) -> None:
    """The line names the file and the line number, and says what to do."""
    with pytest.raises(TaskImportError, match=reason) as refused:
        task_imports(source, task_folder / "mine.py")
    assert len(str(refused.value).splitlines()) == 1


def test_the_copy_of_a_task_in_a_run_finds_its_stored_modules(
    task_folder: Path, tmp_path: Path
) -> None:
    """`--task RUN/tasks/NAME.py` is the same task again."""
    run = tmp_path / "run"
    (run / "tasks" / "modules" / "mine").mkdir(parents=True)
    (run / "tasks" / "modules" / "mine" / "lib.py").write_text("A = 1\n")
    assert task_imports("import lib\n", run / "tasks" / "mine.py") == {}
    (run / "stark.toml").touch()
    assert task_imports("import lib\n", run / "tasks" / "mine.py") == {"lib.py": "A = 1\n"}


def test_a_symbolic_link_is_followed_to_the_folder_of_the_file(
    task_folder: Path, tmp_path: Path
) -> None:
    """Python resolves links in the same way when it runs a file."""
    (task_folder / "task.py").write_text("import lib\n")
    link = tmp_path / "elsewhere" / "link.py"
    link.parent.mkdir()
    link.symlink_to(task_folder / "task.py")
    assert "lib.py" in task_imports("import lib\n", link)
