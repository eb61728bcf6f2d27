"""Variants: a candidate's declared values are raced, and the fastest right one is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from evaluator_samples import ContextRecorder
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.ipc.runner_orders import FromRunner
from actors.evaluator.judge import Judge
from actors.evaluator.ordered_judging import MAX_TRIAL_S, Trials
from actors.evaluator.sandbox.child_client import (
    ChildClient,
    ChildFailure,
    EvaluationCancelledError,
)
from actors.evaluator.sandbox.freezer import ProcessFreezer
from actors.evaluator.timing import trial_timing
from actors.evaluator.variant_race import (
    MAX_RACE_S,
    RaceResult,
    declared_space,
    race,
    variants_of,
)
from actors.evaluator.worker import EvaluatorWorker
from actors.tune_space import (
    MAX_VARIANTS,
    TuneSpace,
    TuneSpaceError,
    tune_space,
    variant_source,
    with_values,
)
from actors.work_context import STANDALONE, EvaluationContext
from protocol.messages import Evaluate, Evaluated, Lease
from protocol.values import Outcome, Reference, Stage, Task, Verdict
from protocol.variant_lines import variant_lines

SOURCE = """# é: bytes and characters differ
TUNE = {"THREADS": [128, 256,
                    512], "DEPTH": (2, 3), "NAME": "a"}  # a comment
class ModelNew: ...
"""
TrialTime = float | ChildFailure | tuple[FromRunner, list[int]]
names = st.text("ABCDEFGH_", min_size=1, max_size=6)
values = st.one_of(st.integers(-9, 4096), st.booleans(), st.text("ab'\"é\\\n{", max_size=4))
spaces = st.dictionaries(names, st.lists(values, min_size=1, max_size=5), min_size=1, max_size=4)


def space_of(source: str) -> TuneSpace:
    space = tune_space(source)
    assert space is not None
    return space


def tuned(source: str) -> object:
    """Return the value that the file gives TUNE."""
    scope: dict[str, object] = {}
    exec(source, scope)  # noqa: S102  # the test's own text
    return scope["TUNE"]


@given(spaces, st.text("\n# é", max_size=5))
def test_each_variant_has_one_of_the_declared_values(
    declared: dict[str, list[int | bool | str]], head: str
) -> None:
    """A variant gives each name one of its values, is no space itself, and no line moves."""
    comment = head.replace("\n", "\n# ")
    source = f"# {comment}\nTUNE = {declared!r}\nafter = 1\n"
    space = space_of(source)
    assert len(space.assignments()) == min(space.size, MAX_VARIANTS)
    assert len(set(space.assignments())) == len(space.assignments())
    for place, assignment in enumerate(space.assignments()):
        text = with_values(source, assignment)
        assert tuned(text) == dict(assignment)
        assert all(value in declared[name] for name, value in assignment)
        assert tune_space(text) is None
        assert text.count("\n") == source.count("\n")
        assert variant_source(source, place) == text


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_of_a_large_space_each_value_is_raced(sizes: list[int]) -> None:
    """Distances that divide the number of a name's values would keep it at its first one."""
    declared = {f"NAME{place}": [*range(size)] for place, size in enumerate(sizes)}
    space = space_of(f"TUNE = {declared!r}\n") if any(size > 1 for size in sizes) else None
    for name, values in declared.items() if space else ():
        raced = {dict(each)[name] for each in space.assignments()} if space else set()
        assert raced == {*values}


