"""Replacing jobs: never more than the limit, never a busy loop, no job left behind."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actors.launcher.job_controller import (
    FIRST_WAIT_S,
    JITTER,
    MAX_QUICK_ENDS,
    MAX_WAIT_S,
    QUICK_END_S,
    CancelJob,
    JobController,
    JobPhase,
)


def job_controller(max_jobs: int = 2) -> JobController:
    return JobController(max_jobs=max_jobs, rng=Random(0))


class FakeBatch:
    """A batch system in memory that a test controls; it records the submissions."""

    def __init__(self) -> None:
        self.alive: dict[str, JobPhase] = {}
        self.ended: set[str] = set()
        self.submits: list[float] = []
        self.accepts_jobs = True

    def update(self, controller: JobController, now: float) -> None:
        """Do what the launcher does in each step."""
        phases = self.alive | dict.fromkeys(self.ended, JobPhase.ENDED)
        for instruction in controller.update(phases, now):
            if isinstance(instruction, CancelJob):
                self.end(instruction.job)
                continue
            self.submits.append(now)
            if not self.accepts_jobs:
                controller.submission_refused("no room", now)
                break
            name = f"job-{len(self.submits)}"
            self.alive[name] = JobPhase.PENDING
            controller.submitted(name, now)

    def end(self, name: str) -> None:
        del self.alive[name]
        self.ended.add(name)


def test_a_job_that_did_work_is_replaced_at_once() -> None:
    """A job that reached its wall time costs no wait."""
    jobs, batch = job_controller(), FakeBatch()
    batch.update(jobs, 0.0)
    batch.alive["job-1"] = JobPhase.RUNNING
    batch.update(jobs, 1.0)
    batch.end("job-1")
    batch.update(jobs, QUICK_END_S + 1.0)

    assert [0.0, 0.0, QUICK_END_S + 1.0] == batch.submits


def test_jobs_that_end_at_once_are_given_up_after_the_limit() -> None:
    """On a node without the software there are a few tries, each later, and then a line."""
    jobs, batch = job_controller(max_jobs=1), FakeBatch()
    for now in range(0, 7200):
        batch.update(jobs, float(now))
        for name in list(batch.alive):
            batch.end(name)

    assert MAX_QUICK_ENDS == len(batch.submits)
    assert jobs.has_given_up
    pauses = [
        later - earlier for earlier, later in zip(batch.submits, batch.submits[1:], strict=False)
    ]
    assert sorted(pauses) == pauses
    assert "no more are asked for" in jobs.summary(7200.0)


def test_a_batch_system_that_refuses_jobs_is_asked_more_slowly_without_end() -> None:
    """A full queue passes: there is no limit of tries, and the refusal is shown."""
    jobs, batch = job_controller(), FakeBatch()
    batch.accepts_jobs = False
    day = 24 * 3600
    for now in range(0, day, 5):
        batch.update(jobs, float(now))

    assert day / (MAX_WAIT_S * (1 + JITTER) + 5) - 1 <= len(batch.submits) <= day / MAX_WAIT_S + 12
    assert "refused: no room" in jobs.summary(float(day))
    batch.accepts_jobs = True
    for now in range(day, day + 1200, 5):
        batch.update(jobs, float(now))
    assert len(batch.alive) == 2


def test_no_answer_of_a_batch_system_ends_no_job() -> None:
    """While squeue fails for an hour, no second set of jobs is submitted."""
    jobs, batch = job_controller(), FakeBatch()
    batch.update(jobs, 0.0)
    for now in range(5, 3600, 5):
        assert [] == jobs.update({}, float(now))


def test_a_job_that_waits_long_is_in_the_summary() -> None:
    """The line says how long a job has been pending."""
    jobs, batch = job_controller(max_jobs=1), FakeBatch()
    batch.update(jobs, 0.0)

    assert "0 of 1 jobs run, 1 wait" == jobs.summary(5.0)
    assert "0 of 1 jobs run, 1 wait (one for 20 minutes)" == jobs.summary(1290.0)


def test_a_requeued_job_waits_again() -> None:
    """A preempted job runs no more: the line says that it waits, and since when."""
    jobs, batch = job_controller(max_jobs=1), FakeBatch()
    batch.update(jobs, 0.0)
    batch.alive["job-1"] = JobPhase.RUNNING
    batch.update(jobs, 5.0)
    assert "1 of 1 jobs run" == jobs.summary(5.0)
    batch.alive["job-1"] = JobPhase.PENDING
    batch.update(jobs, 700.0)

    assert "0 of 1 jobs run, 1 wait" == jobs.summary(700.0)
    assert "0 of 1 jobs run, 1 wait (one for 10 minutes)" == jobs.summary(1310.0)
    assert [0.0] == batch.submits


class JobControllerMachine(RuleBasedStateMachine):
    """Any order of starts, ends, refusals, missing answers and updates."""

    @initialize(max_jobs=st.integers(1, 4))
    def begin(self, max_jobs: int) -> None:
        self.controller = job_controller(max_jobs)
        self.batch = FakeBatch()
        self.now = 0.0

    @rule(seconds=st.floats(0.1, 400.0))
    def update(self, seconds: float) -> None:
        self.now += seconds
        before, quick = len(self.batch.submits), self.controller.quick_ends
        self.batch.update(self.controller, self.now)
        submitted = len(self.batch.submits) - before
        if self.controller.quick_ends > quick:  # a job has just ended at once
            assert submitted == 0
            assert self.controller.not_before >= self.now + FIRST_WAIT_S * (1 - JITTER)
        elif self.controller.quick_ends:  # no running job has lived long enough
            assert submitted <= 1

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        if self.batch.alive:
            name = data.draw(st.sampled_from(sorted(self.batch.alive)))
            self.batch.alive[name] = JobPhase.RUNNING

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.batch.alive:
            self.batch.end(data.draw(st.sampled_from(sorted(self.batch.alive))))

    @rule()
    def change_acceptance(self) -> None:
        self.batch.accepts_jobs = not self.batch.accepts_jobs

    @rule()
    def answer_nothing(self) -> None:
        self.controller.update({}, self.now)

    @invariant()
    def never_more_than_the_limit(self) -> None:
        assert len(self.batch.alive) <= self.controller.max_jobs

    @invariant()
    def no_job_is_forgotten(self) -> None:
        assert set(self.batch.alive) <= set(self.controller.jobs)

    def teardown(self) -> None:
        if hasattr(self, "controller"):
            self.controller.close()
            self.batch.update(self.controller, self.now)
            assert {} == self.batch.alive
            self.batch.update(self.controller, self.now)
            assert {} == self.controller.jobs


JobControllerMachine.TestCase.settings = settings(stateful_step_count=40)
test_job_controller_machine = JobControllerMachine.TestCase
