"""Who seems to work outside of its calls is tried once more, in a process of its own.

A process may be fed more slowly than another for as long as it lives: by where its memory lies or
which processor it got.  An honest candidate must not pay for that; who does work elsewhere does so
in any process.  The second trial's verdict stands; if there is a doubt again, it counts the groups
of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from actors.evaluator.build import Built
from actors.evaluator.children.profile import Profile
from actors.evaluator.proofs import Claim
from actors.evaluator.trial import Trial
from protocol.values import Seconds, Verdict


def tried(
    begin: Callable[[Built | None, Sequence[Claim]], Trial],
    on_running: Callable[[], None],
    doing: Callable[[str], None],
    say: Callable[[str], None],
    *,
    profiled: bool,
) -> tuple[Verdict, Profile | None]:
    """Run a trial, and another one of what was built if the first leaves a doubt."""
    trial = begin(None, ())
    verdict = trial.run(on_running, doing, profiled=profiled)
    if not trial.doubted:
        return verdict, trial.table
    say("it may need more time than its calls claim: looking a second time, in a new process")
    second = begin(trial.built, trial.doubted)
    found = second.run(lambda: None, doing, profiled=profiled)
    return msgspec.structs.replace(found, seconds=_both(verdict, found)), second.table


def _both(first: Verdict, second: Verdict) -> Seconds:
    return Seconds(
        build=first.seconds.build,
        check=round(first.seconds.check + second.seconds.check, 3),
        time=round(first.seconds.time + second.seconds.time, 3),
    )
