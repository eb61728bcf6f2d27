"""A coordinator that is killed at any moment around a directive: it is applied once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fake_run import FakeRun
from in_process_run import InProcessRun, MakeRun

from actors import failpoints
from protocol import questions
from protocol.directives import (
    VERBS,
    DirectiveArguments,
    new_directive,
    submit_directive,
    waiting_files,
)
from protocol.values import Role
from scripts import replay

MOMENTS = (
    "directive.taken",
    "directive.applied",
    "before-commit",
    "after-commit",
    "directive.committed",
    "directive.removed",
)
ARGUMENTS: dict[str, dict[str, object]] = {
    "budget": {"attempts": 9},
    "cap": {"usd": 3.0},
    "unpin": {"node": 2},
    "pin": {"node": 1},
    "boost": {"node": 1, "count": 2},
    "prune": {"node": 1},
    "unprune": {"node": 3},
    "advise": {"text": "use float4"},
    "inject": {"node": 1, "source": "class ModelNew: ...\n"},
    "reject": {"node": 1, "text": "it cheats"},
    "answer": {"question": "planner-1-abc", "text": "so"},
}


def steered_records(run: InProcessRun, verb: str, moments: tuple[str, ...]) -> tuple[object, ...]:
    """Steer a run with a crash at each of the moments; return what it recorded in the end."""
    questions.ask(run.run_dir, "planner-1-abc", "what?")
    run.run_to(4)
    run.silent_roles.update(Role)  # the tree stays as it is until the directive is applied
    run.rounds()
    run.steer("pin", 2, key="pin")
    run.steer("prune", 3, key="prune")
    if verb == "go":
        run.steer("pause", key="pause")
    if moments:
        text = ";".join(f"coordinator.{moment}=raise" for moment in moments)
        failpoints.arm("coordinator", run.run_dir, {failpoints.FAILPOINTS_VARIABLE: text})
    arguments = dict(ARGUMENTS.get(verb, {}))
    key = run.submit(verb, arguments.pop("node", None), key="the-key", **arguments)
    run.rounds(6 + 2 * len(moments))
    assert ("applied", "") == run.state(key)
    if verb == "pause":
        run.steer("go", key="go")
    run.silent_roles.clear()
    run.crash()
    run.start()
    run.run_out()
    fired = [path.name.partition(".")[2] for path in (run.run_dir / "failpoints").glob("*")]
    assert {f"coordinator.{moment}" for moment in moments} == set(fired)
    return (
        run.nodes(),
        run.parents(),
        run.rows("SELECT number, pinned, pruned, confirmed FROM node ORDER BY number"),
        run.rows("SELECT key, verb, task, node, arguments, state, attempt FROM directive"),
        run.rows("SELECT paused, finishing, cap_usd FROM run"),
        run.rows("SELECT budget, status FROM task"),
        run.rows("SELECT COUNT(*) FROM event WHERE what = 'directive'"),
        questions.open_questions(run.run_dir),
        run.differences(),
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_at_any_moment_applies_a_directive_once(make_run: MakeRun, verb: str) -> None:
    """Between taking, committing and removing the file: never half, never twice.

    The coordinator is killed at the first moment, its successor at the next one, and so on.
    """
    expected = steered_records(make_run(), verb, ())
    assert [] == expected[-1]
    assert expected == steered_records(make_run(), verb, MOMENTS)


def test_kill_9_around_directives_applies_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes: the coordinator dies at each moment of the spool, and the run goes on."""
    moments = ";".join(f"coordinator.{moment}=kill" for moment in MOMENTS)
    monkeypatch.setenv(failpoints.FAILPOINTS_VARIABLE, moments)
    run = FakeRun(tmp_path / "run", budget=1000)  # more than it does before the pause
    wishes = [
        new_directive("pause"),
        new_directive("boost", node=1, arguments=DirectiveArguments(count=2)),
        new_directive("advise", arguments=DirectiveArguments(text="use float4")),
        new_directive("pin", node=1),
        new_directive("inject", node=1, arguments=DirectiveArguments(source="class ModelNew: ...")),
        new_directive("finish"),
    ]
    run.start_all()
    try:
        deadline = time.monotonic() + 60
        while run.progress() < 3 and time.monotonic() < deadline:
            run.revive()
            time.sleep(0.02)
        for wish in wishes:
            submit_directive(run.run_dir, wish)
            time.sleep(0.05)
        run.wait()
    finally:
        run.stop()
    assert {f".{moment}" for moment in MOMENTS} == {
        path.name.partition("coordinator")[2] for path in (run.run_dir / "failpoints").iterdir()
    }
    assert [(wish.key, "applied") for wish in wishes] == run.rows(
        "SELECT key, state FROM directive ORDER BY id"
    )
    assert [(1,)] == run.rows("SELECT COUNT(*) FROM attempt WHERE kind = 'inject'")
    assert [(len(wishes),)] == run.rows("SELECT COUNT(*) FROM event WHERE what = 'directive'")
    assert [] == waiting_files(run.run_dir)
    assert [("finished",)] == run.rows("SELECT status FROM run")
    found = replay.compare(run.run_dir)
    assert [] == [line for line in found if "its request differs" not in line]  # fakes ask nothing