def test_the_first_variant_has_all_first_values_and_the_rest_of_the_file_is_kept() -> None:
    """Line numbers in error messages are the candidate's own."""
    first = space_of(SOURCE).assignments()[0]
    assert first == (("THREADS", 128), ("DEPTH", 2), ("NAME", "a"))
    lines = with_values(SOURCE, first).splitlines()
    assert lines[-1] == "class ModelNew: ..."
    assert lines[2].endswith("}  # a comment")
    assert len(lines) == len(SOURCE.splitlines())


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        ("TUNE = {'A': [1]}\nTUNE = {'B': [2]}", "assigned 2 times"),
        ("TUNE = dict(A=[1])", "dict literal"),
        ("TUNE = {'A': [f()]}", "literal number"),
        ("TUNE = {'A': []}", "0 values"),
        ("TUNE = {'A': [1e999]}", "literal number"),
        ("TUNE = {1: [1]}", "string literal"),
        ("TUNE = {'A': [1], 'A': [2]}", "twice"),
        ("TUNE = {**X}", "string literal"),
        (f"TUNE = { {key: [1] for key in 'ABCDEFGHI'} }", "9 names"),
    ],
)
def test_a_broken_declaration_is_the_candidates_fault(declaration: str, reason: str) -> None:
    """The author of the candidate gets one line that says what the rule is."""
    with pytest.raises(TuneSpaceError, match=reason):
        tune_space(declaration)
    verdict = declared_space(declaration)
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.COMPILE_FAILED
    assert reason in verdict.reason


@pytest.mark.parametrize(
    "source", ["", "x = 1", "TUNE = {'A': 1}", "TUNE = {", "def f():\n    TUNE = {'A': [1]}"]
)
def test_a_candidate_without_a_space_is_judged_as_it_is(source: str) -> None:
    """Single values, no TUNE, a local one, or a file that does not parse: nothing is raced."""
    assert tune_space(source) is None


def race_of(
    speeds: dict[int, float | None],
) -> tuple[RaceResult, list[tuple[int, float]]]:
    """Race THREADS over `speeds`, None is wrong; return the result and (variants, seconds) each."""
    source = f"TUNE = {{'THREADS': {list(speeds)}}}\n"
    rounds: list[tuple[int, float]] = []

    def run_trials(sources: Sequence[str], time_s: float) -> list[Verdict]:
        rounds.append((len(sources), time_s))
        return [trial_of(speeds[threads_of(text)]) for text in sources]

    return race(variants_of(source, space_of(source)), run_trials), rounds


def threads_of(source: str) -> int:
    return tuned(source)["THREADS"]  # type: ignore[index, no-any-return]


def trial_of(speedup: float | None) -> Verdict:
    if speedup is None:
        return Verdict(verdict=Outcome.WRONG, reason="planted", stage="check")
    return Verdict(verdict=Outcome.CORRECT, median_us=10 / speedup)


def race_with(speeds: dict[int, float | None]) -> tuple[int, list[tuple[int, float]]]:
    """Return the THREADS that are judged first, and (variants, seconds) of each round."""
    result, rounds = race_of(speeds)
    return threads_of(result.variants[result.ranking[0]].source), rounds


def test_the_fastest_right_variant_wins_and_slow_ones_cost_little() -> None:
    """A quarter of the variants stay for the next round, which times twice as long."""
    chosen, rounds = race_with({n: 1 + (n % 7) / 200 for n in range(1, 17)})
    assert chosen == 6
    assert [count for count, _ in rounds] == [16, 4]
    assert [round(time_s / rounds[0][1]) for _, time_s in rounds] == [1, 2]


def test_variants_far_behind_the_fastest_leave_at_once() -> None:
    """A clear winner costs one round: each trial takes the card from other candidates."""
    assert race_with({1: 1.0, 2: 3.0, 3: 1.1, 4: 1.2})[1] == [(4, 0.1)]
    chosen, rounds = race_with({n: float(n >= 12) + n / 200 for n in range(1, 17)})
    assert chosen == 16
    assert [count for count, _ in rounds] == [16, 4]


def test_a_failed_variant_never_wins() -> None:
    """A wrong variant leaves the race whatever it claims; where all fail the first is judged."""
    assert race_with({1: None, 2: 0.5, 3: None})[0] == 2
    assert race_with({1: None, 2: None, 3: None}) == (1, [(3, 0.1)])
    assert race_with({7: 1.0}) == (7, [])


