"""Which candidates tools look at, and what they leave in the verdict."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from evaluator_samples import ContextRecorder

from actors.evaluator.evaluation import EvaluationRequest, Inspected
from actors.evaluator.inspection_stage import InspectionStage, wants_profile, with_profile
from actors.evaluator.ipc.orders import Confinement
from actors.evaluator.profiling.inspection import Inspector, Profile
from actors.evaluator.profiling.sentence import ProfileContext
from actors.evaluator.profiling.tool_run import ToolRun
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError
from protocol.fact_lines import verdict_fact_lines
from protocol.facts import DeviceRates, VerdictFacts
from protocol.settings import JudgeRules, ProfileWhen
from protocol.values import METRIC_TABLE, Outcome, Verdict

CORRECT = Verdict(
    verdict=Outcome.CORRECT, median_us=10.0, speedup=2.0, speedup_ci95=(1.98, 2.02), profile={}
)
ILLEGAL = "AcceleratorError: CUDA error: an illegal memory access was encountered"
CRASHED = Verdict(verdict=Outcome.CRASHED, stage="check", reason=ILLEGAL)
RULES = JudgeRules()


def request(inspected: Inspected, best: float = 0.0) -> EvaluationRequest:
    return EvaluationRequest(
        source="x", labelled_source="x", inspected=inspected, best_speedup=best
    )


class FakeInspector:
    """Answers without a tool."""

    def profile(self, *_given: object) -> Profile:
        return Profile(sentences=("Bound by memory.",), table="k: 1 µs", seconds=7.0)

    def locate_fault(self, *_given: object) -> str:
        return "Invalid write in k at cuda.cu:7"


class BrokenInspector(FakeInspector):
    """Finds its machine gone."""

    def profile(self, *_given: object) -> Profile:
        raise JudgeUnavailableError("the zygote dies as soon as it is started")

    def locate_fault(self, *_given: object) -> str:
        raise JudgeUnavailableError("the zygote dies as soon as it is started")


def inspected(
    verdict: Verdict,
    how: Inspected,
    *,
    rules: JudgeRules = RULES,
    inspector: FakeInspector | None = None,
    on_host: bool = False,
    is_device_wanted: bool = False,
) -> Verdict:
    """Return what the stage makes of a verdict."""
    layouts = SimpleNamespace(inputs=[], state=[], outputs=[])
    fixture: Any = SimpleNamespace(on_host=on_host, facts=layouts)
    tools: Any = inspector or FakeInspector()
    stage = InspectionStage(
        tools,
        fixture,
        request(how),
        Confinement(folder="/x", environment={}),
        lambda _name, _source: pytest.fail("nothing is built"),
        ContextRecorder(),
        DeviceRates(),
        lambda: is_device_wanted,
    )
    return stage.run(verdict, rules)


@pytest.mark.parametrize(
    ("how", "best", "when", "is_wanted"),
    [
        ("contender", 0.0, "contenders", True),
        ("contender", 2.01, "contenders", True),  # its interval reaches the best
        ("contender", 2.05, "contenders", False),
        ("yes", 2.05, "contenders", True),  # the search stagnates
        ("yes", 4.1, "contenders", False),  # but this one is far behind
        ("yes", 2.05, "winners", False),
        ("contender", 0.0, "none", False),
        ("crash", 0.0, "contenders", False),
        ("no", 0.0, "contenders", False),
    ],
)
def test_contenders_are_profiled(
    how: Inspected, best: float, when: ProfileWhen, is_wanted: bool
) -> None:
    """Contenders of the task's best, and any candidate that the coordinator asks for."""
    assert is_wanted is wants_profile(CORRECT, request(how, best), JudgeRules(profile=when))
    assert not wants_profile(CRASHED, request(how, best), JudgeRules(profile=when))


