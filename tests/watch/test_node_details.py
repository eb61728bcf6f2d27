"""The details of a node: an attempt under way, a confirmed node, the reference."""

from __future__ import annotations

import random
from pathlib import Path

from feed_writer import TASK, Coordinator
from msgspec.structs import replace

from actors.supervisor.reporting.feed.node_details import NodeDetails, node_details
from actors.supervisor.reporting.feed.run_feed import opened_run
from protocol.facts import VerdictFacts
from protocol.values import Call, Outcome, Plan, Seconds, TimedGroups, Verdict

GROUPS = TimedGroups(reference_us=(100.0, 102.0), candidate_us=(50.0, 51.0))


def details(run_dir: Path, number: int, best: int | None = None) -> NodeDetails:
    with opened_run(run_dir) as run:
        found = node_details(run, (TASK, number), best)
    assert found is not None
    return found


def correct(speedup: float, **fields: object) -> Verdict:
    return Verdict(
        verdict=Outcome.CORRECT,
        median_us=100.0 / speedup,
        speedup=speedup,
        speedup_ci95=(speedup * 0.9, speedup * 1.1),
        seconds=Seconds(build=1.5, check=0.5, time=2.0),
        **fields,  # type: ignore[arg-type]
    )


def begun_attempt(run_dir: Path) -> Coordinator:
    """Return a coordinator whose first attempt is under way."""
    coordinator = Coordinator(run_dir, random.Random(1))
    coordinator.write("begin")
    return coordinator


def test_the_reference_says_where_its_baselines_are(tmp_path: Path) -> None:
    """They come later than the other figures, or never: then the reason is shown."""
    coordinator = begun_attempt(tmp_path)
    store = coordinator.store
    reference = store.reference(TASK)
    assert reference is not None
    for changes, line in (
        ({"baselines_pending": True}, "torch.compile: not measured yet"),
        ({"compile_us": 50.0}, "torch.compile: 50 µs a call"),
        ({"baselines_note": "torch.compile was not measured: no"}, "torch.compile was not"),
    ):
        store.set_baselines(TASK, replace(reference, **changes))
        coordinator.database.commit()
        found = details(tmp_path, 0)
        assert found.verdict is not None
        assert any(one.startswith(line) for one in found.verdict.lines), found.verdict.lines
    coordinator.close()


def test_an_attempt_under_way_has_what_is_there_so_far(tmp_path: Path) -> None:
    """A page shows plan, calls and stages of an attempt before it has a verdict."""
    coordinator = begun_attempt(tmp_path)
    coordinator.activity.grant(1, f"{TASK}/1/plan", "planner-0", "p", 10.0)
    coordinator.database.commit()
    first = details(tmp_path, 1)
    coordinator.activity.add_call(
        f"{TASK}/1/plan", "planner", Call(model="m", request="what?", reply="this", usd=0.25), 12.0
    )
    coordinator.activity.end_lease(1, "done", 12.5)
    plan = Plan(advice="fuse both loops", scaffold="marked", spans=((3, 5),))
    coordinator.store.save_plan(TASK, 1, plan)
    coordinator.database.commit()
    second = details(tmp_path, 1)

    assert (None, None, ()) == (first.summary.verdict, first.plan, first.calls)
    assert [("plan", 10.0, None)] == [(one.stage, one.granted, one.ended) for one in first.stages]
    assert second.plan is not None
    assert ("fuse both loops", ((3, 5),)) == (second.plan.advice, second.plan.anchors)
    assert ["this"] == [call.reply for call in second.calls]
    assert ("fuse both loops", 0.25) == (second.summary.idea, second.summary.usd)
    assert "# reference" == second.parent_source
    assert (None, None, None) == (second.source, second.verdict, second.timing)
    coordinator.close()


def test_a_node_tells_its_timing_group_by_group(tmp_path: Path) -> None:
    """What was timed is shown as it was measured, and nothing is made up where it is not known."""
    coordinator = begun_attempt(tmp_path)
    coordinator.store.add_node(TASK, 1, correct(2.0, groups=GROUPS), 50.0, 4.0)
    coordinator.write("begin")
    coordinator.store.add_node(TASK, 2, correct(2.0), 50.0, 4.0)
    coordinator.database.commit()
    timing = details(tmp_path, 1).timing

    assert timing is not None
    assert (GROUPS.reference_us, GROUPS.candidate_us) == (timing.reference_us, timing.candidate_us)
    assert (2.0, 2.0) == timing.ratio
    assert details(tmp_path, 2).timing is None
    coordinator.close()


def test_a_confirmed_node_keeps_its_first_look(tmp_path: Path) -> None:
    """The first look stays visible beside the confirmation that replaced it."""
    coordinator = begun_attempt(tmp_path)
    coordinator.store.add_node(TASK, 1, correct(3.0), 33.0, 4.0)
    coordinator.decisions.keep_unconfirmed_verdict(TASK, 1)
    coordinator.store.confirm_node(TASK, 1, correct(2.0), 50.0)
    coordinator.database.commit()
    found = details(tmp_path, 1, best=1)

    assert found.first_look is not None
    assert (3.0, 2.0, True) == (
        found.first_look.speedup,
        found.summary.speedup,
        found.summary.confirmed,
    )
    assert found.verdict is not None
    assert found.verdict.lines[0].startswith("correct 2.00×")
    assert any(line.startswith("first look: 3.00×") for line in found.verdict.lines)
    assert found.best_source == found.source
    coordinator.close()


def test_a_failure_says_why_and_where(tmp_path: Path) -> None:
    """The question "why did attempt 1 fail" is answered by its lines and its log."""
    coordinator = begun_attempt(tmp_path)
    reason, log = "error: no member named 'x'", "a.cu:3: error: no member named 'x'"
    failed = Verdict(verdict=Outcome.COMPILE_FAILED, reason=reason, stage="build", log=log)
    coordinator.store.add_node(TASK, 1, failed, None, 4.0)
    coordinator.database.commit()
    found = details(tmp_path, 1)

    assert found.verdict is not None
    assert ("compile_failed", reason, "decided in stage build") == found.verdict.lines[:3]
    assert (log, reason) == (found.log, found.summary.reason)
    coordinator.close()


def test_the_reference_is_a_node_with_its_own_lines(tmp_path: Path) -> None:
    """Node 0 says what candidates are compared with."""
    coordinator = begun_attempt(tmp_path)
    found = details(tmp_path, 0)

    assert found.verdict is not None
    assert "eager: 100 µs a call" in found.verdict.lines
    assert ("root", None, "# reference") == (
        found.summary.kind,
        found.summary.parent,
        found.source,
    )
    coordinator.close()


def test_facts_stand_in_the_lines_of_a_verdict(tmp_path: Path) -> None:
    """The page of a node says what bounds a candidate and where a result is wrong."""
    coordinator = begun_attempt(tmp_path)
    facts = VerdictFacts(difference=("2 of 4 elements are wrong",))
    wrong = Verdict(verdict=Outcome.WRONG, stage="check", reason="output[0]", facts=facts)
    coordinator.store.add_node(TASK, 1, wrong, None, 4.0)
    coordinator.database.commit()
    found = details(tmp_path, 1)

    assert found.verdict is not None
    assert "2 of 4 elements are wrong" in found.verdict.lines
    assert "facts" not in found.verdict.details
    coordinator.close()
