"""The evaluator as an actor: what it answers to leases, and what it does without namespaces."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest
from evaluator_samples import ContextRecorder, candidate, descendants, settles, wrong_candidate

from actors.evaluator.device_queue import DeviceWait
from actors.evaluator.evaluation import Evaluation
from actors.evaluator.ipc.orders import Confinement, Done, ImportSource, Ping
from actors.evaluator.ipc.runner_orders import FromRunner
from actors.evaluator.judge import EvaluationCancelledError, Judge
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox import sandbox, scratch
from actors.evaluator.sandbox.child_client import ChildClient
from actors.evaluator.sandbox.zygote_client import (
    DeviceQuarantinedError,
    JudgeUnavailableError,
    ReferenceFailedError,
)
from actors.evaluator.worker import EvaluatorWorker
from actors.work_context import StandaloneContext
from protocol.messages import (
    Evaluate,
    Evaluated,
    HandedBack,
    Lease,
    MeasureReference,
    ReferenceMeasured,
)
from protocol.values import Call, Outcome, Reference, Task, Verdict

LEASE = Lease(work="small/1/evaluate", epoch=1)


class LeaseRecorder(ContextRecorder):
    """The recording context of a lease."""

    def call_completed(self, call: Call) -> None:
        raise AssertionError("an evaluator calls no model")

    def reserve_budget(self, model: str, request: str, usd: float | None) -> bool:
        raise AssertionError("an evaluator calls no model")

    def call_lost(self, partial: Call | None = None) -> None:
        raise AssertionError("an evaluator calls no model")


# Passes through the build stage, and needs no prepared headers.
BUILT_WITHOUT_HEADERS = "# cpp_extension, no_implicit_headers=True\n"


def evaluate(task: Task, source: str) -> Evaluate:
    return Evaluate(lease=LEASE, task=task, source=source, reference=Reference(eager_us=1.0))


def test_a_task_is_measured_and_a_candidate_judged(judge: Judge, task: Task) -> None:
    """Each lease ends with the result that belongs to it."""
    worker = EvaluatorWorker(judge)
    measured = worker.work(MeasureReference(lease=LEASE, task=task), LeaseRecorder())
    assert isinstance(measured, ReferenceMeasured)
    assert measured.reference is not None
    assert measured.reference.device == worker.device
    evaluated = worker.work(evaluate(task, candidate()), LeaseRecorder())
    assert isinstance(evaluated, Evaluated)
    assert evaluated.verdict.verdict is Outcome.CORRECT


def test_the_log_tells_a_candidates_way(judge: Judge, task: Task) -> None:
    """A person who follows an evaluator's log sees each stage end, its seconds, and the verdict."""
    worker = EvaluatorWorker(judge)
    context = LeaseRecorder()
    worker.work(evaluate(task, f"{BUILT_WITHOUT_HEADERS}{candidate()}"), context)
    steps = dict(context.steps)
    assert ["built", "checked", "timed", "verdict"] == list(steps)
    assert "compiled by c++" in str(steps["built"]["how"])
    assert {"rounds", "seconds"} == set(steps["checked"])
    looks = {"left_us", "one_after_the_other", "other_programs"}
    timed = {"groups", "calls", "reference_calls", "ended_by", "seconds"} | looks
    assert timed == set(steps["timed"])
    assert ("correct", None) == (steps["verdict"]["verdict"], steps["verdict"]["reason"])
    reports = [report.split()[0] for report in context.reports]
    started = [word for word in reports if word != "waiting"]  # for a task that is not warm
    # It is charged for a lost evaluator only from its first own step on.
    assert started[:4] == ["building", "running", "checking", "timing"]
    assert reports.count("running") == 1  # also where a doubt led to a second evaluation


def test_the_log_gives_the_reason_of_a_failure_and_is_no_flood(judge: Judge, task: Task) -> None:
    """A failed candidate has its reason in one bounded line, and a dozen lines at most."""
    worker, context = EvaluatorWorker(judge), LeaseRecorder()
    words = "x" * 5000
    worker.work(evaluate(task, f"{BUILT_WITHOUT_HEADERS}raise ValueError('{words}')"), context)
    steps = dict(context.steps)
    assert ["not built", "verdict"] == list(steps)
    assert "compile_failed" == steps["verdict"]["verdict"]
    assert len(str(steps)) < 1500
    assert len(context.steps) + len(context.reports) <= 12
    assert context.reports == ["building small/1"]  # and never "running"


def test_a_wait_for_the_device_is_logged_with_its_reason() -> None:
    """A candidate that waits says so after a second, and again when its turn comes."""
    context = LeaseRecorder()
    wait = DeviceWait(context)
    wait.poll()
    wait.end()
    assert [] == context.steps
    wait = DeviceWait(context, long_s=0.0)
    wait.poll()
    wait.poll()
    wait.end()
    assert ["waiting for the device", "the device is free"] == [event for event, _ in context.steps]


def test_a_bad_task_is_reported_to_the_coordinator(judge: Judge, task: Task) -> None:
    """A task's fault is a problem with a reason, not a failure of the evaluator."""
    worker = EvaluatorWorker(judge)
    bad = Task(name="bad", source="raise ValueError('no task')")
    measured = worker.work(MeasureReference(lease=LEASE, task=bad), LeaseRecorder())
    assert isinstance(measured, ReferenceMeasured)
    assert measured.reference is None
    assert "no task" in measured.problem


