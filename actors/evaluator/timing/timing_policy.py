"""The numbers of timing, in one place, and the rule that they belong to.

The rule:

1. Reference and candidate are timed in groups of four blocks, A B B A, by the judge's own clock.
   A lot decides for each group which side is A, and on a card when a block begins: what other
   programs do favours neither side.  A block of A that does not count comes first, so each side
   follows each side as often.  While one side runs, the processes of the other are frozen.
2. A block is a number of calls, each on fresh inputs in a slot of its own.  A trusted process
   writes the slots while the side is frozen.
3. The clock runs from the thaw until the side has answered and handed its outputs over, is frozen,
   and the card is idle.  Empty blocks of the reference, and what its own clock says of its calls,
   tell what a block takes besides its calls.  What it takes beyond that, divided by its calls, is
   the figure: of both sides, of any kernel, with nothing added.
4. After each block of the candidate the judge draws some calls by lot and compares their outputs,
   and their inputs with what was written.  A difference makes the verdict `wrong`.
5. Groups in which the reference's threads waited for a processor, or the card was throttled, are
   left out where enough calm groups remain.  Otherwise the interval is widened by what contention
   can have done.  On a host where other programs used next to no processor time, neither applies.
6. Timing ends when the interval of the ratio is narrow, or when the time is up; for a candidate
   that can't become the best of its task, a wider interval is narrow.  Where a task has a best,
   warming up is part of the time.
7. `rejected` needs a time below the roofline floor, processes that ran while frozen, or memory that
   can't be read: in a second process, too, and not of the task's own module at that moment
   (`actors/evaluator/repeated_evaluation.py`).

The limits of freezing itself are in `actors/evaluator/sandbox/freezer.py`.  The reasons are in
decisions 047 to 055 and 078 to 081 of `docs/decisions/`, measurements in `docs/judge.md`.
"""

from __future__ import annotations

from protocol.values import Value


