"""Process × point × fault: at whatever moment it happens, the ledger is the undisturbed run's.

All points of a process are armed in one run, and each must have been passed; those that cost a
candidate a life have a run of their own, since two such losses are a verdict.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_run import PLACES
from scripted_run import ScriptedRun

from actors import failpoints
from protocol.values import AGENTS

BUDGET = 14
Ledger = tuple[list[tuple], ...]

# What no quiet run of this size comes past.
RARE = ("Refuse", "Revoke", "Returned", "Blocked", "Lost", "Drain", "Who", "Retire")
SPEND = ("Reserve", "Reserved")  # a script costs nothing: see test_spending
ALONE = ("Solve", "Reflect")  # no attempt of STARK's: see test_strategy_kills
# After these the candidate has run and is charged with the loss.
CHARGED = ("sent.Running", "after-work", "send.Evaluated", "sent.Evaluated")
OWN_WORK = {"planner": "MakePlan", "coder": "Write", "debugger": "Repair"}
OWN_RESULT = {"planner": "Planned", "coder": "Written", "debugger": "Repaired"}


def played(folder: Path, armed: str) -> ScriptedRun:
    """Run to the end with these failpoints; return what is left of it."""
    with ScriptedRun.playing(folder, budget=BUDGET, failpoints=armed) as run:
        run.wait(90)
    return run


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The ledger of a run that nobody disturbs."""
    return played(tmp_path_factory.mktemp("calm") / "run", "").ledger()


def is_quiet(place: str, point: str) -> bool:
    """Whether `place` comes past `point` in every run."""
    moment, _, name = point.rpartition(".")
    if name in RARE + SPEND + ALONE:
        return False
    # A beat may come at any moment, also while a candidate runs; it is the planner's to be hurt at.
    if place == "evaluator" and (point in (*CHARGED, *CHILD) or name in ("Beat", "Heard")):
        return False
    work = ("MakePlan", "Write", "Repair", "Measure", "Evaluate", "Stored")
    results = ("Planned", "Written", "Repaired", "Unusable", "Evaluated", "Measured")
    if place in AGENTS and moment in ("send", "sent") and name in results:
        return name in (OWN_RESULT[place], "Unusable")
    if place in AGENTS and moment in ("hear", "heard") and name in work:
        return name in (OWN_WORK[place], "Stored")
    if place == "evaluator" and moment in ("hear", "heard") and name in work:
        return name in ("Measure", "Evaluate")
    return True


CHILD = ("before-child", "after-child")  # of the real evaluator: see tests/whole


def points(place: str) -> list[str]:
    """Return where `place` is hurt: everywhere, but what agents have in common at the planner's."""
    names = sorted(point for point in failpoints.POINTS[place] if is_quiet(place, point))
    if place in ("coder", "debugger"):
        names = [name for name in names if name.endswith((OWN_WORK[place], OWN_RESULT[place]))]
    return names


def armed(place: str, action: str, names: list[str]) -> str:
    """Arm all of them, each to happen once."""
    return ";".join(f"{place}.{name}={action}" for name in names)


@pytest.mark.parametrize("place", PLACES)
def test_killed_at_every_point(place: str, calm: Ledger, tmp_path: Path) -> None:
    """Killed at each of its points in turn, every process leaves the ledger as it was."""
    names = points(place)
    run = played(tmp_path / "run", armed(place, "kill", names))

    assert calm == run.ledger()
    assert set(names) == {name.partition(".")[2] for name in run.fired()}
    assert run.starts[place] > len(names)


@pytest.mark.parametrize("point", CHARGED)
def test_an_evaluator_killed_while_a_candidate_ran(
    point: str, calm: Ledger, tmp_path: Path
) -> None:
    """The candidate is charged with one loss, gets its second chance, and comes to the same."""
    run = played(tmp_path / "run", f"evaluator.{point}=kill@2")

    assert calm == run.ledger()
    assert {f"evaluator.{point}"} == run.fired()


@pytest.mark.parametrize("action", failpoints.WIRE_ACTIONS)
@pytest.mark.parametrize("place", ["coordinator", "planner", "evaluator"])
def test_every_message_lost_doubled_or_garbled_once(
    place: str, action: str, calm: Ledger, tmp_path: Path
) -> None:
    """What a process says may be lost, come twice or arrive as noise: it is said again."""
    names = [name for name in points(place) if name.startswith("send.")]
    run = played(tmp_path / "run", armed(place, action, names))

    assert calm == run.ledger()
    assert set(names) <= {name.partition(".")[2] for name in run.fired()}


@pytest.mark.parametrize(
    "point",
    ["coordinator.after-commit", "coder.after-spool", "evaluator.hear.Evaluate",
     "evaluator.send.Evaluated"],
)  # fmt: skip
def test_stopped_past_the_lease_and_continued(point: str, calm: Ledger, tmp_path: Path) -> None:
    """The late word of a process that stood still counts for nothing, or for what it is."""
    run = played(tmp_path / "run", f"{point}=stop@2")

    assert calm == run.ledger()
    assert {point} == run.fired()


def test_a_bug_at_any_moment_costs_one_process(calm: Ledger, tmp_path: Path) -> None:
    """An exception that nobody expects ends its actor, and the next one takes over."""
    where = ["coordinator.hear.Planned", "coordinator.before-commit", "planner.after-spool",
             "coder.before-work", "debugger.hear.Repair", "evaluator.hear.Evaluate"]  # fmt: skip
    run = played(tmp_path / "run", ";".join(f"{point}=raise" for point in where))

    assert calm == run.ledger()
    assert set(where) == run.fired()
