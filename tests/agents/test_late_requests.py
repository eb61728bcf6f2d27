"""The size of late requests, with the published winners as what they grow from."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_fakes import TASK, make_plan, repair, solve, write
from msgspec.structs import replace

from actors.agents.requests.styles import make_request
from protocol.facts import KernelFacts, VerdictFacts
from protocol.messages import AgentWork
from protocol.values import AttemptView, LedgerEntry, Outcome, Plan, Verdict

RESULTS = Path(__file__).parents[2] / "docs/results"
WINNERS = sorted(RESULTS.glob("level*.py"))
MAX_BYTES, MOST_BYTES = 9_000, 11_700  # besides the node's source: of a long one, of any
LONG = 9_000  # characters of a source that leaves others the least room
IDEA = "A ring of bulk copies feeds whole rows into shared memory, and two consumer warpgroups read"
SENTENCES = tuple(
    f"Sentence {number} of a profile, with two or three figures and what they were measured of: "
    f"{number} GB/s, {number} % of the peak, and the unit that is the next busiest one, too."
    for number in range(1, 10)
)


def attempt(number: int, source: str) -> AttemptView:
    """Return a correct attempt with all that is known of one."""
    kernels = tuple(
        KernelFacts(name=f"void kernel_{n}(float const*, float*, int)", us=50.0, share=0.33,
                    grid=(132, 1, 1), block=(384, 1, 1), registers=168, local_bytes=0,
                    shared_bytes=200_704, occupancy=0.19, waves=1.0)
        for n in range(3)
    )  # fmt: skip
    facts = VerdictFacts(
        kernels=kernels, launches=3, device_us=150.0, median_us=160.0, profile_sentences=SENTENCES
    )
    verdict = Verdict(
        verdict=Outcome.CORRECT, median_us=160.0, reference_us=800.0, speedup=5.0, facts=facts
    )
    return AttemptView(
        node=number,
        parent=0,
        advice=f"{IDEA} tile {number}. It saves 40 µs. " + "Watch the parity of barriers. " * 20,
        source=source,
        verdict=verdict,
        score_us=160.0 + abs(number - 7),
    )


@pytest.mark.parametrize("winner", WINNERS, ids=lambda path: path.stem)
def test_a_late_request_is_short_besides_its_node(winner: Path) -> None:
    """After eight attempts, with a profile of each, for all roles; a short one leaves more room."""
    code = winner.read_text(encoding="utf-8")
    lines = code.splitlines(keepends=True)
    near = [*lines[: len(lines) // 2], "# another line\n", *lines[len(lines) // 2 :]]
    sources = [code, "".join(near), *("".join(lines[n::2]) for n in range(6))]
    views = [attempt(number, source) for number, source in enumerate(sources, start=1)]
    node, *others = views
    fields = {
        "attempt": 9,
        "node": node,
        "window": (*others[:4],),
        "best": views[6],
        "ledger": tuple(
            LedgerEntry(number=view.node, parent=0, idea=view.advice, outcome=Outcome.CORRECT,
                        score_us=view.score_us)
            for view in views
        ),
    }  # fmt: skip
    plan = Plan(advice=node.advice, scaffold=code)
    works: list[AgentWork] = [make_plan(**fields), solve(**fields)]
    works += [write(plan, **fields), repair(plan, **fields)]
    for work in works:
        request = make_request(replace(work, task=replace(TASK, backend="cuda")), 16_000, "compact")
        numbers = sum(len(f"{n}\t") for n in range(1, len(lines) + 1))
        size = len(request.render().encode()) - len(code.encode()) - numbers
        assert "# another line" in request.render()
        assert size <= (MAX_BYTES if len(code) >= LONG else MOST_BYTES)
