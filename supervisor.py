"""The command: `python supervisor.py --task t.py` turns a PyTorch task into a faster kernel.

Reads top down: understand what is asked, make or take up the run folder, serve the run, conclude.
Everything that a mistake of the user's can cause is one line and exit status 2.
"""

from __future__ import annotations

from actors.interrupts import end_when_interrupted

if __name__ == "__main__":
    end_when_interrupted()  # what is imported next takes a while

import os
import random
import sqlite3
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console

from actors import failpoints
from actors.interrupts import Interrupted, ignore_interrupts, unwind_when_interrupted
from actors.log import open_log
from actors.supervisor import (
    children,
    choices,
    conclusion,
    environment,
    flags,
    folder,
    hardware,
    intact,
    joining,
    keys,
    launching,
    leftovers,
    outcome,
    preflight,
    spec,
    spending,
)
from actors.supervisor.flags import UsageError, Wish
from actors.supervisor.fleet import Fleet
from actors.supervisor.folder import RunFolder
from actors.supervisor.ledger import Ledger
from actors.supervisor.link import Link
from actors.supervisor.metrics import MeteredScreen, MetricsServer
from actors.supervisor.outcome import Exit
from actors.supervisor.screen import PlainScreen, Screen, opening
from actors.supervisor.shift import Ending, Kind, Shift
from actors.supervisor.snapshot import Snapshot
from actors.supervisor.view import LiveScreen
from actors.supervisor.watch import Watch
from actors.usage import have_streams, leave_output
from protocol import tickets
from protocol.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that may begin: its folder is made and locked, its settings are on disk."""

    folder: RunFolder
    settings: Settings
    gpus: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)  # task -> the file that the user named
    resumed: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit status."""
    try:
        wish = flags.parse(sys.argv[1:] if argv is None else argv)
        check_failpoints(os.environ)
        flags.check_environment(os.environ, environment.NO_SETTINGS)
        metrics = MetricsServer(wish.metrics) if wish.metrics else None
        if wish.join:
            return joining.join(wish, os.environ)
        run = take_up(wish, os.environ) if wish.resume else begin(wish, os.environ)
    except UsageError as error:
        return refuse(str(error))
    except (leftovers.StillThere, intact.DamagedRunError) as error:
        refuse(str(error))
        return Exit.FAULT
    with run.folder:
        try:
            return work(run, wish, metrics)
        except Interrupted as error:  # between a folder that is a run's and its first process
            again = f"resume with: {flags.COMMAND} --resume {run.folder.shown}"
            refuse(f"not finished: {error}; {again}")
            return Exit.STOPPED


def begin(wish: Wish, environ: Mapping[str, str]) -> Run:
    """Check everything, then make the folder of a new run."""
    tasks = preflight.read_tasks(wish.tasks)
    gpus = hardware.gpus(environ)
    settings = choices.of_new_run(wish, tuple(task.name for task in tasks), environ, gpus)
    settings = spending.priced(preflight.check_models(settings, environ, Path.cwd()))
    preflight.check_replayed(settings, tasks)
    preflight.check_device(settings, gpus)
    preflight.check_sandbox(settings, environ)
    preflight.check_address(settings)
    preflight.check_descriptors(1 + settings.workers)
    made = folder.make(wish.run_dir, tasks)
    try:
        made.write(settings, tasks)
        invite(made, settings)
    except BaseException as error:
        made.remove()
        if isinstance(error, OSError):
            raise UsageError(f"can't write into {made.shown}: {error.strerror}") from error
        raise
    files = {task.name: str(task.path) for task in tasks}
    return Run(folder=made, settings=settings, gpus=gpus, files=files)


def take_up(wish: Wish, environ: Mapping[str, str]) -> Run:
    """Lock an old run, settle its settings, and end what a killed supervisor left."""
    old, settings, stored = folder.resume(wish.resume or Path())
    try:
        gpus = hardware.gpus(environ)
        changed = choices.of_resumed_run(settings, wish)
        changed = spending.priced(preflight.check_models(changed, environ, Path.cwd()))
        preflight.check_device(changed, gpus)
        preflight.check_sandbox(changed, environ)
        leftovers.kill(old.run_id)
        preflight.check_address(changed)
        preflight.check_descriptors(1 + changed.workers)
        launching.evaluators(changed.launch)
        check_keys(old, changed)
        old.clean()
        old.rebuild(stored)
        if changed != settings:
            old.write(changed)
        invite(old, changed)
    except OSError as error:
        old.close()
        raise UsageError(f"can't go on in {old.shown}: {error.strerror}") from error
    except UsageError:
        old.close()
        raise
    return Run(folder=old, settings=changed, gpus=gpus, resumed=True)


def check_keys(place: RunFolder, settings: Settings) -> None:
    """Find keys that can't be used before anything in the folder is changed."""
    if settings.public:
        try:
            keys.check(place.path)
        except ValueError as error:
            raise UsageError(keys.unusable(error)) from error


