"""Replacing jobs: never more than asked for, never a busy loop, never one left behind."""

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


def keeper(most: int = 2) -> JobController:
    return JobController(max_jobs=most, rng=Random(0))


class FakeBatch:
    """A batch system in memory, which does what a test says; keeps what was asked of it."""

    def __init__(self) -> None:
        self.alive: dict[str, JobPhase] = {}
        self.gone: set[str] = set()
        self.submits: list[float] = []
        self.takes = True

    def look(self, controller: JobController, now: float) -> None:
        """Do what the launcher does at each turn."""
        phases = self.alive | dict.fromkeys(self.gone, JobPhase.ENDED)
        for instruction in controller.update(phases, now):
            if isinstance(instruction, CancelJob):
                self.end(instruction.job)
                continue
            self.submits.append(now)
            if not self.takes:
                controller.submission_refused("no room", now)
                break
            name = f"job-{len(self.submits)}"
            self.alive[name] = JobPhase.PENDING
            controller.submitted(name, now)

    def end(self, name: str) -> None:
        del self.alive[name]
        self.gone.add(name)


def test_a_job_that_has_worked_is_replaced_at_once() -> None:
    """A wall time that is over costs no wait."""
    jobs, batch = keeper(), FakeBatch()
    batch.look(jobs, 0.0)
    batch.alive["job-1"] = JobPhase.RUNNING
    batch.look(jobs, 1.0)
    batch.end("job-1")
    batch.look(jobs, QUICK_END_S + 1.0)

    assert [0.0, 0.0, QUICK_END_S + 1.0] == batch.submits


def test_jobs_that_end_at_once_are_given_up_after_the_limit() -> None:
    """A node without the software: a few tries, each later than the last, and then a person."""
    jobs, batch = keeper(most=1), FakeBatch()
    for now in range(0, 7200):
        batch.look(jobs, float(now))
        for name in list(batch.alive):
            batch.end(name)

    assert MAX_QUICK_ENDS == len(batch.submits)
    assert jobs.has_given_up
    pauses = [
        later - earlier for earlier, later in zip(batch.submits, batch.submits[1:], strict=False)
    ]
    assert sorted(pauses) == pauses
    assert "no more are asked for" in jobs.summary(7200.0)


def test_a_batch_system_that_takes_nothing_is_asked_ever_more_slowly_but_for_ever() -> None:
    """A full queue passes: no limit, and what it said is shown."""
    jobs, batch = keeper(), FakeBatch()
    batch.takes = False
    day = 24 * 3600
    for now in range(0, day, 5):
        batch.look(jobs, float(now))

    assert day / (MAX_WAIT_S * (1 + JITTER) + 5) - 1 <= len(batch.submits) <= day / MAX_WAIT_S + 12
    assert "refused: no room" in jobs.summary(float(day))
    batch.takes = True
    for now in range(day, day + 1200, 5):
        batch.look(jobs, float(now))
    assert len(batch.alive) == 2


def test_a_batch_system_that_does_not_answer_has_ended_nothing() -> None:
    """squeue fails for an hour: no second set of jobs is asked for."""
    jobs, batch = keeper(), FakeBatch()
    batch.look(jobs, 0.0)
    for now in range(5, 3600, 5):
        assert [] == jobs.update({}, float(now))


def test_a_job_that_waits_long_is_said() -> None:
    """Pending for ever: the line says since when."""
    jobs, batch = keeper(most=1), FakeBatch()
    batch.look(jobs, 0.0)

    assert "0 of 1 jobs run, 1 wait" == jobs.summary(5.0)
    assert "0 of 1 jobs run, 1 wait (one for 20 minutes)" == jobs.summary(1290.0)


class KeeperMachine(RuleBasedStateMachine):
    """Any order of starts, ends, refusals, silences and looks."""

    @initialize(most=st.integers(1, 4))
    def begin(self, most: int) -> None:
        self.controller = keeper(most)
        self.batch = FakeBatch()
        self.now = 0.0

    @rule(seconds=st.floats(0.1, 400.0))
    def look(self, seconds: float) -> None:
        self.now += seconds
        before, quick = len(self.batch.submits), self.controller.quick_ends
        self.batch.look(self.controller, self.now)
        asked = len(self.batch.submits) - before
        if self.controller.quick_ends > quick:  # one has just ended at once: not now
            assert asked == 0
            assert self.controller.not_before >= self.now + FIRST_WAIT_S * (1 - JITTER)
        elif self.controller.quick_ends:  # and not one that has meanwhile lived long enough
            assert asked <= 1

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
    def turn_mood(self) -> None:
        self.batch.takes = not self.batch.takes

    @rule()
    def silence(self) -> None:
        self.controller.update({}, self.now)

    @invariant()
    def never_more_than_asked_for(self) -> None:
        assert len(self.batch.alive) <= self.controller.max_jobs

    @invariant()
    def no_job_is_forgotten(self) -> None:
        assert set(self.batch.alive) <= set(self.controller.jobs)

    def teardown(self) -> None:
        if hasattr(self, "controller"):
            self.controller.close()
            self.batch.look(self.controller, self.now)
            assert {} == self.batch.alive
            self.batch.look(self.controller, self.now)
            assert {} == self.controller.jobs


KeeperMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_keeper_machine = KeeperMachine.TestCase
