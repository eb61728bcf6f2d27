"""Process × point × fault: at whatever moment it happens, the ledger is the undisturbed run's.

All points of a process are armed in one run, and each must have been passed; those that cost a
candidate a life have a run of their own, since two such losses are a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import parallel_scenes
import pytest
from fake_run import PLACES
from scripted_run import ScriptedRun

from actors import failpoints

BUDGET = 14
Ledger = tuple[list[tuple], ...]

# What every run of this size comes past, by who says it; the rest needs refusals, drains, money.
SAID = {
    "coordinator": ("Welcome", "HeartbeatAck", "MakePlan", "Write", "Repair", "MeasureReference",
    "Evaluate",
                    "CallStored", "ResultStored"),
    "planner": ("Hello", "Heartbeat", "CallCompleted", "Planned", "ReplyUnusable"),
    "coder": ("Written",),
    "debugger": ("Repaired",),
    "evaluator": ("Hello", "CandidateRunning", "ReferenceMeasured", "Evaluated"),
}  # fmt: skip
HEARD = {
    "coordinator": ("Hello", "Heartbeat", "CallCompleted", "Planned", "Written", "Repaired",
    "ReplyUnusable",
                    "CandidateRunning", "ReferenceMeasured", "Evaluated"),
    "planner": ("Welcome", "HeartbeatAck", "MakePlan", "CallStored", "ResultStored"),
    "coder": ("Write",),
    "debugger": ("Repair",),
    "evaluator": ("Welcome", "MeasureReference", "Evaluate", "ResultStored"),
}  # fmt: skip
# An answer to a heartbeat comes with time, not with work: a process that dies often may hear none.
TIMELY = {"hear.HeartbeatAck", "heard.HeartbeatAck"}
# After these the candidate has run and is charged with the loss.
CHARGED = ("sent.CandidateRunning", "after-work", "send.Evaluated", "sent.Evaluated")


Play = Callable[[str], ScriptedRun]


def finished(folder: Path, armed: str) -> ScriptedRun:
    """Run to the end with these failpoints; return what is left of it."""
    with ScriptedRun.playing(folder, budget=BUDGET, failpoints=armed) as run:
        run.wait(110)
    return run


@pytest.fixture(scope="module")
def play(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Play]:
    """Return the run in which all of a scene was armed."""

    def one(scene: str) -> ScriptedRun:
        return finished(tmp_path_factory.mktemp("scene") / "run", ";".join(SCENES[scene]))

    with parallel_scenes.played_in_parallel(request, one) as play:
        yield play


@pytest.fixture(scope="module")
def calm(play: Play, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The ledger of a run that nobody disturbs."""
    return finished(tmp_path_factory.mktemp("calm") / "run", "").ledger()


def points(place: str) -> list[str]:
    """Return where `place` is hurt: everywhere, but what agents have in common at the planner's.

    A beat may come at any moment, also while a candidate runs: the evaluator is not hurt there.
    """
    names = [f"{moment}.{name}" for name in SAID[place] for moment in ("send", "sent")]
    names += [f"{moment}.{name}" for name in HEARD[place] for moment in ("hear", "heard")]
    if place in ("coordinator", "planner"):
        names += sorted(point for point in failpoints.POINTS[place] if "." not in point)
    if place == "evaluator":
        names = [name for name in (*names, "before-work") if name not in CHARGED]
    return names


def killed(place: str, first: int) -> list[str]:
    """Arm all points of a process; the coordinator has the most: every other one in a run."""
    names = points(place)[first :: 2 if place == "coordinator" else 1]
    return [f"{place}.{name}=kill" for name in names]


def said(place: str, actions: tuple[str, ...]) -> list[str]:
    """Arm all that a process says, each once for each action."""
    return [
        f"{place}.{name}={action}@{hit}"
        for name in points(place)
        if name.startswith("send.")
        for hit, action in enumerate(actions, start=1)
    ]


KILLED = {
    f"{place}-{first}": killed(place, first)
    for place, first in [("coordinator", 1), *((place, 0) for place in PLACES)]
}
NOISE = {
    f"{place}-{'-'.join(actions)}": said(place, actions)
    for place in ("coordinator", "planner", "evaluator")
    for actions in [("drop",), ("duplicate", "corrupt")]
}
# From the second on at the second candidate of a process: the first one is charged already.
WHILE_IT_RAN = [f"evaluator.{CHARGED[0]}=kill", *(f"evaluator.{p}=kill@2" for p in CHARGED[1:])]
STOPPED = ["coordinator.after-commit=stop@9", "coder.after-spool=stop@2",
           "evaluator.hear.Evaluate=stop@2", "evaluator.send.Evaluated=stop@5"]  # fmt: skip
BUGS = ["coordinator.hear.Planned=raise", "coordinator.before-commit=raise",
        "planner.after-spool=raise", "coder.before-work=raise",
        "debugger.hear.Repair=raise", "evaluator.hear.Evaluate=raise"]  # fmt: skip
SCENES = {**KILLED, **NOISE, "while-it-ran": WHILE_IT_RAN, "stopped": STOPPED, "bugs": BUGS}


def armed(scene: str) -> set[str]:
    """Return the points at which something is to happen."""
    return {point.partition("=")[0] for point in SCENES[scene]}


@pytest.mark.parametrize("scene", KILLED)
def test_killed_at_every_point(scene: str, calm: Ledger, play: Play) -> None:
    """Killed at each of its points in turn, every process leaves the ledger as it was."""
    run = play(scene)
    place = scene.partition("-")[0]
    timely = {f"{place}.{name}" for name in TIMELY}

    assert calm == run.ledger()
    assert armed(scene) - timely == run.fired() - timely
    assert run.starts[place] > len(run.fired())


@pytest.mark.parametrize("scene", ["while-it-ran"])
def test_an_evaluator_killed_while_a_candidate_ran(scene: str, calm: Ledger, play: Play) -> None:
    """Each candidate is charged with one loss, gets its second chance, and comes to the same."""
    run = play(scene)

    charged = run.rows("SELECT work FROM lease WHERE running = 1 AND outcome = 'lost'")
    assert calm == run.ledger()
    assert armed(scene) == run.fired()
    # Right after a send the word may have gone out or not: two of the four are sure to be charged.
    assert 2 <= len(set(charged)) == len(charged)


@pytest.mark.parametrize("scene", NOISE)
def test_every_message_lost_doubled_or_garbled(scene: str, calm: Ledger, play: Play) -> None:
    """What a process says may be lost, come twice or arrive as noise: it is said again."""
    run = play(scene)

    assert calm == run.ledger()
    assert armed(scene) <= run.fired()


@pytest.mark.parametrize("scene", ["stopped"])
def test_stopped_past_the_lease_and_continued(scene: str, calm: Ledger, play: Play) -> None:
    """The late word of a process that stood still counts for nothing, or for what it is."""
    run = play(scene)

    assert calm == run.ledger()
    assert armed(scene) == run.fired()


@pytest.mark.parametrize("scene", ["bugs"])
def test_a_bug_at_any_moment_costs_one_process(scene: str, calm: Ledger, play: Play) -> None:
    """An exception that nobody expects ends its actor, and the next one takes over."""
    run = play(scene)

    assert calm == run.ledger()
    assert armed(scene) == run.fired()
