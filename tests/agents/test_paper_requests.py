"""`--prompts paper`: the requests of the paper's tables, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from agent_fakes import CANDIDATE, SCAFFOLD, TASK, make_plan, reflect, repair, solve, write
from msgspec.structs import replace

from actors.agents.requests.prompting import problem_prompt
from actors.agents.requests.styles import make_request
from protocol.messages import AgentWork
from protocol.values import AttemptView, LedgerEntry, Outcome, Plan, Role, Verdict

# SHA-256 of the requests for `works`, from before there was another style.
STORED = {
    "cpp plan": "b47be8b335c18f73824ab77a",
    "cpp plan again": "a7b0e7d0390c7173e758e599",
    "cpp write": "4230261759d62cfaf90b76c8",
    "cpp write again": "b7fdb860f31a80cba54abda9",
    "cpp repair": "ee463a95d9ab40b6fd1ef489",
    "cpp solve": "a6144afc08c51847eb2f85bb",
    "cpp reflect": "32d40c01a9582ca696687c6c",
    "cuda plan": "ff3e6715a579607e84cebf85",
    "cuda plan again": "bc497ff50cf6ad69ac42a79c",
    "cuda write": "a6e841bfb42599cc6e038791",
    "cuda write again": "400974588f7652057cda1df2",
    "cuda repair": "33d4fb16847ef70937eb3f85",
    "cuda solve": "389031be768b5518bd229101",
    "cuda reflect": "9f6ffbe69845ba321b7a1041",
    "triton plan": "ae489af77917a4f9f7699744",
    "triton plan again": "d51fc7bf82630304d77a7334",
    "triton write": "655a273c0330a7241262d54a",
    "triton write again": "6218a5e3e2d6ae9b6463d7d1",
    "triton repair": "5925e725411ac9ba9c0195e4",
    "triton solve": "5cfc28529c16565cb5efd1f8",
    "triton reflect": "56801a496ecbaeff6aaf855a",
}
PLAN = Plan(advice="Fuse both lines.", scaffold=SCAFFOLD)
FAST = AttemptView(
    node=4,
    parent=0,
    advice="Do it in place of a copy.",
    source=CANDIDATE,
    verdict=Verdict(
        verdict=Outcome.CORRECT,
        median_us=12.0,
        speedup=3.33,
        profile={"bandwidth": "412 GB/s, 12 %", "bound": "memory"},
    ),
    score_us=12.0,
)
WRONG = AttemptView(
    node=5,
    parent=4,
    advice="Unroll.",
    source=CANDIDATE,
    verdict=Verdict(verdict=Outcome.WRONG, stage="check", reason="off by one", log="x" * 9000),
)


def works() -> Iterator[tuple[str, AgentWork]]:
    """Work of every kind, for every backend, with and without a window."""
    for backend in ("cpp", "cuda", "triton"):
        task = replace(TASK, backend=backend)
        for name, work in (
            ("plan", make_plan(seed=5)),
            ("plan again", make_plan(attempt=7, seed=4, node=FAST, window=(WRONG,))),
            ("write", write(PLAN)),
            ("write again", write(PLAN, attempt=3, window=(FAST, WRONG))),
            ("repair", repair(PLAN, window=(FAST,))),
            ("solve", solve(person_advice=("Tile.\nThen unroll.",))),
            ("reflect", reflect("first", "second", node=WRONG)),
        ):
            yield f"{backend} {name}", replace(work, task=task)


def rendered(work: AgentWork) -> str:
    """Return the paper's request, and the remark about an answer that can't be used."""
    request = make_request(work, 1000, "paper")
    again = request.with_problem("no", problem_prompt(request.role, "it is empty", request.form))
    return f"{again.render()}{request.temperature}"


@pytest.mark.parametrize(("name", "work"), list(works()))
def test_the_papers_requests_do_not_change(name: str, work: AgentWork) -> None:
    """A run with the paper's prompts asks what it asked before the compact style existed."""
    assert STORED[name] == hashlib.sha256(rendered(work).encode()).hexdigest()[:24]


def test_a_ledger_does_not_reach_the_papers_requests() -> None:
    """Facts that only the compact style shows change no byte of the paper's."""
    entry = LedgerEntry(number=3, parent=0, idea="secret", outcome=Outcome.WRONG)
    work = make_plan(ledger=(entry,), best=FAST)

    assert rendered(make_plan()) == rendered(work)
    assert "secret" in make_request(work, 1000, "compact").render()
    assert make_request(work, 1000, "paper").role is Role.PLANNER
