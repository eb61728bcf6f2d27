"""The command: `python supervisor.py --task t.py` turns a PyTorch task into a faster kernel.

The file reads top down: parse the command line, make or resume the run folder, serve the run,
conclude it.  Every mistake of the user is one line and exit status 2.
"""

from __future__ import annotations

from actors.startup_packages import end_without_packages
from actors.startup_signals import end_when_interrupted

if __name__ == "__main__":
    end_when_interrupted()  # the imports below take a while
    end_without_packages()

import os
import random
import sqlite3
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console

from actors import failpoints
from actors.cli import UsageError, discard_unflushed_output, ensure_std_streams
from actors.commands import typed_command
from actors.exit_status import ExitStatus
from actors.log import open_log
from actors.startup_signals import SignalReceivedError, ignore_interrupts, unwind_when_interrupted
from actors.supervisor import finish, guest_tickets, join, run_folder
from actors.supervisor.cli import flags, gpu_discovery, preflight, run_settings
from actors.supervisor.cli.flags import Arguments
from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.earlier_references import earlier_references
from actors.supervisor.page_server import PageServer, check_packages
from actors.supervisor.process_loop import ProcessLoop
from actors.supervisor.processes import (
    child_process,
    child_specs,
    environment,
    launcher_client,
    orphans,
)
from actors.supervisor.processes.event_poller import EventPoller
from actors.supervisor.processes.process_tree import ProcessTree
from actors.supervisor.reporting.run_data import run_folder_integrity, run_results
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import Snapshot
from actors.supervisor.reporting.screens.live_view import LiveScreen
from actors.supervisor.reporting.screens.prometheus import MeteredScreen, MetricsServer
from actors.supervisor.reporting.screens.screen import PlainScreen, Screen, opening_lines
from actors.supervisor.run_folder import RunFolder
from actors.supervisor.run_loop import EndKind, RunEnd, RunLoop
from protocol import measured_references, tickets
from protocol.directives import waiting_files
from protocol.settings import Settings


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A run that may begin: its folder is made and locked, its settings are on disk."""

    folder: RunFolder
    settings: Settings
    gpus: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)  # task -> the file that the user named
    named: tuple[str, ...] = ()  # settings of the command that hold over a person's directives
    resumed: bool = False


def command() -> int:
    """Run the command; return its exit status, also when a signal came before anything began."""
    ensure_std_streams()
    unwind_when_interrupted()
    try:
        status = main()
    except SignalReceivedError as error:
        print_error(f"{error} before anything was begun")
        status = error.status
    ignore_interrupts()
    discard_unflushed_output()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit status."""
    try:
        arguments = flags.parse_arguments(sys.argv[1:] if argv is None else argv)
        check_failpoints(os.environ)
        flags.check_environment(os.environ, environment.NO_SETTINGS)
        if arguments.watch:
            check_packages()
        metrics = MetricsServer(arguments.metrics) if arguments.metrics else None
        if arguments.join:
            return join.join_run(arguments, os.environ)
        prepare = resume_run if arguments.resume else new_run
        run = prepare(arguments, os.environ)
    except UsageError as error:
        print_error(str(error))
        return ExitStatus.USAGE
    except (orphans.OrphansRemainError, run_folder_integrity.DamagedRunError) as error:
        print_error(str(error))
        return ExitStatus.FAULT
    with run.folder:
        try:
            return run_to_end(run, arguments, metrics)
        except SignalReceivedError as error:  # the run folder is complete, no process has started
            again = f"resume with: {flags.COMMAND} --resume {run.folder.quoted}"
            print_error(f"not finished: {error}; {again}")
            return ExitStatus.STOPPED


def check_failpoints(environ: Mapping[str, str]) -> None:
    """Find a typo in the failpoints that a test arms before anything is made."""
    try:
        failpoints.parse(environ.get(failpoints.FAILPOINTS_VARIABLE, ""))
    except ValueError as error:
        raise UsageError(str(error)) from error


# --- a new run, or an old one ----------------------------------------------------------------


