"""Keeps the number of jobs: pure, without a clock and without a batch system.

`JobController.update(phases, now)` says what to submit and what to cancel.  It promises that there
are never more jobs than the limit, and that a job that ended is replaced.  Jobs that end at once
are replaced more and more slowly, and not at all after the limit: there is never a busy loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

QUICK_END_S = 60.0  # a job that ends sooner did no work
FIRST_WAIT_S = 5.0
MAX_WAIT_S = 300.0
JITTER = 0.25
MAX_QUICK_ENDS = 6  # quick ends in a row, after which no job is submitted
PENDING_S = 600.0  # after this wait the summary names the oldest pending job


class JobPhase(StrEnum):
    """The state of a job in its batch system."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class SubmitJob:
    """Submit one more job."""


@dataclass(frozen=True)
class CancelJob:
    """Ask this job to end."""

    job: str


JobInstruction = SubmitJob | CancelJob


@dataclass(slots=True)
class Job:
    """A job that was submitted and has not ended."""

    submitted: float  # or requeued by the batch system
    running: float | None = None  # since when
    cancelled: bool = False


@dataclass(slots=True)
class JobController:
    """The jobs of one run."""

    max_jobs: int
    rng: Random
    jobs: dict[str, Job] = field(default_factory=dict)
    ended: int = 0
    quick_ends: int = 0  # in a row
    refused: int = 0  # submissions refused in a row
    refusal_reason: str = ""  # the last refusal
    not_before: float = float("-inf")
    closing: bool = False

    def update(self, phases: Mapping[str, JobPhase], now: float) -> list[JobInstruction]:
        """Note the known phases of the jobs; return what to do now.

        A job that `phases` does not name is unchanged: a batch system that does not answer has not
        ended its jobs.
        """
        for name, phase in phases.items():
            job = self.jobs.get(name)
            if job is None:
                continue
            if phase is JobPhase.ENDED:
                self._end(name, job, now)
            elif phase is JobPhase.RUNNING and job.running is None:
                job.running = now
            elif phase is JobPhase.PENDING and job.running is not None:
                job.submitted, job.running = now, None  # it was requeued
        if self.closing:
            return [self._cancel(name, job) for name, job in self.jobs.items() if not job.cancelled]
        any_lived = any(
            job.running is not None and now - job.running >= QUICK_END_S
            for job in self.jobs.values()
        )
        if any_lived:
            self.quick_ends = 0
        if self.has_given_up or now < self.not_before:
            return []
        # After a failure one job is tried, not the whole number.
        careful = self.quick_ends or self.refused
        return [SubmitJob()] * min(1 if careful else self.max_jobs, self.max_jobs - len(self.jobs))

    def submitted(self, name: str, now: float) -> None:
        """Note that the batch system took a job."""
        self.jobs[name] = Job(submitted=now)
        self.refused = 0
        if self.quick_ends:
            self._wait(self.quick_ends, now)

    def submission_refused(self, reason: str, now: float) -> None:
        """Note that the batch system took no job."""
        self.refused += 1
        self.refusal_reason = reason
        self._wait(self.refused, now)

    def close(self) -> None:
        """End all jobs: from now on `update` only cancels."""
        self.closing = True

    @property
    def has_given_up(self) -> bool:
        """Whether too many jobs ended at once: the user has to find the cause."""
        return self.quick_ends >= MAX_QUICK_ENDS

    def summary(self, now: float) -> str:
        """Return one line about the jobs; it changes only when the user would care."""
        running = sum(job.running is not None for job in self.jobs.values())
        pending = len(self.jobs) - running
        line = f"{running} of {self.max_jobs} jobs run"
        if pending:
            oldest = min(job.submitted for job in self.jobs.values() if job.running is None)
            line += f", {pending} wait"
            if now - oldest >= PENDING_S:
                line += f" (one for {int((now - oldest) // PENDING_S * PENDING_S // 60)} minutes)"
        if self.has_given_up:
            line += (
                f"; the last {self.quick_ends} ended within {QUICK_END_S:.0f} s: no more are asked "
                f"for"
            )
        elif self.quick_ends:
            line += (
                f"; {self.quick_ends} ended within {QUICK_END_S:.0f} s of their start: the next "
                f"waits"
            )
        if self.refused:
            line += f"; refused: {self.refusal_reason}"
        return line

    def _end(self, name: str, job: Job, now: float) -> None:
        del self.jobs[name]
        self.ended += 1
        if job.cancelled:
            return
        lived_s = now - (job.running if job.running is not None else job.submitted)
        # A job that was never seen to run ended between two updates.
        if lived_s >= QUICK_END_S and job.running is not None:
            self.quick_ends = 0
            return
        self.quick_ends += 1
        self._wait(self.quick_ends, now)

    def _cancel(self, name: str, job: Job) -> CancelJob:
        job.cancelled = True
        return CancelJob(name)

    def _wait(self, failures: int, now: float) -> None:
        steady_s = FIRST_WAIT_S * 2.0 ** min(failures - 1, 16)
        pause_s = min(MAX_WAIT_S, steady_s * self.rng.uniform(1 - JITTER, 1 + JITTER))
        self.not_before = max(self.not_before, now + pause_s)
