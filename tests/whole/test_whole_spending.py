"""--max-cost for a user: the command, a real HTTP server that charges, a real evaluator."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from supervisor_command import TASK, TOP, Command, candidate

sys.path.insert(0, str(TOP / "tests" / "agents"))

from messages_server import Answer, MessagesServer, answer

Scene = Callable[[Path], Command]
PLAN = TASK.replace(
    "        for _ in range(27):", "        # <<<IMPROVE BEGIN>>>\n        for _ in range(27):"
).replace("        return y", "        # <<<IMPROVE END>>>\n        return y")


def reply(body: dict[str, Any]) -> Answer:
    """Answer a planner with anchors and a coder with a candidate, with fixed token counts."""
    text = json.dumps(body["messages"])
    if "# Your part: planner" in text:
        text_reply = f"## Advice\n\nLess.\n\n## Source\n\n```python\n{PLAN}```\n"
        return answer(text=text_reply, input_tokens=3000, cache_read_tokens=1000, output_tokens=500)
    text_reply = f"## Candidate\n\n```python\n{candidate(3)}```\n"
    return answer(text=text_reply, input_tokens=4000, output_tokens=900)


def reach_cap_and_resume(folder: Path) -> Command:
    """Run with a cap below the cost of one call; then resume with a larger cap."""
    command = Command(folder, budget=1)
    with (folder / "stark.toml").open("a") as file:
        file.write('[prices."m"]\ninput = 2.0\noutput = 10.0\ncache_read = 0.5\n')
    with MessagesServer(choose=reply) as server:
        status, _, err = command.finish(
            *("--task", "chain.py", "--model", "m", "--base-url", server.url, "--max-cost", "0.1"),
            *("--budget", "1", "--run-dir", str(command.run_dir), "--json"),
        )
        assert status == 3, err
        assert "--max-cost 0.1: 0.000 US dollars are spent, and the next call may cost" in err
        assert server.requests == []
        status, _, err = command.finish(
            "--resume", str(command.run_dir), "--max-cost", "2", "--json"
        )
        assert status == 0, err
        assert len(server.requests) == 2
    return command


@pytest.mark.long
@pytest.mark.timeout(300)  # two starts of a whole run
@pytest.mark.parametrize("scene", [reach_cap_and_resume])
def test_a_cap_stops_before_the_call_and_a_larger_cap_continues(
    scene: Scene, run_scene: Callable[[Scene], Command]
) -> None:
    """Status 3, one line and no request; the resumed run ends, and its cost equals the bill."""
    command = run_scene(scene)
    task = json.loads((command.run_dir / "result.json").read_text())["tasks"][0]
    bill = (3000 * 2 + 1000 * 0.5 + 500 * 10 + 4000 * 2 + 900 * 10) / 1e6
    assert task["usd"] == pytest.approx(bill, abs=1e-9)
    assert (8000, 1000, 1400) == tuple(
        task[name] for name in ("input_tokens", "cached_tokens", "output_tokens")
    )
    assert command.rows("SELECT role, calls, lost FROM spend ORDER BY role") == [
        ("coder", 1, 0),
        ("planner", 1, 0),
    ]
