"""Replacing jobs: never more than asked for, never a busy loop, never one left behind."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actors.launcher.keeper import FIRST_S, JITTER, LIMIT, MOST_S, QUICK_S, Cancel, Keeper, Phase


def keeper(most: int = 2) -> Keeper:
    return Keeper(most=most, rng=Random(0))


class FakeBatch:
    """A batch system in memory, which does what a test says; keeps what was asked of it."""

    def __init__(self) -> None:
        self.alive: dict[str, Phase] = {}
        self.gone: set[str] = set()
        self.submits: list[float] = []
        self.takes = True

    def look(self, keeper: Keeper, now: float) -> None:
        """Do what the launcher does at each turn."""
        phases = self.alive | dict.fromkeys(self.gone, Phase.ENDED)
        for instruction in keeper.look(phases, now):
            if isinstance(instruction, Cancel):
                self.end(instruction.job)
                continue
            self.submits.append(now)
            if not self.takes:
                keeper.refuse("no room", now)
                break
            name = f"job-{len(self.submits)}"
            self.alive[name] = Phase.PENDING
            keeper.submitted(name, now)

    def end(self, name: str) -> None:
        del self.alive[name]
        self.gone.add(name)


def test_a_job_that_has_worked_is_replaced_at_once() -> None:
    """A wall time that is over costs no wait."""
    jobs, batch = keeper(), FakeBatch()
    batch.look(jobs, 0.0)
    batch.alive["job-1"] = Phase.RUNNING
    batch.look(jobs, 1.0)
    batch.end("job-1")
    batch.look(jobs, QUICK_S + 1.0)

    assert [0.0, 0.0, QUICK_S + 1.0] == batch.submits


def test_jobs_that_end_at_once_are_given_up_after_the_limit() -> None:
    """A node without the software: a few tries, each later than the last, and then a person."""
    jobs, batch = keeper(most=1), FakeBatch()
    for now in range(0, 7200):
        batch.look(jobs, float(now))
        for name in list(batch.alive):
            batch.end(name)

    assert LIMIT == len(batch.submits)
    assert jobs.given_up
    pauses = [
        later - earlier for earlier, later in zip(batch.submits, batch.submits[1:], strict=False)
    ]
    assert sorted(pauses) == pauses
    assert "no more are asked for" in jobs.words(7200.0)


def test_a_batch_system_that_takes_nothing_is_asked_ever_more_slowly_but_for_ever() -> None:
    """A full queue passes: no limit, and what it said is shown."""
    jobs, batch = keeper(), FakeBatch()
    batch.takes = False
    day = 24 * 3600
    for now in range(0, day, 5):
        batch.look(jobs, float(now))

    assert day / (MOST_S * (1 + JITTER) + 5) - 1 <= len(batch.submits) <= day / MOST_S + 12
    assert "refused: no room" in jobs.words(float(day))
    batch.takes = True
    for now in range(day, day + 1200, 5):
        batch.look(jobs, float(now))
    assert len(batch.alive) == 2


def test_a_batch_system_that_does_not_answer_has_ended_nothing() -> None:
    """squeue fails for an hour: no second set of jobs is asked for."""
    jobs, batch = keeper(), FakeBatch()
    batch.look(jobs, 0.0)
    for now in range(5, 3600, 5):
        assert [] == jobs.look({}, float(now))


def test_a_job_that_waits_long_is_said() -> None:
    """Pending for ever: the line says since when."""
    jobs, batch = keeper(most=1), FakeBatch()
    batch.look(jobs, 0.0)

    assert "0 of 1 jobs run, 1 wait" == jobs.words(5.0)
    assert "0 of 1 jobs run, 1 wait (one for 20 minutes)" == jobs.words(1290.0)


class KeeperMachine(RuleBasedStateMachine):
    """Any order of starts, ends, refusals, silences and looks."""

    @initialize(most=st.integers(1, 4))
    def begin(self, most: int) -> None:
        self.keeper = keeper(most)
        self.batch = FakeBatch()
        self.now = 0.0

    @rule(seconds=st.floats(0.1, 400.0))
    def look(self, seconds: float) -> None:
        self.now += seconds
        before, quick = len(self.batch.submits), self.keeper.quick
        self.batch.look(self.keeper, self.now)
        asked = len(self.batch.submits) - before
        if self.keeper.quick > quick:  # one has just ended at once: not now
            assert asked == 0
            assert self.keeper.not_before >= self.now + FIRST_S * (1 - JITTER)
        elif self.keeper.quick:  # and not one that has meanwhile lived long enough
            assert asked <= 1

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        if self.batch.alive:
            name = data.draw(st.sampled_from(sorted(self.batch.alive)))
            self.batch.alive[name] = Phase.RUNNING

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.batch.alive:
            self.batch.end(data.draw(st.sampled_from(sorted(self.batch.alive))))

    @rule()
    def turn_mood(self) -> None:
        self.batch.takes = not self.batch.takes

    @rule()
    def silence(self) -> None:
        self.keeper.look({}, self.now)

    @invariant()
    def never_more_than_asked_for(self) -> None:
        assert len(self.batch.alive) <= self.keeper.most

    @invariant()
    def no_job_is_forgotten(self) -> None:
        assert set(self.batch.alive) <= set(self.keeper.jobs)

    def teardown(self) -> None:
        if hasattr(self, "keeper"):
            self.keeper.close()
            self.batch.look(self.keeper, self.now)
            assert {} == self.batch.alive
            self.batch.look(self.keeper, self.now)
            assert {} == self.keeper.jobs


KeeperMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_keeper_machine = KeeperMachine.TestCase
