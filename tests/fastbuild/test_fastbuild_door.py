"""Laws of the door of fast builds: other code uses the facade alone, and torch is loaded late."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
PACKAGE = "actors.evaluator.fastbuild"
FOLDER = TOP / PACKAGE.replace(".", "/")
# Each inner room, and the rooms that its modules may import.
ROOMS: dict[str, set[str]] = {
    "request": set(),
    "store": {"request"},
    "headers": {"request", "store"},
    "nvcc": {"request", "store", "headers"},
}


def imported_modules(path: Path) -> Iterator[str]:
    """Return the modules of the package that a file imports from, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        yield from (name for name in names if f"{name}.".startswith(f"{PACKAGE}."))


def test_code_outside_imports_the_facade_alone() -> None:
    """A module of the folder can be moved or renamed without a change outside of it."""
    files = [
        path for top in ("actors", "protocol", "scripts") for path in (TOP / top).rglob("*.py")
    ]
    assert set() == {
        f"{path.relative_to(TOP)}: {name}"
        for path in files
        if not path.is_relative_to(FOLDER)
        for name in imported_modules(path)
        if name != PACKAGE
    }


def test_modules_inside_import_each_other_and_no_room_upwards() -> None:
    """An import of the facade, or of a room above, would be a cycle."""
    reached = {
        (path.relative_to(FOLDER).parts[0], name.removeprefix(f"{PACKAGE}.").split(".")[0])
        for room in ROOMS
        for path in (FOLDER / room).rglob("*.py")
        for name in imported_modules(path)
    }
    assert set() == {(room, other) for room, other in reached if other not in {room, *ROOMS[room]}}
    inside = [path for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py"]
    assert set() == {path for path in inside if PACKAGE in imported_modules(path)}


def test_the_facade_is_imported_without_torch() -> None:
    """The judge's process imports the facade, and never torch."""
    program = f"import sys, {PACKAGE}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=TOP, check=True)