def test_a_profile_is_told_in_sentences_and_as_a_table() -> None:
    """The sentences for models, the table with its cost for people; other facts stay."""
    known = msgspec.structs.replace(CORRECT, facts=VerdictFacts(launches=3))
    found = inspected(known, "contender")
    assert found.facts == VerdictFacts(launches=3, profile_sentences=("Bound by memory.",))
    assert {METRIC_TABLE: "(7.0 s)\nk: 1 µs"} == found.profile
    assert found.speedup == CORRECT.speedup


def test_a_contender_is_profiled_while_no_other_candidate_waits() -> None:
    """A profile takes the card for 7 to 9 s: verdicts go first, unless the search asks for it."""
    facts = inspected(CORRECT, "contender", is_device_wanted=True).facts
    assert facts == VerdictFacts(no_profile="another candidate waited for the device")
    assert inspected(CORRECT, "yes", is_device_wanted=True) != CORRECT
    crashed = inspected(CRASHED, "contender", is_device_wanted=True)
    assert crashed.facts is not None


def test_a_crash_gets_its_place() -> None:
    """Unless tools are switched off, or the candidate is only raced against its variants."""
    found = inspected(CRASHED, "crash")
    assert found.facts is not None
    assert "Invalid write in k at cuda.cu:7" == found.facts.fault_location
    assert (CRASHED.verdict, CRASHED.reason) == (found.verdict, found.reason)
    assert CRASHED == inspected(CRASHED, "no")
    assert CRASHED == inspected(CRASHED, "yes", rules=JudgeRules(profile="none"))
    # A CUDA error on a host without a card is some text of the candidate's own.
    assert CRASHED == inspected(CRASHED, "yes", on_host=True)


def test_a_tool_that_breaks_the_machine_leaves_the_verdict() -> None:
    """A candidate is not judged again because a profiler failed."""
    for verdict in (CORRECT, CRASHED):
        assert verdict == inspected(verdict, "contender", inspector=BrokenInspector())


def test_a_refused_tool_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One note; the second candidate starts no process."""
    runs = []

    def run_tool(*given: Any) -> Any:
        runs.append(given)
        denied = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
        return ToolRun(text=denied, seconds=2.0, is_finished=True)

    monkeypatch.setattr("actors.evaluator.profiling.inspection.run_tool", run_tool)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    zygote: Any = SimpleNamespace(ready=SimpleNamespace(namespaces=True))
    inspector, nothing = Inspector(zygote), Any
    context = ProfileContext()
    found = [inspector.profile(nothing, "x", nothing, context) for _try in range(2)]  # type: ignore[arg-type]
    assert 1 == len(runs)
    assert all(() == one.sentences and "ERR_NVGPUCTRPERM" in one.table for one in found)
    assert ["ncu may not be used on this machine"] * 2 == [one.why_none for one in found]


@pytest.mark.parametrize(
    ("failed", "why"),
    [("", "ncu saw no kernel"), ("RuntimeError: no gcc", "the candidate failed under ncu")],
)
def test_a_profile_without_kernels_has_its_reason(
    monkeypatch: pytest.MonkeyPatch, failed: str, why: str
) -> None:
    """ncu's words and the candidate's, which may be anything, are for people only."""

    def run_tool(*_given: Any) -> ToolRun:
        text = "==PROF== Connected to process 26\n==WARNING== No kernels were profiled."
        return ToolRun(text=text, seconds=4.3, is_finished=True, failed=failed)

    monkeypatch.setattr("actors.evaluator.profiling.inspection.run_tool", run_tool)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    zygote: Any = SimpleNamespace(ready=SimpleNamespace(namespaces=True))
    nothing: Any = None
    found = Inspector(zygote).profile(nothing, "x", nothing, ProfileContext())
    assert (why, ()) == (found.why_none, found.sentences)
    assert (failed or "No kernels were profiled") in found.table
    facts = with_profile(CORRECT, found).facts
    assert [f"No profile: {why}."] == verdict_fact_lines(facts, None)
