"""Reference and candidate timed in turn by the judge's own clock, on calls that it verifies.

Both sides are runners, forked from the same zygote and given the same orders.  No figure comes from
a child: the clock is read in the judge (`sides`).  Each call has inputs of its own, which a trusted
process wrote while the side was frozen (`slot_transfer`), and what counts is the time beyond that
of an empty block (`net_time`).  The rule is in `timing_policy`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from statistics import mean

from actors.evaluator.devices.sensors import GpuSensors, SensorReading
from actors.evaluator.ipc.card_memory import OUTPUT_COPIES, TaskBytes
from actors.evaluator.ipc.runner_orders import ReleaseTensors
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_failures import Accusation, CandidateFault
from actors.evaluator.timing import block_randomization, timing_statistics
from actors.evaluator.timing.block_size import BlockSize
from actors.evaluator.timing.dependent_calls import DependentCalls
from actors.evaluator.timing.left_work import LeftWork
from actors.evaluator.timing.net_time import BlockTimes, TimedWindow
from actors.evaluator.timing.other_programs import OtherPrograms, is_quiet
from actors.evaluator.timing.output_transfer import OutputsOutOfReachError
from actors.evaluator.timing.sides import CandidateFaultError, CandidateProcess, Sides
from actors.evaluator.timing.slot_transfer import FOUND_BY_LOOKS, SlotTransfer
from actors.evaluator.timing.spot_checks import SpotChecks
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import SIDES, Side, TimedGroup, Timing
from actors.work_context import EvaluationContext

MAX_REPLANNED = 10  # groups of which a side's blocks were too short; then they count all the same
MAX_WAIT_SHARE = 0.999  # threads that wait for each other may wait longer than the block lasts


class PairedBenchmark:
    """One candidate against the reference."""

    def __init__(
        self,
        fixture: ReferenceFixture,
        candidate: CandidateProcess,
        sensors: GpuSensors,
        *,
        floor_us: float,
        best_speedup: float = 0.0,
        time_s: float | None = None,
        tolerated: frozenset[Accusation] = frozenset(),
        suspected: Accusation | None = None,
    ) -> None:
        """`best_speedup`: of the task so far; a candidate that is clearly slower is timed roughly.

        `time_s`: the most seconds; None: the limit's.  `tolerated`: what the candidate is not
        rejected for; `suspected`: what an earlier process of it was accused of.
        """
        self._best_speedup = best_speedup
        self._is_suspected = suspected in FOUND_BY_LOOKS
        self.fixture = fixture
        self._stages = fixture.zygote.stages
        self.reading: SensorReading | None = None  # of the GPU's sensors, after the last group
        self._sides = Sides(fixture, candidate, tolerated)
        self._sensors = sensors
        self._floor_us = floor_us  # what no machine like this can beat
        self._time_s = fixture.limits.time_s if time_s is None else time_s
        self._on_host = fixture.on_host
        a_call = fixture.task_bytes.a_call
        self._transfer = SlotTransfer(fixture, self._sides, SpotChecks(fixture, a_call), a_call)
        self._dependent_calls = DependentCalls(
            self._transfer,
            self._sides,
            POLICY.dependent_ratio if self._on_host else POLICY.gpu_dependent_ratio,
            is_suspected=suspected is Accusation.CALLS_COMPUTED_TOGETHER,
            is_held_up=self._is_held_up,
        )
        self._block_size = BlockSize(
            most=self._most_calls(fixture.task_bytes),
            block_s=POLICY.block_s,
            time_s=self._time_s,
            is_repeated=bool(fixture.facts.updated.items),
        )
        self._block_times = BlockTimes(on_host=self._on_host)
        self._left_work = LeftWork()
        self._began = 0.0  # the moment in which warming up begins
        self._long: set[Side] = set()  # sides whose calls need no more warming up
        self.groups: list[TimedGroup] = []  # so far
        self._why = ""  # the timing ended
        self._others: OtherPrograms | None = None  # on a host, since the first group
        self._other_programs: float | None = None  # share of the processors' time that they used

    def run(
        self, on_group: Callable[[int], None] = lambda _groups: None
    ) -> Timing | CandidateFault:
        """Warm up, then time groups until enough is known; the candidate's fault is a value."""
        self._began = time.monotonic()
        try:
            with self._sides.measuring():
                return self._run(on_group)
        except CandidateFaultError as error:
            return error.fault

    def _run(self, on_group: Callable[[int], None]) -> Timing:
        with self._stages.stage("rehearsal"):
            self._release_both()
            self._rehearse()
            self._transfer.choose_outputs()
        try:
            return self._timing(on_group)
        except OutputsOutOfReachError:
            self._transfer.collect_outputs()
            return self._timing(on_group)

    def _most_calls(self, task: TaskBytes) -> int:
        """Return the calls of a block that memory has room for; on a host, that caches have."""
        free = self.fixture.free_bytes
        if self._on_host:
            return int(free / (task.inputs + OUTPUT_COPIES * task.outputs))
        usual = max(POLICY.gpu_least_calls, POLICY.max_slot_bytes // task.inputs)
        most = min(POLICY.max_block_calls, usual)
        return task.block_calls(free, most)

    @property
    def processor(self) -> int | None:
        """The processor that launches the calls of both sides; None: any."""
        return self._sides.processor

    @property
    def note(self) -> str:
        """What a reader of the figures has to know."""
        return self._dependent_calls.note

    def has_tried(self, accusation: Accusation) -> bool:
        """Whether it would have found this: on a busy machine some looks say nothing."""
        return accusation not in FOUND_BY_LOOKS or accusation in self._transfer.tried

    def close(self) -> None:
        """Give the memory of timed blocks back; the candidate has ended."""
        self._transfer.close()

    def _release_both(self) -> None:
        """Have both sides lay out their memory anew: its place may be worth some per cent."""
        for side in SIDES:
            with self._sides.running(side):
                self._sides.ask(side, ReleaseTensors())

    def _rehearse(self) -> None:
        """Find out how long a call takes, and how many make a block."""
        self._transfer.prepare(min(POLICY.rehearsal_slots, self._block_size.most))
        if self._transfer.draw_s:
            most_s = POLICY.max_draw_s if self._on_host else POLICY.gpu_max_draw_s
            self._block_size.limit(int(most_s / self._transfer.draw_s))
        for side in SIDES:
            call_us = self._transfer.rehearse(side, self._block_size.block_s)
            self._block_size.plan(side, call_us)
            if call_us >= POLICY.long_call_s * 1e6:
                self._long.add(side)

    def _timing(self, on_group: Callable[[int], None]) -> Timing:
        """Time groups until enough is known; return the figures."""
        self._warm_up()
        # Calls have prepared what they need, also for each input's place (CUDA graphs).
        self._sides.limit_orders()
        self._others = OtherPrograms() if self._on_host else None
        self._why = self._time_groups(on_group)
        self._other_programs = None if self._others is None else self._others.share()
        has_been_quiet = is_quiet(self._other_programs)
        timed = timing_statistics.timing_of(self.groups, is_quiet=has_been_quiet)
        if timed.median_us < self._floor_us:
            self._sides.accuse(
                Accusation.BELOW_FLOOR,
                f"{timed.median_us:.4g} µs a call is less than moving its outputs can take",
            )
        return timed

    def _time_groups(self, on_group: Callable[[int], None]) -> str:
        """Time groups, with looks at what the candidate does, until enough is known; say why."""
        # Of a candidate that is looked at for the first time, warming up is part of its time.
        began = self._began if self._best_speedup else time.monotonic()
        replanned = 0
        self.groups = []
        while self._dependent_calls.is_undecided or not timing_statistics.is_enough(
            self.groups, time.monotonic() - began, self._time_s, self._best_speedup
        ):
            with self._stages.stage("groups"):
                group = self._group()
            is_too_short = self._is_too_short(group)
            self._prepare()
            if is_too_short and replanned < MAX_REPLANNED:
                replanned += 1
                self._block_times.forget_candidate()
                continue
            self.groups.append(group)
            self._require_nothing_left()
            self._look_for_reading_ahead()
            if secrets.randbelow(1000) < 1000 * POLICY.other_kinds_chance:
                self._look_at_other_kinds()
            on_group(len(self.groups))
        self._look_at_other_kinds()  # a candidate can't know that this is the end
        if time.monotonic() - began >= self._time_s:
            return f"the time was up ({self._time_s:g} s)"
        is_narrow = timing_statistics.is_enough(self.groups, 0.0, self._time_s)
        return "narrow interval" if is_narrow else "its rank is clear"

    def _look_for_reading_ahead(self) -> None:
        """After some groups, find out whether the candidate reads inputs in their call."""
        number = len(self.groups)
        is_by_lot = secrets.randbelow(1000) < 1000 * POLICY.replaced_chance
        if number in POLICY.replaced_groups or is_by_lot or self._is_suspected:
            calls = self._block_size.calls("candidate")
            # The fastest so far: a block that is held up at its end has its first calls early.
            least_us = min(us for group in self.groups for us in group.candidate)
            usual_s = least_us * calls / 1e6
            tries = POLICY.replaced_tries if self._on_host else 1
            with self._stages.stage("reading ahead"):
                self._transfer.require_reads_at_their_turn(
                    calls,
                    (usual_s, self._block_times.candidate_block_s),
                    POLICY.suspected_tries if self._is_suspected else tries,
                )
                self._require_no_touched_ahead(calls, usual_s)
            with self._stages.stage("dependent calls"):
                self._dependent_calls.look(
                    calls, usual_s=_call_s(self.groups), group_s=_call_s(self.groups[-1:])
                )

    def _require_no_touched_ahead(self, calls: int, usual_s: float) -> None:
        """Accuse a candidate that reads inputs of later calls in the middle of two blocks."""
        read = passed = 0.0
        for look in range(POLICY.touched_ahead_looks):
            if look:  # other programs come and go: a block may take less now than in any group
                usual_s = min(usual_s, self._block("candidate").block_s)
            found = self._transfer.stopped_block(calls, usual_s)
            if found is None or found[0] <= found[1] + POLICY.touched_ahead_share:
                return
            read, passed = found
        self._sides.accuse(
            Accusation.INPUTS_TOUCHED_AHEAD,
            f"it had read {read:.0%} of a block's inputs after {passed:.0%} of its time: it reads "
            "the inputs of calls that are still to come",
        )

    def _require_nothing_left(self) -> None:
        """Accuse a candidate whose work goes on when the stream of its calls is done."""
        if self._on_host or not self._left_work.is_known:
            return
        self._transfer.tried.add(Accusation.WORK_NOT_JOINED)
        _reference_us, call_us = timing_statistics.middle_us(self.groups)
        if not self._left_work.is_too_much(call_us / 1e6):
            return
        for _wait in range(POLICY.left_blocks):
            self._left_work.add_wait(
                self._sides.left_after_wait(self._block_times.candidate_block_s)
            )
        if self._left_work.is_too_much(call_us / 1e6):
            self._sides.accuse(
                Accusation.WORK_NOT_JOINED,
                f"the card works on for {self._left_work.least_s * 1e6:.4g} µs when the stream of "
                f"its calls is done, and a call takes {call_us:.4g} µs: it does not join its work",
            )

    def _is_held_up(self, window: TimedWindow) -> bool:
        """Whether a block's threads waited for processors that other programs used."""
        is_calm = window.waited_s <= POLICY.max_calm_wait_share * window.block_s
        if self._others is None or is_calm or is_quiet(self._others.share()):
            return False
        return self._others.are_busy_now()  # the candidate, which is frozen, is not what it sees

    def _look_at_other_kinds(self) -> None:
        """Have the candidate compute inputs of other distributions."""
        with self._stages.stage("other kinds"):
            self._transfer.require_right_on_other_kinds(self._block_size.calls("candidate"))

    def log_end(self, context: EvaluationContext, seconds: float) -> None:
        """Log how many groups were timed, and why no more."""
        context.log_step(
            "timed",
            groups=len(self.groups),
            calls=self._block_size.calls("candidate"),
            reference_calls=self._block_size.calls("reference"),
            ended_by=self._why,
            left_us=round(self._left_work.least_s * 1e6, 1),
            one_after_the_other=[round(each, 2) for each in self._dependent_calls.ratios],
            other_programs=None if self._other_programs is None else round(self._other_programs, 2),
            seconds=round(seconds, 3),
        )

    def _is_too_short(self, group: TimedGroup) -> bool:
        """Whether a side's blocks were too short; the next ones have other numbers of calls."""
        times: dict[Side, float] = {
            "reference": mean(group.reference),
            "candidate": mean(group.candidate),
        }
        return any([self._block_size.plan(side, us) for side, us in times.items()])

    def _warm_up(self) -> None:
        """Prepare blocks of the planned length, and have both sides do some."""
        with self._stages.stage("warm-up"):
            self._prepare()
            until = time.monotonic() + min(POLICY.warm_up_s, self._time_s / 10)
            while not self._long:
                for side in SIDES:
                    self._block(side)
                if time.monotonic() >= until:
                    break

    def _block(self, side: Side) -> TimedWindow:
        """Time a block of a side; it also says what its next blocks are compared with."""
        calls = self._block_size.calls(side)
        window = self._transfer.timed_block(side, calls)
        self._block_times.add(side, window, calls)
        self._left_work.add(side, window.left_s)
        return window

    def _prepare(self) -> None:
        """Make slots for the planned blocks; measure what these take without calls."""
        self._transfer.prepare(self._block_size.largest)
        for calls in {self._block_size.calls(side) for side in SIDES}:
            if not self._block_times.has_empty(calls):
                for _block in range(POLICY.empty_blocks):
                    self._block_times.add_empty(self._transfer.empty_block(calls), calls)

    def _group(self) -> TimedGroup:
        """Time one group, A B B A after a block of A that does not count."""
        calls = {side: self._block_size.calls(side) for side in SIDES}
        windows: dict[Side, list[TimedWindow]] = {"reference": [], "candidate": []}
        uncounted, counted = block_randomization.group_order(self._long)
        for side in (*uncounted, *counted):
            windows[side].append(self._block(side))
        # The machine's state may have changed; one of both lengths in turn.
        number = calls[SIDES[len(self.groups) % 2]]
        self._block_times.add_empty(self._transfer.empty_block(number), number)
        self._sides.require_frozen(everywhere=True)
        self.reading = self._sensors.read()
        net_us = {side: self._block_times.net_us(windows[side], calls[side]) for side in SIDES}
        waits = {side: _wait_share(windows[side][-2:]) for side in SIDES}
        return TimedGroup(
            reference=(net_us["reference"][-2], net_us["reference"][-1]),
            candidate=(net_us["candidate"][-2], net_us["candidate"][-1]),
            reference_wait_share=waits["reference"],
            candidate_wait_share=waits["candidate"],
            is_throttled=self.reading is not None and bool(self.reading.throttled),
        )

    def alone_us(self, beside_us: float) -> float:
        """Return what the reference takes once the candidate is gone: the slowest of some blocks.

        `beside_us`: what it took beside the candidate.  If all blocks are clearly faster than that,
        there are more of them.
        """
        with self._sides.measuring():
            return max(self._alone_us(beside_us))

    def _alone_us(self, beside_us: float) -> list[float]:
        windows: list[TimedWindow] = []
        blocks_us: list[float] = []
        self._prepare()
        calls = self._block_size.calls("reference")
        began = time.monotonic()
        while len(blocks_us) < POLICY.alone_blocks or (
            max(blocks_us) * POLICY.slowed_ratio < beside_us
            and len(blocks_us) < POLICY.max_alone_blocks
            and time.monotonic() - began < POLICY.alone_s
        ):
            windows.append(self._block("reference"))
            blocks_us = self._block_times.net_us(windows, calls)
        return blocks_us


def _call_s(groups: Sequence[TimedGroup]) -> dict[Side, float]:
    """Return the seconds of a call of each side."""
    us = zip(SIDES, timing_statistics.middle_us(groups), strict=True)
    return {side: each / 1e6 for side, each in us}


def _wait_share(windows: Sequence[TimedWindow]) -> float:
    """Return the share of blocks in which threads waited for a processor."""
    waited_s = sum(each.waited_s for each in windows)
    return min(waited_s / sum(each.block_s for each in windows), MAX_WAIT_SHARE)