def full_verdict(outcome: Outcome, stage: Stage) -> Verdict:
    if outcome is Outcome.CORRECT:
        return Verdict(verdict=outcome, median_us=5.0, reference_us=20.0, speedup=4.0)
    return Verdict(verdict=outcome, stage=stage, reason=f"in the {stage}")


@pytest.mark.parametrize(
    ("failures", "kept", "judged"),
    [
        ({}, 3, [3]),
        ({3: (Outcome.WRONG, "check")}, 2, [3, 2]),
        ({3: (Outcome.WRONG, "check"), 2: (Outcome.CRASHED, "check")}, 1, [3, 2, 1]),
        # Timed calls are checked on many more draws: one element in millions may be wrong there.
        ({3: (Outcome.WRONG, "time")}, 2, [3, 2]),
        # A fault while it is timed is no matter of its values.
        ({3: (Outcome.CRASHED, "time")}, None, [3]),
        (dict.fromkeys(range(1, 6), (Outcome.WRONG, "check")), None, [3, 2, 1]),
    ],
)
def test_the_best_variant_that_passes_the_full_check_is_kept(
    failures: dict[int, tuple[Outcome, Stage]], kept: int | None, judged: list[int]
) -> None:
    """A trial checks one draw: no trial makes a verdict, and the next best may be right."""
    raced, _rounds = race_of({1: 1.5, 2: 2.0, 3: 3.0, 4: 1.2, 5: 1.1})
    seen: list[int] = []

    def in_full(source: str) -> Verdict:
        seen.append(threads_of(source))
        return full_verdict(*failures.get(seen[-1], (Outcome.CORRECT, "")))

    verdict = raced.judged(in_full)
    assert seen == judged
    assert verdict.is_correct == (kept is not None)
    assert verdict.variant == (None if kept is None else kept - 1)
    if kept is None:
        assert verdict.reason == f"in the {failures[3][1]}"
    for threads in seen:
        outcome, _stage = failures.get(threads, (Outcome.CORRECT, ""))
        assert verdict.variants[threads - 1].verdict is outcome
    if kept is not None:
        # The judged variant's figures are the verdict's, whatever it showed in its trial.
        assert verdict.variants[kept - 1].speedup == 4.0
        assert verdict.variants[kept - 1].median_us == 5.0
        assert verdict.variants[3].speedup == pytest.approx(20.0 / (10 / 1.2))


def test_a_candidate_that_can_not_be_built_is_not_built_again() -> None:
    """The build of a trial is as good as any: the compiler's text comes without another turn."""

    def in_full(_source: str) -> Verdict:
        raise AssertionError("judged in full")

    source = "TUNE = {'A': [1, 2]}\n"
    failed = Verdict(verdict=Outcome.COMPILE_FAILED, stage="build", reason="no such name")
    raced = race(variants_of(source, space_of(source)), lambda sources, _s: [failed] * len(sources))
    verdict = raced.judged(in_full)
    assert verdict.reason == "no such name"
    assert verdict.variant is None
    assert [one.verdict for one in verdict.variants] == [Outcome.COMPILE_FAILED] * 2


class HangingJudge:
    """A judge whose trials end when their context is revoked; its clock runs while they hang.

    It builds in its turn, as on a host.
    """

    ahead, is_closing = 0, False

    def __init__(self, *, build_s: float = 0.0, hangs: bool = True) -> None:
        self.build_s = build_s
        self.hangs = hangs
        self.tried: list[str] = []
        self.now = 0.0

    def judge(
        self, _task: Task, source: str, context: EvaluationContext, **_options: object
    ) -> Verdict:
        self.tried.append(source)
        for _ in range(int(self.build_s)):
            self._wait(context)
        context.candidate_running()
        while self.hangs:
            self._wait(context)
        return Verdict(verdict=Outcome.CORRECT, median_us=5.0)

    def _wait(self, context: EvaluationContext) -> None:
        self.now += 1.0
        assert self.now < 1000
        if context.is_revoked():
            raise EvaluationCancelledError

    def build(self, *_: object) -> None:
        """Build nothing ahead."""


