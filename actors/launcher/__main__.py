"""`python -m actors.launcher`: keeps a number of jobs that lend evaluators to a run.

The supervisor starts this process for `--launch KIND:FILE`; `--check` only says whether that could
work.  On SIGTERM, and after the end of its supervisor, the launcher cancels its jobs and leaves.
After a kill, the next launcher reads the jobs from `launch.json`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from random import Random

from actors.cli import OneLineParser
from actors.deadlines import CANCEL_JOBS_S
from actors.exit_status import ExitStatus
from actors.identity import name_process
from actors.launcher import job_record as record_file
from actors.launcher import options as options_file
from actors.launcher.backends import Backend, SavedState, SubmissionRefusedError, job_command
from actors.launcher.job_controller import CancelJob, JobController
from actors.launcher.job_record import JobRecord
from actors.launcher.options import BackendKind, LaunchOptions
from actors.launcher.parsl_backend import ParslBackend
from actors.launcher.ssh_backend import SshBackend
from actors.lifeline import hold_lifeline, on_terminate
from actors.log import FilteringBoundLogger, open_log

POLL_S = {BackendKind.SSH: 1.0, BackendKind.LOCAL: 1.0}
BATCH_POLL_S = 5.0  # a batch system is asked no more often than this


class JobLauncher:
    """The loop around a job controller and a backend."""

    def __init__(
        self,
        *,
        kind: BackendKind,
        options: LaunchOptions,
        backend: Backend,
        known: SavedState,
        run_dir: Path,
        log: FilteringBoundLogger,
    ) -> None:
        self._kind = kind
        self._backend = backend
        self._run_dir = run_dir
        self._log = log
        self._pause_s = POLL_S.get(kind, BATCH_POLL_S)
        self._stop = threading.Event()
        self._written = JobRecord()
        self._controller = JobController(max_jobs=options.jobs, rng=Random())  # noqa: S311  # jitter only
        for job in known:
            self._controller.submitted(job, time.monotonic())

    def run(self) -> None:
        """Keep the number of jobs until `stop`; then cancel them."""
        while not self._stop.is_set():
            self.step()
            self._stop.wait(self._pause_s)
        self._controller.close()
        until = time.monotonic() + CANCEL_JOBS_S
        while True:
            self.step()
            if not self._controller.jobs or time.monotonic() > until:
                return
            time.sleep(0.2)

    def stop(self) -> None:
        """Ask the loop to end; a signal handler may call this."""
        self._stop.set()

    def step(self) -> None:
        """Read the state of the jobs once; submit and cancel as the controller says."""
        for instruction in self._controller.update(self._backend.phases(), time.monotonic()):
            if isinstance(instruction, CancelJob):
                self._log.info("cancel", job=instruction.job)
                self._backend.cancel([instruction.job])
            elif not self._submit():
                break
        self._write_record()

    def _submit(self) -> bool:
        try:
            job = self._backend.submit()
        except SubmissionRefusedError as error:
            self._log.warning("refused", why=str(error))
            self._controller.submission_refused(str(error), time.monotonic())
            return False
        self._log.info("submitted", job=job)
        self._controller.submitted(job, time.monotonic())
        self._write_record()  # before the next one: a job without a record can't be cancelled
        return True

    def _write_record(self) -> None:
        wanted = {name for name, job in self._controller.jobs.items() if not job.cancelled}
        saved = self._backend.saved_state()
        jobs = {name: dict(facts) for name, facts in saved.items() if name in wanted}
        summary = self._controller.summary(time.monotonic())
        record = JobRecord(words=summary, kind=self._kind, jobs=jobs)
        if record != self._written:
            self._written = record
            record_file.write_record(self._run_dir, record)


def make_backend(
    kind: BackendKind, options: LaunchOptions, ticket: Path, run_dir: Path, known: SavedState
) -> Backend:
    """Return the backend for `kind`; raise ValueError with one line when it can't be used."""
    folder = run_dir / "launch"
    if kind in (BackendKind.SSH, BackendKind.LOCAL):
        return SshBackend(options, ticket, folder)
    return ParslBackend(kind, options, job_command(options, ticket, folder), folder, known)


def _parser() -> OneLineParser:
    parser = OneLineParser(prog="python -m actors.launcher", description=__doc__)
    parser.add_argument("--launch", required=True, metavar="KIND:FILE")
    parser.add_argument("--ticket", type=Path, default=Path("ticket.json"))
    parser.add_argument("--run-dir", type=Path, default=Path())
    parser.add_argument("--check", action="store_true", help="say how many evaluators, and leave")
    return parser


def main() -> int:
    """Serve until SIGTERM; exit status 2 and one line when the file can't be used."""
    arguments = _parser().parse_args()
    run_dir = arguments.run_dir.resolve()
    try:
        kind, path = options_file.split_launch(arguments.launch)
        options = options_file.read_options(kind, path)
        record = record_file.read_record(run_dir)
        known = record.jobs if record.kind == kind and not arguments.check else {}
        backend = make_backend(kind, options, arguments.ticket.resolve(), run_dir, known)
    except ValueError as error:
        sys.stderr.write(f"--launch {arguments.launch}: {error}\n")
        return ExitStatus.USAGE
    if arguments.check:
        sys.stdout.write(f"{options.jobs * (options.evaluators or 1)}\n")
        return ExitStatus.DONE
    name_process("launcher")
    # The mark is for this machine's processes, and a job's processes are elsewhere.
    os.environ.pop("STARK_RUN", None)
    (run_dir / "launch").mkdir(exist_ok=True)
    log = open_log(run_dir, "launcher")
    launcher = JobLauncher(
        kind=kind, options=options, backend=backend, known=known, run_dir=run_dir, log=log
    )
    serve(launcher)
    return ExitStatus.DONE


def serve(launcher: JobLauncher) -> None:
    """Run the launcher until SIGTERM or the supervisor's end; its jobs are cancelled then."""
    on_terminate(launcher.stop)
    finished = threading.Event()

    def supervisor_gone() -> None:
        launcher.stop()
        finished.wait(CANCEL_JOBS_S)

    hold_lifeline(supervisor_gone)
    try:
        launcher.run()
    finally:
        finished.set()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # parsl leaves threads that would delay the exit