def invite(place: RunFolder, settings: Settings) -> None:
    """Make keys and a ticket where other machines are to join."""
    if not settings.public:
        return
    try:
        keys.open_house(place.path, settings, time.time())
        if settings.launch:
            keys.ticket_for_jobs(place.path, settings, time.time())
    except ValueError as error:
        raise UsageError(keys.unusable(error)) from error


def work(run: Run, wish: Wish, metrics: MetricsServer | None = None) -> int:
    """Serve the run to its end and conclude it."""
    ledger = Ledger(run.folder.path)
    screen = open_screen(run, wish)
    if metrics is not None:
        screen.say(f"metrics at {metrics.url}")
        screen = MeteredScreen(screen, metrics, ledger)
    ignore_interrupts()
    watch = Watch()  # until the very end: a late Ctrl-C must not cut the results in half
    try:
        finished = already_finished(run, ledger)
        if finished is not None:
            snapshot, ending = finished, Ending(kind=Kind.OVER)
        else:
            snapshot, ending = serve(run, ledger, screen, watch)
        screen.close()
        if snapshot.status == "refused" and not wish.keep_refused:
            return refuse_task(run, snapshot, ledger)
        code, found = conclusion.conclude(
            run.folder, run.settings, ledger, snapshot, ending, PlainScreen(lines(wish)).say
        )
        if wish.json and not printed(outcome.to_json(found)):
            return Exit.FAULT
        return code
    except sqlite3.DatabaseError as error:
        screen.close()
        refuse(f"{run.folder.shown}/run.db can't be used: {error}")
        return Exit.FAULT
    finally:
        screen.close()
        ledger.close()
        watch.close()
        if metrics is not None:
            metrics.close()


def check_failpoints(environ: Mapping[str, str]) -> None:
    """Find a typo in what tests arm before anything is made."""
    try:
        failpoints.parse(environ.get(failpoints.VARIABLE, ""))
    except ValueError as error:
        raise UsageError(str(error)) from error


def serve(run: Run, ledger: Ledger, screen: Screen, watch: Watch) -> tuple[Snapshot, Ending]:
    """Start all processes and supervise them until the run ends."""
    place = run.folder.path
    for line in opening(run.settings, run.folder.shown):
        screen.say(line)
    if run.settings.public:
        screen.say(keys.invitation(run.folder.shown, tickets.read(place / tickets.FILE_NAME)))
    failpoints.arm("supervisor", place)
    os.chdir(place)  # the coordinator's socket has a short, relative address
    children.adopt_orphans()
    specs = spec.children(run.settings, place, run.folder.run_id, os.environ, run.gpus)
    fleet = Fleet(specs, place, random.Random(), on_start=watch.child)  # noqa: S311  # jitter only
    with closing(Link(run.settings.local)) as link:
        for descriptor in link.descriptors:
            watch.descriptor(descriptor)
        shift = Shift(
            run_dir=place,
            settings=run.settings,
            fleet=fleet,
            watch=watch,
            link=link,
            ledger=ledger,
            screen=screen,
            log=open_log(place, "supervisor"),
            note=run.folder.note,
        )
        ending = shift.serve()
    return shift.snapshot, ending


def already_finished(run: Run, ledger: Ledger) -> Snapshot | None:
    """Return the snapshot of a resumed run that has nothing left to do."""
    snapshot = ledger.poll() if run.resumed else None
    if snapshot is None or snapshot.status != "finished":
        return None
    budget = run.settings.search.budget
    extended = any(task.budget < budget and not task.problem for task in snapshot.tasks)
    return None if extended else snapshot


def open_screen(run: Run, wish: Wish) -> Screen:
    """Return the live view on a terminal, plain lines elsewhere; stderr where --json has stdout."""
    console = Console(stderr=wish.json, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console, run.settings, run.folder.shown)
    return PlainScreen(lines(wish), resumed=run.resumed)


def printed(text: str) -> bool:
    """Write the results to stdout; whether it took them."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        refuse(f"stdout takes no results ({error.strerror}): they are in result.json")
        return False
    return True


def lines(wish: Wish) -> TextIO:
    """Return where progress is told."""
    return sys.stderr if wish.json else sys.stdout


def refuse_task(run: Run, snapshot: Snapshot, ledger: Ledger) -> int:
    """Say why no task can be measured; a run that never began leaves no folder."""
    for line in conclusion.problems(snapshot, run.files):
        refuse(line)
    ledger.close()
    if not run.resumed:
        run.folder.remove()
    return Exit.USAGE


def refuse(line: str) -> int:
    """Say in one line what is wrong with what the user asked for."""
    with suppress(OSError):  # a file on a disk that is full
        print(" ".join(line.split()), file=sys.stderr, flush=True)
    return Exit.USAGE


def command() -> int:
    """Be the command: return the exit status, also when a signal came before all."""
    have_streams()
    unwind_when_interrupted()
    try:
        status = main()
    except Interrupted as error:
        refuse(f"{error} before anything was begun")
        status = error.status
    ignore_interrupts()
    leave_output()
    return status


if __name__ == "__main__":
    sys.exit(command())