def test_a_revoked_lease_is_dropped_soon(judge: Judge, task: Task) -> None:
    """When the result is not wanted any more, the candidate is killed, the work handed back."""
    worker = EvaluatorWorker(judge)
    worker.work(evaluate(task, wrong_candidate()), LeaseRecorder())
    before = descendants(os.getpid())
    began = time.monotonic()
    returned = worker.work(
        evaluate(task, candidate(forward="import time; time.sleep(1000)")), LeaseRecorder(0.3)
    )
    assert isinstance(returned, HandedBack)
    assert time.monotonic() - began < 2.5  # the limit that would have ended it
    assert settles(os.getpid(), before)
    again = worker.work(evaluate(task, wrong_candidate()), LeaseRecorder())
    assert isinstance(again, Evaluated)
    assert again.verdict.verdict is Outcome.WRONG


def test_a_killed_zygote_is_replaced(judge: Judge, task: Task) -> None:
    """A failure of the machine is not a candidate's: the judge starts another zygote."""
    worker = EvaluatorWorker(judge)
    worker.work(evaluate(task, wrong_candidate()), LeaseRecorder())
    old = judge.zygote_pid
    assert old is not None
    os.kill(old, 9)
    evaluated = worker.work(evaluate(task, wrong_candidate()), LeaseRecorder())
    assert isinstance(evaluated, Evaluated)
    assert evaluated.verdict.verdict is Outcome.WRONG
    assert judge.zygote_pid != old


def test_killed_trusted_children_are_replaced(judge: Judge, task: Task) -> None:
    """If referee and reference runner are killed, the next candidate is still judged."""
    worker = EvaluatorWorker(judge)
    worker.work(evaluate(task, wrong_candidate()), LeaseRecorder())
    assert judge.zygote_pid is not None
    for pid in descendants(judge.zygote_pid):
        os.kill(pid, 9)
    evaluated = worker.work(evaluate(task, wrong_candidate()), LeaseRecorder())
    assert isinstance(evaluated, Evaluated)
    assert evaluated.verdict.verdict is Outcome.WRONG


def test_without_namespaces_a_tree_still_dies_whole(judge: Judge, task: Task) -> None:
    """Without namespaces a daemon that left its session is killed, too."""
    judge.judge(task, wrong_candidate())  # starts the zygote
    folder = judge.scratch.fresh("child")
    before = descendants(os.getpid())
    confinement = Confinement(
        folder=str(folder),
        isolated=False,
        environment=sandbox.environment(dict(os.environ), str(folder)),
    )
    child = judge.session.zygote.spawn("runner", confinement, FromRunner, trusted=False)
    escape = (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n"
        "  if os.fork() == 0: time.sleep(1000)\n  os._exit(0)\ndef ModelNew(): pass\n"
    )
    child.ask(ImportSource(source=escape, class_name="ModelNew"), 10)
    assert len(descendants(os.getpid()) - before) >= 4
    child.kill()
    assert settles(os.getpid(), before)
    judge.scratch.remove(folder)


def test_leftovers_of_dead_incarnations_are_removed(tmp_path: Path) -> None:
    """A slot's new incarnation removes what a killed one left, and no other slot's folders."""
    for name in ("evaluator-0-old", "evaluator-1-other"):
        (tmp_path / "scratch" / name / "candidate-x").mkdir(parents=True)
    mine = scratch.scratch_for_slot(tmp_path, "evaluator-0", "new")
    scratch.Scratch(mine)
    left = sorted(path.name for path in (tmp_path / "scratch").iterdir())
    assert left == ["evaluator-0-new", "evaluator-1-other"]


def test_measuring_succeeds_after_it_was_cancelled(judge: Judge, task: Task) -> None:
    """A lease that is revoked while the reference starts leaves nothing half open."""
    fresh = msgspec.structs.replace(task, source=task.source + "\n# another one\n")

    class RevokedSoon(StandaloneContext):
        """Revoked from the second question on."""

        answers = iter([False])

        def is_revoked(self) -> bool:
            return next(self.answers, True)

    with pytest.raises(EvaluationCancelledError):
        judge.measure(fresh, RevokedSoon())
    assert isinstance(judge.measure(fresh), Reference)


def test_the_reference_is_awake_after_it_was_timed_alone(
    judge: Judge, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers the next order: it does not stay frozen once the candidate is gone."""
    alone_us: list[float] = []
    end = Evaluation._end

    def end_and_time_alone(self: Evaluation, runner: ChildClient[FromRunner]) -> object:
        fault = end(self, runner)
        assert self._benchmark is not None
        alone_us.append(self._benchmark.alone_us(1.0))
        return fault

    monkeypatch.setattr(Evaluation, "_end", end_and_time_alone)
    assert isinstance(judge.judge(task, candidate()), Verdict)
    assert alone_us[0] > 0
    fixture = judge.session.references.fixture_of(task)
    assert isinstance(fixture, ReferenceFixture)
    answer = fixture.runner.ask(Ping(), 10.0)
    assert isinstance(answer, tuple)
    assert isinstance(answer[0], Done)


def test_a_failing_reference_is_not_taken_for_a_failing_machine(judge: Judge, task: Task) -> None:
    """Only the first is the task's fault: a machine without room must not make verdicts of it."""

    class Failing:
        """A judge whose measurements fail in one way."""

        ahead = 0
        device = judge.device

        def __init__(self, error: JudgeUnavailableError) -> None:
            self._error = error

        def measure(self, task: Task, *_: object, **_options: object) -> Reference:
            raise self._error

    def handed_back(error: JudgeUnavailableError) -> HandedBack:
        worker = EvaluatorWorker(Failing(error))  # type: ignore[arg-type]
        result = worker.work(MeasureReference(lease=LEASE, task=task), LeaseRecorder())
        assert isinstance(result, HandedBack)
        return result

    assert handed_back(ReferenceFailedError("killed")).reference_failed
    assert not handed_back(JudgeUnavailableError("no process can be started")).reference_failed
    unfit = handed_back(DeviceQuarantinedError("the device check died"))
    assert unfit.quarantined
    assert not unfit.reference_failed
