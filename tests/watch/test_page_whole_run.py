"""A whole run with its page: `supervisor.py --watch --steer`, real processes, a scripted model."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from seen_page import OpenPage
from supervisor_command import Command, candidate

TASK = "chain"
QUIET_S = 3  # how long a paused run is watched


@pytest.fixture
def command(tmp_path: Path) -> Iterator[tuple[Command, subprocess.Popen[str], str]]:
    """Start a run with its page; return the command, its process and the page's address."""
    command = Command(tmp_path / "folder", budget=40)
    process = command.start(*command.arguments(), "--watch", "--steer")
    addresses: Queue[str] = Queue()
    streams = (process.stdout, process.stderr)
    readers = [threading.Thread(target=find_address, args=(one, addresses)) for one in streams]
    for reader in readers:
        reader.start()
    yield command, process, addresses.get(timeout=60)
    process.terminate()
    process.wait(60)
    for reader in readers:
        reader.join(10)


def find_address(stream: Any, addresses: Queue[str]) -> None:
    """Read what a process prints, to its end; pass on the address in it."""
    with stream:
        for line in stream:
            if "http://" in line:
                addresses.put(line[line.index("http://") :].split()[0])


def steer(seen: Any, verb: str, fields: dict[str, str] | None = None) -> None:
    """Ask something of the run, through the form that is shown."""
    seen.page.locator(".actions").get_by_role("button", name=verb, exact=True).first.click()
    form = seen.page.locator(".directive-form")
    for label, text in (fields or {}).items():
        form.get_by_label(label).fill(text)
    form.get_by_role("button", name=verb, exact=True).click()
    if verb == "Finish":
        seen.page.locator("dialog").get_by_role("button", name=verb).click()
    seen.wait_for_text(".said", f"{verb}: wanted")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_run_is_steered_from_its_page(
    command: tuple[Command, subprocess.Popen[str], str], open_page: OpenPage
) -> None:
    """Pause ends new leases; an injected source is judged; the page outlives the coordinator."""
    run, process, address = command
    seen = open_page(f"{address}&/directives")
    seen.page.locator(".headline").filter(has_text="attempts are done").wait_for(timeout=90_000)
    steer(seen, "Pause")
    seen.wait_for_text(".notice", "paused")
    ((applied_at,),) = run.rows("SELECT applied_at FROM directive WHERE verb = 'pause'")
    seen.page.wait_for_timeout(1000 * QUIET_S)
    granted = [at for (at,) in run.rows("SELECT granted FROM lease")]
    assert [] == [at for at in granted if at > applied_at + 1]

    seen.go(f"#/node/{TASK}/0")
    seen.wait(".actions")
    steer(seen, "Inject", {"Python file with ModelNew": candidate(3), "note": "three times"})
    seen.go("#/directives")
    seen.page.get_by_role("button", name="Go on").wait_for()
    steer(seen, "Go on")
    seen.go("#/tree")
    seen.page.get_by_label("Search the attempts").fill("three times")
    seen.page.locator(".virtual-row", has_text="by a person").wait_for(timeout=60_000)
    ((word,),) = run.rows(
        "SELECT word FROM node JOIN attempt USING (task, number) WHERE kind = 'inject'"
    )
    assert word == "correct"

    run.kill_actor("coordinator")
    seen.go("#/directives")
    seen.wait(".actions")
    steer(seen, "Finish")
    seen.page.locator(".headline").filter(has_text="The run is over").wait_for(timeout=120_000)
    assert "A person steered it" in seen.text(".headline")
    seen.is_server_killed = True  # the page's process ends with the run
    process.wait(60)
    assert (run.run_dir / "report.html").exists()
