"""`python -m actors.launcher`: keeps a number of jobs that lend evaluators to a run.

Started by the supervisor for `--launch KIND:FILE`; `--check` only says whether that could work.
On SIGTERM, and when the supervisor is gone, it cancels its jobs and leaves.  What it was itself
killed over is taken up again from `launch.json`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from random import Random

from structlog.typing import FilteringBoundLogger

from actors.launcher import options as options_file
from actors.launcher import record as record_file
from actors.launcher.batch import Batch
from actors.launcher.hosts import Hosts
from actors.launcher.keeper import Cancel, Keeper
from actors.launcher.options import Kind, Options
from actors.launcher.places import Memory, Place, Refused, command
from actors.launcher.record import Record
from actors.log import open_log
from actors.post import hold_lifeline, name_process, on_terminate
from actors.usage import EXIT_USAGE, Parser

LOOK_S = {Kind.SSH: 1.0, Kind.LOCAL: 1.0}
BATCH_LOOK_S = 5.0  # a batch system is asked no more often than this
CLOSE_S = 4.0  # the supervisor waits five


class Launcher:
    """The loop around a keeper and a place."""

    def __init__(
        self,
        *,
        kind: Kind,
        options: Options,
        place: Place,
        known: Memory,
        run_dir: Path,
        log: FilteringBoundLogger,
    ) -> None:
        self._kind = kind
        self._place = place
        self._run_dir = run_dir
        self._log = log
        self._pause_s = LOOK_S.get(kind, BATCH_LOOK_S)
        self._stop = threading.Event()
        self._written = Record()
        self._keeper = Keeper(most=options.jobs, rng=Random())  # noqa: S311  # jitter only
        for job in known:
            self._keeper.submitted(job, time.monotonic())

    def run(self) -> None:
        """Keep the jobs at their number until told to stop; then cancel them."""
        while not self._stop.is_set():
            self.turn()
            self._stop.wait(self._pause_s)
        self._keeper.close()
        until = time.monotonic() + CLOSE_S
        while True:
            self.turn()
            if not self._keeper.jobs or time.monotonic() > until:
                return
            time.sleep(0.2)

    def stop(self) -> None:
        """Ask for the end; all that a signal handler may do."""
        self._stop.set()

    def turn(self) -> None:
        """Look once and do what follows."""
        for instruction in self._keeper.look(self._place.phases(), time.monotonic()):
            if isinstance(instruction, Cancel):
                self._log.info("cancel", job=instruction.job)
                self._place.cancel([instruction.job])
            elif not self._submit():
                break
        self._tell()

    def _submit(self) -> bool:
        try:
            job = self._place.submit()
        except Refused as error:
            self._log.warning("refused", why=str(error))
            self._keeper.refuse(str(error), time.monotonic())
            return False
        self._log.info("submitted", job=job)
        self._keeper.submitted(job, time.monotonic())
        self._tell()  # before the next one: a job that nobody remembers can't be cancelled
        return True

    def _tell(self) -> None:
        left = {job for job, one in self._keeper.jobs.items() if not one.cancelled}
        memory = self._place.memory()
        jobs = {job: dict(facts) for job, facts in memory.items() if job in left}
        words = self._keeper.words(time.monotonic())
        record = Record(words=words, kind=self._kind, jobs=jobs)
        if record != self._written:
            self._written = record
            record_file.write(self._run_dir, record)


def make_place(kind: Kind, options: Options, ticket: Path, run_dir: Path, known: Memory) -> Place:
    """Return where jobs run; raise ValueError with one line when it can't be used."""
    folder = run_dir / "launch"
    if kind in (Kind.SSH, Kind.LOCAL):
        return Hosts(options, ticket, folder)
    return Batch(kind, options, command(options, ticket, folder), folder, known)


def main() -> int:
    """Serve until told to stop; exit status 2 and one line where that can't be."""
    parser = Parser(prog="python -m actors.launcher", description=__doc__)
    parser.add_argument("--launch", required=True, metavar="KIND:FILE")
    parser.add_argument("--ticket", type=Path, default=Path("ticket.json"))
    parser.add_argument("--run-dir", type=Path, default=Path())
    parser.add_argument("--check", action="store_true", help="say how many evaluators, and leave")
    arguments = parser.parse_args()
    run_dir = arguments.run_dir.resolve()
    try:
        kind, path = options_file.split(arguments.launch)
        options = options_file.read(kind, path)
        record = record_file.read(run_dir)
        known = record.jobs if record.kind == kind and not arguments.check else {}
        place = make_place(kind, options, arguments.ticket.resolve(), run_dir, known)
    except ValueError as error:
        sys.stderr.write(f"--launch {arguments.launch}: {error}\n")
        return EXIT_USAGE
    if arguments.check:
        sys.stdout.write(f"{options.jobs * (options.evaluators or 1)}\n")
        return 0
    name_process("launcher")
    os.environ.pop("STARK_RUN", None)  # the mark of this machine's processes, not of a job's
    (run_dir / "launch").mkdir(exist_ok=True)
    log = open_log(run_dir, "launcher")
    launcher = Launcher(
        kind=kind, options=options, place=place, known=known, run_dir=run_dir, log=log
    )
    on_terminate(launcher.stop)
    over = threading.Event()

    def supervisor_gone() -> None:
        launcher.stop()
        over.wait(CLOSE_S)

    hold_lifeline(supervisor_gone)
    try:
        launcher.run()
    finally:
        over.set()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # parsl leaves threads behind that would hold us up
