"""One candidate's way through the stages: build, import, check, time, and its end.

Each step returns the candidate's fault, or None and goes on; the verdict is made once, at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.evaluator import evidence, findings, sandbox
from actors.evaluator.build import Built
from actors.evaluator.checks import Checks
from actors.evaluator.children.profile import Profile, bounded
from actors.evaluator.devices import roofline
from actors.evaluator.devices.card import Card
from actors.evaluator.fastbuild.asked import compiles
from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.isolation.nursery import Crowded, Nursery
from actors.evaluator.proofs import Claim
from actors.evaluator.racing.race import Race
from actors.evaluator.racing.stillness import Stillness, born
from actors.evaluator.standard import Standard
from actors.evaluator.timing import Timing, against_alone, against_best
from actors.evaluator.verdicts import Fault, fault_of, wrong
from actors.evaluator.wire.layout import leaves, total_bytes
from actors.evaluator.wire.orders import Confinement, Order, Raised
from actors.evaluator.wire.runner_orders import (
    FromRunner,
    Loaded,
    Profiled,
    TakeProfile,
)
from protocol.settings import Limits
from protocol.values import Seconds, Stage, Verdict, Word

LEAVE_S = 5.0
MAX_SOURCE_BYTES = 1 << 20
ANY_BYTES_S = 20e12  # more than any processor moves in a second
SLOWED = 1.3  # what a reference may take beside a candidate, of what it takes alone


class Trial:
    """One candidate before the judge."""

    def __init__(
        self,
        nursery: Nursery,
        standard: Standard,
        limits: Limits,
        confinement: Confinement,
        source: str,
        build_it: Callable[[float], Built],
        card: Card,
        earlier: Sequence[Claim] = (),
    ) -> None:
        """`earlier`: what it claimed when it was tried before."""
        self.nursery = nursery
        self.standard = standard
        self.limits = limits
        self.confinement = confinement
        self.source = source
        self._build_it = build_it
        self.built: Built | None = None  # if it compiles something
        self.table: Profile | None = None
        self._card = card
        self._earlier = earlier
        self._checks: Checks | None = None
        self._race: Race | None = None
        self.timing: Timing | None = None
        self._missing: tuple[str, ...] = ()
        self._spent: dict[str, float] = {"build": 0.0, "check": 0.0, "time": 0.0}
        self._runner: Child[FromRunner] | None = None
        self._stillness = Stillness(set())

    @property
    def doubted(self) -> Sequence[Claim]:
        """What it claimed, if it may have needed more than that; else nothing."""
        return self._race.claims if self._race is not None and self._race.doubted else ()

    def run(
        self,
        on_running: Callable[[], None],
        doing: Callable[[str], None],
        *,
        profiled: bool = False,
    ) -> Verdict:
        """Go through the stages; whatever the candidate does, return a verdict."""
        try:
            fault = self._build(doing) or self._judge(on_running, doing, profiled)
        except Crowded as error:
            if self._runner is None:
                raise
            # Without it there was room: the reference was measured on this card.
            reason = f"it leaves the reference no memory on the card ({error})"
            fault = Fault(word=Word.OUT_OF_MEMORY, stage="check", reason=reason[:300])
        finally:
            if self._runner is not None:
                self._runner.kill()
        return self._verdict(fault)

    def _judge(
        self, on_running: Callable[[], None], doing: Callable[[str], None], profiled: bool
    ) -> Fault | None:
        on_running()
        doing("checking")
        began = time.monotonic()
        with born(self.nursery) as self._stillness:
            self._runner = self.nursery.spawn("runner", self.confinement, FromRunner, trusted=False)
        fault = self._start(self._runner) or self._check(self._runner)
        self._spent["check"] += time.monotonic() - began
        if fault is not None:
            return fault
        doing("timing")
        began = time.monotonic()
        fault = self._time(self._runner)
        if fault is None and profiled:
            self._profile(self._runner)
        fault = fault or self._end(self._runner) or self._slowed()
        self._spent["time"] += time.monotonic() - began
        return fault

    # --- stages ------------------------------------------------------------------------------

    def _build(self, doing: Callable[[str], None]) -> Fault | None:
        """Have what the candidate compiles built, where it may compile something."""
        if len(self.source.encode()) > MAX_SOURCE_BYTES:
            reason = f"the source is larger than {MAX_SOURCE_BYTES >> 10} KiB"
            return Fault(word=Word.COMPILE_FAILED, stage="import", reason=reason)
        if not compiles(self.source):
            return None
        doing("building")
        self.built = built = self._build_it(self.limits.build_s)
        self._spent["build"] = built.seconds
        return built.fault

    def _start(self, runner: Child[FromRunner]) -> Fault | None:
        """Import, construct, load parameters."""
        limits = self.limits
        # A candidate may compile on construction, too.
        late = limits.build_s if compiles(self.source) else 0.0
        fault = self._tell(
            runner,
            self.standard.import_order(self.source),
            limits.import_s,
            "import",
        )
        if fault is not None:
            return fault
        self.standard.renew()
        construct, carried = self.standard.construct()
        fault = self._tell(runner, construct, limits.check_s + late, "check", carried)
        if fault is not None:
            return fault
        load, carried = self.standard.load()
        answer = runner.ask(load, limits.check_s, carried)
        if isinstance(answer, Gone) or not isinstance(answer[0], Loaded):
            return fault_of(answer, "check", runner.output.text())
        if answer[0].misshapen:
            return wrong(f"parameter {answer[0].misshapen[0]}", "check")
        self._missing = answer[0].missing
        self.standard.examiner.restore(self._missing)
        return None

    def _tell(
        self,
        runner: Child[FromRunner],
        order: Order,
        seconds: float,
        stage: Stage,
        carried: list[int] | None = None,
    ) -> Fault | None:
        answer = runner.ask(order, seconds, carried or [])
        if isinstance(answer, Gone) or isinstance(answer[0], Raised):
            return fault_of(answer, stage, runner.output.text())
        return None

    def _check(self, runner: Child[FromRunner]) -> Fault | None:
        checks = self._checks = Checks(
            self.standard, runner, call_s=self.limits.check_s, missing=self._missing
        )
        return checks.run()

    def _time(self, runner: Child[FromRunner]) -> Fault | None:
        limits = self.limits
        race = Race(
            self.standard,
            runner,
            self._stillness,
            self._card.sensors,
            time_s=limits.time_s,
            call_s=limits.check_s,
            floor_us=self._floor_us(),
            earlier=self._earlier,
        )
        self._race = race
        result = race.run()
        if isinstance(result, Fault):
            return result
        self.standard.took(result.reference_us)
        on_host = self.standard.on_host
        self.timing = against_best(result, self.standard.best_us) if on_host else result
        return None

    def _floor_us(self) -> float:
        """Return what moving the outputs alone takes at best; a cheat may well read no input."""
        size = sum(leaf.nbytes for leaf in leaves(self.standard.facts.outputs))
        floor = roofline.floor_us(size, 0, roofline.of_device(self._card.device))
        return floor or size / ANY_BYTES_S * 1e6

    def _slowed(self) -> Fault | None:
        """See that the reference was not held up: kernels run on when their process is stopped."""
        if self.standard.on_host or self._race is None or self.timing is None:
            return None
        beside = self.timing.reference_us
        alone = self._race.alone_us(beside)
        if beside <= SLOWED * alone:
            self.timing = against_alone(self.timing, alone)
            return None
        reason = f"beside it the reference takes {beside:.4g} µs a call, alone {alone:.4g} µs"
        return Fault(word=Word.REJECTED, stage="time", reason=reason)

    def _profile(self, runner: Child[FromRunner]) -> None:
        """Let the profiler look on; a candidate that fails here has been judged already."""
        answer = runner.ask(TakeProfile(slot=0), self.limits.check_s)
        if not isinstance(answer, Gone) and isinstance(answer[0], Profiled):
            self.table = bounded(answer[0].profile)

    def _end(self, runner: Child[FromRunner]) -> Fault | None:
        """Let it leave: a fault that comes as late as that is still its own."""
        patience = min(LEAVE_S, self.limits.check_s)
        gone = runner.dismiss(patience)
        if gone.how == "exit" and gone.number == 0:
            return None
        if gone.how == "timed_out":
            reason = f"it did not end within {patience:g} s of its last call"
            return Fault(word=Word.TIMED_OUT, stage="time", reason=reason)
        fault = fault_of(gone, "time", runner.output.text())
        return Fault(
            word=fault.word, stage="time", reason=f"at its end: {fault.reason}", log=fault.log
        )

    # --- the verdict -------------------------------------------------------------------------

    def _verdict(self, fault: Fault | None) -> Verdict:
        seconds = Seconds(**{name: round(spent, 3) for name, spent in self._spent.items()})
        folders = [self.confinement.folder, str(Path(self.confinement.folder).parent)]
        if fault is not None:
            return Verdict(
                verdict=fault.word,
                reason=evidence.one_line(evidence.clean(fault.reason, folders)),
                stage=fault.stage,
                max_error=fault.max_error if fault.word is Word.WRONG else None,
                log=evidence.clean(fault.log, folders),
                seconds=seconds,
                sandbox_level=sandbox.LEVEL,
            )
        output = self._runner.output.text() if self._runner is not None else ""
        timed = self.timing
        return Verdict(
            verdict=Word.CORRECT,
            median_us=timed.median_us if timed else None,
            reference_us=timed.reference_us if timed else None,
            speedup=timed.speedup if timed else None,
            speedup_ci95=timed.ci95 if timed else None,
            max_error=self._checks.max_error if self._checks else None,
            profile=self._figures(timed),
            log=evidence.clean(output, folders, limit=4096),
            seconds=seconds,
            sandbox_level=sandbox.LEVEL,
        )

    def _figures(self, timed: Timing | None) -> dict[str, str] | None:
        if timed is None:
            return None
        facts, device = self.standard.facts, self._card.device
        moved = sum(map(total_bytes, (facts.inputs, facts.state, facts.outputs)))
        return findings.figures(
            timed,
            self._race.reading if self._race else None,
            roofline.summary(moved, 0, timed.median_us, roofline.of_device(device)),
            self._checks.share if self._checks else None,
            facts.notes,
            self.table,
        )