class TimingPolicy(Value, frozen=True, kw_only=True):
    """All tuned numbers of timing, with unit, meaning and evidence."""

    # --- blocks: calls that are timed together ------------------------------------------------

    # Seconds: a block lasts at least this long.  On a card, what it takes besides its calls varies
    # by 0.1 to 0.2 ms, and a group takes 0.07 s besides its blocks: longer blocks say more in the
    # same time.  Memory makes those of large inputs shorter.
    block_s: float = 0.02
    # Bytes: the inputs of a block on a card are no more than this, but for so many calls at least
    # where memory allows them.  A block's first call takes 0.1 ms more than the others.
    max_slot_bytes: int = 24 << 30
    gpu_least_calls: int = 4
    # Calls: no block has more, and there are no more slots.
    max_block_calls: int = 2048
    # Blocks: the time limit must be enough for this many.
    planned_blocks: int = 40
    # Ratio: a side that wants this many times more calls than it had is planned anew, and sides
    # that are no further apart have as many.
    max_stretch: float = 1.5
    # Seconds: filling the slots of one block takes no longer, where each call's inputs are drawn.
    # On a card the shortest timing has 25 fills.
    max_draw_s: float = 0.25
    gpu_max_draw_s: float = 0.1
    # Seconds: the reference's calls of a block take no longer where the referee repeats blocks, as
    # it does where calls change a state.  A candidate that is 500 times as fast had blocks that the
    # referee repeated for ten seconds each.
    max_repeated_s: float = 0.4

    # --- warm-up and overhead -----------------------------------------------------------------

    # Slots: with these the length of a call is found out, by blocks that grow by the factor until
    # they last for a share of a block.
    rehearsal_slots: int = 4
    rehearsal_growth: int = 8
    rehearsal_share: float = 0.3
    # Seconds: warm-up lasts this long at least (at most a tenth of the time limit).
    warm_up_s: float = 0.15
    # Seconds: a call that takes longer is warmed up by its first call alone.
    long_call_s: float = 0.5
    # Blocks: the last empty ones that say what a block takes besides its calls.
    empty_blocks: int = 5
    # Blocks of the reference that say what a block takes besides its calls.
    reference_blocks: int = 8
    # Seconds: by so much hand-overs of the reference's blocks may be longer than in empty ones,
    # for the block and for each output: the median of them, and a single one.  A card that was busy
    # is idle 0.3 to 0.5 ms later than one that was not, and now and then a hand-over takes 1 to
    # 2 ms longer; cold caches cost 0.5 to 1 µs an output.  The usual one of a side's blocks in a
    # group may be longer by the third.
    max_hand_over_s: float = 5e-4
    max_single_hand_over_s: float = 1.5e-3
    usual_hand_over_noise_s: float = 3e-4
    max_output_s: float = 1e-6
    # Seconds, and share of the block: by so much a block of the reference may take longer besides
    # its calls than an empty one (0.3 to 0.7 ms on an H100's host: code that the processor's caches
    # have lost).  A block of few large calls is short, and may take as much as others.  Of fewer
    # calls its own clock says too little on a host; a card's events say enough of one call.
    max_besides_s: float = 1e-3
    max_besides_share: float = 0.06
    usual_besides_s: float = 4e-4
    least_clocked_calls: int = 4
    gpu_least_clocked_calls: int = 1
    # Seconds: a woken side rests this long before its block; OpenMP threads of a referee on the
    # host spin for about this long.
    settle_s: float = 0.003
    # Seconds: a block on a card begins after a pause of up to this, by lot.  Programs have turns
    # of about 2 ms.
    most_pause_s: float = 0.005
    # Share of a block's last time: the judge sleeps that long, then spins for the answer (GPU).  A
    # virtual processor may share its core with that of the side, which launches more slowly then.
    spin_after_share: float = 0.96

    # --- groups: contention, and when to stop -------------------------------------------------

    # Share of the reference's blocks: the group is disturbed if its threads waited longer than that
    # for a processor.
    max_calm_wait_share: float = 0.05
    # Share of the processors' time on a host: where other programs used no more, threads waited for
    # threads of their own side, and nothing was disturbed.
    quiet_share: float = 0.03
    # Seconds, and share of the processors' time in them while both sides are frozen: with more,
    # other programs may be what a candidate's threads have waited for.  The kernel counts in ticks
    # of 10 ms.  What was seen holds for so many seconds.
    busy_look_s: float = 0.1
    busy_share: float = 0.1
    same_moment_s: float = 0.5
    # Groups: that many calm groups do, and the interval may end the timing.
    enough_groups: int = 8
    # Groups: timed even when the time is up a second time, and when it is up the first time.  An
    # interval of fewer than eight assumes a distribution, and beside another program there is none.
    min_groups: int = 3
    wanted_groups: int = 6
    # Ratio: from one look at the interval to the next the groups grow by this factor.  An interval
    # that is looked at after each group is narrow by chance sooner or later.
    look_growth: float = 1.25
    # Share of the ratio: an interval narrower than this ends the timing (evaluation law 6).
    enough_interval_width: float = 0.01
    # Share of the ratio: the same where the whole interval is below the best node of the task.
    enough_width_behind: float = 0.05
    # Share of the ratio: the same for other first looks of a task that has a best node: ±1 %.  Two
    # nodes that are nearer to each other are both confirmed, and that is timed to 1 %.
    enough_width_contender: float = 0.02
    # Seconds, and share of the ratio: for one behind the best after so long.  Calls that are little
    # more than a launch vary by a tenth, and their place is known long before.
    behind_s: float = 1.0
    most_width_behind: float = 0.25
    # Ratio: where the best node is at least so many times as fast as the whole interval, the place
    # of a candidate far behind is known, however wide the interval.
    far_behind_ratio: float = 1.25
    # Groups: so many do for one that is far behind, and for any other first look of a task that has
    # a best node (the winner is timed again).
    far_behind_groups: int = 4
    first_look_groups: int = 6
    # Ratio to the reference's undisturbed time: more than the first widens the interval; more than
    # the second, on a busy host, replaces the reference's time.  Two OpenMP threads that waited for
    # each other made a candidate with one thread 200 times as fast.
    disturbed_ratio: float = 1.1
    held_up_ratio: float = 1.5
    # Ratio to the reference's time alone (GPU): above it the time alone counts.  Kernels run on
    # when their process is frozen.
    slowed_ratio: float = 1.03
    # Blocks of the reference alone: the first number, or up to the second if all of them are faster
    # than beside the candidate.  No further block begins after these seconds.  Calls that are
    # little more than launches take 40 µs in one block and 60 µs in the next.
    alone_blocks: int = 3
    max_alone_blocks: int = 20
    alone_s: float = 0.5

    # --- inputs that are read at another time than in their call ------------------------------

    # Shares of the block: inputs are replaced by lot between these two.
    replaced_shares: tuple[float, float] = (0.3, 0.6)
    # Shares of the block: those of a later call so long before its turn; writing them may take the
    # second.
    replaced_ahead_share: float = 0.15
    replacing_share: float = 0.1
    # Shares of the block: those of an earlier call so long after its turn, if the block did not
    # take longer than usual by more than the second.  So it is over by then even if the block stood
    # still before it.
    replaced_behind_share: float = 0.25
    replaced_longer_share: float = 0.15
    # Blocks on a host: at most so many, until something was said of both calls; on a card one.  The
    # second in a process that follows an accusation.
    replaced_tries: int = 3
    suspected_tries: int = 10
    # Shares of the block: it is stopped by lot between these two, and by so much more of its inputs
    # than of its time can be read by then (honest blocks: less than of their time).  Pages that the
    # inputs must have.
    stopped_shares: tuple[float, float] = (0.1, 0.4)
    touched_ahead_share: float = 0.15
    # Blocks in which that has to be seen, one after the other.
    touched_ahead_looks: int = 2
    least_pages: int = 8
    # Calls that a block must have.
    least_replaced: int = 8
    # Groups: after these it is tried, and after each later one with this probability.
    replaced_groups: tuple[int, ...] = (1, 5)
    replaced_chance: float = 0.25

    # --- calls that are computed together -----------------------------------------------------

    # Calls of a block in which each output decides the next call's inputs, at most.
    dependent_calls: int = 64
    # Bytes of a call's inputs and of its outputs, at most: of larger ones the memory decides what a
    # call takes, and a host hashes outputs at 1 to 2 GB/s.
    dependent_bytes: tuple[int, int] = (1 << 22, 1 << 19)
    gpu_dependent_bytes: tuple[int, int] = (1 << 24, 1 << 24)
    # Bytes: the outputs of such a block, where they follow from a state as well: all are copied.
    chain_bytes: int = 1 << 28
    # Outputs of such a block that are compared, at most.
    dependent_compared: int = 16
    # Ratio to what a call of the candidate takes, on a host and on a card: longer calls in so many
    # such blocks, beside none with shorter ones, accuse it.  Blocks beside which the reference's
    # calls are longer, too, do not count; at most so many are tried.  On a card honest kernels took
    # 1.0 times as long at most, and calls that overlap each other gain 1.3 to 1.5.
    dependent_ratio: float = 1.5
    gpu_dependent_ratio: float = 1.2
    dependent_tries: int = 6
    most_dependent_tries: int = 24
    # Blocks without calls that say what deciding takes.
    empty_dependent_blocks: int = 3
    # Seconds a call: so much longer than deciding alone, and no more than twice as long, is what it
    # may add to a call.  A relu takes 1.2 µs behind its like, and 10 µs between other code.
    between_calls_s: float = 2e-5

    # --- work that is not joined --------------------------------------------------------------

    # Blocks of each side, and share of a call's time and seconds: after each of the candidate's the
    # card goes on for so much longer than after each of the reference's.
    left_blocks: int = 6
    left_share: float = 0.3
    least_left_s: float = 3e-5

    # --- inputs of other distributions --------------------------------------------------------

    # Some calls of a block have them after the last group, and after each group with this chance.
    other_kinds_chance: float = 0.05
    # Bytes on a host, and share of a card's free memory: the inputs and outputs of these calls.
    other_kinds_bytes: int = 1 << 26
    other_kinds_memory_share: float = 1 / 16
    # Seconds: no further block begins later, if one can't hold all kinds.
    other_kinds_s: float = 1.0

    # --- spot checks --------------------------------------------------------------------------

    # Outputs of a block that are compared: at most, and the bytes that they may have together, in
    # the first blocks; one of each later block.  A candidate that leaves out one call in nine must
    # not get through by luck: of ten blocks of 3 and ten of 1 it gets through one time in 100.
    max_outputs_compared: int = 3
    outputs_compared_bytes: int = 2 << 20
    thorough_blocks: int = 10
    # Ratio to what a call reads and writes as a rule, and bytes: no output has more.  The places of
    # non-zero elements take sixteen times the bytes of these.
    larger_outputs: int = 32
    larger_outputs_bytes: int = 1 << 28
    # Probability with which what a block changes in the candidate's state is compared: the referee
    # makes as many calls.
    state_chance: float = 0.5
    # Probability with which an output of a block is compared only after the next inputs were
    # written: it must not lie in their memory.  Filling slots takes some milliseconds.
    refilled_chance: float = 0.4


POLICY = TimingPolicy()
