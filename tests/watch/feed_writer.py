"""A coordinator's writes, at random, and a page that follows them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec

from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.directive_store import DirectivePlace, DirectiveStore
from actors.coordinator.storage.store import Store
from actors.supervisor.reporting.feed.run_feed import RunFeed
from protocol.directives import new_directive
from protocol.values import Call, Candidate, Outcome, Plan, Reference, Task, Verdict

TASK = "relu"


def answer(feed: RunFeed, seq: int) -> dict[str, Any]:
    """Return the answer to `since`, as a page reads it."""
    feed.refresh()
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(feed.since(seq)))
    return decoded


def fresh(run_dir: Path) -> dict[str, Any]:
    """Return the whole state, read by a reader that has just begun."""
    return answer(RunFeed(run_dir, "id"), 0)


class FollowingPage:
    """Keeps what a page keeps: rows by key, brought up to date by answers to `since`."""

    KEYS = (
        ("tasks", ("name",)),
        ("nodes", ("task", "number")),
        ("workers", ("slot",)),
        ("events", ("id",)),
        ("directives", ("key",)),
    )

    def __init__(self) -> None:
        self.seq = 0
        self.rows: dict[str, dict[tuple[object, ...], Any]] = {name: {} for name, _ in self.KEYS}
        self.attempts: list[Any] = []
        self.run: dict[str, Any] = {}

    def take(self, changes: dict[str, Any]) -> None:
        for name, fields in self.KEYS:
            if changes["whole"]:
                self.rows[name].clear()
            for row in changes[name]:
                self.rows[name][tuple(row[field] for field in fields)] = row
        self.attempts = changes["attempts"]
        self.run = changes["run"]
        self.seq = changes["seq"]


class Coordinator:
    """Writes as a coordinator does, one random step a transaction."""

    STEPS = (
        *("begin", "plan", "lease", "end", "call", "node", "confirm", "worker", "event", "run"),
        *("directive", "pin", "pause"),
    )

    def __init__(self, run_dir: Path, rng: random.Random) -> None:
        self.database = Database(run_dir)
        self.store, self.activity = Store(self.database), ActivityStore(self.database)
        self.decisions = DecisionStore(self.database)
        self.directives = DirectiveStore(self.database)
        self._rng = rng
        self._open: list[int] = []
        self._done: list[int] = []
        self._leases: list[tuple[int, str]] = []
        self._epoch = self.store.count_start(1.0)
        self._last = 0
        self.store.add_task(Task(name=TASK, source="# reference"), 100)
        self.store.set_reference(TASK, Reference(eager_us=100.0), 2.0)
        self.database.commit()

    def step(self) -> None:
        """Make one random step."""
        self.write(self._rng.choice(self.STEPS))

    def write(self, step: str) -> None:
        """Make one step in a transaction of its own."""
        getattr(self, f"_{step}")()
        self.database.commit()

    def _begin(self) -> None:
        self._last += 1
        attempt = Attempt(
            number=self._last,
            parent=self._rng.choice([0, *self._done]),
            repair=False,
            stage=Stage.PLAN,
        )
        self.store.save_attempt(TASK, attempt)
        self._open.append(self._last)

    def _plan(self) -> None:
        if self._open:
            number = self._rng.choice(self._open)
            self.store.save_plan(TASK, number, Plan(advice=f"idea {number}", scaffold="…"))
            self.store.save_candidate(TASK, number, Candidate(source=f"# {number}"))
            attempt = Attempt(number=number, parent=0, repair=False, stage=Stage.EVALUATE)
            self.store.save_attempt(TASK, attempt)

    def _lease(self) -> None:
        if self._open:
            self._epoch += 1
            work = f"{TASK}/{self._rng.choice(self._open)}/plan"
            self.activity.grant(self._epoch, work, "planner-0", "p", self._rng.random())
            self._leases.append((self._epoch, work))

    def _end(self) -> None:
        if self._leases:
            epoch, _ = self._leases.pop()
            self.activity.end_lease(epoch, "done", self._rng.random())

    def _call(self) -> None:
        if self._last:
            call = Call(model="m", request="r", reply="a", usd=self._rng.choice([None, 0.5]))
            work = f"{TASK}/{self._rng.randint(1, self._last)}/plan"
            self.activity.add_call(work, "planner", call, 3.0)

    def _node(self) -> None:
        if self._open:
            number = self._open.pop()
            speedup = self._rng.uniform(0.5, 3.0)
            interval = (speedup * 0.9, speedup * 1.1)
            verdict = Verdict(
                verdict=Outcome.CORRECT,
                median_us=100 / speedup,
                speedup=speedup,
                speedup_ci95=interval,
            )
            self.store.add_node(TASK, number, verdict, 100 / speedup, 4.0)
            self._done.append(number)

    def _confirm(self) -> None:
        if self._done:
            number = self._rng.choice(self._done)
            wrong = Verdict(verdict=Outcome.WRONG, reason="it differs", stage="check")
            self.decisions.keep_unconfirmed_verdict(TASK, number)
            self.store.confirm_node(TASK, number, self._rng.choice([None, wrong]), None)

    def _worker(self) -> None:
        slot = self._rng.choice(["planner-0", "evaluator-0@gpu1"])
        self.activity.worker_up(slot, "planner", str(self._rng.random()), 1, 5.0, "a card")
        self.activity.worker_health(slot, 1, self._rng.random())

    def _event(self) -> None:
        self.activity.add_event(self._rng.random(), "selected", f"{TASK}/1", "node 0")

    def _run(self) -> None:
        self.store.set_status(self._rng.choice(["running", "draining"]), "a reason")

    def _directive(self) -> None:
        reason = self._rng.choice(["", "there is no such node"])
        wish = new_directive("boost", task=TASK, node=1)
        self.directives.add(wish, reason=reason, at=6.0, place=DirectivePlace())

    def _pin(self) -> None:
        if self._done:
            number, pinned = self._rng.choice(self._done), self._rng.random() < 0.5
            self.directives.set_pinned(TASK, number, pinned=pinned)

    def _pause(self) -> None:
        self.directives.set_paused(paused=self._rng.random() < 0.5)

    def close(self) -> None:
        self.database.close()
