"""The rooms: the modules that each folder may import.  A failure names the wrong import."""

from __future__ import annotations

import ast
import functools
import graphlib
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
OURS = {"protocol", "actors", "prompts", "scripts", "supervisor"}

# room -> the modules that it may import, in addition to the standard library and itself
ROOMS: dict[str, set[str]] = {
    "protocol": {"msgspec", "zmq"},
    "actors/coordinator": {
        "msgspec", "zmq", "structlog", "sortedcontainers",
        "protocol", "actors.log", "actors.identity", "actors.cli", "actors.failpoints",
        "actors.commands",
        "actors.lifeline", "actors.exit_status", "actors.deadlines", "actors.tune_space",
        "actors.task_cases",
    },
    "actors/agents": {
        "msgspec", "structlog", "anthropic", "httpx2",
        "protocol", "prompts", "actors.actor", "actors.work_context", "actors.identity",
        "actors.log",
        "actors.cli", "actors.failpoints", "actors.exit_status", "actors.case_source",
        "actors.tune_space",
    },
    "actors/release": {"protocol", "torch"},
    "actors/evaluator": {
        "msgspec", "torch", "triton", "structlog", "pynvml",
        "protocol", "actors.release", "actors.actor", "actors.work_context", "actors.identity",
        "actors.log",
        "actors.cli", "actors.failpoints", "actors.commands", "actors.installation",
        "actors.startup_packages", "actors.startup_signals", "actors.task_imports",
        "actors.procfs", "actors.prctl", "actors.exit_status", "actors.tune_space",
        "actors.task_cases", "actors.case_source",
        "actors.import_paths", "actors.cuda_devices",
    },
    "actors/launcher": {
        "msgspec", "structlog", "parsl",
        "protocol", "actors.log", "actors.identity", "actors.cli", "actors.installation",
        "actors.lifeline", "actors.exit_status", "actors.deadlines",
    },
    "actors/supervisor": {
        "msgspec", "zmq", "rich", "structlog", "setproctitle", "jinja2",
        "protocol", "actors.release", "actors.log", "actors.cli", "actors.failpoints",
        "actors.commands", "actors.installation", "actors.task_imports", "actors.task_cases",
        "actors.import_paths", "actors.cuda_devices",
        "actors.agents.models.registry",
        "scripts.report",
        "actors.procfs", "actors.prctl", "actors.exit_status", "actors.deadlines",
    },
    "actors/adopt": {
        "msgspec", "torch",
        "protocol", "actors.release", "actors.cli", "actors.commands", "actors.exit_status",
        "actors.installation", "actors.prctl", "actors.procfs",
    },
    "actors/ship": {
        "msgspec", "torch", "setuptools",
        "protocol", "actors.release", "actors.supervisor.reporting", "actors.exit_status",
    },
    "actors/watch": {
        "msgspec", "starlette", "uvicorn",
        "protocol", "actors.supervisor.reporting", "actors.supervisor.page", "actors.cli",
    },
}  # fmt: skip
# The inner rooms of a room, from the top floor down.  Rooms of one floor do not import each other.
# An inner room imports lower floors only, never the files of the folder that contains it.
FLOORS: dict[str, list[set[str]]] = {
    "actors/adopt": [
        {"check"},
        {"fit"},
        {"take"},
        {"regions"},
        {"look", "tasks"},
        {"model"},
        {"stage", "fitted_package"},
    ],
    "actors/agents": [{"models"}, {"recipes"}, {"requests"}, {"replies", "cards"}],
    "actors/agents/recipes": [{"roles"}, {"codegen"}, {"frontend", "schedule"}, {"ir"}],
    "actors/coordinator": [{"replay"}, {"gateway"}, {"storage"}, {"scheduling", "search"}],
    "actors/evaluator": [
        {"facts"},
        {"timing", "profiling", "build", "children", "labels"},
        {"devices", "reference"},
        {"sandbox"},
        {"ipc"},
        {"fastbuild"},
    ],
    "actors/evaluator/children": [{"release_checks"}, {"tensors"}],
    "actors/evaluator/fastbuild": [{"nvcc"}, {"headers"}, {"store"}, {"request"}],
    "actors/release": [{"guard"}],
    "actors/ship": [{"package_texts"}],
    "actors/supervisor": [{"cli"}, {"reporting"}, {"processes", "page"}],
    "actors/supervisor/reporting": [{"screens", "report"}, {"feed"}, {"run_data"}],
    "scripts": [{"benchmarks", "comparison"}, {"tables"}, {"faults"}],
}
# prompts/examples/*.py are texts for models, not code that runs here.
ONLY_HERE = {
    "anthropic": {"actors/agents/models"},
    # The judge's own process never imports torch: its children import it, and children may crash.
    "torch": {
        "actors/evaluator/children",
        "actors/adopt",  # it runs the user's model
        "actors/ship/package_texts",  # likewise
        "actors/release/guard",  # texts that are copied into winners, never imported
        "actors/evaluator/fastbuild",
        "actors/evaluator/children/correctness.py",
        "actors/evaluator/devices/device_description.py",
        "prompts/examples",
        "scripts/benchmarks",
    },
    # An agent reads a finished run (`--model replay:RUN`), never the run that it works for.
    "sqlite3": {
        "actors/coordinator",
        "actors/supervisor",
        "supervisor.py",
        "actors/agents/models/replay_model.py",
        "scripts",
    },
}


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def allowed(name: str, room: str) -> bool:
    own = room.replace("/", ".")
    permitted = ROOMS[room] | {own}
    if name.split(".")[0] in sys.stdlib_module_names:
        return True
    return any(name == word or name.startswith(word + ".") for word in permitted)


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    """The coordinator imports neither torch nor a model; agents do not import torch."""
    reached = {
        f"{path.relative_to(TOP)}: {name}"
        for path in (TOP / room).rglob("*.py")
        for name in imports(path)
        if not allowed(name, room)
    }

    assert set() == reached