def test_variants_that_hang_do_not_hold_the_device(task: Task) -> None:
    """A trial has a limit, the race one for all of its trials; a revoked lease ends at once."""
    judge = HangingJudge()

    def trials_in(context: EvaluationContext) -> Trials:
        return Trials(judge, task, context, deque(), lambda: judge.now)  # type: ignore[arg-type]

    most = int(MAX_RACE_S / MAX_TRIAL_S)
    found = trials_in(STANDALONE).run([f"{place}" for place in range(16)], 0.1)
    assert len(judge.tried) == most
    assert judge.now == MAX_RACE_S
    assert {one.verdict for one in found} == {Outcome.TIMED_OUT}
    assert "its trial took more than" in found[0].reason
    assert "not tried" in found[most].reason
    with pytest.raises(EvaluationCancelledError):
        trials_in(ContextRecorder(revoked_after_s=0.0)).run(["a", "b"], 0.1)


def test_a_build_in_the_same_turn_is_no_part_of_a_trial(task: Task) -> None:
    """A slow host builds for longer than a trial may take, the first time with the headers, too.

    Each such trial was ended in its build, and nothing was left to choose from.
    """
    judge = HangingJudge(build_s=MAX_TRIAL_S + 20, hangs=False)
    trials = Trials(judge, task, STANDALONE, deque(), lambda: judge.now)  # type: ignore[arg-type]
    first, second, third = trials.run(["a", "b", "c"], 0.1)
    assert first.is_correct
    assert second.is_correct
    assert "time of the race" in third.reason
    assert judge.now <= MAX_RACE_S + 1


def test_an_evaluator_races_a_candidates_variants_and_tells_what_each_gave(
    judge: Judge, task: Task
) -> None:
    """The verdict is the kept variant's, its place is known, and each variant has a line."""
    source = (
        'TUNE = {"OFFSET": [1.0, 0.0]}\n'
        + (task.source.replace("class Model(", "class ModelNew("))
        + "\n_forward = ModelNew.forward\n"
        "ModelNew.forward = lambda self, *a: _forward(self, *a) + TUNE['OFFSET']\n"
    )
    lease = Lease(work="small/1/evaluate", epoch=1)
    request = Evaluate(lease=lease, task=task, source=source, reference=Reference(eager_us=1.0))
    context = ContextRecorder()
    evaluated = EvaluatorWorker(judge).work(request, context)  # type: ignore[arg-type]
    assert isinstance(evaluated, Evaluated)
    assert evaluated.verdict.verdict is Outcome.CORRECT
    assert evaluated.verdict.variant == 1
    assert [one.verdict for one in evaluated.verdict.variants] == [Outcome.WRONG, Outcome.CORRECT]
    lines = variant_lines(evaluated.verdict)
    assert "OFFSET=0.0" in lines[0]
    assert lines[0].endswith("(kept)")
    assert "OFFSET=1.0: wrong" in lines[1]


def test_a_trial_has_the_priority_of_timed_calls(
    patient_judge: Judge, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, threads that wait for each other beside other programs took 100 times as long."""
    seen: list[str] = []
    timed = trial_timing.timed_calls

    @contextmanager
    def priority(_freezer: ProcessFreezer) -> Iterator[None]:
        seen.append("begin")
        yield
        seen.append("end")

    def calls(runner: ChildClient[FromRunner], call_s: float, seconds: float) -> TrialTime:
        seen.append("timed")
        return timed(runner, call_s, seconds)

    source = task.source.replace("class Model(", "class ModelNew(")
    patient_judge.judge(task, source)  # measures the reference, too
    monkeypatch.setattr(ProcessFreezer, "priority_of_all", priority)
    monkeypatch.setattr(trial_timing, "timed_calls", calls)
    verdict = patient_judge.judge(task, source, trial_s=0.01)
    assert isinstance(verdict, Verdict)
    assert verdict.is_correct
    assert seen == ["begin", "timed", "end"]
