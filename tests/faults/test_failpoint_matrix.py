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

BUDGET = 14
Ledger = tuple[list[tuple], ...]

# What every run of this size comes past, by who says it; the rest needs refusals, drains, money.
SAID = {
    "coordinator": ("Welcome", "Heard", "MakePlan", "Write", "Repair", "Measure", "Evaluate",
                    "Stored", "Recorded"),
    "planner": ("Hello", "Beat", "Answered", "Planned", "Unusable"),
    "coder": ("Written",),
    "debugger": ("Repaired",),
    "evaluator": ("Hello", "Running", "Measured", "Evaluated"),
}  # fmt: skip
HEARD = {
    "coordinator": ("Hello", "Beat", "Answered", "Planned", "Written", "Repaired", "Unusable",
                    "Running", "Measured", "Evaluated"),
    "planner": ("Welcome", "Heard", "MakePlan", "Stored", "Recorded"),
    "coder": ("Write",),
    "debugger": ("Repair",),
    "evaluator": ("Welcome", "Measure", "Evaluate", "Recorded"),
}  # fmt: skip
# An answer to a heartbeat comes with time, not with work: a process that dies often may hear none.
TIMELY = {"hear.Heard", "heard.Heard"}
# After these the candidate has run and is charged with the loss.
CHARGED = ("sent.Running", "after-work", "send.Evaluated", "sent.Evaluated")


def played(folder: Path, armed: str) -> ScriptedRun:
    """Run to the end with these failpoints; return what is left of it."""
    with ScriptedRun.playing(folder, budget=BUDGET, failpoints=armed) as run:
        run.wait(110)
    return run


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The ledger of a run that nobody disturbs."""
    return played(tmp_path_factory.mktemp("calm") / "run", "").ledger()


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


def armed(place: str, action: str, names: list[str]) -> str:
    """Arm all of them, each to happen once."""
    return ";".join(f"{place}.{name}={action}" for name in names)


@pytest.mark.parametrize(
    ("place", "first"), [("coordinator", 1), *((place, 0) for place in PLACES)]
)
def test_killed_at_every_point(place: str, first: int, calm: Ledger, tmp_path: Path) -> None:
    """Killed at each of its points in turn, every process leaves the ledger as it was."""
    # The coordinator has the most: every other one in a run of its own.
    names = points(place)[first :: 2 if place == "coordinator" else 1]
    run = played(tmp_path / "run", armed(place, "kill", names))

    assert calm == run.ledger()
    fired = {name.partition(".")[2] for name in run.fired()}
    assert set(names) - TIMELY == fired - TIMELY
    assert run.starts[place] > len(fired)


def test_an_evaluator_killed_while_a_candidate_ran(calm: Ledger, tmp_path: Path) -> None:
    """Each candidate is charged with one loss, gets its second chance, and comes to the same."""
    # From the second on at the second candidate of a process: the first one is charged already.
    first, *others = CHARGED
    armed = [f"evaluator.{first}=kill", *(f"evaluator.{point}=kill@2" for point in others)]
    run = played(tmp_path / "run", ";".join(armed))

    charged = run.rows("SELECT work FROM lease WHERE running = 1 AND outcome = 'lost'")
    assert calm == run.ledger()
    assert {f"evaluator.{point}" for point in CHARGED} == run.fired()
    # Right after a send the word may have gone out or not: two of the four are sure to be charged.
    assert 2 <= len(set(charged)) == len(charged)


@pytest.mark.parametrize("actions", [("drop",), ("duplicate", "corrupt")])
@pytest.mark.parametrize("place", ["coordinator", "planner", "evaluator"])
def test_every_message_lost_doubled_or_garbled(
    place: str, actions: tuple[str, ...], calm: Ledger, tmp_path: Path
) -> None:
    """What a process says may be lost, come twice or arrive as noise: it is said again."""
    names = [name for name in points(place) if name.startswith("send.")]
    armed = [f"{place}.{name}={action}@{hit}" for name in names
             for hit, action in enumerate(actions, start=1)]  # fmt: skip
    run = played(tmp_path / "run", ";".join(armed))

    assert calm == run.ledger()
    assert set(names) <= {name.partition(".")[2] for name in run.fired()}


def test_stopped_past_the_lease_and_continued(calm: Ledger, tmp_path: Path) -> None:
    """The late word of a process that stood still counts for nothing, or for what it is."""
    where = ["coordinator.after-commit=stop@9", "coder.after-spool=stop@2",
             "evaluator.hear.Evaluate=stop@2", "evaluator.send.Evaluated=stop@5"]  # fmt: skip
    run = played(tmp_path / "run", ";".join(where))

    assert calm == run.ledger()
    assert {point.partition("=")[0] for point in where} == run.fired()


def test_a_bug_at_any_moment_costs_one_process(calm: Ledger, tmp_path: Path) -> None:
    """An exception that nobody expects ends its actor, and the next one takes over."""
    where = ["coordinator.hear.Planned", "coordinator.before-commit", "planner.after-spool",
             "coder.before-work", "debugger.hear.Repair", "evaluator.hear.Evaluate"]  # fmt: skip
    run = played(tmp_path / "run", ";".join(f"{point}=raise" for point in where))

    assert calm == run.ledger()
    assert set(where) == run.fired()
