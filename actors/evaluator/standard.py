"""The standard that candidates of one task are held to: a referee and a reference runner, warm.

Both run the task's own code, which is trusted.  If one of them dies it is nobody's verdict: the
world failed, and the judge tries again.
"""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Callable

from actors.evaluator import evidence
from actors.evaluator.examiner import Examiner
from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.isolation.nursery import Crowded, Nursery, ReferenceFailed
from actors.evaluator.racing.stillness import Stillness, born
from actors.evaluator.wire.layout import total_bytes
from actors.evaluator.wire.orders import Confinement, Done, Import, Kind, Order, Raised
from actors.evaluator.wire.referee_orders import (
    Bear,
    Bears,
    FromReferee,
    ImportTask,
    MakeModel,
    Prepare,
    Prepared,
    Unfit,
)
from actors.evaluator.wire.runner_orders import Construct, FromRunner, Load
from protocol.release import Judged
from protocol.settings import Limits, Precision
from protocol.values import Task, Value

KINDS: tuple[Kind, ...] = ("shifted", "sparse", "scaled", "spikes", "blocks", "permuted")


# What torch and the driver (CUDA_ERROR_OUT_OF_MEMORY) say of a full card.
FULL = re.compile(r"CUDA out of memory|failed with CUDA error 2\b")
LARGE_BYTES, FEW_KINDS = 1 << 30, 1  # with gigabytes of inputs one other kind must do


def silent(_words: str = "") -> None:
    """Say nothing."""


class Problem(Value, frozen=True, kw_only=True):
    """Why a task can't be judged: the user's to repair."""

    words: str
    final: bool = False  # it would be the same with memory of another kind


