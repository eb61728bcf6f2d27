"""Candidates that fail before they are timed go back to their agents once, through any crash."""

from __future__ import annotations

import msgspec
import pytest
from fake_worker import verdict_of
from in_process_run import InProcessRun, MakeRun

from actors import failpoints
from actors.coordinator.search.attempt_stages import WRITING_STAGE, Stage
from protocol import messages
from protocol.values import Verdict

MOMENTS = ("before-commit", "after-commit", "after-told", "hear.Evaluated", "heard.Evaluated",
           "hear.Written", "heard.Written", "send.Write", "sent.Write", "send.Repair",
           "hear.Repaired", "hear.ReplyUnusable", "send.Evaluate", "sent.Evaluate")  # fmt: skip


def stages(run: InProcessRun) -> dict[int, list[str]]:
    """Return the stages of each attempt, in their order."""
    found: dict[int, list[str]] = {}
    for number, stage in run.rows(
        "SELECT number, stage FROM decision WHERE stage != 'confirm' ORDER BY id"
    ):
        found.setdefault(number, []).append(stage)
    return found


def verdicts(run: InProcessRun) -> dict[int, Verdict]:
    rows = run.rows("SELECT number, verdict FROM node WHERE number > 0")
    return {number: msgspec.msgpack.decode(blob, type=Verdict) for number, blob in rows}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple]:
    """The nodes of the run that the kills disturb."""
    run = InProcessRun(tmp_path_factory.mktemp("undisturbed") / "run", budget=12, precheck="on")
    run.run_out()
    nodes = run.nodes()
    run.close()
    return nodes


def test_a_failing_candidate_is_mended_once_and_is_one_attempt(make_run: MakeRun) -> None:
    """The mended candidate is the node; the budget counts nodes; the first failure is told."""
    run = make_run(budget=12, precheck="on")
    run.run_out()
    assert ("finished", 12) == (run.status, run.attempts_done())
    sources = {number: source for number, _, source, *_ in run.nodes()}
    mended = {number for number, source in sources.items() if "# mended" in source}
    assert mended
    for number, verdict in verdicts(run).items():
        amending = [one for one in stages(run)[number] if one in set(WRITING_STAGE)]
        first = verdict_of(sources[number].partition("# mended")[0])
        assert len(amending) == (0 if first.is_correct else 1)
        assert ("reevaluate" in stages(run)[number]) == (number in mended)
        assert verdict.amended == ("wrong: as scripted" if number in mended else "")
    assert [] == run.differences()


def test_an_agent_that_can_not_mend_keeps_its_first_verdict(make_run: MakeRun) -> None:
    """The node is the candidate as it was judged, and its agent gives up on nothing more."""
    run = make_run(budget=12, precheck="on")
    run.run_out()
    refused = [
        number
        for number, found in stages(run).items()
        if set(found) & set(WRITING_STAGE) and "reevaluate" not in found
    ]
    assert refused
    assert {"as scripted"} == {verdicts(run)[number].reason for number in refused}
    assert {"attempt"} == {verdicts(run)[number].gives_up_on for number in refused}


def test_the_same_conversation_goes_on(make_run: MakeRun) -> None:
    """The work shows what the stage that wrote the candidate was shown, and what the judge said."""
    run = make_run(budget=12, precheck="on")
    sent: dict[str, messages.AgentWork] = {}
    while run.status is None:
        run.round()
        for message in run.socket.sent:
            if isinstance(message, messages.AgentRequest):
                sent[message.lease.work] = message
    amended = {work: message for work, message in sent.items() if message.failed is not None}
    assert amended
    for work, message in amended.items():
        task, number, stage = work.split("/")
        first = sent[f"{task}/{number}/{WRITING_STAGE[Stage(stage)]}"]
        assert type(first) is type(message)
        assert (first.node, first.window, first.ledger, first.seed, first.reference) == (
            message.node, message.window, message.ledger, message.seed, message.reference,
        )  # fmt: skip
        assert message.failed is not None
        assert "as scripted" == message.failed.verdict.reason


@pytest.mark.parametrize("hit", [1, 2, 4])
def test_a_kill_at_any_moment_mends_once(
    make_run: MakeRun, undisturbed: list[tuple], hit: int
) -> None:
    """The coordinator is killed at every moment of this work in turn: the nodes are the undisturbed
    run's, and every stage was decided on once."""
    run = make_run(budget=12, precheck="on")
    text = ";".join(f"coordinator.{moment}=raise@{hit}" for moment in MOMENTS)
    failpoints.arm("coordinator", run.run_dir, {failpoints.FAILPOINTS_VARIABLE: text})
    run.run_out()
    assert list((run.run_dir / "failpoints").iterdir())
    assert undisturbed == run.nodes()
    assert [] == run.differences()
    assert all(len(found) == len(set(found)) for found in stages(run).values())


def test_a_stopped_run_mends_when_its_agents_are_back(
    make_run: MakeRun, undisturbed: list[tuple]
) -> None:
    """A candidate that waits for its agent is not lost: the next start leases the work again."""
    run = make_run(budget=12, precheck="on")
    run.run_to(3)
    run.crash()
    run.start(supervisor="another")
    run.run_out()
    assert undisturbed == run.nodes()


def test_runs_of_older_versions_mend_nothing(make_run: MakeRun) -> None:
    """A run folder without the setting goes on as it began."""
    run = make_run(budget=8)
    run.run_out()
    assert not {stage for found in stages(run).values() for stage in found} & set(WRITING_STAGE)
