"""What lies beside a task and is imported is taken along; what can't be is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.task_imports import MAX_BYTES, TaskImportError, task_imports


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A task's folder with modules, packages, and what is none of the task's business."""
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
    ("source", "taken"),
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
def test_what_is_imported_is_taken_and_nothing_else(
    beside: Path, source: str, taken: tuple[str, ...]
) -> None:
    """Also what those modules import; never a file that no import statement leads to."""
    found = task_imports(source, beside / "task.py")
    assert sorted(taken) == list(found)
    assert all(text == (beside / name).read_text() for name, text in found.items())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from .lib import act", "mine.py:1: from .lib import act: .* write from lib import act"),
        ("from . import lib", "write import lib"),
        ("x = 1\nfrom ..lib import act", "mine.py:2: .*leads out of the folder"),
        ("import upward", "upward.py:1: from .lib import SCALE: .*write from lib import SCALE"),
        ("import broken", "broken.py:1: invalid syntax"),
        ("import random", "random beside the task's file hides"),
        ("import protocol", "protocol beside the task's file hides"),
        ("import large", "more than 1 MiB"),
        ("import compiled", "compiled.so is compiled"),
        ("from pkg import bytes", "is no UTF-8 text"),
    ],
)
def test_what_can_not_be_taken_is_one_line(beside: Path, source: str, said: str) -> None:
    """It names the file and the line, and says what to do."""
    with pytest.raises(TaskImportError, match=said) as refused:
        task_imports(source, beside / "mine.py")
    assert len(str(refused.value).splitlines()) == 1


def test_a_run_s_own_copy_finds_what_was_taken_along(beside: Path, tmp_path: Path) -> None:
    """So that `--task RUN/tasks/NAME.py` is the same task again."""
    run = tmp_path / "run"
    (run / "tasks" / "modules" / "mine").mkdir(parents=True)
    (run / "tasks" / "modules" / "mine" / "lib.py").write_text("A = 1\n")
    assert task_imports("import lib\n", run / "tasks" / "mine.py") == {}
    (run / "stark.toml").touch()
    assert task_imports("import lib\n", run / "tasks" / "mine.py") == {"lib.py": "A = 1\n"}


def test_a_link_leads_to_the_folder_of_the_file_itself(beside: Path, tmp_path: Path) -> None:
    """As Python has it."""
    (beside / "task.py").write_text("import lib\n")
    link = tmp_path / "elsewhere" / "link.py"
    link.parent.mkdir()
    link.symlink_to(beside / "task.py")
    assert "lib.py" in task_imports("import lib\n", link)
