"""Process × failpoint × fault: the ledger equals the undisturbed run's at every failpoint.

All failpoints of a process are armed in one run, and each must fire.  Failpoints that charge a loss
to a candidate have a run of their own, since two such losses end the candidate as `crashed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import parallel_scenes
import pytest
from fake_run import ROLES
from scripted_run import ScriptedRun

from actors import failpoints

BUDGET = 14
Ledger = tuple[list[tuple], ...]

# The messages that every run of this size sends, by sender.  The other messages need refusals,
# drains or a cost cap.
SENT_MESSAGES = {
    "coordinator": ("Welcome", "HeartbeatAck", "MakePlan", "Write", "Repair", "MeasureReference",
    "Evaluate", "MeasureBaselines",
                    "CallStored", "ResultStored"),
    "planner": ("Hello", "Heartbeat", "CallCompleted", "Planned", "ReplyUnusable"),
    "coder": ("Written",),
    "debugger": ("Repaired",),
    "evaluator": ("Hello", "CandidateRunning", "ReferenceMeasured", "BaselinesMeasured",
    "Evaluated"),
}  # fmt: skip
RECEIVED_MESSAGES = {
    "coordinator": ("Hello", "Heartbeat", "CallCompleted", "Planned", "Written", "Repaired",
    "ReplyUnusable",
                    "CandidateRunning", "ReferenceMeasured", "BaselinesMeasured", "Evaluated"),
    "planner": ("Welcome", "HeartbeatAck", "MakePlan", "CallStored", "ResultStored"),
    "coder": ("Write",),
    "debugger": ("Repair",),
    "evaluator": ("Welcome", "MeasureReference", "MeasureBaselines", "Evaluate", "ResultStored"),
}  # fmt: skip
# A heartbeat's answer depends on time, not on work: a process that dies often may receive none.
HEARTBEAT_POINTS = {"hear.HeartbeatAck", "heard.HeartbeatAck"}
# At these points the candidate has run: a loss of the evaluator is charged to it.
CHARGED_POINTS = ("sent.CandidateRunning", "after-work", "send.Evaluated", "sent.Evaluated")


RunScene = Callable[[str], ScriptedRun]


def run_to_end(folder: Path, failpoint_text: str) -> ScriptedRun:
    """Run to the end with these failpoints; return the finished run."""
    with ScriptedRun.running(folder, budget=BUDGET, failpoints=failpoint_text) as run:
        run.wait(110)
    return run


@pytest.fixture(scope="module")
def run_scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunScene]:
    """Return a function: scene -> the finished run with all failpoints of the scene."""

    def run_in_new_folder(scene: str) -> ScriptedRun:
        return run_to_end(tmp_path_factory.mktemp("scene") / "run", ";".join(SCENES[scene]))

    with parallel_scenes.scenes_in_parallel(request, run_in_new_folder) as run_scene:
        yield run_scene


@pytest.fixture(scope="module")
def undisturbed_ledger(run_scene: RunScene, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The ledger of the undisturbed run."""
    return run_to_end(tmp_path_factory.mktemp("undisturbed") / "run", "").ledger()


def points(role: str) -> list[str]:
    """Return the failpoints to test in `role`; those of all agents are tested in the planner.

    The evaluator's list has no heartbeat: a heartbeat may be sent while a candidate runs, and a
    kill at that moment would be charged to the candidate.
    """
    names = [f"{moment}.{name}" for name in SENT_MESSAGES[role] for moment in ("send", "sent")]
    names += [
        f"{moment}.{name}" for name in RECEIVED_MESSAGES[role] for moment in ("hear", "heard")
    ]
    if role in ("coordinator", "planner"):
        names += sorted(point for point in failpoints.POINTS[role] if "." not in point)
    if role == "evaluator":
        names = [name for name in (*names, "before-work") if name not in CHARGED_POINTS]
    return names


def kill_failpoints(role: str, first: int) -> list[str]:
    """Return a kill at each failpoint of `role`; for the coordinator at every other one.

    The coordinator has the most failpoints, so they are split between two runs.
    """
    names = points(role)[first :: 2 if role == "coordinator" else 1]
    return [f"{role}.{name}=kill" for name in names]


def message_failpoints(role: str, actions: tuple[str, ...]) -> list[str]:
    """Return each action once at each message that `role` sends."""
    return [
        f"{role}.{name}={action}@{hit}"
        for name in points(role)
        if name.startswith("send.")
        for hit, action in enumerate(actions, start=1)
    ]


