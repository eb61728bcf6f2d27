"""The command: `python supervisor.py --task t.py` turns a PyTorch task into a faster kernel.

Reads top down: understand what is asked, make or take up the run folder, serve the run, conclude.
Everything that a mistake of the user's can cause is one line and exit status 2.
"""

from __future__ import annotations

from actors.early_signals import end_when_interrupted

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
from actors.cli import UsageError, discard_unflushed_output, ensure_std_streams
from actors.early_signals import SignalReceivedError, ignore_interrupts, unwind_when_interrupted
from actors.exit_status import ExitStatus
from actors.log import open_log
from actors.supervisor import finish, guest_tickets, join, run_folder
from actors.supervisor.cli import flags, gpu_discovery, model_prices, preflight, run_settings
from actors.supervisor.cli.flags import Arguments
from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.processes import (
    child_process,
    child_specs,
    environment,
    launcher_client,
    orphans,
)
from actors.supervisor.processes.event_poller import EventPoller
from actors.supervisor.processes.process_tree import ProcessTree
from actors.supervisor.reporting import run_folder_integrity, run_results
from actors.supervisor.reporting.live_view import LiveScreen
from actors.supervisor.reporting.prometheus import MeteredScreen, MetricsServer
from actors.supervisor.reporting.run_reader import RunReader
from actors.supervisor.reporting.screen import PlainScreen, Screen, opening_lines
from actors.supervisor.reporting.snapshot import Snapshot
from actors.supervisor.run_folder import RunFolder
from actors.supervisor.run_loop import EndKind, RunEnd, RunLoop
from protocol import tickets
from protocol.settings import Settings


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A run that may begin: its folder is made and locked, its settings are on disk."""

    folder: RunFolder
    settings: Settings
    gpus: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)  # task -> the file that the user named
    resumed: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit status."""
    try:
        arguments = flags.parse_arguments(sys.argv[1:] if argv is None else argv)
        check_failpoints(os.environ)
        flags.check_environment(os.environ, environment.NO_SETTINGS)
        metrics = MetricsServer(arguments.metrics) if arguments.metrics else None
        if arguments.join:
            return join.join_run(arguments, os.environ)
        run = (
            resume_run(arguments, os.environ)
            if arguments.resume
            else new_run(arguments, os.environ)
        )
    except UsageError as error:
        return print_usage_error(str(error))
    except (orphans.OrphansRemainError, run_folder_integrity.DamagedRunError) as error:
        print_usage_error(str(error))
        return ExitStatus.FAULT
    with run.folder:
        try:
            return run_to_end(run, arguments, metrics)
        except (
            SignalReceivedError
        ) as error:  # between a folder that is a run's and its first process
            again = f"resume with: {flags.COMMAND} --resume {run.folder.shown}"
            print_usage_error(f"not finished: {error}; {again}")
            return ExitStatus.STOPPED


def new_run(arguments: Arguments, environ: Mapping[str, str]) -> PreparedRun:
    """Check everything, then make the folder of a new run."""
    tasks = preflight.read_tasks(arguments.tasks)
    gpus = gpu_discovery.visible_gpus(environ)
    settings = run_settings.new_run_settings(
        arguments, tuple(task.name for task in tasks), environ, gpus
    )
    settings = model_prices.with_prices(preflight.check_models(settings, environ, Path.cwd()))
    preflight.check_replayed(settings, tasks)
    preflight.check_device(settings, gpus)
    preflight.check_sandbox(settings, environ)
    preflight.check_address(settings)
    preflight.check_descriptors(1 + settings.local_worker_count)
    made = run_folder.make_run_folder(arguments.run_dir, tasks)
    try:
        made.write(settings, tasks)
        create_tickets(made, settings)
    except BaseException as error:
        made.remove()
        if isinstance(error, OSError):
            raise UsageError(f"can't write into {made.shown}: {error.strerror}") from error
        raise
    files = {task.name: str(task.path) for task in tasks}
    return PreparedRun(folder=made, settings=settings, gpus=gpus, files=files)


def resume_run(arguments: Arguments, environ: Mapping[str, str]) -> PreparedRun:
    """Lock an old run, settle its settings, and end what a killed supervisor left."""
    old, settings, stored = run_folder.open_run_folder(arguments.resume or Path())
    try:
        gpus = gpu_discovery.visible_gpus(environ)
        changed = run_settings.resumed_run_settings(settings, arguments)
        changed = model_prices.with_prices(preflight.check_models(changed, environ, Path.cwd()))
        preflight.check_device(changed, gpus)
        preflight.check_sandbox(changed, environ)
        orphans.kill_orphans(old.run_id)
        preflight.check_address(changed)
        preflight.check_descriptors(1 + changed.local_worker_count)
        launcher_client.max_evaluators(changed.launch)
        check_keys(old, changed)
        old.remove_live_files()
        old.rebuild(stored)
        if changed != settings:
            old.write(changed)
        create_tickets(old, changed)
    except OSError as error:
        old.close()
        raise UsageError(f"can't go on in {old.shown}: {error.strerror}") from error
    except UsageError:
        old.close()
        raise
    return PreparedRun(folder=old, settings=changed, gpus=gpus, resumed=True)


def check_keys(place: RunFolder, settings: Settings) -> None:
    """Find keys that can't be used before anything in the folder is changed."""
    if settings.public_address:
        try:
            guest_tickets.check_keys(place.path)
        except ValueError as error:
            raise UsageError(guest_tickets.unusable_keys_hint(error)) from error


