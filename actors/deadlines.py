"""The deadlines by which processes end when they are asked to: one chain, from inside to outside.

An outer process must wait longer than the inner processes that it waits for.  Otherwise it kills
them while they hand back their work, and the work is done twice.
"""

from __future__ import annotations

# A worker that drains finishes its leases, or hands them back when this time is over.
WORKER_DRAIN_S = 25.0
# The coordinator drains at the same time as its workers: it waits for their results that long.
COORDINATOR_DRAIN_S = 25.0
# A guest's supervisor waits for its workers, and three seconds more for their last messages.
GUEST_DRAIN_S = 28.0
# The run's supervisor waits for the coordinator, and five seconds more for its last commit.
RUN_DRAIN_S = 30.0
# After the coordinator has ended, no work is left: processes get SIGTERM and leave by themselves.
TERMINATE_S = 5.0
# The launcher cancels its jobs after SIGTERM; it must be done before the supervisor kills it.
CANCEL_JOBS_S = 4.0
# A killed process is gone at once, but one that is stuck in a driver may never be.
KILL_S = 10.0