@pytest.mark.parametrize("package", sorted(ONLY_HERE))
def test_a_package_stays_in_its_rooms(package: str) -> None:
    """Each package of `ONLY_HERE` is imported in its folders alone."""
    strays = {
        str(path.relative_to(TOP))
        for top in sorted(OURS)
        for path in [*(TOP / top).rglob("*.py"), TOP / f"{top}.py"]
        if path.exists()
        and any(name.split(".")[0] == package for name in imports(path))
        and not any(str(path.relative_to(TOP)).startswith(room) for room in ONLY_HERE[package])
    }

    assert set() == strays


@functools.cache
def module_files() -> dict[str, Path]:
    """Return dotted name -> file of each of our modules; a package's file is its `__init__.py`."""
    paths = [path for top in OURS for path in (TOP / top).rglob("*.py")]
    dotted = {path: ".".join(path.relative_to(TOP).with_suffix("").parts) for path in paths}
    return {name.removesuffix(".__init__"): path for path, name in dotted.items()}


@functools.cache
def folder_imports() -> dict[str, set[str]]:
    """Return folder -> the other folders of this project from which its own files import."""
    files = module_files()
    folder_of = {
        name: str(path.parent.relative_to(TOP)).replace("/", ".") for name, path in files.items()
    }
    found: dict[str, set[str]] = {folder: set() for folder in folder_of.values()}
    for name, path in files.items():
        for imported in imports(path):
            module = imported if imported in files else imported.rpartition(".")[0]
            if module in files:
                found[folder_of[name]].add(folder_of[module])
    return {folder: reached - {folder} for folder, reached in found.items()}


def floor_of(room: str) -> dict[str, int]:
    """Return the floor of each inner room, counted from the top."""
    return {inner: depth for depth, floor in enumerate(FLOORS[room]) for inner in floor}


@pytest.mark.parametrize("room", sorted(FLOORS))
def test_an_inner_room_imports_only_lower_floors(room: str) -> None:
    """An inner room never imports a higher or equal floor, nor the folder that contains it."""
    package, floors = room.replace("/", "."), floor_of(room)
    upward = set()
    for folder, reached in folder_imports().items():
        inner = folder.removeprefix(package + ".").split(".")[0]
        if not folder.startswith(package + ".") or inner not in floors:
            continue
        for other in reached:
            target = other.removeprefix(package + ".").split(".")[0]
            is_inside = other.startswith(package + ".") and target in floors
            if other == package or (
                is_inside and target != inner and floors[target] <= floors[inner]
            ):
                upward.add(f"{folder} -> {other}")

    assert set() == upward


def test_every_inner_room_has_a_floor() -> None:
    """`FLOORS` lists exactly the inner rooms that exist."""
    drawn = {f"{room}/{inner}" for room, floors in FLOORS.items() for inner in set().union(*floors)}
    rooms = {room for top in OURS for room in (TOP / top).rglob("*") if any(room.glob("*.py"))}
    built = {
        str(room.relative_to(TOP))
        for room in rooms
        if str(room.parent.relative_to(TOP)) not in {"actors", "prompts", "."}
    }

    assert drawn == built


def test_fast_builds_have_one_door() -> None:
    """Other rooms import `actors.evaluator.fastbuild` only, and its own modules not this facade."""
    package = "actors.evaluator.fastbuild"
    files = module_files()
    beside_the_door, through_the_door_from_within = set(), set()
    for module, path in files.items():
        targets = {name if name in files else name.rpartition(".")[0] for name in imports(path)}
        is_inside = module == package or module.startswith(package + ".")
        if is_inside and package in targets:
            through_the_door_from_within.add(module)
        if not is_inside:
            inner = {target for target in targets if target.startswith(package + ".")}
            beside_the_door |= {f"{module} -> {target}" for target in inner}

    assert set() == beside_the_door
    assert set() == through_the_door_from_within


def test_folders_do_not_import_each_other_in_a_circle() -> None:
    """The folders can be sorted so that each one comes after the folders that it imports."""
    graph = folder_imports()

    order = list(graphlib.TopologicalSorter(graph).static_order())

    assert set(graph) == set(order)