class Standard:
    """One task's referee and reference runner."""

    def __init__(
        self,
        nursery: Nursery,
        task: Task,
        limits: Limits,
        confinement: Confinement,
        *,
        precision: Precision = "task",
        doing: Callable[[str], None] = silent,
    ) -> None:
        """`doing` hears what of the task is waited for, and for how long at most."""
        self._doing = doing
        self.nursery = nursery
        self.task = task
        self._precision = precision
        self.limits = limits
        self.confinement = confinement
        self.seed = secrets.randbits(62)  # of the construction: candidates get the same
        self.facts: Prepared
        self.examiner: Examiner
        self._referee: Child[FromReferee]
        self.runner: Child[FromRunner]
        self.stillness = Stillness(set())
        self.kinds: list[Kind] = []  # other draws that the task bears
        self.best_us = math.inf  # the least that a call of the reference ever took
        self._parcels: list[int] = []
        self._started: list[Child[FromReferee] | Child[FromRunner]] = []

    @property
    def steady(self) -> bool:
        return self.facts.steady

    @property
    def judged(self) -> Judged:
        """What the figures of candidates hold for."""
        facts = self.facts
        return Judged(
            device=self.nursery.device,
            init=facts.init,
            inputs=facts.inputs,
            outputs=facts.outputs,
            state=facts.state,
        )

    @property
    def on_host(self) -> bool:
        """Whether it is judged on the host: the judge's word, whatever the task was meant for."""
        return self.nursery.device == "cpu"

    @property
    def lends(self) -> bool:
        """Whether bytes are handed over in device memory."""
        return self.examiner.lends

    def open(self) -> Problem | None:
        """Start both; say what is wrong with the task, if anything is."""
        # Device memory as far as the driver shares it between such processes; else the host's.
        tries = (True, False) if self.nursery.device == "cuda" else (False,)
        for lend in tries:
            problem = self._open(lend)
            if problem is None and self._fits():
                return self._try_kinds()
            self.close()
            if problem is not None and (problem.final or not lend):
                return problem
        raise self.failed("it can't take its own parameters")

    def _open(self, lend: bool) -> Problem | None:
        with born(self.nursery) as still:
            self._referee = self.nursery.spawn(
                "referee", self.confinement, FromReferee, trusted=True
            )
        self._started.append(self._referee)
        self.examiner = Examiner(
            self._referee, self.failed, check_s=self.limits.check_s, lends=lend
        )
        still.favour()
        answer = self._prepare(Prepare(seed=self.seed, lend=lend, precision=self._precision))
        if isinstance(answer, Problem):
            return answer
        said, self._parcels = answer
        if isinstance(said, Unfit):
            return Problem(words=self._clean(said.words))
        if not isinstance(said, Prepared):
            raise self.failed(answer)
        self.facts = said
        return None

    def _prepare(self, last: Prepare) -> tuple[FromReferee, list[int]] | Problem:
        """Go through the task's own code step by step, each within a limit of its own."""
        limits = self.limits
        source, modules = self.task.source, self.task.modules
        steps: tuple[tuple[str, str, float, Order], ...] = (
            ("import", "import_s", limits.import_s, ImportTask(source=source, modules=modules)),
            # What it needs of memory is foreseen there, and that takes its inputs, too.
            ("Model(...) and get_inputs()", "check_s", limits.check_s, MakeModel(seed=self.seed)),
            ("get_inputs() and forward", "check_s", limits.check_s, last),
        )
        for what, limit, seconds, order in steps:
            self._doing(f"waiting for the task's {what} (limit {seconds:g} s)")
            answer = self._referee.ask(order, seconds)
            if isinstance(answer, Gone):
                return self._problem_of(answer, f"the task's {what}", limit)
            if order is last or not isinstance(answer[0], Done):
                return answer
        raise AssertionError("the last step returns")

    @property
    def _patience(self) -> float:
        return self.limits.import_s + self.limits.check_s

    def _fits(self) -> bool:
        """Start the runner; whether it can take what the referee hands over."""
        with born(self.nursery) as self.stillness:
            self.runner = self.nursery.spawn("runner", self.confinement, FromRunner, trusted=False)
        self._started.append(self.runner)
        self._tell(self.import_order())
        for order, carried in (self.construct(), self.load()):
            answer = self.runner.ask(order, self._patience, carried)
            if isinstance(answer, Gone):
                raise self.failed(answer)
            if isinstance(answer[0], Raised):
                return False
        return True

    def _try_kinds(self) -> Problem | None:
        """Find out which other draws the task bears; one that kills the referee is not borne."""
        large = total_bytes(self.facts.inputs) > LARGE_BYTES
        for kind in KINDS[:FEW_KINDS] if large else KINDS:
            answer = self._referee.ask(Bear(kind=kind, seed=secrets.randbits(62)), self._patience)
            if not isinstance(answer, Gone):
                if isinstance(answer[0], Bears) and answer[0].bears:
                    self.kinds.append(kind)
                continue
            # A device-side assertion ends a CUDA context: begin again, and ask no more of it.
            self.close()
            problem = self._open(self.lends)
            if problem is not None or not self._fits():
                return problem
            return None
        return None

    def import_order(self, candidate: str | None = None) -> Import:
        """Return the order that imports a candidate, or the task itself, beside its modules."""
        if candidate is None:
            return Import(source=self.task.source, class_name="Model", modules=self.task.modules)
        return Import(source=candidate, class_name="ModelNew", modules=self.task.modules)

    def _problem_of(self, gone: Gone, what: str, limit: str) -> Problem:
        if gone.how == "timed_out":
            return Problem(
                words=f"{what} took more than {gone.seconds:g} s: see what it waits for, or raise"
                f" {limit} under [limits] in stark.toml",
                final=True,
            )
        said = evidence.one_line(self._referee.output.text()[-300:])
        if gone.how == "lost":
            raise self.failed(gone)
        return Problem(words=self._clean(f"the task could not be prepared: {gone.said()}. {said}"))

    def _clean(self, words: str) -> str:
        return evidence.one_line(evidence.clean(words, [self.confinement.folder]))

    def renew(self) -> None:
        """Have what modules are made of in memory that no candidate has held.

        On the host it is sealed; what is handed over on the card can be written to.
        """
        if self.lends:
            fresh = self.examiner.renew()
            self._drop_parcels()
            self._parcels = fresh

    def construct(self) -> tuple[Construct, list[int]]:
        """Return the order that constructs a module as the reference was."""
        return Construct(seed=self.seed, init=self.facts.init), self._parcels[:1]

    def load(self) -> tuple[Load, list[int]]:
        """Return the order that copies the reference's parameters and buffers in."""
        return Load(state=self.facts.state), self._parcels[1:3]

    def _tell(self, order: Order, carried: list[int] | None = None) -> None:
        seconds = self.limits.import_s + self.limits.check_s
        answer = self.runner.ask(order, seconds, carried or [])
        if isinstance(answer, Gone) or isinstance(answer[0], Raised):
            raise self.failed(answer)

    def failed(self, answer: object) -> ReferenceFailed:
        """Return the error for a trusted child that gave no good answer."""
        said = answer[0] if isinstance(answer, tuple) else answer
        words = said.said() if isinstance(said, Gone) else str(said)[:300]
        text = " ".join(child.output.text()[-300:] for child in self._started)
        kind = Crowded if FULL.search(text) and self.nursery.device == "cuda" else ReferenceFailed
        return kind(self._clean(f"the reference failed: {words} {text}"))

    @property
    def alive(self) -> bool:
        return all(child.gone is None for child in self._started)

    def took(self, us: float | None) -> None:
        """Remember the reference's best time, whoever measured it."""
        self.best_us = min(self.best_us, us or math.inf)

    def close(self) -> None:
        """End both."""
        for child in self._started:
            child.kill()
        self._drop_parcels()
        self._started = []

    def _drop_parcels(self) -> None:
        while self._parcels:
            os.close(self._parcels.pop())