def new_run(arguments: Arguments, environ: Mapping[str, str]) -> PreparedRun:
    """Check everything, then make the folder of a new run."""
    tasks = preflight.read_tasks(
        arguments.tasks, arguments.shapes, arguments.dtypes, backward=arguments.backward
    )
    gpus = gpu_discovery.visible_gpus(environ)
    settings = run_settings.new_run_settings(
        arguments, tuple(task.name for task in tasks), environ, gpus
    )
    settings = run_settings.with_prices(preflight.check_models(settings, environ, Path.cwd()))
    settings = preflight.check_import_paths(settings, tasks, arguments.run_dir)
    preflight.check_replayed(settings, tasks)
    references = earlier_references(arguments.references, settings, tasks)
    preflight.check_device(settings, gpus)
    preflight.check_evaluators(settings, environ)
    preflight.check_address(settings)
    preflight.check_descriptors(1 + settings.local_worker_count)
    folder = run_folder.make_run_folder(arguments.run_dir, tasks)
    try:
        if references:
            measured_references.write(folder.path, references)
        folder.write(settings, tasks)
        create_tickets(folder, settings)
    except BaseException as error:
        folder.remove()
        if isinstance(error, OSError):
            raise UsageError(f"can't write into {folder.shown}: {error.strerror}") from error
        raise
    files = {task.name: str(task.path) for task in tasks}
    return PreparedRun(folder=folder, settings=settings, gpus=gpus, files=files)


def resume_run(arguments: Arguments, environ: Mapping[str, str]) -> PreparedRun:
    """Lock an old run, update its settings, and end the processes that a killed supervisor left."""
    folder, old_settings, stored = run_folder.open_run_folder(arguments.resume or Path())
    try:
        gpus = gpu_discovery.visible_gpus(environ)
        settings = run_settings.resumed_run_settings(old_settings, arguments)
        settings = run_settings.with_prices(preflight.check_models(settings, environ, Path.cwd()))
        preflight.check_device(settings, gpus)
        preflight.check_evaluators(settings, environ)
        orphans.kill_orphans(folder.run_id)
        preflight.check_address(settings)
        preflight.check_descriptors(1 + settings.local_worker_count)
        launcher_client.max_evaluators(settings.launch)
        check_keys(folder, settings)
        folder.remove_live_files()
        folder.rebuild(stored)
        if settings != old_settings:
            folder.write(settings)
        create_tickets(folder, settings)
    except OSError as error:
        folder.close()
        raise UsageError(f"can't go on in {folder.shown}: {error.strerror}") from error
    except UsageError:
        folder.close()
        raise
    named = tuple(
        name
        for name, setting in (("budget", "search.budget"), ("max_cost", "max_cost"))
        if setting in arguments.settings
    )
    return PreparedRun(folder=folder, settings=settings, gpus=gpus, named=named, resumed=True)


def check_keys(folder: RunFolder, settings: Settings) -> None:
    """Refuse keys that can't be used before anything in the folder is changed."""
    if settings.public_address:
        try:
            guest_tickets.check_keys(folder.path)
        except ValueError as error:
            raise UsageError(guest_tickets.unusable_keys_hint(error)) from error


def create_tickets(folder: RunFolder, settings: Settings) -> None:
    """Make keys and tickets if other machines may join."""
    if not settings.public_address:
        return
    try:
        guest_tickets.create_keys(folder.path, settings, time.time())
        if settings.launch:
            guest_tickets.ticket_for_jobs(folder.path, settings, time.time())
    except ValueError as error:
        raise UsageError(guest_tickets.unusable_keys_hint(error)) from error


# --- the run ---------------------------------------------------------------------------------


def run_to_end(run: PreparedRun, arguments: Arguments, metrics: MetricsServer | None = None) -> int:
    """Serve the run to its end and conclude it."""
    reader = RunReader(run.folder.path)
    screen = open_screen(run, arguments)
    page = open_page(run, arguments, screen)
    if metrics is not None:
        screen.say(f"metrics at {metrics.url}")
        screen = MeteredScreen(screen, metrics, reader)
    ignore_interrupts()
    poller = EventPoller()  # open until the very end: a late Ctrl-C must not cut the results
    try:
        snapshot, ending = already_finished(run, reader) or serve(
            run, reader, screen, poller, page.pids if page else ()
        )
        screen.close()
        if snapshot.status == "refused" and not arguments.keep_refused:
            return refuse_task(run, snapshot, reader)
        say = PlainScreen(progress_stream(arguments)).say
        status, results = finish.finish_run(run.folder, run.settings, reader, snapshot, ending, say)
        if arguments.json and not print_result(run_results.to_json(results)):
            return ExitStatus.FAULT
        return status
    except sqlite3.DatabaseError as error:
        screen.close()
        print_error(f"{run.folder.shown}/run.db can't be used: {error}")
        return ExitStatus.FAULT
    finally:
        screen.close()
        reader.close()
        poller.close()
        if metrics is not None:
            metrics.close()
        if page is not None:
            page.close()