def create_tickets(place: RunFolder, settings: Settings) -> None:
    """Make keys and a ticket where other machines are to join."""
    if not settings.public_address:
        return
    try:
        guest_tickets.create_keys(place.path, settings, time.time())
        if settings.launch:
            guest_tickets.ticket_for_jobs(place.path, settings, time.time())
    except ValueError as error:
        raise UsageError(guest_tickets.unusable_keys_hint(error)) from error


def run_to_end(run: PreparedRun, arguments: Arguments, metrics: MetricsServer | None = None) -> int:
    """Serve the run to its end and conclude it."""
    reader = RunReader(run.folder.path)
    screen = open_screen(run, arguments)
    if metrics is not None:
        screen.say(f"metrics at {metrics.url}")
        screen = MeteredScreen(screen, metrics, reader)
    ignore_interrupts()
    poller = EventPoller()  # until the very end: a late Ctrl-C must not cut the results in half
    try:
        finished = already_finished(run, reader)
        if finished is not None:
            snapshot, ending = finished, RunEnd(kind=EndKind.OVER)
        else:
            snapshot, ending = serve(run, reader, screen, poller)
        screen.close()
        if snapshot.status == "refused" and not arguments.keep_refused:
            return refuse_task(run, snapshot, reader)
        code, results = finish.finish_run(
            run.folder,
            run.settings,
            reader,
            snapshot,
            ending,
            PlainScreen(progress_stream(arguments)).say,
        )
        if arguments.json and not print_result(run_results.to_json(results)):
            return ExitStatus.FAULT
        return code
    except sqlite3.DatabaseError as error:
        screen.close()
        print_usage_error(f"{run.folder.shown}/run.db can't be used: {error}")
        return ExitStatus.FAULT
    finally:
        screen.close()
        reader.close()
        poller.close()
        if metrics is not None:
            metrics.close()


def check_failpoints(environ: Mapping[str, str]) -> None:
    """Find a typo in what tests arm before anything is made."""
    try:
        failpoints.parse(environ.get(failpoints.FAILPOINTS_VARIABLE, ""))
    except ValueError as error:
        raise UsageError(str(error)) from error


def serve(
    run: PreparedRun, reader: RunReader, screen: Screen, poller: EventPoller
) -> tuple[Snapshot, RunEnd]:
    """Start all processes and supervise them until the run ends."""
    place = run.folder.path
    for line in opening_lines(run.settings, run.folder.shown):
        screen.say(line)
    if run.settings.public_address:
        screen.say(
            guest_tickets.join_hint(run.folder.shown, tickets.read(place / tickets.FILE_NAME))
        )
    failpoints.arm("supervisor", place)
    os.chdir(place)  # the coordinator's socket has a short, relative address
    child_process.become_subreaper()
    specs = child_specs.run_specs(run.settings, place, run.folder.run_id, os.environ, run.gpus)
    processes = ProcessTree(specs, place, random.Random(), on_start=poller.add_child)  # noqa: S311  # jitter only
    with closing(CoordinatorClient(run.settings.local_address)) as coordinator:
        for descriptor in coordinator.descriptors:
            poller.add_descriptor(descriptor)
        run_loop = RunLoop(
            run_dir=place,
            settings=run.settings,
            processes=processes,
            poller=poller,
            coordinator=coordinator,
            reader=reader,
            screen=screen,
            log=open_log(place, "supervisor"),
            note=run.folder.note,
        )
        ending = run_loop.serve()
    return run_loop.snapshot, ending


def already_finished(run: PreparedRun, reader: RunReader) -> Snapshot | None:
    """Return the snapshot of a resumed run that has nothing left to do."""
    snapshot = reader.poll() if run.resumed else None
    if snapshot is None or snapshot.status != "finished":
        return None
    budget = run.settings.search.budget
    extended = any(task.budget < budget and not task.problem for task in snapshot.tasks)
    return None if extended else snapshot


def open_screen(run: PreparedRun, arguments: Arguments) -> Screen:
    """Return the live view on a terminal, plain lines elsewhere; stderr where --json has stdout."""
    console = Console(stderr=arguments.json, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console, run.settings, run.folder.shown)
    return PlainScreen(progress_stream(arguments), resumed=run.resumed)


def print_result(text: str) -> bool:
    """Write the results to stdout; whether it took them."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        print_usage_error(f"stdout takes no results ({error.strerror}): they are in result.json")
        return False
    return True


def progress_stream(arguments: Arguments) -> TextIO:
    """Return where progress is told."""
    return sys.stderr if arguments.json else sys.stdout


def refuse_task(run: PreparedRun, snapshot: Snapshot, reader: RunReader) -> int:
    """Say why no task can be measured; a run that never began leaves no folder."""
    for line in finish.task_problems(snapshot, run.files):
        print_usage_error(line)
    reader.close()
    if not run.resumed:
        run.folder.remove()
    return ExitStatus.USAGE


def print_usage_error(line: str) -> int:
    """Say in one line what is wrong with what the user asked for."""
    with suppress(OSError):  # a file on a disk that is full
        print(" ".join(line.split()), file=sys.stderr, flush=True)
    return ExitStatus.USAGE


def command() -> int:
    """Be the command: return the exit status, also when a signal came before all."""
    ensure_std_streams()
    unwind_when_interrupted()
    try:
        status = main()
    except SignalReceivedError as error:
        print_usage_error(f"{error} before anything was begun")
        status = error.status
    ignore_interrupts()
    discard_unflushed_output()
    return status


if __name__ == "__main__":
    sys.exit(command())
