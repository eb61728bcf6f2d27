"""What is shipped: winners of a run, of an adopted model's package, or a winner's file."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.release.decomposition import DropIn, NotADropInError, drop_in_parts
from actors.release.package_module import limits_in
from actors.ship.errors import NothingToShipError, ShipError
from actors.supervisor.reporting.run_data import run_folder_integrity
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.run_results import best_file_header, winner_source
from actors.supervisor.reporting.run_data.snapshot import NodeView, Snapshot, TaskState
from protocol import settings as settings_file
from protocol.frozen_struct import Value
from protocol.release import LIMITS
from protocol.settings import Settings
from protocol.values import DeviceKind

FITTED = "stark_fitted"
LIBRARY_ONLY = "library_only"
SEVERAL = "second instance"
ON_A_CARD = ("side stream", "CUDA graph")  # limits that mean nothing on a processor


class ShippedWinner(Value, frozen=True, kw_only=True):
    """One winner, and where it comes from."""

    name: str  # of its task
    parts: DropIn
    device: DeviceKind
    origin: dict[str, object]  # for provenance.json

    @property
    def limits(self) -> tuple[str, ...]:
        """The uses in which the judge found the kernels wrong; () before its release check."""
        return () if self.is_unchecked else limits_in(self.parts.judged)

    @property
    def is_unchecked(self) -> bool:
        """Whether no release check was made: the winner's file then has every limit.

        `adopt.py fit` has taken away the one to a single instance, where a model has several.
        """
        return set(limits_in(self.parts.judged)) >= {*LIMITS} - {SEVERAL}

    @property
    def untried(self) -> tuple[str, ...]:
        """The uses that the battery has to try, since the judge did not."""
        if not self.is_unchecked:
            return ()
        return tuple(each for each in LIMITS if self.device == "cuda" or each not in ON_A_CARD)


def of_run(run: Path, tasks: Sequence[str], node: int | None) -> list[ShippedWinner]:
    """Return the winners of a run: of all its tasks, or of those that are named.

    `node`: an attempt in place of the winner, for one task.  Raises ShipError.
    """
    try:
        run_folder_integrity.check_readable(run)
    except ValueError as error:
        raise ShipError(str(error)) from error
    reader = RunReader(run)
    snapshot, settings = reader.poll(), settings_file.read(run)
    if snapshot is None:
        raise ShipError(f"{run} can't be read now: repeat the command in a moment")
    known = {task.name: task for task in snapshot.tasks}
    unknown = [name for name in tasks if name not in known]
    if unknown:
        raise ShipError(f"--task {unknown[0]}: the run has {', '.join(known)}")
    chosen = [known[name] for name in tasks] or list(known.values())
    if node is not None and len(chosen) != 1:
        raise ShipError(f"--node {node}: name the task with --task, one of {', '.join(known)}")
    found = [chosen_node(run, task, snapshot, node) for task in chosen]
    winners = [
        _of_node(reader, task, best, settings)
        for task, best in zip(chosen, found, strict=True)
        if best is not None
    ]
    if not winners or (tasks and len(winners) < len(tasks)):
        without = next(task for task, best in zip(chosen, found, strict=True) if best is None)
        raise NothingToShipError(
            f"{run} has no winner for {without.name}: --node N ships an attempt, or run it further"
        )
    return winners


def chosen_node(
    run: Path, task: TaskState, snapshot: Snapshot, number: int | None
) -> NodeView | None:
    """Return the node of one task that is shipped, None without a winner."""
    if number is not None:
        node = next((node for node in task.attempts if node.number == number), None)
        if node is None:
            raise ShipError(f"--node {number}: {task.name} has no such attempt")
        if not node.is_correct:
            raise ShipError(f"--node {number}: its verdict is {node.verdict.verdict}, not correct")
        return node
    if not snapshot.is_finished(task) and run_folder_integrity.is_served(run):
        raise ShipError(f"{run} is in progress: wait for its end, or name an attempt with --node")
    best = task.best
    if best is not None and not best.confirmed:
        raise NothingToShipError(
            f"{run} was stopped before the winner of {task.name} was confirmed: go on with"
            f" --resume {shlex.quote(str(run))}, or ship it as it is with --node {best.number}"
        )
    if best is not None and LIBRARY_ONLY in best.verdict.labels:
        raise NothingToShipError(
            f"the winner of {task.name} has no kernel of its own, only calls of libraries: use"
            f" best.py as it is, or ship it with --node {best.number}"
        )
    return best


def _of_node(
    reader: RunReader, task: TaskState, node: NodeView, settings: Settings
) -> ShippedWinner:
    modules = reader.task_modules(task.name)
    if modules:
        raise ShipError(
            f"{task.name} imports modules of its own folder ({min(modules)}), which a package can't"
            " hold: put them into the task's file, or use best.py"
        )
    author = "a person" if reader.is_from_person(task.name, node.number) else settings.model
    origin: dict[str, object] = {
        "task": task.name,
        "node": node.number,
        "author": author,
        "speedup": node.verdict.speedup,
        "speedup_ci95": node.verdict.speedup_ci95,
        "eager_us": task.eager_us(node),
        "kernels_us": task.shown_us(node),
        "confirmed": node.confirmed,
        "device": node.verdict.device or (task.reference.device.name if task.reference else ""),
        "release": msgspec.to_builtins(node.verdict.release) if node.verdict.release else None,
        "header": best_file_header(task, node, settings, author).strip(),
    }
    return _winner(task.name, winner_source(reader, task, node), origin)


def of_file(file: Path) -> ShippedWinner:
    """Return the winner of a file such as best.py; raise ShipError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ShipError(f"can't read {file}: {error}") from error
    found = _winner(file.stem, text, {"file": file.name})
    name = found.parts.task_name or file.stem
    header = {"header": found.parts.header.strip()} if found.parts.header else {}
    return msgspec.structs.replace(found, name=name, origin={**found.origin, **header})


