"""The numbers of the timing audit, in one place, and the rule that they belong to.

The rule:

1. Reference and candidate are timed in groups of four blocks, A B B A, by the judge's own clock.
   While one side runs, the processes of the other side are frozen.
2. Each call of a fresh block has inputs that were drawn for this call alone.  On a host the judge
   writes the inputs into the frozen side and reads the outputs from it.
3. After each fresh block the judge draws some outputs by lot and compares them.  A wrong output, or
   an input that a timed call changed, makes the verdict `wrong`.
4. The claim of a side is the time of its longest block in a turn: the fresh block itself, or, where
   fresh inputs are too few for a long block, a block of more calls on the same inputs.
5. Three costs around the claim are measured for both sides: setting the inputs, collecting the
   outputs, and the cold start (what a fresh block takes longer than the claimed block).
6. The unclaimed cost is the excess of the candidate's costs over the reference's, in two quantiles.
   The lower quartile over all groups finds a candidate that always cheats; the median over each
   side's fastest half finds one that cheats sometimes.  An excess that chance may explain is 0.
7. Memory placement, clock speeds and cold caches explain a part of the unclaimed cost.  More than
   that is the penalty: all of it is added to each call of the candidate.
8. A penalty, or a hint of an unclaimed cost far above the claim, is a doubt.  The candidate is then
   timed again in a new process.  If no doubt is left, only the second process counts; otherwise the
   groups of both processes count.
9. `rejected` needs more: an unclaimed cost outside the blocks that is a multiple of the claim, in
   enough groups; or a time below the roofline floor; or processes that ran while frozen; or kernels
   that slowed the reference down on a GPU.  The same in a second process, and not of the task's own
   module at that moment (`actors/evaluator/repeated_evaluation.py`).
10. Groups during which tasks waited for a processor are left out where enough calm groups remain.
    Timing ends when the interval of the ratio is narrow, or when the time is up; for a candidate
    that can't become the best of its task, a wider interval is narrow.

The limits of freezing itself are in `actors/evaluator/sandbox/freezer.py`.  The reasons are in
decisions 047 to 055, 078 and 079 of `docs/decisions/`, measurements in `docs/judge.md`.
"""

from __future__ import annotations

from protocol.values import Value