KILL_SCENES = {
    f"{role}-{first}": kill_failpoints(role, first)
    for role, first in [("coordinator", 1), *((role, 0) for role in ROLES)]
}
MESSAGE_SCENES = {
    f"{role}-{'-'.join(actions)}": message_failpoints(role, actions)
    for role in ("coordinator", "planner", "evaluator")
    for actions in [("drop",), ("duplicate", "corrupt")]
}
# The first kill charges the first candidate.  The other kills come at a process's second candidate.
KILLS_WITH_CANDIDATE = [
    f"evaluator.{CHARGED_POINTS[0]}=kill",
    *(f"evaluator.{p}=kill@2" for p in CHARGED_POINTS[1:]),
]
STOPS = ["coordinator.after-commit=stop@9", "coder.after-spool=stop@2",
           "evaluator.hear.Evaluate=stop@2", "evaluator.send.Evaluated=stop@5"]  # fmt: skip
BUGS = ["coordinator.hear.Planned=raise", "coordinator.before-commit=raise",
        "planner.after-spool=raise", "coder.before-work=raise",
        "debugger.hear.Repair=raise", "evaluator.hear.Evaluate=raise"]  # fmt: skip
SCENES = {
    **KILL_SCENES,
    **MESSAGE_SCENES,
    "while-it-ran": KILLS_WITH_CANDIDATE,
    "stopped": STOPS,
    "bugs": BUGS,
}


def armed_points(scene: str) -> set[str]:
    """Return the failpoints of a scene, as PLACE.POINT."""
    return {point.partition("=")[0] for point in SCENES[scene]}


def test_the_scenes_hold_every_stage(undisturbed_ledger: Ledger) -> None:
    """Candidates fail and are mended in the undisturbed run, by the coder and by the debugger."""
    works = {work.rpartition("/")[2] for (work,) in undisturbed_ledger[-1]}
    assert {"amend-write", "amend-repair", "reevaluate", "confirm", "baselines"} <= works


@pytest.mark.parametrize("scene", KILL_SCENES)
def test_a_kill_at_every_failpoint_keeps_the_ledger(
    scene: str, undisturbed_ledger: Ledger, run_scene: RunScene
) -> None:
    """A process is killed at each of its failpoints in turn: the ledger stays the same."""
    run = run_scene(scene)
    role = scene.partition("-")[0]
    heartbeat_points = {f"{role}.{name}" for name in HEARTBEAT_POINTS}

    assert undisturbed_ledger == run.ledger()
    assert armed_points(scene) - heartbeat_points == run.fired_points() - heartbeat_points
    assert run.starts[role] > len(run.fired_points())


@pytest.mark.parametrize("scene", ["while-it-ran"])
def test_an_evaluator_killed_while_a_candidate_ran_keeps_the_ledger(
    scene: str, undisturbed_ledger: Ledger, run_scene: RunScene
) -> None:
    """Each candidate is charged with one loss, is evaluated again, and gets the same verdict."""
    run = run_scene(scene)

    charged = run.rows("SELECT work FROM lease WHERE running = 1 AND outcome = 'lost'")
    assert undisturbed_ledger == run.ledger()
    assert armed_points(scene) == run.fired_points()
    # A kill right after a send may lose the message, and on a busy machine the second work of a
    # process may be the baselines: only one of the four charges is certain.
    assert 1 <= len(set(charged)) == len(charged)


@pytest.mark.parametrize("scene", MESSAGE_SCENES)
def test_lost_doubled_or_garbled_messages_keep_the_ledger(
    scene: str, undisturbed_ledger: Ledger, run_scene: RunScene
) -> None:
    """A message may be lost, arrive twice or arrive garbled: the sender repeats it."""
    run = run_scene(scene)

    assert undisturbed_ledger == run.ledger()
    assert armed_points(scene) <= run.fired_points()


@pytest.mark.parametrize("scene", ["stopped"])
def test_a_process_stopped_past_its_lease_keeps_the_ledger(
    scene: str, undisturbed_ledger: Ledger, run_scene: RunScene
) -> None:
    """A late message of a process that was stopped is ignored, or is used if it is still valid."""
    run = run_scene(scene)

    assert undisturbed_ledger == run.ledger()
    assert armed_points(scene) == run.fired_points()


@pytest.mark.parametrize("scene", ["bugs"])
def test_a_bug_at_any_moment_costs_one_process(
    scene: str, undisturbed_ledger: Ledger, run_scene: RunScene
) -> None:
    """An unexpected exception ends its actor; the actor that is started next takes over."""
    run = run_scene(scene)

    assert undisturbed_ledger == run.ledger()
    assert armed_points(scene) == run.fired_points()