def of_fitted(folder: Path) -> tuple[list[ShippedWinner], dict[str, str]]:
    """Return the winners in an adopted model's package, and its other files: name -> text.

    After a check only the winners that it kept are shipped.
    """
    package = folder / FITTED
    try:
        (folder / "fit.json").read_bytes()  # a killed `adopt.py fit` has left none
        sites = msgspec.json.decode((package / "sites.json").read_bytes())
        kept = _kept(folder)
        if kept is not None:
            sites["winners"] = [each for each in sites["winners"] if each["name"] in kept]
        names = {str(each["module"]): str(each["name"]) for each in sites["winners"]}
        files = {
            path.name: path.read_text(encoding="utf-8")
            for path in sorted(package.glob("*.py"))
            if not path.stem.startswith("winner_")
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        command = f"adopt.py fit {shlex.quote(str(folder))}"
        raise ShipError(f"{folder} has no whole {FITTED}: run `{command}` first ({error!r})") from (
            error
        )
    if not names:
        raise NothingToShipError(f"{folder}: the check kept no winner, see its report.md")
    files["sites.json"] = msgspec.json.encode(sites).decode()
    winners = []
    for module, name in names.items():
        found = of_file(package / f"{module}.py")
        winners.append(
            msgspec.structs.replace(found, name=module, origin={"task": name, **found.origin})
        )
    return winners, files


def _kept(folder: Path) -> set[str] | None:
    """Return the names of the winners that `adopt.py check` kept, None before a check."""
    path = folder / "check.json"
    if not path.is_file():
        return None
    return {str(name) for name in msgspec.json.decode(path.read_bytes())["kept"]}


def _winner(name: str, text: str, origin: dict[str, object]) -> ShippedWinner:
    try:
        parts = drop_in_parts(text)
    except NotADropInError as error:
        raise ShipError(f"{name} can't be shipped: {error}") from error
    digests = {
        "task_sha256": hashlib.sha256(parts.task.encode()).hexdigest(),
        "kernels_sha256": hashlib.sha256(parts.candidate.encode()).hexdigest(),
    }
    return ShippedWinner(name=name, parts=parts, device=parts.device, origin={**origin, **digests})