class TimingPolicy(Value, frozen=True, kw_only=True):
    """All tuned numbers of timing, with unit, meaning and evidence."""

    # --- blocks: calls that are timed together ------------------------------------------------

    # Seconds: a block on a host lasts at least this long.
    block_s: float = 0.02
    # Seconds: the same on a GPU, where no threads of other processes run in between.
    gpu_block_s: float = 0.01
    # Calls: no block has more, however short a call is.
    max_block_calls: int = 50_000
    # Calls: most and fewest calls of a fresh block.
    max_fresh_calls: int = 512
    min_fresh_calls: int = 2
    # Bytes: a call that moves at least this much has fresh blocks of one call.
    large_call_bytes: int = 1 << 30
    # Bytes: inputs and outputs of one fresh block on a host, which draws and copies them itself.
    batch_bytes: int = 1 << 24
    # Seconds: the longest block of the reference, where a call is shorter than that.
    max_reference_block_s: float = 0.25
    # Blocks: the time limit must be enough for this many.
    planned_blocks: int = 40
    # Ratio: a side that wants this many times more calls than fresh inputs repeats the inputs.
    max_stretch: float = 1.5
    # Ratio: the calls of a block grow by at most this factor from one plan to the next.
    max_growth: int = 16
    # Seconds: drawing the inputs of one block takes no longer, however slowly a task draws.
    max_draw_s: float = 2.0

    # --- warm-up and overhead -----------------------------------------------------------------

    # Seconds and groups: warm-up lasts until both are reached (at most a tenth of the time limit).
    warm_up_s: float = 0.3
    warm_up_groups: int = 3
    # Blocks: not timed, after a GPU was given gigabytes of inputs.  Such a GPU is slow for about
    # 30 ms; after one block GELU over 4 GiB came out at 1.037 and 1.049, after four at 0.997 and
    # 1.001 (docs/judge.md).
    gpu_warm_up_blocks: int = 4
    # Samples: the least of this many empty blocks is taken off each block.
    overhead_samples: int = 15
    # Seconds: a woken side rests this long before its block; OpenMP threads of a referee on the
    # host spin for about this long.
    settle_s: float = 0.003
    # Share of a block's last time: the judge sleeps that long, then spins for the answer (GPU).
    spin_after_share: float = 0.75

    # --- groups: contention, and when to stop -------------------------------------------------

    # Share of a group's timed windows: the group is disturbed if tasks waited longer than that for
    # a processor.
    max_calm_wait_share: float = 0.3
    # Groups: that many calm groups do; the interval may end the timing; a rejection is possible.
    enough_groups: int = 8
    # Groups: timed even when the time is up.
    min_groups: int = 3
    # Share of the ratio: an interval narrower than this ends the timing (evaluation law 6).
    enough_interval_width: float = 0.01
    # Share of the ratio: the same where the whole interval is below the best node of the task.
    enough_width_behind: float = 0.05
    # Ratio to the reference's best time: more than that, on a busy host, is contention.  Two OpenMP
    # threads that waited for each other made a candidate with one thread 200 times as fast.
    held_up_ratio: float = 1.5
    # Ratio to the reference's time alone (GPU): above the first, the time alone counts; above the
    # second, the candidate is rejected.  Kernels run on when their process is frozen.
    slowed_ratio: float = 1.03
    max_slowdown: float = 1.3
    # Blocks of the reference alone: the first number, or up to the second if all of them are faster
    # than beside the candidate.  Two are always timed; no other begins after these seconds.  Calls
    # that are little more than launches take 40 µs in one block and 60 µs in the next.
    alone_blocks: int = 3
    max_alone_blocks: int = 20
    alone_s: float = 0.5

    # --- spot checks --------------------------------------------------------------------------

    # Outputs of a fresh block that are compared: at least (on a host; 1 on a GPU), at most, and the
    # bytes that they may have together.  Small outputs cost little to compare, and a candidate that
    # leaves out one call in nine must not get through by luck.
    min_outputs_compared: int = 2
    max_outputs_compared: int = 6
    outputs_compared_bytes: int = 2 << 20
    # Bytes: that many of each input of one call are compared with what was written (host).
    max_input_bytes_compared: int = 1 << 20

    # --- the audit: what explains an unclaimed cost -------------------------------------------

    # Share of the claim, by which a fresh block may be longer than the claimed one.
    unproven_share: float = 0.05
    # The same for blocks of few calls, which move gigabytes: on a GPU that idled during a draw they
    # took 15 % longer.
    unproven_share_few_calls: float = 0.15
    # Calls of a fresh block: few calls are at most this many.
    few_calls: int = 2
    # Microseconds a block: launching on a host whose caches are cold, which no call can help.
    cold_launch_us: float = 100.0
    # Share of the reference's cost of setting inputs and collecting outputs: gigabytes are moved at
    # a speed that depends on their place, and a GPU's inputs at one that depends on the processor
    # that a process got for its whole life.  Ten repeats of one kernel gave 1.74 to 3.76× before
    # (decision 047).
    transfer_share: float = 0.1
    # The same for small inputs on a host: 10 % would be half of a call that only moves its inputs.
    transfer_share_cached: float = 0.03
    # Ratio to the claim, on a host: cold caches explain no longer cold start than this.  A call
    # that moves its inputs takes 25 µs on known inputs and 60 µs on fresh ones.  These 35 µs would
    # excuse a candidate that needs 17 µs, caches all results and claims 1 µs.  Honest candidates
    # reach 2.3.
    max_cold_start_ratio: float = 3.0

    # --- the audit: how certain, and what follows ---------------------------------------------

    # Standard deviations of a rank: an unclaimed cost counts if two quantiles differ by more.  An
    # order statistic is within 1.64 with 90 %.
    sure_deviations: float = 1.64
    # The same for a doubt, which adds nothing to the time.
    likely_deviations: float = 0.5
    # Ratio to the claim: an unclaimed cost that may be above this is a doubt.  So is one honest
    # candidate in thirty on a noisy machine, and one that caches results now and then.
    doubt_ratio: float = 4.0
    # Ratio to the claim: an unclaimed cost outside the blocks above this is refused.
    impossible_ratio: float = 2.0


POLICY = TimingPolicy()
