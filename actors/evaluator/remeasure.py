"""Who seems to work outside of its calls is tried once more, in a process of its own.

A process may be fed more slowly than another for as long as it lives: by where its memory lies or
which processor it got.  An honest candidate must not pay for that; who does work elsewhere does so
in any process.  The second trial's verdict stands; if there is a doubt again, it counts the groups
of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from actors.evaluator.build.stage import BuildResult
from actors.evaluator.evaluation import Evaluation
from actors.evaluator.ipc.profile import KernelProfile
from actors.evaluator.timing.audit import GroupClaim
from protocol.values import Seconds, Verdict


def judge_twice_if_doubtful(
    begin: Callable[[BuildResult | None, Sequence[GroupClaim]], Evaluation],
    on_running: Callable[[], None],
    set_activity: Callable[[str], None],
    say: Callable[[str], None],
    *,
    profiled: bool,
) -> tuple[Verdict, KernelProfile | None]:
    """Run a trial, and another one of what was built if the first leaves a doubt."""
    evaluation = begin(None, ())
    verdict = evaluation.run(on_running, set_activity, profiled=profiled)
    if not evaluation.doubted_claims:
        return verdict, evaluation.table
    say("it may need more time than its calls claim: looking a second time, in a new process")
    second = begin(evaluation.built, evaluation.doubted_claims)
    found = second.run(lambda: None, set_activity, profiled=profiled)
    return msgspec.structs.replace(found, seconds=_combined(verdict, found)), second.table


def _combined(first: Verdict, second: Verdict) -> Seconds:
    return Seconds(
        build=first.seconds.build,
        check=round(first.seconds.check + second.seconds.check, 3),
        time=round(first.seconds.time + second.seconds.time, 3),
    )