def open_page(run: PreparedRun, arguments: Arguments, screen: Screen) -> PageServer | None:
    """Start the page of the run and say where it is; without it the run goes on as well."""
    if not arguments.watch:
        return None
    try:
        page = PageServer(run.folder.path, os.environ, may_steer=arguments.steer)
    except OSError as error:
        screen.say(f"--watch: the page can't be served: {error.strerror}")
        return None
    later = f"{typed_command('watch')} {run.folder.quoted}"
    screen.say(f"page at {page.address} while the run goes on, and later with: {later}")
    return page


def open_screen(run: PreparedRun, arguments: Arguments) -> Screen:
    """Return the live view on a terminal, plain lines elsewhere; on stderr if --json has stdout."""
    console = Console(stderr=arguments.json, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console, run.settings, run.folder.shown)
    return PlainScreen(progress_stream(arguments), resumed=run.resumed, settings=run.settings)


def progress_stream(arguments: Arguments) -> TextIO:
    """Return the stream for progress lines."""
    return sys.stderr if arguments.json else sys.stdout


def already_finished(run: PreparedRun, reader: RunReader) -> tuple[Snapshot, RunEnd] | None:
    """Return the end of a resumed run that has nothing left to do."""
    snapshot = reader.poll() if run.resumed else None
    if snapshot is None or snapshot.status != "finished":
        return None
    budget = run.settings.search.budget
    extended = any(task.budget < budget and not task.problem for task in snapshot.tasks)
    steered = waiting_files(run.folder.path)
    return None if extended or steered else (snapshot, RunEnd(kind=EndKind.OVER))


def announce(run: PreparedRun, screen: Screen) -> None:
    """Say what runs, and how other machines join where they may."""
    for line in opening_lines(run.settings, run.folder.shown):
        screen.say(line)
    if run.settings.public_address:
        ticket = tickets.read(run.folder.path / tickets.FILE_NAME)
        screen.say(guest_tickets.join_hint(run.folder.shown, ticket))


def make_processes(run: PreparedRun, poller: EventPoller, others: Collection[int]) -> ProcessTree:
    """Return the slots of the run, all still empty."""
    specs = child_specs.run_specs(
        run.settings, run.folder.path, run.folder.run_id, os.environ, run.gpus, run.named
    )
    return ProcessTree(
        specs,
        run.folder.path,
        random.Random(),  # noqa: S311  # jitter only
        on_start=poller.add_child,
        others=others,
    )


def serve(
    run: PreparedRun,
    reader: RunReader,
    screen: Screen,
    poller: EventPoller,
    others: Collection[int] = (),
) -> tuple[Snapshot, RunEnd]:
    """Start all processes and supervise them until the run ends.

    `others`: children of this process that do not belong to the run.
    """
    announce(run, screen)
    run_dir = run.folder.path
    failpoints.arm("supervisor", run_dir)
    os.chdir(run_dir)  # the coordinator's socket has a short, relative address
    child_process.become_subreaper()
    processes = make_processes(run, poller, others)
    with closing(CoordinatorClient(run.settings.local_address)) as coordinator:
        process_loop = ProcessLoop(
            processes=processes,
            poller=poller,
            coordinator=coordinator,
            say=screen.say,
            log=open_log(run_dir, "supervisor"),
            lease_s=run.settings.lease_s,
        )
        run_loop = RunLoop(
            folder=run.folder,
            settings=run.settings,
            process_loop=process_loop,
            reader=reader,
            screen=screen,
        )
        ending = run_loop.serve()
    return run_loop.snapshot, ending


# --- the end ---------------------------------------------------------------------------------


def refuse_task(run: PreparedRun, snapshot: Snapshot, reader: RunReader) -> int:
    """Say why no task can be measured; a run that never began leaves no folder."""
    for line in finish.task_problems(snapshot, run.files):
        print_error(line)
    reader.close()
    if not run.resumed:
        run.folder.remove()
    return ExitStatus.USAGE


def print_result(text: str) -> bool:
    """Write the results to stdout; return whether stdout took them."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        print_error(f"stdout takes no results ({error.strerror}): they are in result.json")
        return False
    return True


def print_error(line: str) -> None:
    """Print what is wrong, on one line."""
    with suppress(OSError):  # a file on a disk that is full
        print(" ".join(line.split()), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(command())
